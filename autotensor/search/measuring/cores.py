"""Which cores a kernel is timed on, and which may compile meanwhile, where the machine has cores to spare.

    divide(range(8), {0: {0, 4}, …}, threads=2, usable=8) ──▶ Cores(timed={2, 3}, spare={0, 1, 4, 5})

A core that shares its units with one that is timed on is nobody's: what runs there would disturb. The first
cores are spare: systems serve interrupts there.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from autotensor.base.target import Target, usable_cores

_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


@dataclass(frozen=True, slots=True)
class Cores:
    """Numbers of logical processors, as the system counts them."""

    timed: frozenset[int]
    spare: frozenset[int]


def cores_for(target: Target) -> Cores | None:
    """How this process's cores are divided while code of a target is timed; None: none is to spare, or the
    system does not let us say where a process runs."""
    if not hasattr(os, "sched_setaffinity") or target.kind not in ("llvm", "cuda"):
        return None  # OpenCL's devices may be these cores
    allowed = os.sched_getaffinity(0)
    threads = 1 if target.is_gpu else target.num_cores
    return divide(allowed, {core: _siblings(core) for core in allowed}, threads, usable_cores())


def divide(
    allowed: Collection[int], siblings: Mapping[int, Collection[int]], threads: int, usable: int
) -> Cores | None:
    """One core for each thread, and what is left. siblings: of each core, those that share its units, itself
    among them. usable: so many cores' time is ours (a control group may give less than it shows)."""
    units = sorted({tuple(sorted(siblings[core])) for core in allowed})
    if threads >= len(units):
        return None
    timed = frozenset(min({*unit} & {*allowed}) for unit in units[-threads:])
    free = sorted(core for unit in units[:-threads] for core in unit if core in allowed)
    spare = frozenset(free[: max(0, usable - threads)])
    return Cores(timed, spare) if spare else None


def _siblings(core: int) -> frozenset[int]:
    """Those that share the units of a core; only itself where the system does not say.

    Source: the kernel's cpulist format, "0,4" or "0-1".
    """
    try:
        text = Path(_TOPOLOGY.format(core)).read_text()
    except OSError:
        return frozenset((core,))
    ends = [part.split("-") for part in text.strip().split(",")]
    return frozenset(n for e in ends for n in range(int(e[0]), int(e[-1]) + 1))
