"""The object cache returns exactly the stored bytes, or nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autotensor.base import switches
from autotensor.base.errors import InputError
from autotensor.runtime.files.object_cache import ObjectCache, default_cache, object_key

KEY = object_key("a")


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    return ObjectCache(tmp_path / "c", max_bytes=1 << 20)


def only_file(cache: ObjectCache) -> Path:
    assert cache.folder is not None
    (path,) = cache.folder.glob("*/*")
    return path


def test_keeps_across_instances(cache: ObjectCache, tmp_path: Path) -> None:
    assert cache.get(KEY) is None
    assert cache.put(KEY, b"code") == b"code"
    again = ObjectCache(tmp_path / "c", 1 << 20)
    assert again.get(KEY) == b"code"
    assert (again.counts.hits, cache.counts.misses) == (1, 1)
    assert only_file(cache).stat().st_mode & 0o777 == 0o600
    assert cache.folder is not None
    assert cache.folder.stat().st_mode & 0o777 == 0o700


def test_entries_wait_for_no_disk(cache: ObjectCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their hashes show damage by a power cut."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: pytest.fail("10 ms for each kernel"))
    cache.put(KEY, b"code")
    assert cache.get(KEY) == b"code"


def test_every_flipped_byte_is_a_miss(cache: ObjectCache) -> None:
    cache.put(KEY, b"some code")
    path = only_file(cache)
    good = path.read_bytes()
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        assert cache.get(KEY) is None
        assert not path.exists()
    for short in (0, 5, 32, len(good) - 1):
        path.write_bytes(good[:short])
        assert cache.get(KEY) is None
    assert cache.counts.corrupted == len(good) + 4
    assert cache.put(KEY, b"some code") == cache.get(KEY)


def test_what_was_used_last_stays(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, max_bytes=10_000)
    keys = [object_key(str(k)) for k in range(12)]
    for age, key in enumerate(keys):
        cache.put(key, bytes(1000))
        assert cache.folder is not None
        os.utime(cache.folder / key[:2] / key, (age, age))
    assert cache.get(keys[0]) is not None  # now the youngest
    cache.evict()
    left = [k for k in keys if cache.get(k) is not None]
    assert keys[0] in left
    assert left[1:] == keys[-len(left) + 1 :]
    assert len(left) * 1032 <= 8000
    cache.clear()
    assert cache.get(keys[0]) is None


def test_works_without_a_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    open_to_all = tmp_path / "open" / "v1"
    open_to_all.mkdir(parents=True)
    open_to_all.chmod(0o777)
    for cache in (
        ObjectCache(tmp_path / "file" / "x", 1000),
        ObjectCache(tmp_path / "open", 1000),
        ObjectCache(tmp_path, 0),
        ObjectCache(None, 1000),
    ):
        assert cache.folder is None
        assert cache.put(KEY, b"x") == b"x"
        assert cache.get(KEY) is None
        cache.evict()
        cache.clear()


def test_goes_on_when_writing_fails(cache: ObjectCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert cache.put(KEY, b"x") == b"x"
    assert cache.get(KEY) is None
    assert cache.folder is not None
    assert list(cache.folder.glob("*/*")) == []


def test_too_large_is_not_kept(cache: ObjectCache) -> None:
    cache.put(KEY, bytes(2 << 20))
    assert cache.get(KEY) is None


def test_keys() -> None:
    assert object_key("ab", "c") != object_key("a", "bc")
    assert object_key("ab") == object_key(b"ab")
    with pytest.raises(InputError, match=r"'\.\./x' is not a hash"):
        ObjectCache(None, 1).get("../x")


def test_place_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTENSOR_CACHE_DIR", str(tmp_path / "mine"))
    assert default_cache().folder == tmp_path / "mine" / "objects" / "v1"
    monkeypatch.delenv("AUTOTENSOR_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    folder = default_cache().folder
    assert folder is not None
    assert "autotensor" in str(folder)
    with switches.override(cache_bytes=0):
        assert default_cache().folder is None
