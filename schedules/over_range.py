"""The default schedule of a computation with run-time extents: the best ones for parts of the range.

    n0, n1 in 6 … 20     the rules' sketches for ends of 20, 15, 11 and 8, and the prior's seconds of each
                         sketch at eight samples  ──▶  n0 * n1 < 256: the sketch of 15; otherwise that of 20

Schedules see only the greatest extents, so the rules are asked for narrower ranges. A part of the range gets
its own schedule only where the prior says that this is worth it, and only where another algorithm
(Winograd's) is among the sketches. Tiles of plain sums suit the whole range, because their tails compute only
the rows that are left, which the prior does not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite, log, sqrt

from autotensor.base.errors import ScheduleError
from autotensor.base.target import Target
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.primitives.below import Below
from autotensor.schedule.sketch import Sketch
from autotensor.schedule.step import Step, steps_text
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.fixed_extents import Values, narrowed
from autotensor.te.symbols import number, size_of
from schedules.generate import preferred, seconds_of

SAMPLES = 8  # points of the range, in equal ratios from the greatest values on
ASPECT = 9 / 8  # at every second sample, one half of the symbols is greater by this, the other one less
LEAST_PART = 2  # samples of a part: tiles that suit a single one may suit few others
MOST_PARTS = 3
# A further schedule must make the samples' mean time less by this share: it costs its compilation, and memory
# for constants that it prepares in its own way (chosen, 2026-12)
GAIN = 0.03
SHORT_S = 2e-5  # a kernel that takes less at the greatest extents has one schedule


@dataclass(frozen=True, slots=True)
class _Part:
    """Neighbouring samples, as indices, and the sketch that they share."""

    first: int
    end: int
    sketch: int


def trace_over_range(dag: ComputeDAG, target: Target) -> Trace:
    """The default trace of a DAG with symbols.

    Raises ScheduleError if the sketch for the greatest extents does not apply.
    """
    points = _points(dag)
    dags = [narrowed(dag, p) for p in points]
    sketches = list(dict.fromkeys(_applying(dags[::2], dag, target)))
    if len(sketches) == 1 or not any(isinstance(s, UseAlgorithm) for k in sketches for s in k.steps):
        return _trace(sketches[0])
    seconds = _seconds(dags, target, sketches)
    if min(row[0] for row in seconds) < SHORT_S:
        return _trace(sketches[0])
    main, *others = _parts(seconds)
    trace = _trace(sketches[main.sketch])
    sizes = [number(size_of(dag.symbols()), p) for p in points]
    first = dag.stages[-1].name
    return trace.then(
        *(
            Below(
                first,
                round(sqrt(sizes[p.first - 1] * sizes[p.first])),
                steps_text(_trace(sketches[p.sketch]).steps),
            )
            for p in others
        )
    )


def _points(dag: ComputeDAG) -> list[Values]:
    """The greatest values of the symbols, and lesser values towards the least."""
    found: list[Values] = []
    for k in range(SAMPLES):
        point = {}
        for n, s in enumerate(dag.symbols()):
            value = s.most * (max(s.least, 1) / max(s.most, 1)) ** (k / SAMPLES)
            value *= (ASPECT if n % 2 else 1 / ASPECT) if k % 2 else 1.0
            point[s] = min(max(round(value), s.least), s.most)
        found.append(point)
    return found


def _applying(dags: Sequence[ComputeDAG], dag: ComputeDAG, target: Target) -> Iterator[Sketch]:
    """The preferred sketches of narrower ranges that apply to the whole range; first that of the whole."""
    for n, narrow in enumerate(dags):
        sketch = preferred(narrow, target)
        try:
            _trace(sketch).replay(dag)
        except ScheduleError:
            if n == 0:
                raise
            continue
        yield sketch


def _seconds(dags: Sequence[ComputeDAG], target: Target, sketches: Sequence[Sketch]) -> list[list[float]]:
    """The prior's seconds by sketch and sample. Sketches of the same steps are predicted together."""
    alike: dict[tuple[Step, ...], list[int]] = {}
    for n, sketch in enumerate(sketches):
        alike.setdefault(sketch.steps, []).append(n)
    found = [[0.0] * len(dags) for _ in sketches]
    for k, dag in enumerate(dags):
        for group in alike.values():
            for n, s in zip(group, seconds_of(dag, target, [sketches[n] for n in group]), strict=True):
                found[n][k] = s
    return found


def _trace(sketch: Sketch) -> Trace:
    return sketch.fill(sketch.defaults())


def _parts(seconds: Sequence[Sequence[float]]) -> list[_Part]:
    """The samples in parts with one sketch each. seconds: by sketch and sample. If there is one part, it has
    the first sketch."""
    samples = len(seconds[0])
    best = [min(row[k] for row in seconds) for k in range(samples)]
    lost = [[log(t / b) if isfinite(t) else t for t, b in zip(row, best, strict=True)] for row in seconds]

    def part(first: int, end: int) -> tuple[float, _Part]:
        sums = [sum(row[first:end]) for row in (lost[:1] if end - first == samples else lost)]
        return min(sums), _Part(first, end, sums.index(min(sums)))

    def cost(parts: Sequence[tuple[float, _Part]]) -> float:
        return sum(total for total, _ in parts) / samples + GAIN * len(parts)

    ways = [
        [part(a, b) for a, b in zip((0, *cuts), (*cuts, samples), strict=True)]
        for n in range(MOST_PARTS)
        for cuts in combinations(range(LEAST_PART, samples, LEAST_PART), n)
    ]
    return [p for _, p in min(ways, key=cost)]


__all__ = ["trace_over_range"]
