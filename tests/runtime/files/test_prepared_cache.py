"""Prepared weights in the cache folder: a load gives exactly the prepared arrays, or nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from autotensor.runtime.files import prepared_cache
from autotensor.runtime.files.object_cache import ObjectCache, object_key
from autotensor.runtime.files.prepared_cache import Pages, prepared_pages

KEY = object_key("a")
SIZE = 3 * (64 << 10) + 12  # whole blocks, and a rest that is not a whole number of words
DATA = np.random.default_rng(0).integers(0, 256, SIZE, np.uint8)


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    return ObjectCache(tmp_path / "c", max_bytes=1 << 20)


def begun(cache: ObjectCache | None) -> Pages:
    pages = prepared_pages(cache, KEY, SIZE)
    assert isinstance(pages, Pages)
    pages.data[...] = DATA
    return pages


def files(cache: ObjectCache) -> list[Path]:
    assert cache.folder is not None
    return list(cache.folder.glob("*/*"))


def test_what_is_kept_is_found(cache: ObjectCache, tmp_path: Path) -> None:
    kept = begun(cache).kept()
    found = prepared_pages(ObjectCache(tmp_path / "c", 1 << 20), KEY, SIZE)
    assert isinstance(found, np.ndarray)
    for array in (kept, found):
        assert (array == DATA).all()
        assert not array.flags.writeable
        assert array.ctypes.data % 64 == 0
    (path,) = files(cache)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("at", [0, 31, 4096, 4096 + 70_000, -13, -1])
def test_a_flipped_bit_is_found_out(cache: ObjectCache, at: int) -> None:
    begun(cache).kept()
    (path,) = files(cache)
    damaged = bytearray(path.read_bytes())
    damaged[at] ^= 1
    path.write_bytes(damaged)
    begun(cache).kept()
    assert (prepared_pages(cache, KEY, SIZE) == DATA).all()  # type: ignore[union-attr]


def test_other_damage_is_found_out(cache: ObjectCache) -> None:
    begun(cache).kept()
    (path,) = files(cache)
    good = path.read_bytes()
    block = 64 << 10
    exchanged = good[:4096] + good[4096 + block : 4096 + 2 * block] + good[4096 : 4096 + block]
    lost = good[:8192] + bytes(4096) + good[12288:]  # a page that was never written
    for bad in (b"", good[:100], good[:-1], good + b"x", bytes(len(good)), lost):
        path.write_bytes(bad)
        begun(cache)
    path.write_bytes(exchanged + good[4096 + 2 * block :])
    begun(cache)


def test_two_makers_at_once(cache: ObjectCache) -> None:
    first, second = begun(cache), begun(cache)
    kept = [first.kept(), second.kept()]
    assert len(files(cache)) == 1
    assert all((k == DATA).all() for k in (*kept, prepared_pages(cache, KEY, SIZE)))


def test_an_entry_that_goes_stays_with_who_has_it(cache: ObjectCache) -> None:
    kept = begun(cache).kept()
    cache.clear()
    assert (kept == DATA).all()
    begun(cache)


def test_nothing_is_left_where_preparing_fails(cache: ObjectCache) -> None:
    begun(cache).dropped()
    assert files(cache) == []


def test_a_full_disk_gives_own_memory(cache: ObjectCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert (begun(cache).kept() == DATA).all()
    assert files(cache) == []


def test_a_folder_that_cannot_be_written_gives_own_memory(
    cache: ObjectCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **__: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(prepared_cache.os, "open", refuses)
    assert (begun(cache).kept() == DATA).all()


def test_a_name_that_cannot_be_given_leaves_own_memory(
    cache: ObjectCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = begun(cache)
    (temporary,) = files(cache)
    temporary.unlink()  # as another process's eviction does
    assert (pages.kept() == DATA).all()
    assert files(cache) == []


def test_what_others_may_write_is_not_believed(cache: ObjectCache) -> None:
    begun(cache).kept()
    (path,) = files(cache)
    path.chmod(0o666)
    begun(cache).dropped()
    path.chmod(0o600)
    path.parent.chmod(0o777)
    assert (begun(cache).kept() == DATA).all()
    assert len(files(cache)) == 1  # no other file was written next to it


def test_the_folder_has_a_cap(tmp_path: Path) -> None:
    small = ObjectCache(tmp_path / "s", max_bytes=SIZE)
    assert begun(small).file is None
    assert begun(ObjectCache(tmp_path / "s", 0)).file is None
    assert begun(None).file is None
    two = ObjectCache(tmp_path / "t", max_bytes=3 * SIZE)
    for n in range(5):
        pages = prepared_pages(two, object_key(str(n)), SIZE)
        assert isinstance(pages, Pages)
        pages.kept()
        for path in files(two):
            os.utime(path, (n, n))
    assert sum(p.stat().st_size for p in files(two)) <= 3 * SIZE
