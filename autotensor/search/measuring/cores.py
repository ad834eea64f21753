"""The cores on which a kernel is timed, and the spare cores that may compile meanwhile, if the machine has
any.

    divide(range(8), {0: {0, 4}, …}, threads=2, usable=8) ──▶ Cores(timed={2, 3}, spare={0, 1, 4, 5})

Some cores share units with a core that is timed. They stay unused, because their load would disturb. The
first cores are spare, because systems handle interrupts there. The system's figures are not enough: a virtual
machine hides which cores share units, and a processor runs slower if more of its cores work. So this is
measured: if work on the spare cores slows down the timed ones, there are no spare cores.
"""

from __future__ import annotations

import os
import random
import threading
import time
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median

from autotensor.base.deadline import Deadline
from autotensor.base.target import Target, usable_cores
from autotensor.runtime.timing_lock import timing_by

_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


MOST_SLOWED = 1.02  # largest factor on the time: samples of one kernel differ by this factor in any case
_WAIT_S = 10.0  # longest wait, in seconds, until no other process times
_PAIRS = 11  # number of pairs of samples: alone, and next to work on the spare cores
_WORK_BYTES = 1 << 18  # bytes that are compressed in one sample; some milliseconds
_MOST_WORKERS = 16  # more threads than this would wait for the interpreter


@dataclass(frozen=True, slots=True)
class Cores:
    """Sets of logical processors, by the system's numbers."""

    timed: frozenset[int]
    spare: frozenset[int]


def cores_for(target: Target) -> Cores | None:
    """How this process's cores are divided while code for a target is timed. None if no core is to spare, or
    if the system does not let us choose the cores of a process."""
    if not hasattr(os, "sched_setaffinity") or target.kind not in ("llvm", "cuda"):
        return None  # the device of OpenCL may be these cores
    allowed = os.sched_getaffinity(0)
    threads = 1 if target.is_gpu else target.num_cores
    found = divide(allowed, {core: _siblings(core) for core in allowed}, threads, usable_cores())
    return found if found is not None and _quiet(found) else None


def divide(
    allowed: Collection[int], siblings: Mapping[int, Collection[int]], threads: int, usable: int
) -> Cores | None:
    """One core for each thread, and the spare cores. siblings: for each core, the cores that share its units,
    including itself. usable: the number of cores that we may use (a control group may allow fewer than it
    shows)."""
    units = sorted({tuple(sorted(siblings[core])) for core in allowed})
    if threads >= len(units):
        return None
    timed = frozenset(min({*unit} & {*allowed}) for unit in units[-threads:])
    free = sorted(core for unit in units[:-threads] for core in unit if core in allowed)
    spare = frozenset(free[: max(0, usable - threads)])
    return Cores(timed, spare) if spare else None


@lru_cache(maxsize=8)
def _quiet(cores: Cores) -> bool:
    """Whether work on the spare cores does not disturb the timed ones. False if other processes time for so
    long that it cannot be tried."""
    with timing_by(Deadline.after(_WAIT_S)) as alone:
        return alone and slowed(cores) <= MOST_SLOWED


def slowed(cores: Cores) -> float:
    """The factor by which work on a timed core takes longer while the spare cores work, too. This is tried
    for half a second. Compressing stands for compiling: it branches, reads tables, and does not block the
    interpreter."""
    work = random.Random(0).randbytes(_WORK_BYTES)
    busy, over = threading.Event(), threading.Event()
    idle = threading.Semaphore(0)
    workers = sorted(cores.spare)[:_MOST_WORKERS]

    def beside(core: int) -> None:
        os.sched_setaffinity(0, {core})  # only for this thread
        while not over.is_set():
            busy.wait()
            while busy.is_set() and not over.is_set():
                zlib.compress(work)
            idle.release()

    ratios: list[float] = []

    def timed() -> None:
        os.sched_setaffinity(0, {min(cores.timed)})
        for _ in range(_PAIRS):
            alone = _compressing_s(work)
            busy.set()
            ratios.append(_compressing_s(work) / alone)
            busy.clear()
            for _ in workers:
                idle.acquire()

    threads = [threading.Thread(target=beside, args=(core,), daemon=True) for core in workers]
    measuring = threading.Thread(target=timed, daemon=True)
    for thread in (*threads, measuring):
        thread.start()
    measuring.join()
    over.set()
    busy.set()  # wakes the threads, so that they see it
    return median(ratios)


def _compressing_s(work: bytes) -> float:
    began = time.perf_counter()
    zlib.compress(work)
    return time.perf_counter() - began


def _siblings(core: int) -> frozenset[int]:
    """The cores that share units with a core; only the core itself if the system does not say.

    Source: the kernel's cpulist format, "0,4" or "0-1".
    """
    try:
        text = Path(_TOPOLOGY.format(core)).read_text()
    except OSError:
        return frozenset((core,))
    ends = [part.split("-") for part in text.strip().split(",")]
    return frozenset(n for e in ends for n in range(int(e[0]), int(e[-1]) + 1))
