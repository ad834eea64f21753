"""The limits that Linux's control groups set for this process: processor time, and memory.

    /proc/self/cgroup     the group in each hierarchy       0::/system.slice/shop.service
    /proc/self/mountinfo  mounts of the hierarchies         … /sys/fs/cgroup … - cgroup2 …
    cpu.max               of version 2: microseconds in a period, "max 100000" for no limit
    cpu.cfs_quota_us      of version 1, -1 for no limit; the period is in cpu.cfs_period_us

A limit holds for a group and all groups below it. So the smallest limit from the process's group up to the
mount counts. A container often sees its own group as the root of the mount. A container without a namespace
of its own may not see its group at all; then only the limits of the mount are read.

Source: kernel documentation, admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath

# a line of mountinfo: 31 23 0:28 TOP MOUNT rw,relatime shared:9 - KIND source OPTIONS
_MOUNT = re.compile(r"\S+ \S+ \S+ (?P<top>/\S*) (?P<mount>/\S*) .*?- (?P<kind>\S+) \S+ (?P<options>\S+)")
NO_LIMIT_BYTES = 1 << 62  # version 1 writes a larger number if there is no limit


@lru_cache(maxsize=1)
def cpu_quota() -> float | None:
    """Cores that this process's group may use on average, such as 1.5; None: no limit."""
    return quota_below(Path("/"))


@lru_cache(maxsize=1)
def memory_limit() -> int | None:
    """Bytes that this process's group may use; None: no limit."""
    return memory_below(Path("/"))


def quota_below(root: Path) -> float | None:
    """`cpu_quota`, from the files below a folder that stands for `/`."""
    found = [_quota_v2(folder) for folder in _groups(root, "")]
    found += [_quota_v1(folder) for folder in _groups(root, "cpu")]
    return min((q for q in found if q is not None), default=None)


def memory_below(root: Path) -> int | None:
    """`memory_limit`, from the files below a folder that stands for `/`."""
    texts = [_read(folder / "memory.max") for folder in _groups(root, "")]
    texts += [_read(folder / "memory.limit_in_bytes") for folder in _groups(root, "memory")]
    limits = [int(t) for t in texts if t.isdigit()]
    return min((n for n in limits if 0 < n < NO_LIMIT_BYTES), default=None)


def _quota_v2(folder: Path) -> float | None:
    quota, _, period = _read(folder / "cpu.max").partition(" ")
    return _ratio(quota, period)


def _quota_v1(folder: Path) -> float | None:
    return _ratio(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _ratio(quota: str, period: str) -> float | None:
    """
    >>> _ratio("150000", "100000"), _ratio("max", "100000"), _ratio("-1", "100000"), _ratio("", "")
    (1.5, None, None, None)
    """
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return None
    return int(quota) / int(period)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of this process's group and its parents, innermost first. controller: "" for version 2."""
    path = _group(_read(root / "proc/self/cgroup"), controller)
    if path is None:
        return
    for line in _read(root / "proc/self/mountinfo").splitlines():
        if (found := _MOUNT.fullmatch(line)) is None:
            continue
        if found["kind"] != ("cgroup" if controller else "cgroup2"):
            continue
        if controller and controller not in found["options"].split(","):
            continue
        below, top, mount = (PurePosixPath(_unescaped(p)) for p in (path, found["top"], found["mount"]))
        inside = below.relative_to(top) if below.is_relative_to(top) else PurePosixPath()
        if ".." in inside.parts:
            inside = PurePosixPath()
        at = root / mount.relative_to("/")
        yield from (at / part for part in (inside, *inside.parents))
        return


def _group(text: str, controller: str) -> str | None:
    """This process's group in the hierarchy of a controller.

    >>> text = "4:cpu,cpuacct:/jobs/7\\n0::/user.slice"
    >>> _group(text, "cpu"), _group(text, ""), _group(text, "memory")
    ('/jobs/7', '/user.slice', None)
    """
    for line in text.splitlines():
        match line.split(":", 2):
            case [_, controllers, path] if controller in controllers.split(",") and path.startswith("/"):
                return path
    return None


def _unescaped(text: str) -> str:
    """A path of mountinfo, which writes spaces as octal escapes.

    >>> _unescaped("/my\\\\040groups")
    '/my groups'
    """
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").strip()
    except (OSError, ValueError):
        return ""  # no such group, or not readable: the limit is unknown
