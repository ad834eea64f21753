"""Tuner: one task, ask and tell.

    tuner = Tuner(task, model, rates, seed=0)
    batch = tuner.ask(8)              candidates worth measuring
    tuner.tell(batch, results)        seconds, or None for a failure

The whole space is drafted with the prior, the best of it is verified by the learned model, measured winners are mutated
and crossed. Which candidates come depends on the seed and on what was told, on nothing else.
Source: draft-then-verify of Pruner (Qiao et al., ASPLOS 2025); evolution as in Ansor (Zheng et al., OSDI 2020).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from autotensor.schedule.sketch import Sketch
from autotensor.schedule.state import State
from autotensor.search.features import features
from autotensor.search.model import CostModel
from autotensor.search.population import Ints, Population, crossover, encode, mutate, sample, unique
from autotensor.search.prior import Rates, predict
from autotensor.search.task import Candidate, Task
from schedules.generate import generate, structure

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Knobs of the search; the defaults are for 2-core machines and budgets below a hundred trials a task."""

    draft: int = 1024  # random candidates drafted per sketch and round
    keep: int = 192  # of all drafts, verified by the model
    parents: int = 16  # measured candidates that breed
    children: int = 256  # mutants and crossovers per round
    random_share: float = 0.1  # of a batch, drawn without looking at the model
    exploit_only_known: bool = False  # True: random sampling only (the baseline)


@dataclass(slots=True)
class _Known:
    """What was told about candidates of one sketch."""

    rows: list[Ints] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


class Tuner:
    """Proposes candidates of one task and learns from results."""

    def __init__(
        self,
        task: Task,
        model: CostModel,
        rates: Rates,
        *,
        seed: int = 0,
        options: SearchOptions = SearchOptions(),  # noqa: B008  # frozen
        sketches: Sequence[Sketch] | None = None,
    ) -> None:
        self.task = task
        self.model = model
        self.rates = rates
        self.options = options
        self.seed = seed
        dag = task.workload.dag
        self.sketches = tuple(sketches) if sketches is not None else generate(dag, task.target)
        self.states: dict[str, State] = {s.hash: structure(s, dag) for s in self.sketches}
        self.asked: set[str] = set()
        self.best: Candidate | None = None
        self.best_seconds = float("inf")
        self.history: list[float] = []  # best seconds after every told candidate
        self.failures = 0
        self._known = {s.hash: _Known() for s in self.sketches}
        self._round = 0

    # -- asking -------------------------------------------------------------------------------------------------------

    def default(self) -> Candidate:
        """What the rules would take without measuring; always the first candidate."""
        first = self.sketches[0]
        return Candidate(first, first.defaults(), "default")

    def skip_round(self) -> None:
        """Counts a round whose results were told from the log, so that the next one draws other numbers."""
        self._round += 1

    @property
    def exhausted(self) -> bool:
        return len(self.asked) >= sum(s.size for s in self.sketches)

    def ask(self, count: int) -> list[Candidate]:
        """Up to `count` new candidates, most promising first; fewer when the space runs out."""
        out: list[Candidate] = []
        if not self.asked:
            out.append(self.default())
        rng = self._rng("ask", self._round)
        self._round += 1
        if self.options.exploit_only_known:
            out.extend(self._random(count * 4, rng))
        else:
            random_count = max(1, round(count * self.options.random_share)) if count > 4 else 0
            ranked = self._ranked(rng)
            out.extend(self._diverse(ranked, count - random_count - len(out)))
            out.extend(self._random(random_count * 4, rng))
            out.extend(ranked)
        return self._new(out, count)

    def _new(self, candidates: Sequence[Candidate], count: int) -> list[Candidate]:
        """The first `count` that were never asked."""
        out = []
        for c in candidates:
            if len(out) == count:
                break
            if c.key not in self.asked:
                self.asked.add(c.key)
                out.append(c)
        return out

    def _rng(self, purpose: str, number: int) -> np.random.Generator:
        """A generator of its own per purpose and round, so that the order of calls does not matter."""
        text = f"{self.seed}/{self.task.workload.key}/{purpose}/{number}"
        return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little"))

    def _random(self, count: int, rng: np.random.Generator) -> list[Candidate]:
        """Uniform over all candidates of all sketches."""
        sizes = np.asarray([s.size for s in self.sketches], dtype=np.float64)
        out = []
        for n in rng.choice(len(self.sketches), count, p=sizes / sizes.sum()):
            s = self.sketches[int(n)]
            decisions = {h.name: h.options[int(rng.integers(0, len(h.options)))] for h in s.holes}
            out.append(Candidate(s, decisions, "random"))
        return out

    def _ranked(self, rng: np.random.Generator) -> list[Candidate]:
        """Drafts of all sketches by predicted seconds, best first, at most `keep`."""
        drafts: list[tuple[Population, Ints, Floats, Floats]] = []
        for s in self.sketches:
            pop = self._draft(s, rng)
            if len(pop) == 0:
                continue
            prior, terms = predict(pop.picture, self.task.target, self.rates)
            few = np.argsort(prior, kind="stable")[: self.options.keep]
            bred = np.arange(len(pop))[-self.options.children :]  # children are verified whatever the prior says
            rows = np.unique(np.concatenate([few, bred]))
            matrix = features(pop.picture, terms, prior, self.task.target)[rows]
            drafts.append((pop, rows, self.model.predict(matrix, prior[rows]), prior[rows]))
        scored = [(float(t), n, int(row)) for n, (_, rows, seconds, _) in enumerate(drafts) for t, row in zip(seconds, rows, strict=True)]
        scored.sort()
        out = []
        for seconds, n, row in scored[: 4 * self.options.keep]:
            pop = drafts[n][0]
            out.append(Candidate(pop.sketch, pop.decisions(row), "model", predicted=seconds))
        return out

    def _draft(self, s: Sketch, rng: np.random.Generator) -> Population:
        """Random candidates of a sketch, and children of its best measured ones (last)."""
        pop = sample(s, self.states[s.hash], self.options.draft, rng)
        known = self._known[s.hash]
        if not known.rows or not s.holes:
            return pop
        order = np.argsort(known.seconds, kind="stable")[: self.options.parents]
        parents = np.stack([known.rows[int(n)] for n in order])
        half = self.options.children // 2
        sizes = [len(h.options) for h in s.holes]
        mutants = mutate(parents[rng.integers(0, len(parents), half)], sizes, rng)
        pairs = rng.integers(0, len(parents), (2, half))
        crossed = mutate(crossover(parents[pairs[0]], parents[pairs[1]], rng), sizes, rng)
        rows = unique(np.concatenate([pop.choices, mutants, crossed]))
        return Population(s, pop.state, rows)

    def _diverse(self, ranked: Sequence[Candidate], count: int) -> list[Candidate]:
        """The best of the ranking, at most half of them with one sketch and one register tile."""
        out: list[Candidate] = []
        seen: dict[tuple[str, str], int] = {}
        limit = max(1, count // 3)
        for c in ranked:
            if len(out) >= count:
                break
            if c.key in self.asked:
                continue
            tile = str([v for k, v in sorted(c.decisions.items()) if k.endswith("/tile")])
            family = (c.sketch.hash, tile)
            if seen.get(family, 0) < limit:
                seen[family] = seen.get(family, 0) + 1
                out.append(c)
        return out

    # -- telling ------------------------------------------------------------------------------------------------------

    def tell(self, candidates: Sequence[Candidate], seconds: Sequence[float | None]) -> None:
        """Results in order; None is a failure. Unknown candidates (of an earlier run) may be told too."""
        by_sketch: dict[str, list[tuple[Ints, float]]] = {}
        for c, t in zip(candidates, seconds, strict=True):
            self.asked.add(c.key)
            if t is None:
                self.failures += 1
            else:
                if t < self.best_seconds:
                    self.best, self.best_seconds = replace(c), t
                row = encode(c.sketch, c.decisions)
                by_sketch.setdefault(c.sketch.hash, []).append((row, t))
            self.history.append(self.best_seconds)
        for key, told in by_sketch.items():
            if key not in self._known:
                continue
            self._known[key].rows.extend(r for r, _ in told)
            self._known[key].seconds.extend(t for _, t in told)
            self.model.learn(*self._described(key, [r for r, _ in told]), np.asarray([t for _, t in told]), self.task.workload.key)

    def _described(self, key: str, rows: Sequence[Ints]) -> tuple[Floats, Floats]:
        """Features and prior of told rows of one sketch."""
        sketch = next(s for s in self.sketches if s.hash == key)
        pop = Population(sketch, self.states[key], np.stack(rows) if sketch.holes else np.zeros((len(rows), 0), np.int64))
        prior, terms = predict(pop.picture, self.task.target, self.rates)
        return features(pop.picture, terms, prior, self.task.target), prior

    def candidate(self, sketch_hash: str, decisions: dict[str, tuple[int, ...]], made_by: str = "log") -> Candidate | None:
        """A candidate from a record; None when no sketch of today's rules has that hash or those options."""
        for s in self.sketches:
            if s.hash == sketch_hash and all(decisions.get(h.name) in h.options for h in s.holes):
                return Candidate(s, decisions, made_by)
        return None
