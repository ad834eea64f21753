"""Small spaces in which every candidate is measured once, so that searches can be replayed on them.

    space = cut("layer2", target, rates, limit=400, seed=0)     the task's sketches with fewer options
    measure(space, measurer, "graph")                           all candidates, then the best of them again
    space.outcome(candidate)                                    the result in the table: no clock, no noise

A space is made smaller by dropping random options of the longest holes; the defaults stay. So neither the
prior nor the model influences which candidates it has. In a smaller space, random draws find good candidates
sooner. So a policy gains less over random draws here than in the task's whole space.

A file holds the sketches, the machine's rates and all times, so that later rules and models can be compared
on it.
"""

from __future__ import annotations

import json
import math
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from contests.results import machine

from autotensor.base.target import Target
from autotensor.schedule.sketch import Hole, Sketch
from autotensor.schedule.step import from_json as step_from_json
from autotensor.schedule.step import to_json as step_to_json
from autotensor.search.measuring.measure_request import Measurer
from autotensor.search.propose.population import sample
from autotensor.search.task import Candidate, Task
from replays.search_tasks import workload
from schedules.generate import generate, structure
from schedules.prior.rates import MicroKernels, Rates
from tuning_db.records import Status

FORMAT = 1
BATCH = 32
# how many of the best are measured again, side by side, because the least of hundreds of medians is partly
# luck
FINALISTS = 16
FINAL_REPEAT = 15
TAKES = 3  # most times that a batch is measured if it was disturbed
DISTURBED = 1.25
# if the default is this many times as slow in every take, the other times of the batch mean nothing
LOST = 2.0
FOLDER = Path(__file__).parents[1] / "results" / "spaces"


@dataclass
class Space:
    """The candidates of one task, and the result of each."""

    task: Task
    sketches: tuple[Sketch, ...]
    rates: Rates
    machine: Mapping[str, Any] = field(default_factory=dict)
    # residency → trace hash → seconds, "rejected" (not run, because of its machine code) or "failed"
    found: dict[str, dict[str, float | str]] = field(default_factory=dict)
    finals: dict[str, bool] = field(default_factory=dict)  # residency → whether the best ran again

    @property
    def name(self) -> str:
        return self.task.label

    @cached_property
    def default(self) -> Candidate:
        first = self.sketches[0]
        return Candidate(first, first.defaults(), "default")

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """All candidates, one for each trace, the default first."""
        dag = self.task.workload.dag
        unique: dict[str, Candidate] = {self.default.trace.hash: self.default}
        for s in self.sketches:
            rows = sample(s, structure(s, dag), s.size, np.random.default_rng(0))
            for n in range(len(rows)):
                c = Candidate(s, rows.decisions(n), "listed")
                unique.setdefault(c.trace.hash, c)
        return tuple(unique.values())

    def outcome(self, c: Candidate, residency: str = "graph") -> float | str:
        """The seconds of a candidate, or "rejected" or "failed". Raises KeyError if it is not in the
        space."""
        return self.found[residency][c.trace.hash]

    def best(self, residency: str = "graph") -> float:
        return min(v for v in self.found[residency].values() if isinstance(v, float))

    def whole(self, residency: str = "graph") -> bool:
        return self.finals.get(residency, False)


# -- making spaces smaller -----------------------------------------------------------------------------------


def cut(name: str, target: Target, rates: Rates, limit: int, seed: int) -> Space:
    """The space of a task, with at most `limit` candidates in all its sketches."""
    task = Task(workload(name), target, name=name)
    sketches = generate(task.workload.dag, target)
    rng = random.Random(f"{name}/{seed}")
    return Space(task, smaller(sketches, limit, rng), rates, machine())


def smaller(sketches: Sequence[Sketch], limit: int, rng: random.Random) -> tuple[Sketch, ...]:
    """The sketches with fewer options: at most `limit` candidates in all, but at least one of each sketch."""
    left, out = limit, []
    by_size = sorted(range(len(sketches)), key=lambda n: sketches[n].size)
    shares: dict[int, int] = {}
    for taken, n in enumerate(by_size):  # small sketches leave the rest of their share to the others
        shares[n] = max(1, left // (len(sketches) - taken))
        left -= min(shares[n], sketches[n].size)
    for n, s in enumerate(sketches):
        while s.size > shares[n] and any(len(h.options) > 1 for h in s.holes):
            s = _one_less(s, rng)
        out.append(s)
    return tuple(out)


def _one_less(s: Sketch, rng: random.Random) -> Sketch:
    """The sketch without one random option of its longest hole. The default option stays."""
    longest = max(range(len(s.holes)), key=lambda n: len(s.holes[n].options))
    hole = s.holes[longest]
    gone = rng.choice([o for o in hole.options if o != hole.default])
    kept = replace(hole, options=tuple(o for o in hole.options if o != gone))
    return replace(s, holes=(*s.holes[:longest], kept, *s.holes[longest + 1 :]))


# -- measuring -----------------------------------------------------------------------------------------------


def measure(
    space: Space,
    measurer: Measurer,
    residency: str,
    *,
    deadline: float = math.inf,
    keep: Callable[[], None] = lambda: None,
) -> bool:
    """Measures the candidates that are not yet measured. Returns whether all are measured. `keep` is called
    after every batch.

    The default is in every batch, and only the ratios to its time count, because the machine's speed drifts.
    A batch in which the default was much slower than before is measured again.
    """
    found = space.found.setdefault(residency, {})
    if space.default.trace.hash not in found:
        found[space.default.trace.hash] = _default_s(space, measurer)
    while missing := [c for c in space.candidates if c.trace.hash not in found][: BATCH - 1]:
        if time.monotonic() > deadline:
            return False
        found |= _batch(space, measurer, missing, residency)
        keep()
    if not space.finals.get(residency):
        times = {k: v for k, v in found.items() if isinstance(v, float) and k != space.default.trace.hash}
        first = set(sorted(times, key=lambda k: times[k])[:FINALISTS])
        finalists = [c for c in space.candidates if c.trace.hash in first]
        found |= _batch(space, measurer, finalists, residency, FINAL_REPEAT)
        space.finals[residency] = True
        keep()
    return True


def _default_s(space: Space, measurer: Measurer) -> float:
    (result,) = measurer.measure(space.task.workload, [space.default.trace], FINAL_REPEAT)
    if not result.ok:
        raise SystemExit(f"{space.name}: its default schedule fails: {result.error}")
    return median(result.seconds)


def _batch(
    space: Space, measurer: Measurer, wanted: Sequence[Candidate], residency: str, repeat: int | None = None
) -> dict[str, float | str]:
    """The results of some candidates, measured together with the default. The least disturbed take
    counts."""
    default_s = space.outcome(space.default, residency)
    assert isinstance(default_s, float)
    batch = [space.default, *wanted]
    traces, takes = [c.trace for c in batch], []
    while len(takes) < TAKES:
        taken = measurer.measure(space.task.workload, traces, repeat, gated=range(1, len(batch)))
        now = median(taken[0].seconds) if taken[0].ok else math.inf
        takes.append((now, taken))
        if now < DISTURBED * default_s:
            break
    now, results = min(takes, key=lambda take: take[0])
    if math.isinf(now):
        raise SystemExit(f"{space.name}: its default schedule fails now: {results[0].error}")
    if now > LOST * default_s:  # an undisturbed candidate next to a disturbed default would seem far too fast
        raise SystemExit(
            f"{space.name}: other programs use the cores: its default schedule takes "
            f"{now / default_s:.1f} times as long as alone. The same command continues where this one ended."
        )
    found: dict[str, float | str] = {}
    for c, r in zip(wanted, results[1:], strict=True):
        if r.ok:  # samples with the same index were taken side by side, in the same state of the machine
            ratios = [s / d for s, d in zip(r.seconds, results[0].seconds, strict=False)]
            found[c.trace.hash] = default_s * median(ratios)
        else:
            found[c.trace.hash] = "rejected" if r.status is Status.REJECTED else "failed"
    return found


# -- files ---------------------------------------------------------------------------------------------------


def save(space: Space, path: Path) -> None:
    """Writes the space. The file is replaced in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {
        "format": FORMAT,
        "machine": space.machine,
        "name": space.name,
        "target": space.task.target.to_json(),
        "workload": [space.task.workload.key, space.task.workload.name, space.task.workload.text],
        "rates": _plain_rates(space.rates),
        "sketches": [_plain_sketch(s) for s in space.sketches],
        "finals": space.finals,
        "found": {r: {k: _short(v) for k, v in f.items()} for r, f in space.found.items()},
    }
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(json.dumps(data, separators=(",", ":")) + "\n")
    os.replace(scratch, path)


def load(path: Path) -> Space:
    """Reads a space. Raises ValueError for a file of another format."""
    from autotensor.te.workload import Workload

    data = json.loads(path.read_text())
    if data.get("format") != FORMAT:
        raise ValueError(f"{path} has format {data.get('format')!r}; this version reads {FORMAT}.")
    key, name, text = data["workload"]
    task = Task(Workload.from_text(text, name, key), Target.from_json(data["target"]), name=data["name"])
    sketches = tuple(_sketch(s) for s in data["sketches"])
    return Space(task, sketches, _rates(data["rates"]), data["machine"], data["found"], data["finals"])


def spaces(folder: Path, names: Sequence[str] = ()) -> list[Space]:
    """The spaces of a folder in which every candidate is measured, in the order of their names."""
    found = [load(p) for p in sorted(folder.glob("*.json"))]
    return [s for s in found if s.whole() and (not names or s.name in names)]


def _short(value: float | str) -> float | str:
    return value if isinstance(value, str) else float(f"{value:.5g}")


def _plain_sketch(s: Sketch) -> list[Any]:
    holes = [[h.name, h.options, h.default] for h in s.holes]
    return [[step_to_json(x) for x in s.steps], holes, s.made_by]


def _sketch(data: Sequence[Any]) -> Sketch:
    steps, holes, made_by = data
    kept = tuple(Hole(n, tuple(tuple(o) for o in options), tuple(d)) for n, options, d in holes)
    return Sketch(tuple(step_from_json(x) for x in steps), kept, tuple(made_by))


def _plain_rates(r: Rates) -> dict[str, Any]:
    kernels = [[*tile, *steps] for tile, steps in r.kernels.steps.items()]
    return {
        "flops": r.flops,
        "bandwidths": r.bandwidths,
        "memory_bandwidth": r.memory_bandwidth,
        "team_flops": r.team_flops,
        "team_bandwidths": r.team_bandwidths,
        "region_s": r.region_s,
        "lanes": r.kernels.lanes,
        "kernels": kernels,
        "guessed": r.guessed,
    }


def _rates(data: Mapping[str, Any]) -> Rates:
    steps = {(int(rows), int(vectors)): tuple(times) for rows, vectors, *times in data["kernels"]}
    return Rates(
        data["flops"],
        tuple(data["bandwidths"]),
        data["memory_bandwidth"],
        data["team_flops"],
        tuple(data["team_bandwidths"]),
        data["region_s"],
        MicroKernels(data["lanes"], steps),
        guessed=data.get("guessed", False),  # files from before 2026-11-27 have measured rates
    )
