"""PoCL's own cache of kernels, kept next to our objects and as small as they are.

    <cache>/pocl/AA/BCD…/program.bc, last_accessed, <kernel>/<sizes of a block>/<kernel>.so

PoCL compiles a kernel for a block size at its first launch with that size, and keeps the code in a folder of
its own. A program's binary, as OpenCL hands it out, would hold every kernel compiled once more, for any
sizes: as slow again, and slower code. So on PoCL programs are built from source each time, and found there.
Like objects, kernels from there are executed: the folder, and all in it, must be the user's own.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from autotensor.base import log
from autotensor.runtime.files.file_ownership import complaint_below, make_own
from autotensor.runtime.files.object_cache import ObjectCache

_KEEP_AFTER_SWEEP = 0.8  # share of the cap
_OWN = ("POCL_CACHE_DIR", "POCL_KERNEL_CACHE")  # variables that a user may have set


def use_own_folder(cache: ObjectCache) -> Path | None:
    """Makes PoCL keep kernels next to the cache's objects, or none if the cache is off; gives the folder, if
    any.

    Only the first call of a process matters, before it lists platforms. A user's own variables win.
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
    """Removes the programs unused for longest until the folder is well below its cap; gives their number."""
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
        with suppress(OSError):  # another process may have removed it just now
            info = path.stat()
            size += info.st_size
            if path.name == "last_accessed":
                used = info.st_mtime
    return used, size, folder


__all__ = ["sweep", "use_own_folder"]
