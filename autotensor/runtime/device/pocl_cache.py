"""PoCL's own cache of kernels: it is kept next to our compiled objects, and its size has a cap.

    <cache>/pocl/AA/BCD…/program.bc, last_accessed, <kernel>/<sizes of a block>/<kernel>.so

PoCL compiles a kernel for a block size at the first launch with that size, and keeps the code in a folder of
its own. OpenCL can also return the binary of a program. With PoCL, that binary would contain every kernel
compiled once more, for any block size: this takes as long again, and the code is slower. So with PoCL,
programs are built from source each time, and PoCL finds their kernels in its cache. Kernels from this cache
are executed, as our compiled objects are. So the folder and everything in it must belong to the user.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from autotensor.base import log
from autotensor.runtime.files.file_ownership import complaint_below, make_own
from autotensor.runtime.files.object_cache import ObjectCache

_KEEP_AFTER_SWEEP = 0.8  # share of the cap that a sweep leaves
_OWN = ("POCL_CACHE_DIR", "POCL_KERNEL_CACHE")  # environment variables that a user may have set


def use_own_folder(cache: ObjectCache) -> Path | None:
    """Makes PoCL keep kernels next to the cache's objects, or keep none if the cache is off. Returns the
    folder, or None if PoCL does not use one of ours.

    Only the first call in a process has an effect, and only before the process lists platforms. If the user
    has set one of PoCL's own variables, that variable wins.
    """
    if any(name in os.environ for name in _OWN):
        return None
    if cache.folder is None:
        os.environ["POCL_KERNEL_CACHE"] = "0"
        return None
    folder = cache.folder.parent.parent / "pocl"
    try:
        why = make_own(folder) or complaint_below(folder)
    except OSError:  # then PoCL uses its usual folder
        return None
    if why:
        log.at(1, lambda: f"cache: {why}; OpenCL's kernels are not kept")
        os.environ["POCL_KERNEL_CACHE"] = "0"
        return None
    os.environ["POCL_CACHE_DIR"] = str(folder)
    return folder


def sweep(folder: Path, max_bytes: int) -> int:
    """Removes the least recently used programs until the folder is well below its cap. Returns how many."""
    programs = sorted(_program(p.parent) for p in folder.glob("*/*/last_accessed"))
    total = sum(size for _, size, _ in programs)
    removed = 0
    if total <= max_bytes:
        return removed
    for _, size, path in programs:
        shutil.rmtree(path, ignore_errors=True)
        removed += 1
        total -= size
        if total <= max_bytes * _KEEP_AFTER_SWEEP:
            break
    return removed


def _program(folder: Path) -> tuple[float, int, Path]:
    """(last use, bytes, folder) of one program."""
    used, size = 0.0, 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # another process may have removed the program just now
            info = path.stat()
            size += info.st_size
            if path.name == "last_accessed":
                used = info.st_mtime
    return used, size, folder


__all__ = ["sweep", "use_own_folder"]
