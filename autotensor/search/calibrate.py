"""Calibration: what this machine can do, measured once and kept in the log by fingerprint.

    rates = calibrated(store, target)      measures in about two seconds if the log does not know it yet

The FMA peak is a loop on registers; bandwidths are row sums over arrays that fit in L2, in L3, and nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autotensor.base.machine import host_machine
from autotensor.base.target import Target
from autotensor.codegen.peak import measure_peak
from autotensor.compiler import compile_trace
from autotensor.runtime.arrays import random as random_array
from autotensor.runtime.lock import timing_lock
from autotensor.runtime.module import Module
from autotensor.search.prior import Rates
from autotensor.te import compute as te_compute
from autotensor.te import placeholder, reduce_axis
from autotensor.te import sum as te_sum
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace
from tuning_db import TrialStore
from tuning_db.records import Calibration

ROW = 4096  # float32 elements a row: 16 KiB
TRIES = 4
CONVINCING = 0.8  # of perfect scaling: real machines lose some clock when all cores work


def measure(target: Target) -> dict[str, tuple[float, str]]:
    """Rates of this machine by name, with units. Takes about two seconds, alone on the machine."""
    with timing_lock():
        caches = target.cache_bytes
        found = {"flops.core": (measure_peak(1), "FLOP/s")}
        if target.num_cores > 1:
            found["flops.all"] = (_team_peak(target.num_cores, found["flops.core"][0]), "FLOP/s")
        for level, size in enumerate(caches[1:], start=2):
            found[f"bandwidth.L{level}"] = (_bandwidth(target.with_threads(1), size // 2), "B/s")
        beyond = min(4 * caches[-1], 256 << 20)
        found["bandwidth.memory.core"] = (_bandwidth(target.with_threads(1), beyond), "B/s")
        found["bandwidth.memory.all"] = (_bandwidth(target, beyond), "B/s")
        return found


def _team_peak(threads: int, core: float) -> float:
    """FLOP/s of all threads together: the best of a few tries, and never less than one core alone reaches.

    A team that shares its cores with other programs measures their time slices, not the machine.
    """
    best = core
    for _ in range(TRIES):
        best = max(best, measure_peak(threads))
        if best >= CONVINCING * core * threads:
            break
    return best


def _bandwidth(target: Target, size: int) -> float:
    """Bytes per second of reading an array of `size` bytes again and again."""
    rows = max(1, size // (4 * ROW))
    x = placeholder((rows, ROW), name="x")
    k = reduce_axis(ROW, name="k")
    y = te_compute((rows,), lambda i: te_sum(x[i, k], axis=k), name="y")
    dag = ComputeDAG.of([x, y])
    f = Module(compile_trace(dag, default_trace(dag, target), target, "bandwidth"), threads=target.num_cores)
    data = random_array((rows, ROW), "float32", np.random.default_rng(0))
    return data.nbytes / min(f.time((data,), repeat=7, min_seconds=0.01))


def calibrated(store: TrialStore | None, target: Target, *, again: bool = False) -> Rates:
    """Rates from the log, measured first when they are missing (or `again`)."""
    fingerprint = host_machine().fingerprint
    known = store.calibration(fingerprint) if store is not None and not again else {}
    values = {name: c.value for name, c in known.items()}
    if "flops.core" not in values:
        measured = measure(target)
        values = {name: value for name, (value, _) in measured.items()}
        if store is not None:
            _remember(store, fingerprint, measured)
    return rates_of(values)


def rates_of(values: Mapping[str, float]) -> Rates:
    """Rates from measured values, less what a busy machine got wrong: nearer caches are never slower, and all
    cores together are never slower than one (a bound must not be above what is true)."""
    core = values["bandwidth.memory.core"]
    levels = [core]
    for name in sorted((n for n in values if n.startswith("bandwidth.L")), reverse=True):
        levels.insert(0, max(values[name], levels[0]))
    return Rates(values["flops.core"], tuple(levels), max(core, values["bandwidth.memory.all"]))


def _remember(store: TrialStore, fingerprint: str, measured: dict[str, tuple[float, str]]) -> None:
    from autotensor.search.journal import know_machine

    know_machine(store)
    rates = [Calibration(name, value, unit) for name, (value, unit) in measured.items()]
    store.put_calibration(fingerprint, rates)
