"""Tuner: one task, ask and tell.

    tuner = Tuner(task, model, rates, seed=0)
    batch = tuner.ask(8)              candidates worth measuring
    tuner.tell(batch, results)        seconds, or None for a failure

    whole space ──prior──▶ drafts ┐
                                  ├──model──▶ ranking ──diversity, a little chance──▶ batch
    told ──mutate, cross──▶ children ┘

The space is drafted with the prior once (all of it, or a sample that the prior bred from), and only what is
kept is described by features. In every round the model ranks drafts and children of the best told candidates.
Which candidates come depends on the seed and on what was told in which rounds, on nothing else; so a run that
was killed continues as if it had not been.
Source: draft-then-verify of Pruner (Qiao et al., ASPLOS 2025); evolution as in Ansor (Zheng et al., OSDI
2020).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autotensor.schedule.picture import LoopPicture, look
from autotensor.schedule.sketch import Option, Sketch
from autotensor.schedule.state import State
from autotensor.search.features import features
from autotensor.search.model import CostModel
from autotensor.search.population import (
    Ints,
    Population,
    crossover,
    encode,
    moves_of,
    mutate,
    neighbours,
    sample,
    unique,
)
from autotensor.search.prior import Rates, predict
from autotensor.search.task import Candidate, Task
from schedules.generate import generate, structure

Floats = npt.NDArray[np.float64]
Place = tuple[
    int, bytes
]  # number of the sketch, row of option numbers: identity of a candidate, cheaper than its key


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Knobs of the search; the defaults are for 2-core machines and budgets below a hundred trials a task."""

    # candidates of one sketch that the prior looks at; smaller sketches are looked at whole
    draft: int = 8192
    keep: int = 768  # of all drafts, the best by the prior, ranked by the model in every round
    spread: int = 256  # and so many by chance, lest the prior hides something
    parents: int = 16  # told candidates that breed
    children: int = 192  # mutants and crossovers per round
    local_share: float = 0.25  # of a batch, children of the best told, whatever else looks better
    random_share: float = 0.1  # of a batch, drawn without looking at the model
    random_only: bool = False  # True: uniform over all candidates (the baseline)


@dataclass(slots=True)
class Described:
    """Candidates of one sketch with what the model sees of them."""

    sketch: int
    choices: Ints  # [candidates, holes]
    matrix: Floats  # [candidates, features]
    prior: Floats  # [candidates], seconds
    picture: LoopPicture
    made_by: str

    def __len__(self) -> int:
        return len(self.prior)

    def place(self, row: int) -> Place:
        return self.sketch, self.choices[row].tobytes()


@dataclass(slots=True)
class _Told:
    """One measured candidate."""

    seconds: float
    sketch: int
    row: Ints = field(repr=False)


class Tuner:
    """Proposes candidates of one task and learns from results."""

    def __init__(
        self,
        task: Task,
        model: CostModel,
        rates: Rates,
        *,
        seed: int = 0,
        options: SearchOptions = SearchOptions(),  # frozen
        sketches: Sequence[Sketch] | None = None,
    ) -> None:
        self.task = task
        self.model = model
        self.rates = rates
        self.options = options
        self.seed = seed
        dag = task.workload.dag
        self.sketches = tuple(sketches) if sketches is not None else generate(dag, task.target)
        self.states: tuple[State, ...] = tuple(structure(s, dag) for s in self.sketches)
        self.best: Candidate | None = None
        self.best_seconds = float("inf")
        self._number = {s.hash: n for n, s in enumerate(self.sketches)}
        self._moves = [moves_of(s.holes) for s in self.sketches]
        self._siblings = _siblings(self.sketches)
        self._asked: set[Place] = set()
        self._looks: set[object] = set()  # of asked candidates: what looks the same is the same
        self._told: list[_Told] = []
        self._rows: dict[Place, tuple[Floats, float]] = {}  # features and prior of asked candidates
        self._drafts: list[Described] | None = None
        self._round = 0

    # -- asking --------------------------------------------------------------------------------------------

    def default(self) -> Candidate:
        """What the rules would take without measuring; always the first candidate."""
        first = self.sketches[0]
        return Candidate(first, first.defaults(), "default")

    def skip_round(self) -> None:
        """Counts a round whose results were told from the log, so that the next one draws other numbers."""
        self._round += 1

    @property
    def space(self) -> int:
        """Number of candidates."""
        return sum(s.size for s in self.sketches)

    @property
    def asked(self) -> int:
        """Number of candidates that were asked, or told from the log."""
        return len(self._asked)

    @property
    def exhausted(self) -> bool:
        return len(self._asked) >= self.space

    def ask(self, count: int) -> list[Candidate]:
        """Up to `count` new candidates, most promising first; fewer when the space runs out."""
        out: list[Candidate] = []
        rng = self._rng("ask", self._round)
        self._round += 1
        if not self._asked:
            self._take(self.default(), out, count)
        if not self.options.random_only:
            by_chance = max(1, round(count * self.options.random_share)) if count > 4 else 0
            pool = self._pool(rng)
            ranking = self._ranking(pool)
            bred = [r for r in ranking if pool[r[1]].made_by == "bred"]
            local = round(count * self.options.local_share) if bred else 0
            self._choose(pool, ranking, out, count - by_chance - local)
            self._choose(pool, bred, out, count - by_chance - local // 2)
            self._step(rng, out, count - by_chance)
            self._random(rng, out, count)
            self._rest(pool, ranking, out, count)
        self._random(rng, out, count, tries=8)
        self._enumerate(out, count)
        return out

    def _take(self, c: Candidate, out: list[Candidate], count: int) -> None:
        """Adds a candidate to the batch, unless that is full or it was asked before."""
        place = (self._number[c.sketch.hash], encode(c.sketch, c.decisions).tobytes())
        if len(out) < count and place not in self._asked:
            self._asked.add(place)
            out.append(c)

    def _rng(self, purpose: str, number: int) -> np.random.Generator:
        """A generator of its own per purpose and round, so that the order of calls does not matter."""
        text = f"{self.seed}/{self.task.workload.key}/{purpose}/{number}"
        return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little"))

    def _random(self, rng: np.random.Generator, out: list[Candidate], count: int, tries: int = 4) -> None:
        """Fills the batch uniformly over all candidates of all sketches, as far as chance finds new ones."""
        sizes = np.asarray([s.size for s in self.sketches], dtype=np.float64)
        missing = count - len(out)
        if missing <= 0:
            return
        for n in rng.choice(len(self.sketches), missing * tries, p=sizes / sizes.sum()):
            s = self.sketches[int(n)]
            decisions = {h.name: h.options[int(rng.integers(0, len(h.options)))] for h in s.holes}
            self._take(Candidate(s, decisions, "random"), out, count)

    def _step(self, rng: np.random.Generator, out: list[Candidate], count: int) -> None:
        """Fills the batch with single steps from the best told, whatever the model thinks of them.

        A model that is wrong about one hole would never look beyond it.
        """
        if not self._told:
            return
        best = min(self._told, key=lambda t: t.seconds)
        s = self.sketches[best.sketch]
        for row in rng.permutation(neighbours(best.row, self._moves[best.sketch])):
            decisions = {h.name: h.options[int(k)] for h, k in zip(s.holes, row, strict=True)}
            self._take(Candidate(s, decisions, "step"), out, count)

    def _enumerate(self, out: list[Candidate], count: int) -> None:
        """Fills the batch with what is left of a space of which nearly everything was asked."""
        if len(out) >= count or self.space > 4 * len(self._asked) + 4 * count:
            return
        for n, s in enumerate(self.sketches):
            rows = sample(s, self.states[n], s.size, self._rng("all", n))
            for row in range(len(rows)):
                self._take(Candidate(s, rows.decisions(row), "left over"), out, count)

    # -- the pool: drafts and children ---------------------------------------------------------------------

    def _pool(self, rng: np.random.Generator) -> list[Described]:
        if self._drafts is None:
            self._drafts = self._draft(self._rng("draft", 0))
        return [*self._drafts, *self._children(rng)]

    def _draft(self, rng: np.random.Generator) -> list[Described]:
        """The most promising candidates by the prior, of all sketches together, and some by chance."""
        pops, priors = [], []
        for n, s in enumerate(self.sketches):
            pop = sample(s, self.states[n], self.options.draft, rng)
            prior, _ = predict(pop.picture, self.task.target, self.rates)
            if s.size > len(pop):
                pop, prior = self._bred(pop, prior, rng)
            pops.append(pop)
            priors.append(prior)
        everything = np.concatenate(priors)
        owner = np.concatenate([np.full(len(p), n) for n, p in enumerate(priors)])
        rows = np.concatenate([np.arange(len(p)) for p in priors])
        order = np.argsort(everything, kind="stable")
        by_chance = rng.permutation(len(everything))[: self.options.spread]
        kept = np.unique(np.concatenate([order[: self.options.keep], by_chance]))
        out = []
        for n in range(len(pops)):
            mine = rows[kept[owner[kept] == n]]
            if len(mine):
                out.append(self._described(n, pops[n].choices[mine], "drafted"))
        return out

    def _bred(self, pop: Population, prior: Floats, rng: np.random.Generator) -> tuple[Population, Floats]:
        """One generation of evolution by the prior alone, for sketches too large to look at whole."""
        parents = pop.choices[np.argsort(prior, kind="stable")[:256]]
        moves = moves_of(pop.sketch.holes)
        rows = np.concatenate([mutate(parents, moves, rng) for _ in range(8)])
        young = Population(pop.sketch, pop.state, unique(rows))
        found, _ = predict(young.picture, self.task.target, self.rates)
        choices = np.concatenate([pop.choices, young.choices])
        _, first = np.unique(choices, axis=0, return_index=True)
        first = np.sort(first)
        return Population(pop.sketch, pop.state, choices[first]), np.concatenate([prior, found])[first]

    def _children(self, rng: np.random.Generator) -> list[Described]:
        """Mutants and crossovers of the best told, and the same decisions in sketches with equal holes."""
        best = sorted(self._told, key=lambda t: t.seconds)[: self.options.parents]
        rows: dict[int, list[Ints]] = {}
        for n in sorted({t.sketch for t in best}):
            parents = np.stack([t.row for t in best if t.sketch == n])
            half = max(1, self.options.children * len(parents) // (2 * len(best)))
            pairs = rng.integers(0, len(parents), (3, half))
            mutants = mutate(parents[pairs[0]], self._moves[n], rng)
            crossed = mutate(crossover(parents[pairs[1]], parents[pairs[2]], rng), self._moves[n], rng)
            rows.setdefault(n, []).extend((mutants, crossed))
        for t in best[:2]:
            for n in self._siblings[t.sketch]:
                rows.setdefault(n, []).append(t.row[None, :])
            rows.setdefault(t.sketch, []).append(neighbours(t.row, self._moves[t.sketch]))
        out = []
        for n, parts in sorted(rows.items()):
            new = [r for r in unique(np.concatenate(parts)) if (n, r.tobytes()) not in self._asked]
            if new:
                out.append(self._described(n, np.stack(new), "bred"))
        return out

    def _described(self, number: int, choices: Ints, made_by: str = "") -> Described:
        """Candidates of one sketch with features and prior."""
        pop = Population(self.sketches[number], self.states[number], choices)
        prior, terms = predict(pop.picture, self.task.target, self.rates)
        matrix = features(pop.picture, terms, prior, self.task.target)
        return Described(number, choices, matrix, prior, pop.picture, made_by)

    # -- ranking -------------------------------------------------------------------------------------------

    def _ranking(self, pool: Sequence[Described]) -> list[tuple[float, int, int]]:
        """(predicted seconds, number in the pool, row), best first."""
        matrix = np.concatenate([d.matrix for d in pool])
        prior = np.concatenate([d.prior for d in pool])
        seconds = self.model.predict(matrix, prior, self.task.workload.key)
        owner = np.concatenate([np.full(len(d), n) for n, d in enumerate(pool)])
        rows = np.concatenate([np.arange(len(d)) for d in pool])
        order = np.argsort(seconds, kind="stable")
        return list(zip(seconds[order].tolist(), owner[order].tolist(), rows[order].tolist(), strict=True))

    def _choose(
        self,
        pool: Sequence[Described],
        ranking: Sequence[tuple[float, int, int]],
        out: list[Candidate],
        count: int,
    ) -> None:
        """The best of the ranking: a third with one sketch and tile at most, one of what looks the same."""
        limit = max(1, count // 3)
        families: dict[tuple[int, Option], int] = {}
        for seconds, n, row in ranking:
            if len(out) >= count:
                return
            d = pool[n]
            if d.place(row) in self._asked or look(d.picture, row) in self._looks:
                continue
            family = (d.sketch, self._tile(d, row))
            if families.get(family, 0) < limit:
                families[family] = families.get(family, 0) + 1
                self._take_row(d, row, seconds, out, count)

    def _rest(
        self,
        pool: Sequence[Described],
        ranking: Sequence[tuple[float, int, int]],
        out: list[Candidate],
        count: int,
    ) -> None:
        """Fills the batch in order of the ranking."""
        for seconds, n, row in ranking:
            if len(out) >= count:
                return
            if pool[n].place(row) not in self._asked:
                self._take_row(pool[n], row, seconds, out, count)

    def _take_row(self, d: Described, row: int, seconds: float, out: list[Candidate], count: int) -> None:
        s = self.sketches[d.sketch]
        decisions = {h.name: h.options[int(k)] for h, k in zip(s.holes, d.choices[row], strict=True)}
        before = len(out)
        self._take(Candidate(s, decisions, d.made_by, predicted=seconds), out, count)
        if len(out) > before:
            self._looks.add(look(d.picture, row))
            self._rows[d.place(row)] = (d.matrix[row], float(d.prior[row]))

    def _tile(self, d: Described, row: int) -> Option:
        """Option numbers of the register tiles."""
        holes = self.sketches[d.sketch].holes
        return tuple(int(k) for h, k in zip(holes, d.choices[row], strict=True) if h.name.endswith("/tile"))

    # -- telling -------------------------------------------------------------------------------------------

    def tell(self, candidates: Sequence[Candidate], seconds: Sequence[float | None]) -> None:
        """Results in order; None is a failure. Candidates of an earlier run may be told too."""
        told: list[tuple[int, Ints]] = []
        learned: list[tuple[int, Ints, float]] = []
        for c, t in zip(candidates, seconds, strict=True):
            number = self._number.get(c.sketch.hash)
            if number is not None:
                row = encode(c.sketch, c.decisions)
                self._asked.add((number, row.tobytes()))
                told.append((number, row))
                if t is not None:
                    learned.append((number, row, t))
            if t is not None and t < self.best_seconds:
                self.best, self.best_seconds = c, t
        self._describe_missing(told)
        if not learned:
            return
        self._told.extend(_Told(t, n, row) for n, row, t in learned)
        known = [self._rows[n, row.tobytes()] for n, row, _ in learned]
        matrix = np.stack([m for m, _ in known])
        prior = np.asarray([p for _, p in known])
        self.model.learn(matrix, prior, np.asarray([t for _, _, t in learned]), self.task.workload.key)

    def _describe_missing(self, rows: Sequence[tuple[int, Ints]]) -> None:
        """Features of told candidates that did not come out of the pool."""
        missing: dict[int, list[Ints]] = {}
        for n, row in rows:
            if (n, row.tobytes()) not in self._rows:
                missing.setdefault(n, []).append(row)
        for n, mine in missing.items():
            d = self._described(n, np.stack(mine))
            for at in range(len(d)):
                self._rows[d.place(at)] = (d.matrix[at], float(d.prior[at]))
                self._looks.add(look(d.picture, at))

    def candidate(
        self, sketch_hash: str, decisions: dict[str, tuple[int, ...]], made_by: str = "log"
    ) -> Candidate | None:
        """A candidate from a record; None when no sketch of today's rules has that hash or those options."""
        number = self._number.get(sketch_hash)
        if number is None:
            return None
        s = self.sketches[number]
        fits = len(decisions) == len(s.holes) and all(decisions.get(h.name) in h.options for h in s.holes)
        return Candidate(s, decisions, made_by) if fits else None


def _siblings(sketches: Sequence[Sketch]) -> tuple[tuple[int, ...], ...]:
    """Per sketch the others with equal holes."""
    return tuple(
        tuple(m for m, o in enumerate(sketches) if m != n and o.holes == s.holes)
        for n, s in enumerate(sketches)
    )
