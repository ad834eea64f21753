"""Tuner: one task, ask and tell.

    tuner = Tuner(task, model, rates, seed=0)
    batch = tuner.ask(8)              candidates worth measuring
    tuner.tell(batch, results)        seconds, or None for a failure

    seeds     the default; what the log suggests (`transfer.py`)                      first batch
    verify    whole space ──prior──▶ drafts ──model──▶ ranking ──diversity──▶ batch   ┐ each while it pays
    descend   best two told ──single steps──▶ neighbours ──model──▶ batch             ┘ (`phases.py`)

The space is drafted with the prior once (all of it, or a sample that the prior bred from), and only what is
kept is described by features. A little of every batch is left to chance. For sketches of the general rules,
whose spaces are too large to be drafted well, mutants and crossovers of the best told stand beside the
drafts. `Candidate.made_by` says where each came from, so that the log can tell what ever wins.
Which candidates come depends on the seed and on what was told in which rounds, on nothing else; so a run that
was killed continues as if it had not been.
Source: draft-then-verify of Pruner (Qiao et al., ASPLOS 2025); evolution as in Ansor (Zheng et al., OSDI
2020).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autotensor.schedule.picture import LoopPicture, look
from autotensor.schedule.primitives.algorithm import algorithms_of
from autotensor.schedule.sketch import Option, Sketch
from autotensor.schedule.state import State
from autotensor.search.propose.acquisition import diverse, order
from autotensor.search.propose.drafts import draft
from autotensor.search.propose.phases import Phase, phase, relative_gain
from autotensor.search.propose.population import (
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
from autotensor.search.propose.stopping import Outlook, outlook
from autotensor.search.score.features import features
from autotensor.search.score.model import CostModel, Prediction
from autotensor.search.score.prior import Rates, predict
from autotensor.search.task import Candidate, Task
from schedules.generate import generate, structure

Floats = npt.NDArray[np.float64]
# number of the sketch, row of option numbers: identity of a candidate, cheaper than its key
Place = tuple[int, bytes]

# rules that know nothing of the computation; their spaces are too large and too even to be drafted well
GENERAL_RULES = frozenset({"tile_general", "fallback"})
CORNER = 2  # options of a hole that count as alike in sketches without register tiles: sizes, in order
REACH = 2  # holes in which a step of the descent differs, at most


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Knobs of the search; the defaults are for 2-core machines and budgets below a hundred trials a task."""

    # candidates of one sketch that the prior looks at; smaller sketches are looked at whole
    draft: int = 8192
    keep: int = 768  # of all drafts, the best by the prior, ranked by the model in every round
    spread: int = 256  # and so many by chance, lest the prior hides something
    parents: int = 16  # told candidates that breed
    children: int = 192  # mutants and crossovers per round
    descents: int = 2  # told candidates from which single steps are taken
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
    _looks: dict[int, object] = field(default_factory=dict)  # of rows that somebody asked for

    def look(self, row: int) -> object:
        """What its loops come to; candidates that look the same are the same."""
        if row not in self._looks:
            self._looks[row] = look(self.picture, row)
        return self._looks[row]

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
        self._algorithms = tuple(algorithms_of(s.steps) for s in self.sketches)
        self._asked: set[Place] = set()
        self._looks: set[object] = set()  # of asked candidates: what looks the same is the same
        self._told: list[_Told] = []
        self._rows: dict[Place, tuple[Floats, float]] = {}  # features and prior of asked candidates
        self._drafts: list[Described] | None = None
        self._seeds: tuple[Candidate, ...] = ()
        self._gains: list[float] = []  # relative improvement by every batch
        self._round = 0

    # -- asking --------------------------------------------------------------------------------------------

    def default(self) -> Candidate:
        """What the rules would take without measuring; always the first candidate."""
        first = self.sketches[0]
        return Candidate(first, first.defaults(), "default")

    def suggest(self, seeds: Sequence[Candidate]) -> None:
        """Candidates of this task's sketches that are asked right after the default."""
        self._seeds = (*self._seeds, *seeds)

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

    def outlook(self, count: int) -> Outlook | None:
        """What may still be gained; None while there is no time to beat."""
        left = self.unmeasured()
        return None if left is None else outlook(left, self.told_s, count)

    @property
    def told_s(self) -> tuple[float, ...]:
        """Seconds of all that was told and works, in order."""
        return tuple(t.seconds for t in self._told)

    def unmeasured(self) -> Prediction | None:
        """What the model expects of the drafts that are left; None while there is no time to beat.

        What looks the same as a candidate that was asked is not left: it is the same, and no news.
        """
        if self.options.random_only or not self._told:
            return None
        drafts = self._pool_of_drafts()
        left = [(d, [n for n in range(len(d)) if self._is_new(d, n)]) for d in drafts]
        matrix = np.concatenate([d.matrix[rows] for d, rows in left])
        prior = np.concatenate([d.prior[rows] for d, rows in left])
        return self.model.predict(matrix, prior, self.task.workload.key)

    def ask(self, count: int) -> list[Candidate]:
        """Up to `count` new candidates, most promising first; fewer when the space runs out."""
        out: list[Candidate] = []
        rng = self._rng("ask", self._round)
        self._round += 1
        for c in (self.default(), *self._seeds):
            self._take(c, out, count)
        if not self.options.random_only:
            self._describe_missing([self._place_of(c) for c in out])  # what looks like these is not news
            by_chance = max(1, round(count * self.options.random_share)) if count > 4 else 0
            if phase(self._gains) is Phase.DESCEND:
                self._descend(out, count - by_chance)
            pool = self._pool(rng)
            ranking = self._ranking(pool)
            self._choose(pool, ranking, out, count - by_chance)
            self._rest(pool, ranking, out, count - by_chance, self._is_new)
            self._random(rng, out, count)
            self._rest(pool, ranking, out, count, self._is_open)
        self._random(rng, out, count, tries=8)
        self._enumerate(out, count)
        return out

    def _take(self, c: Candidate, out: list[Candidate], count: int) -> None:
        """Adds a candidate to the batch, unless that is full or it was asked before."""
        number, row = self._place_of(c)
        place = (number, row.tobytes())
        if len(out) < count and place not in self._asked:
            self._asked.add(place)
            out.append(c)

    def _place_of(self, c: Candidate) -> tuple[int, Ints]:
        """Number of its sketch, option numbers."""
        return self._number[c.sketch.hash], encode(c.sketch, c.decisions)

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

    def _descend(self, out: list[Candidate], count: int) -> None:
        """Fills the batch with small steps from the best told, the most promising first.

        In one hole while there are such; then in two, lest a valley that runs askew looks like its end.
        """
        near = [(t.sketch, t.row) for t in self._best(self.options.descents)]
        for _ in range(REACH):
            near = self._neighbours(near)
            if len(out) >= count or not near:
                return
            steps = self._describe(near, "descent")
            for seconds, n, row in self._ranking(steps) if steps else ():
                if steps[n].look(row) not in self._looks:
                    self._take_row(steps[n], row, seconds, out, count)

    def _best(self, count: int) -> list[_Told]:
        return sorted(self._told, key=lambda t: t.seconds)[:count]

    def _neighbours(self, places: Sequence[tuple[int, Ints]]) -> list[tuple[int, Ints]]:
        """One step away in one hole; and the same decisions in sketches with equal holes."""
        found: dict[Place, tuple[int, Ints]] = {}
        for n, row in places:
            steps = [(n, moved) for moved in neighbours(row, self._moves[n])]
            for m, moved in (*steps, *((m, row) for m in self._siblings[n])):
                found.setdefault((m, moved.tobytes()), (m, moved))
        return list(found.values())

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
        return [*self._pool_of_drafts(), *self._children(rng)]

    def _pool_of_drafts(self) -> list[Described]:
        """The drafts, made when they are first needed."""
        if self._drafts is None:
            o, rng = self.options, self._rng("draft", 0)
            spaces = tuple(zip(self.sketches, self.states, strict=True))
            kept = draft(spaces, self.task.target, self.rates, rng, o.draft, o.keep, o.spread)
            self._drafts = [self._described(n, rows, "drafted") for n, rows in kept]
        return self._drafts

    def _children(self, rng: np.random.Generator) -> list[Described]:
        """Mutants and crossovers of the best told, of sketches that general rules made."""
        best = [t for t in self._best(self.options.parents) if is_general(self.sketches[t.sketch])]
        found: list[tuple[int, Ints]] = []
        for n in sorted({t.sketch for t in best}):
            parents = np.stack([t.row for t in best if t.sketch == n])
            half = max(1, self.options.children * len(parents) // (2 * len(best)))
            pairs = rng.integers(0, len(parents), (3, half))
            mutants = mutate(parents[pairs[0]], self._moves[n], rng)
            crossed = mutate(crossover(parents[pairs[1]], parents[pairs[2]], rng), self._moves[n], rng)
            found += [(n, row) for row in unique(np.concatenate((mutants, crossed)))]
        return self._describe(found, "bred")

    def _describe(self, places: Sequence[tuple[int, Ints]], made_by: str) -> list[Described]:
        """What was not asked of these, by sketch."""
        rows: dict[int, list[Ints]] = {}
        for n, row in places:
            if (n, row.tobytes()) not in self._asked:
                rows.setdefault(n, []).append(row)
        return [self._described(n, np.stack(mine), made_by) for n, mine in sorted(rows.items())]

    def _described(self, number: int, choices: Ints, made_by: str = "") -> Described:
        """Candidates of one sketch with features and prior."""
        pop = Population(self.sketches[number], self.states[number], choices)
        prior, terms = predict(pop.picture, self.task.target, self.rates)
        matrix = features(pop.picture, terms, prior, self.task.target)
        return Described(number, choices, matrix, prior, pop.picture, made_by)

    # -- ranking -------------------------------------------------------------------------------------------

    def _ranking(self, pool: Sequence[Described]) -> list[tuple[float, int, int]]:
        """(predicted seconds, number in the pool, row), most promising first: see acquisition.py."""
        matrix = np.concatenate([d.matrix for d in pool])
        prior = np.concatenate([d.prior for d in pool])
        prediction = self.model.predict(matrix, prior, self.task.workload.key)
        owner = np.concatenate([np.full(len(d), n) for n, d in enumerate(pool)])
        rows = np.concatenate([np.arange(len(d)) for d in pool])
        best = order(prediction, min((t.seconds for t in self._told), default=float("inf")))
        columns = (prediction.seconds[best], owner[best], rows[best])
        return list(zip(*(c.tolist() for c in columns), strict=True))

    def _choose(
        self,
        pool: Sequence[Described],
        ranking: Sequence[tuple[float, int, int]],
        out: list[Candidate],
        count: int,
    ) -> None:
        """The first of the ranking that are not alike: in family, or in what their loops come to.

        There may be too few of them: some sketches have few families, and small spaces few programs.
        """
        if len(out) >= count:
            return
        owed = set(self._algorithms) - {self._algorithms[n] for n, _ in self._asked}
        for seconds, n, row in diverse(
            ranking,
            new=lambda r: self._is_new(pool[r[1]], r[2]),
            family=lambda r: (pool[r[1]].sketch, self._family(pool[r[1]], r[2])),
            kind=lambda r: self._algorithms[pool[r[1]].sketch],
            owed=owed,
            count=count,
        ):
            self._take_row(pool[n], row, seconds, out, count)
            if len(out) >= count:
                return

    def _is_new(self, d: Described, row: int) -> bool:
        """Whether neither it nor one that looks the same was asked."""
        return self._is_open(d, row) and d.look(row) not in self._looks

    def _is_open(self, d: Described, row: int) -> bool:
        """Whether it was not asked."""
        return d.place(row) not in self._asked

    def _rest(
        self,
        pool: Sequence[Described],
        ranking: Sequence[tuple[float, int, int]],
        out: list[Candidate],
        count: int,
        wanted: Callable[[Described, int], bool],
    ) -> None:
        """Fills the batch in order of the ranking, whatever the families, with those that are wanted."""
        for seconds, n, row in ranking:
            if len(out) >= count:
                return
            if wanted(pool[n], row):
                self._take_row(pool[n], row, seconds, out, count)

    def _take_row(self, d: Described, row: int, seconds: float, out: list[Candidate], count: int) -> None:
        s = self.sketches[d.sketch]
        decisions = {h.name: h.options[int(k)] for h, k in zip(s.holes, d.choices[row], strict=True)}
        before = len(out)
        self._take(Candidate(s, decisions, d.made_by, predicted=seconds), out, count)
        if len(out) > before:
            self._looks.add(d.look(row))
            self._rows[d.place(row)] = (d.matrix[row], float(d.prior[row]))

    def _family(self, d: Described, row: int) -> Option:
        """Option numbers of the register tiles; where there are none, the corner of the space."""
        pairs = zip(self.sketches[d.sketch].holes, d.choices[row].tolist(), strict=True)
        tiles = tuple(k for h, k in pairs if h.name.endswith("/tile"))
        return tiles or tuple(k // CORNER for k in d.choices[row].tolist())

    # -- telling -------------------------------------------------------------------------------------------

    def tell(self, candidates: Sequence[Candidate], seconds: Sequence[float | None]) -> None:
        """Results in order; None is a failure. Candidates of an earlier run may be told too."""
        before = self.best_seconds
        told: list[tuple[int, Ints]] = []
        learned: list[float] = []
        for c, t in zip(candidates, seconds, strict=True):
            number = self._number.get(c.sketch.hash)
            if number is not None:
                row = encode(c.sketch, c.decisions)
                self._asked.add((number, row.tobytes()))
                told.append((number, row))
                learned.append(np.nan if t is None else t)
                if t is not None:
                    self._told.append(_Told(t, number, row))
            if t is not None and t < self.best_seconds:
                self.best, self.best_seconds = c, t
        self._gains.append(relative_gain(before, self.best_seconds))
        self._describe_missing(told)
        if not told:
            return
        known = [self._rows[n, row.tobytes()] for n, row in told]
        matrix = np.stack([m for m, _ in known])
        prior = np.asarray([p for _, p in known])
        self.model.learn(matrix, prior, np.asarray(learned), self.task.workload.key)

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
                self._looks.add(d.look(at))

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


def is_general(sketch: Sketch) -> bool:
    """Whether no rule that knows the computation made it."""
    return not GENERAL_RULES.isdisjoint(sketch.made_by)


def _siblings(sketches: Sequence[Sketch]) -> tuple[tuple[int, ...], ...]:
    """Per sketch the others with equal holes."""
    return tuple(
        tuple(m for m, o in enumerate(sketches) if m != n and o.holes == s.holes)
        for n, s in enumerate(sketches)
    )
