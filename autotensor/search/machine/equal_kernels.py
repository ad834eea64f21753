"""A/A: the same kernel is raced against itself. What does the measurer say about two equal things?

    kernel ──▶ two copies with different names ──race──▶ AAPair(ratio=0.998, 0.991 … 1.004)

A correct measurer claims no difference, and its bounds are narrow enough to show a difference where there is
one. The `resolution` of a pair is the largest difference that the pair's bounds do not exclude.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import fmean, median, stdev

from autotensor import te
from autotensor.base.errors import MeasureError
from autotensor.base.paired_times import Paired, paired
from autotensor.compiler import compile_trace
from autotensor.resolve import LEAST_GAIN
from autotensor.schedule.primitives.algorithm import algorithm_tolerance
from autotensor.schedule.trace import Trace
from autotensor.search.measuring.measurer import LocalMeasurer
from autotensor.search.measuring.race_rule import FINAL_SAMPLES
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload

SURE = 0.95  # share of the pairs that must have this resolution or a better one


@dataclass(frozen=True, slots=True)
class AAPair:
    """One kernel, raced against itself."""

    kernel: str
    seconds: float  # median of one call
    ratio: Paired
    samples: tuple[tuple[float, ...], tuple[float, ...]]
    references: tuple[float, ...]  # times of the reference kernel, next to each sample

    @property
    def claimed(self) -> bool:
        """Whether the final race would say that one copy is faster."""
        r = self.ratio
        other = Paired(1 / r.middle, 1 / r.upper, 1 / r.lower if r.lower else float("inf"))
        return r.faster_than(1 - LEAST_GAIN) or other.faster_than(1 - LEAST_GAIN)

    @property
    def beside_reference(self) -> float:
        """The kernel's time in units of the reference kernel's time, which drifts with the machine, too."""
        pairs = zip(self.samples[0], self.references, strict=False)
        return median(s / r for s, r in pairs)

    @property
    def resolution(self) -> float:
        """The largest difference that the bounds do not exclude, although the true difference is 0."""
        return max(self.ratio.upper, 1 / max(self.ratio.lower, 1e-3)) - 1


def aa_pair(
    measurer: LocalMeasurer,
    workload: Workload,
    trace: Trace,
    repeat: int = FINAL_SAMPLES[1],
) -> AAPair:
    """Races two copies of a schedule as a final race would. Raises MeasureError if that fails."""
    copies = [
        compile_trace(workload.dag, trace, measurer.target, name) for name in ("kernel", "kernel_again")
    ]
    one, other = measurer.measure_artifacts(workload, copies, algorithm_tolerance(trace), repeat)
    for r in (one, other):
        if not r.ok:
            raise MeasureError(f"{workload.name} cannot be measured: {r.error}")
    return AAPair(
        workload.name,
        median((*one.seconds, *other.seconds)),
        paired(one.seconds, other.seconds),
        (one.seconds, other.seconds),
        one.reference_seconds,
    )


def told_from(pairs: Sequence[AAPair]) -> float:
    """The smallest difference that a share SURE of the pairs would have shown.

    Raises ValueError if there are no pairs.
    """
    known = sorted(p.resolution for p in pairs)
    if not known:
        raise ValueError("at least one pair of kernels is needed")
    return known[ceil(SURE * len(known)) - 1]


def variation(values: Sequence[float]) -> float:
    """The standard deviation as a share of the mean.

    >>> variation([1.0, 1.0, 1.0])
    0.0
    """
    return stdev(values) / fmean(values)


def sample_kernels() -> list[Workload]:
    """Kernels of some 10 to 3,000 us that are limited by different things: arithmetic, the caches, memory.

    They never change, so that figures of different days can be compared.
    """
    return [
        _dense(32, 128, 128),
        _dense(128, 768, 768),
        _rows(512, 768),
        _sum(1 << 22),
        _dense(1, 2048, 2048),
    ]


def _dense(m: int, n: int, k: int) -> Workload:
    a, w = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="w", constant=True)
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * w[r, j], axis=r), name="c")
    return Workload.of(ComputeDAG.of([a, w, c]), f"dense {m}x{n}x{k}")


def _rows(n: int, m: int) -> Workload:
    x = te.placeholder((n, m), name="x")
    r = te.reduce_axis((0, m), name="r")
    total = te.compute((n,), lambda i: te.sum(x[i, r] * x[i, r], axis=r), name="total")
    y = te.compute((n, m), lambda i, j: x[i, j] / te.sqrt(total[i] + 1.0), name="y")
    return Workload.of(ComputeDAG.of([x, y]), f"norm of rows {n}x{m}")


def _sum(n: int) -> Workload:
    a, b = te.placeholder((n,), name="a"), te.placeholder((n,), name="b")
    return Workload.of(
        ComputeDAG.of([a, b, te.compute((n,), lambda i: a[i] + b[i], name="c")]), f"sum of {n}"
    )


__all__ = ["AAPair", "aa_pair", "sample_kernels", "told_from", "variation"]
