"""A/A: the same kernel entered twice. What does the measurer say of two things that are equal?

    kernel ──▶ two copies that differ in their name ──race──▶ AAPair(ratio=0.998, 0.991 … 1.004)

A correct measurer claims no difference, and its bounds are narrow enough to see one where there is one. The
largest difference that a pair could not have distinguished from none is its `resolution`.
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

SURE = 0.95  # the share of pairs whose resolution counts


@dataclass(frozen=True, slots=True)
class AAPair:
    """One kernel against itself."""

    kernel: str
    seconds: float  # of one call, median
    ratio: Paired
    samples: tuple[tuple[float, ...], tuple[float, ...]]
    references: tuple[float, ...]  # of the reference kernel, next to each sample

    @property
    def claimed(self) -> bool:
        """Whether the final race would say that one copy is faster."""
        r = self.ratio
        other = Paired(1 / r.middle, 1 / r.upper, 1 / r.lower if r.lower else float("inf"))
        return r.faster_than(1 - LEAST_GAIN) or other.faster_than(1 - LEAST_GAIN)

    @property
    def beside_reference(self) -> float:
        """Its time in units of the reference kernel's, which has the machine's drift, too."""
        pairs = zip(self.samples[0], self.references, strict=False)
        return median(s / r for s, r in pairs)

    @property
    def resolution(self) -> float:
        """The largest difference that its bounds do not exclude, though there is none."""
        return max(self.ratio.upper, 1 / max(self.ratio.lower, 1e-3)) - 1


def aa_pair(
    measurer: LocalMeasurer,
    workload: Workload,
    trace: Trace,
    repeat: int = FINAL_SAMPLES[1],
) -> AAPair:
    """Races two copies of a schedule as a final race would. Raises MeasureError where it does not work."""
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
    """The smallest difference that SURE of the pairs would have shown.

    Raises ValueError where there are none.
    """
    known = sorted(p.resolution for p in pairs)
    if not known:
        raise ValueError("at least one pair of kernels is needed")
    return known[ceil(SURE * len(known)) - 1]


def variation(values: Sequence[float]) -> float:
    """Standard deviation as a share of the mean.

    >>> variation([1.0, 1.0, 1.0])
    0.0
    """
    return stdev(values) / fmean(values)


def sample_kernels() -> list[Workload]:
    """Kernels of some 10 to 3,000 us with different bounds: arithmetic, the caches, memory.

    They are fixed, so that figures of two days can be compared.
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
