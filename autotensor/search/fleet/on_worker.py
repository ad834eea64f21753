"""The functions that run on a worker. Arguments and results are text, numbers and frozen data.

measure(batch)     one batch, with the children and references of earlier batches; now and then the sentinel
calibrate(target)  the rates of this machine
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from statistics import median

from autotensor.base.errors import MeasureError
from autotensor.base.target import Target
from autotensor.resolve import safe_default
from autotensor.schedule.primitives.algorithm import algorithm_tolerance
from autotensor.schedule.trace import Trace
from autotensor.search.fleet.machine_class import MachineClass, class_here, who_here
from autotensor.search.machine import calibration
from autotensor.search.machine.equal_kernels import sample_kernels
from autotensor.search.measuring.measure_request import MeasureOptions, MeasureResult, OutOfTime, Who
from autotensor.search.measuring.measurer import LocalMeasurer
from autotensor.search.measuring.race_rule import FINAL_SAMPLES
from autotensor.te.workload import Workload

THREADS = "AUTOTENSOR_FLEET_THREADS"  # variable in a worker's environment: number of threads of a kernel
SENTINEL_EVERY = 20  # number of a worker's batches from one sentinel to the next; the first batch has one
SENTINEL = 1  # index in `sample_kernels`: a kernel with much arithmetic, some hundred us


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch for a worker."""

    workload: str
    name: str
    traces: tuple[str, ...]
    target: str
    options: MeasureOptions
    modules: tuple[str, ...] = ()
    repeat: int | None = None
    gated: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """A worker's answer. If nothing could be measured, it has an `error` and no results."""

    tag: str  # the tag of the worker's true class, whatever tags the worker offered
    who: Who
    results: tuple[MeasureResult, ...] = ()
    error: str = ""
    late: bool = False  # whether the error was that the reference ran out of time
    sentinel_s: float | None = None  # seconds of one call of the sentinel


class _Bench:
    """The measurer of a worker. A batch with another target or other options replaces it."""

    def __init__(self) -> None:
        self.measurer: LocalMeasurer | None = None
        self.asked: tuple[object, ...] = ()
        self.batches = 0

    def measurer_for(self, batch: Batch) -> LocalMeasurer:
        asked = (batch.target, batch.options, batch.modules)
        if self.measurer is None or asked != self.asked:
            if self.measurer is not None:
                self.measurer.close()
            self.measurer = LocalMeasurer(
                Target.from_json(batch.target),
                batch.options,
                modules=batch.modules,
                numerics=algorithm_tolerance,
            )
            self.asked = asked
        return self.measurer


_bench = _Bench()  # the bench of this process


def describe() -> tuple[MachineClass, Who]:
    """The class and identity of this worker."""
    return own_class(), who_here()


def own_class() -> MachineClass:
    threads = os.environ.get(THREADS, "")
    return class_here(int(threads) if threads else None)


def measure(batch: Batch) -> Answer:
    """Measures one batch on this machine. A failure to measure is returned, not raised."""
    tag, who = own_class().tag, who_here()
    workload = Workload.from_text(batch.workload, batch.name)
    traces = [Trace.from_json(t) for t in batch.traces]
    try:
        measurer = _bench.measurer_for(batch)
        due = _bench.batches % SENTINEL_EVERY == 0
        _bench.batches += 1
        sentinel = sentinel_s(measurer) if due else None
        results = measurer.measure(workload, traces, batch.repeat, batch.gated)
    except MeasureError as error:
        return Answer(tag, who, error=str(error), late=isinstance(error, OutOfTime))
    return Answer(tag, who, tuple(results), sentinel_s=sentinel)


def sentinel_s(measurer: LocalMeasurer) -> float:
    """Seconds of a kernel that never changes. Raises MeasureError if the kernel does not work."""
    kernel = sample_kernels()[SENTINEL]
    (result,) = measurer.measure(kernel, [safe_default(kernel, measurer.target)], FINAL_SAMPLES[0])
    if not result.ok:
        raise MeasureError(f"the sentinel cannot be measured: {result.error}")
    return median(result.seconds)


def calibrate(target: str) -> calibration.Values:
    """Rates of this machine, by name, with units."""
    return calibration.measure(Target.from_json(target))


def check_equal_kernels(target: Target, budget_s: float) -> tuple[int, int, float]:
    """A/A races. Returns the number of pairs, of claimed differences, and the smallest visible difference."""
    from autotensor.search.machine.selfcheck import self_check

    found = self_check(target, budget_s)
    return found.pairs, found.claimed, found.told_from


__all__ = [
    "SENTINEL_EVERY",
    "THREADS",
    "Answer",
    "Batch",
    "calibrate",
    "describe",
    "measure",
    "own_class",
    "sentinel_s",
]
