"""Compiled objects on disk, found by the hash of their sources, and used only if their own hash is right.

    key = object_key(ir_text, target.to_json(), llvm_version)
    code = cache.get(key) or cache.put(key, compile(…))

    <folder>/v1/3f/3fa9…    sha256 of the data (32 bytes), data

Code from this cache is executed, so the folder and the entries must belong to the user and be closed to
others (file_ownership.py). A cache that cannot be used is not an error: everything works without it, only
slower.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autotensor.base import log, switches
from autotensor.base.errors import InputError
from autotensor.runtime.files.atomic_write import replacing
from autotensor.runtime.files.file_ownership import complaint, make_own, open_own

_KEY = re.compile(r"[0-9a-f]{32,64}")
_DIGEST_BYTES = 32
_PUTS_BETWEEN_SWEEPS = 64
# number of puts of this process per folder, kept here because each compilation opens a new cache
_PUTS: dict[Path, int] = {}
_KEEP_AFTER_SWEEP = 0.8  # share of the cap that a sweep leaves, so that not every put has to sweep


def object_key(*parts: str | bytes) -> str:
    """The key of an object made from `parts`. Their lengths count, so ("ab", "c") is not ("a", "bc")."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


@dataclass(slots=True)
class Counts:
    """Counts of events since the cache was opened."""

    hits: int = 0
    misses: int = 0
    corrupted: int = 0  # entries with a wrong hash; they were removed
    evicted: int = 0


class ObjectCache:
    """A folder of objects whose total size has a cap. Any number of processes may share the folder."""

    def __init__(self, folder: Path | None, max_bytes: int) -> None:
        """A cache without a folder, or with a cap of 0, keeps nothing. `trouble` says why a folder cannot be
        used; "" if it can, or if the cache is off."""
        self.counts = Counts()
        self.max_bytes = max_bytes
        wanted = folder / "v1" if folder is not None and max_bytes > 0 else None
        self.trouble = "" if wanted is None else _trouble(wanted)
        self.folder = None if self.trouble else wanted
        if self.trouble:
            log.at(1, lambda: f"cache: {self.trouble}; going on without a cache")

    def get(self, key: str) -> bytes | None:
        """The object with this key, or None."""
        path = self.place(key)
        data = _read(path) if path is not None else None
        if path is None or data is None:
            self.counts.misses += 1
            return None
        if len(data) < _DIGEST_BYTES or hashlib.sha256(data[_DIGEST_BYTES:]).digest() != data[:_DIGEST_BYTES]:
            self.counts.corrupted += 1
            self.counts.misses += 1
            log.at(2, lambda: f"cache: dropped damaged entry {path}")
            with suppress(OSError):
                path.unlink()
            return None
        self.counts.hits += 1
        with suppress(OSError):
            os.utime(path)  # the entry used last is evicted last
        return data[_DIGEST_BYTES:]

    def put(self, key: str, data: bytes) -> bytes:
        """Keeps `data` under `key` if possible. Returns `data`."""
        path = self.place(key)
        if path is not None and len(data) <= self.max_bytes:
            try:
                path.parent.mkdir(mode=0o700, exist_ok=True)
                if why := complaint(path.parent):
                    raise PermissionError(why)
                with replacing(path, mode=0o600, lasting=False) as file:
                    file.write(hashlib.sha256(data).digest() + data)
            except OSError as error:
                reason = error.strerror or str(error)
                log.at(
                    1, lambda: f"cache: {self.folder} cannot be written ({reason}); going on without a cache"
                )
                return data
            puts = _PUTS[path.parent.parent] = _PUTS.get(path.parent.parent, -1) + 1
            if puts % _PUTS_BETWEEN_SWEEPS == 0:
                self.evict()
        return data

    def evict(self, spare: Path | None = None) -> None:
        """Removes the least recently used entries, except `spare`, until the folder is well below its cap."""
        entries = _entries(self.folder) if self.folder is not None else []
        total = sum(size for _, size, _ in entries)
        if total <= self.max_bytes:
            return
        for _, size, path in sorted(entries):
            if path == spare:
                continue
            with suppress(OSError):
                path.unlink()
                self.counts.evicted += 1
            total -= size
            if total <= self.max_bytes * _KEEP_AFTER_SWEEP:
                return

    def clear(self) -> None:
        for _, _, path in _entries(self.folder) if self.folder is not None else []:
            with suppress(OSError):
                path.unlink()

    def place(self, key: str) -> Path | None:
        """The path of the entry with this key; None without a folder."""
        if not _KEY.fullmatch(key):
            raise InputError(f"cache key {key!r} is not a hash.", fix="Make it with object_key.")
        return self.folder / key[:2] / key if self.folder is not None else None


def default_cache() -> ObjectCache:
    """The cache of AUTOTENSOR_CACHE_DIR and AUTOTENSOR_CACHE_BYTES, else one in the user's cache folder."""
    return ObjectCache(_default_folder() / "objects", switches.cache_bytes())


def default_prepared_cache() -> ObjectCache | None:
    """The same for prepared weights, with AUTOTENSOR_PREPARED_BYTES. None if no folder is named and
    platformdirs, which is not needed for loading, is not installed."""
    try:
        return ObjectCache(_default_folder() / "prepared", switches.prepared_bytes())
    except ImportError:
        return None


def _default_folder() -> Path:
    folder = switches.cache_dir()
    if folder is None:
        import platformdirs  # imported here, because loading and running a model must not need it

        folder = Path(platformdirs.user_cache_dir("autotensor", appauthor=False))
    return folder


def _trouble(folder: Path) -> str:
    """Why the folder, which is created if need be, cannot be trusted or used; "" if it can."""
    try:
        return make_own(folder.parent) or make_own(folder)
    except FileExistsError as error:
        return f"{error.filename} cannot be used: a file is in the place of this folder"
    except NotADirectoryError as error:
        return f"{error.filename} cannot be used: a file is in the place of a folder above it"
    except OSError as error:
        return f"{folder} cannot be used: {error.strerror or error}"


def _read(path: Path) -> bytes | None:
    """An entry's contents; None if there is no entry, or another user may have written it."""
    try:
        with os.fdopen(open_own(path), "rb") as file:
            return file.read()
    except PermissionError as error:
        told = error.strerror or str(error)
        log.at(1, lambda: f"cache: {told}; this entry is not used")
        return None
    except OSError:
        return None


def _entries(folder: Path) -> list[tuple[float, int, Path]]:
    """(last use, bytes, path) of all entries. Abandoned temporary files are included."""
    found = []
    for path in folder.glob("*/*"):
        with suppress(OSError):  # another process may have removed the entry just now
            info = path.stat()
            if stat.S_ISREG(info.st_mode):
                found.append((info.st_mtime, info.st_size, path))
    return found
