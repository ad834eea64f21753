"""Transfer: schedules that were fast elsewhere are fitted to this task and proposed before any draft.

    log ──▶ workloads of one family (equal computations of other sizes), nearest first
        ──▶ the best traces of each ──refit──▶ candidates of this task's own sketches

A trace holds its steps, so it is compared with a sketch step by step. Where the sketch has a hole, the trace
shows the decision, and the nearest legal option is taken. The workload itself is its own nearest one.
Candidates that other runs have measured are measured again, because times of different days are not
comparable, and the code that a trace compiles to may have changed. Source: transfer-tuning (Gibson and Cano,
PACT 2022).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log2
from typing import Any

from autotensor.schedule.sketch import Hole, Option, Sketch
from autotensor.schedule.step import to_json
from autotensor.search.task import Candidate
from autotensor.te.workload import Workload, greatest_in
from tuning_db.answers import distinct_traces
from tuning_db.records import Parent, TrialRecord

MOST = 4  # most candidates from the log: half of a first batch
OF_ONE = 2  # best trials of one workload; the second one often differs in one decision only
MADE_HERE, MADE_ELSEWHERE = "log", "transfer"
REFITTED = "refitted"  # how a candidate was made from its parent


@dataclass(frozen=True, slots=True)
class Shape:
    """A computation without its sizes, and the sizes."""

    family: str  # the same for computations that differ only in sizes
    sizes: tuple[float, ...]  # logarithms of the extents, in order of stages and axes

    def distance(self, other: Shape) -> float:
        """The distance of two shapes of one family: the sum of the doublings between their extents."""
        return sum(abs(a - b) for a, b in zip(self.sizes, other.sizes, strict=True))


@lru_cache(maxsize=1024)
def shape_of(text: str) -> Shape:
    """The shape of a workload's text."""
    dag: Any = json.loads(text)
    stages = [
        [
            [name for name, _ in s["axes"]],
            [name for name, _ in s["reduce"]],
            _blank(s["bodies"]),
            _blank(s["combiner"]),
            s["outputs"],
        ]
        for s in dag["stages"]
    ]
    inputs = [[name, len(shape), dtype] for name, shape, dtype in dag["inputs"]]
    form = [inputs, dag["constants"], stages, dag["outputs"], dag["args"]]
    extents = [greatest_in(e) for s in dag["stages"] for _, e in (*s["axes"], *s["reduce"])]
    digest = hashlib.sha256(json.dumps(form).encode()).hexdigest()[:32]
    return Shape(digest, tuple(log2(max(1, e)) for e in extents))


def _blank(body: Any) -> Any:
    """An expression without the values of its constants, because paddings and means contain sizes."""
    if not isinstance(body, list):
        return body
    if len(body) == 3 and body[0] == "c":
        return ["c", body[2]]
    return [_blank(part) for part in body]


def seeds(
    workload: Workload,
    sketches: Sequence[Sketch],
    known: Sequence[tuple[Workload, Sequence[TrialRecord]]],
    most: int = MOST,
) -> tuple[Candidate, ...]:
    """Candidates that the log suggests for a workload: first its own best, then those of its family, nearest
    first.

    known: workloads with trials of this machine and target. Only verified trials count.
    """
    mine = shape_of(workload.text)
    near = [
        (mine.distance(shape), other.key != workload.key, other.key, rows)
        for other, rows in known
        if (shape := shape_of(other.text)).family == mine.family
    ]
    out: dict[str, Candidate] = {}
    for _, elsewhere, other, rows in sorted(near, key=lambda n: n[:3]):
        best = sorted((t for t in rows if t.verified), key=lambda t: (t.median_s or 0.0, t.id or 0))
        for row in distinct_traces(best, OF_ONE):
            made_by = MADE_ELSEWHERE if elsewhere else MADE_HERE
            parent = Parent(row.trace_hash, REFITTED, other if elsewhere else "")
            fitted = refit(row.trace, sketches, made_by, parents=(parent,))
            if fitted is not None:
                out.setdefault(fitted.key, fitted)
        if len(out) >= most:
            break
    return tuple(out.values())[:most]


def refit(
    trace: str, sketches: Sequence[Sketch], made_by: str = MADE_ELSEWHERE, parents: tuple[Parent, ...] = ()
) -> Candidate | None:
    """The candidate of these sketches that is nearest to a trace (as JSON); None if none has its steps."""
    steps: Any = json.loads(trace)["steps"]
    fits = [(found, n) for n, s in enumerate(sketches) if (found := _fit(s, steps)) is not None]
    if not fits:
        return None
    (_, decisions), n = min(fits, key=lambda fit: (fit[0][0], fit[1]))
    return Candidate(sketches[n], decisions, made_by, parents)


def _fit(sketch: Sketch, steps: Sequence[Any]) -> tuple[float, dict[str, Option]] | None:
    """The distance of the steps from the nearest candidate of a sketch, and this candidate's decisions."""
    if len(sketch.steps) != len(steps):
        return None
    decided: dict[str, dict[int, int]] = {}
    apart = 0.0
    for mine, theirs in zip(sketch.steps, steps, strict=True):
        pairs = _pairs(to_json(mine), theirs)
        if pairs is None:
            return None
        for wanted, value in pairs:
            if isinstance(wanted, dict):
                decided.setdefault(wanted["hole"], {})[wanted["index"]] = value
            else:
                apart += _doublings(wanted, value)
    decisions = {}
    for hole in sketch.holes:
        wanted = decided.get(hole.name, {})
        decisions[hole.name] = _nearest(hole, wanted)
        apart += _apart(decisions[hole.name], wanted)
    return apart, decisions


def _nearest(hole: Hole, wanted: Mapping[int, int]) -> Option:
    """The option nearest to the components that the steps show; if equal, the one nearest to the default."""
    usual = dict(enumerate(hole.default))
    return min(hole.options, key=lambda option: (_apart(option, wanted), _apart(option, usual)))


def _apart(option: Option, wanted: Mapping[int, int]) -> float:
    return sum(_doublings(option[n], value) for n, value in wanted.items())


def _doublings(a: int, b: int) -> float:
    return abs(log2(abs(a) + 1.0) - log2(abs(b) + 1.0))


def _pairs(mine: Any, theirs: Any) -> list[tuple[Any, int]] | None:
    """The pairs of numbers at the same positions in two steps of equal form; None if the forms differ."""
    out: list[tuple[Any, int]] = []
    for a, b in _places(mine, theirs):
        if isinstance(a, dict) or _is_number(a):
            if not _is_number(b):
                return None
            out.append((a, b))
        elif a != b:
            return None
    return out


def _places(mine: Any, theirs: Any) -> Iterator[tuple[Any, Any]]:
    """The leaves of two nested lists, in pairs. Lists of different lengths are leaves, and so they differ."""
    if isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        for a, b in zip(mine, theirs, strict=True):
            yield from _places(a, b)
    else:
        yield mine, theirs


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
