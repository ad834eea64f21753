"""Prepared weights that the processes of a machine share: files in the cache folder that are mapped.

    .atm: weights as they are ──prepare──▶ a new file's pages ──sums, rename──▶ <folder>/prepared/v1/3f/3fa9…
                                                                                └─ the next process maps these

    0        32         4096
    ┌ digest ┬ zeros ───┬ prepared arrays ┐     digest: a hash of the length and of a sum for each block

The process that prepares the arrays makes them in the pages of the file itself. So this process shares the
pages too, and nothing is copied. If two processes begin at the same time, both make a file, and either rename
leaves a complete file. An entry is used if it belongs to the user (file_ownership.py) and its sums are right.
The sums detect unwritten pages and flipped bits, at the speed of memory. If no file can be made, private
memory is used.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autotensor.base import log
from autotensor.runtime.arrays import Array, aligned_empty
from autotensor.runtime.files.file_ownership import complaint, open_own
from autotensor.runtime.files.object_cache import ObjectCache

_DATA = 4096  # offset of the arrays in the file
_DIGEST_BYTES = 32
_BLOCK = 64 << 10  # one sum covers this many bytes; a sum of 64 bits misses one change in 2**64


@dataclass(frozen=True, slots=True, eq=False)
class Pages:
    """Memory in which arrays are prepared, and the file that this memory belongs to, if there is a file."""

    data: Array  # uint8
    file: _NewFile | None = None

    def kept(self) -> Array:
        """The same bytes, read-only, after the file has got its final name."""
        named = self.file.named() if self.file is not None else None
        if named is not None:
            return named
        self.data.flags.writeable = False
        return self.data

    def dropped(self) -> None:
        """Cleans up if preparing has failed."""
        if self.file is not None:
            self.file.removed()


@dataclass(frozen=True, slots=True, eq=False)
class _NewFile:
    """A file that has a temporary name until it is complete."""

    whole: Array  # uint8: the whole file
    temporary: Path
    path: Path
    cache: ObjectCache

    def named(self) -> Array | None:
        """The data of the file, which other processes can now find; None if the file cannot get its name."""
        self.whole[:_DIGEST_BYTES] = np.frombuffer(_digest(self.whole[_DATA:]), np.uint8)
        try:
            with open(self.temporary, "rb") as file:
                found = _mapped(file.fileno())
            os.replace(self.temporary, self.path)
        except OSError as error:
            _say(f"{self.path} cannot be written ({error.strerror or error})")
            self.removed()
            return None
        self.cache.evict(spare=self.path)
        return found[_DATA:]

    def removed(self) -> None:
        with suppress(OSError):
            self.temporary.unlink()


def prepared_pages(cache: ObjectCache | None, key: str, size: int) -> Array | Pages:
    """The read-only bytes that a process has prepared under this key, or else memory to prepare them in.

    cache: the cache whose folder gets the file, or None to make no file. size: the number of bytes.
    """
    path = cache.place(key) if cache is not None and 0 < size <= cache.max_bytes - _DATA else None
    if cache is None or path is None:
        return Pages(aligned_empty((size,), "uint8"))
    found = _found(path, size)
    if found is not None:
        cache.counts.hits += 1
        return found
    cache.counts.misses += 1
    file = _new_file(cache, path, size)
    return Pages(file.whole[_DATA:], file) if file is not None else Pages(aligned_empty((size,), "uint8"))


def _found(path: Path, size: int) -> Array | None:
    """The data of an intact entry; None if there is none."""
    try:
        descriptor = open_own(path)
    except PermissionError as error:
        _say(f"{error}; this entry is not used")
        return None
    except OSError:
        return None
    with suppress(OSError), os.fdopen(descriptor, "rb") as file:
        if os.fstat(descriptor).st_size == _DATA + size:
            whole = _mapped(file.fileno())
            if whole[:_DIGEST_BYTES].tobytes() == _digest(whole[_DATA:]):
                with suppress(OSError):
                    os.utime(path)  # the least recently used entries are evicted first
                return whole[_DATA:]
    _say(f"dropped damaged entry {path}")
    with suppress(OSError):
        path.unlink()
    return None


def _mapped(descriptor: int) -> Array:
    """The whole file, mapped read-only."""
    return np.frombuffer(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ), np.uint8)


def _new_file(cache: ObjectCache, path: Path, size: int) -> _NewFile | None:
    """A file next to `path` with disk space reserved for its whole size; None if the file cannot be made."""
    if not hasattr(os, "posix_fallocate"):
        return None  # writing to a page without disk space would end the process later
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if why := complaint(path.parent):
            raise PermissionError(why)
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        _say(f"{path.parent} cannot be written ({error.strerror or error})")
        return None
    try:
        os.posix_fallocate(descriptor, 0, _DATA + size)
        whole = np.frombuffer(mmap.mmap(descriptor, _DATA + size), np.uint8)
    except OSError as error:
        _say(f"no room for {size} bytes in {path.parent} ({error.strerror or error})")
        with suppress(OSError):
            temporary.unlink()
        return None
    finally:
        os.close(descriptor)
    return _NewFile(whole, temporary, path, cache)


def _digest(data: Array) -> bytes:
    """A hash of the length and of each block's sum. Another order of the blocks gives another hash."""
    words = data[: data.size // 8 * 8].view(np.uint64)
    whole = words.size // (_BLOCK // 8) * (_BLOCK // 8)
    sums = np.add.reduce(words[:whole].reshape(-1, _BLOCK // 8), axis=1)
    digest = hashlib.sha256(data.size.to_bytes(8, "little") + sums.tobytes())
    digest.update(data[whole * 8 :].data if data.size else b"")
    return digest.digest()


def _say(what: str) -> None:
    log.at(1, lambda: f"cache of prepared weights: {what}")


__all__ = ["Pages", "prepared_pages"]
