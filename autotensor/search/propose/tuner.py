"""Tuner: one task, ask and tell.

    tuner = Tuner(task, model, rates, seed=0)
    batch = tuner.ask(8)              candidates worth measuring
    tuner.tell(batch, results)        seconds, or None for a failure

    seeds     the default; suggestions from the log (`transfer.py`)                     first batch
    verify    whole space ──prior──▶ drafts ──model──▶ ranking ──diversity──▶ batch   ┐ each while it gains
    descend   best two so far ──single steps──▶ neighbours ──model──▶ batch           ┘ (`phases.py`)

The prior chooses the drafts once, from the whole space, or from a sample and its children. Only these drafts
get features. A small part of every batch is random. In wide spaces, half of each of the first batches goes to
sketches that were not tried yet, with their rules' defaults. If there are too few of these sketches, random
candidates fill this half.
Some spaces are too large for good drafts: those of the general rules, and those of many stages. There,
mutants and crossovers of the best candidates so far are added to the drafts. The structure changes, too: the
decisions of the best candidates are carried to other sketches, as steps of the descent, and crossed with the
best candidates there. `Candidate.made_by` says where each candidate came from, so the log shows which ways
win.
The proposed candidates depend only on the seed and on the results of each round. So a run that was killed
continues as if it had not been killed.
Source: draft-then-verify of Pruner (Qiao et al., ASPLOS 2025); evolution as in Ansor (Zheng et al., OSDI
2020).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotensor.schedule.primitives.algorithm import algorithms_of
from autotensor.schedule.sketch import Option, Sketch
from autotensor.search.propose.acquisition import diverse, order
from autotensor.search.propose.album import Album, Described, Found, Place
from autotensor.search.propose.drafts import draft
from autotensor.search.propose.phases import Phase, phase, relative_gain
from autotensor.search.propose.policy import Policy, Told
from autotensor.search.propose.population import (
    Ints,
    crossover,
    encode,
    moves_of,
    mutate,
    neighbours,
    transplant,
)
from autotensor.search.propose.stopping import Outlook, outlook
from autotensor.search.score.cost_model import CostModel, Floats, Prediction, predicted
from autotensor.search.task import Candidate, Task
from schedules.prior.rates import Rates
from tuning_db.records import Parent

# the rule for any reduction; its space is too large and too even for good drafts
GENERAL_RULE = "tile_general"
LARGE = 1 << 22  # candidates; the space of a single product has fewer (chosen, 2026-11)
WIDE = 10_000  # candidates; layers of networks, for which the prior is good, have fewer (chosen, 2026-11)
BEGINNING = 2  # number of first batches; the first model is fitted to these
DRAFTED, STRUCTURE = "drafted", "structure"
MADE_OF_OTHERS = ("bred", "descent")
# how a child was made from its parents
MUTATED, CROSSED, NEIGHBOUR, TRANSPLANTED = "mutated", "crossed", "neighbour", "transplanted"
CORNER = 2  # this many neighbouring options (by size) count as one family if there is no register tile
REACH = 2  # most holes in which a step of the descent differs


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Settings of the search. The defaults are for 2-core machines and fewer than 100 trials per task."""

    # candidates of one sketch that the prior scores; smaller sketches are scored completely
    draft: int = 8192
    keep: int = 768  # number of best drafts by the prior, which the model ranks in every round
    spread: int = 256  # number of random drafts, in case the prior is wrong
    parents: int = 16  # number of best measured candidates that have children
    children: int = 192  # number of mutants and crossovers per round
    descents: int = 2  # number of best measured candidates from which the descent takes steps
    transplants: int = 2  # candidates of a descent's batch that carry decisions to other sketches
    random_share: float = 0.1  # share of a batch that is drawn without the model
    # the same for the first batches in wide spaces: untried sketches first, then random candidates
    first_share: float = 0.5


@dataclass(frozen=True, slots=True)
class Made:
    """A candidate that could be made from measured ones."""

    sketch: int
    row: Ints
    how: str
    parents: tuple[Told, ...]

    @property
    def place(self) -> Found:
        return self.sketch, self.row


class Tuner(Policy):
    """Proposes candidates of one task, and learns from their results."""

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
        super().__init__(task, model, rates, seed=seed, sketches=sketches)
        self.options = options
        self._moves = [moves_of(s.holes) for s in self.sketches]
        self._algorithms = tuple(algorithms_of(s.steps) for s in self.sketches)
        self._drafts: list[Described] | None = None
        self._drafted: tuple[Floats, Floats]  # features and prior of the drafts
        self._origins: dict[Place, Made] = {}  # how this round's children and steps were made
        self._album = Album(self.scorings)
        self._said = Prediction.joined(())  # the model's prediction for the album in this round
        self._gains: list[float] = []  # relative improvement by every batch

    # -- asking --------------------------------------------------------------------------------------------

    def outlook(self, count: int) -> Outlook | None:
        """The gain that may be left; None before the first time was measured."""
        left = self.unmeasured()
        return None if left is None else outlook(left, self.told_s, count)

    def unmeasured(self) -> Prediction | None:
        """The model's prediction for the remaining drafts; None before the first time was measured.

        A draft with the same loops as a proposed candidate does not remain, because its time is known.
        """
        if not self._told:
            return None
        drafts = self._pool_of_drafts()
        asked, met = self._asked, self._looks
        left = [
            place not in asked and look not in met
            for d in drafts
            for place, look in zip(d.places, d.looks, strict=True)
        ]
        return self._predicted(drafts).of(np.asarray(left, dtype=np.bool_))

    def tell(self, candidates: Sequence[Candidate], seconds: Sequence[float | None]) -> None:
        before = self.best_seconds
        super().tell(candidates, seconds)
        self._gains.append(relative_gain(before, self.best_seconds))

    def _fill(self, out: list[Candidate], count: int, rng: np.random.Generator) -> None:
        self._origins.clear()
        descends = phase(self._gains) is Phase.DESCEND
        others, near = self._first_steps() if descends else ([], [])
        self._consider([made.place for made in (*others, *near)])
        # so that candidates with the same loops do not count as new
        self._describe_missing([self._place_of(c) for c in out])
        by_chance = max(1, round(count * self._share_by_chance())) if count > 4 else 0
        if self._begins():
            by_chance -= self._structures(out, min(count, len(out) + by_chance))
        wanted = count - by_chance
        if descends:
            self._descend(others, near, out, wanted)
        if len(out) < wanted:
            pool, ranking = self._ranked_pool()
            self._choose(pool, ranking, out, wanted)
            self._rest(pool, ranking, out, wanted, self._is_new)
        # a sketch of many candidates is not a better place to search than a sketch of few
        self._random(rng, out, count, by_size=False)
        if len(out) < count:
            self._rest(*self._ranked_pool(), out, count, self._is_open)

    def _share_by_chance(self) -> float:
        """The random share of a batch. In wide spaces it is larger, because the prior's best are similar."""
        return self.options.first_share if self._begins() else self.options.random_share

    def _begins(self) -> bool:
        """Whether this is one of the first batches in a wide space."""
        return self._round <= BEGINNING and self.space >= WIDE

    def _structures(self, out: list[Candidate], count: int) -> int:
        """Adds untried sketches with their rules' defaults, the most promising first. Returns how many were
        added. The prior's best candidates often have the same structure."""
        tried, before = {n for n, _ in self._asked}, len(out)
        untried = [(n, encode(s, s.defaults())) for n, s in enumerate(self.sketches) if n not in tried]
        found = self._describe(untried, STRUCTURE)
        for seconds, n, row in self._ranking(found) if found else ():
            if found[n].look(row) not in self._looks:
                self._take_row(found[n], row, seconds, out, count)
        return len(out) - before

    def _first_steps(self) -> tuple[list[Made], list[Made]]:
        """Two lists: the decisions of the best in other sketches, and the best with one hole changed."""
        best = self._best(self.options.descents)
        others = [made for t in best for made in self._transplants(t)]
        return others, self._neighbours([(t.sketch, t.row, t) for t in best])

    def _descend(
        self, others: Sequence[Made], near: Sequence[Made], out: list[Candidate], count: int
    ) -> None:
        """Fills the batch from the best so far: their decisions in other sketches, then small steps.

        A step changes one hole as long as there are such steps, then two holes. So a diagonal valley is not
        mistaken for a minimum.
        """
        self._take_made(others, out, min(count, len(out) + self.options.transplants))
        for _ in range(REACH):
            if len(out) >= count:
                return
            self._take_made(near, out, count)
            near = self._neighbours([(made.sketch, made.row, made.parents[0]) for made in near])

    def _take_made(self, found: Sequence[Made], out: list[Candidate], count: int) -> None:
        """Adds candidates that were made from measured ones to the batch, the most promising first."""
        if len(out) >= count:
            return
        self._note(found)
        steps = self._describe([made.place for made in found], "descent")
        for seconds, n, row in self._ranking(steps) if steps else ():
            if steps[n].look(row) not in self._looks:
                self._take_row(steps[n], row, seconds, out, count)

    def _best(self, count: int) -> list[Told]:
        return sorted(self._told, key=lambda t: t.seconds)[:count]

    def _neighbours(self, places: Sequence[tuple[int, Ints, Told]]) -> list[Made]:
        """The candidates that differ in one hole, each with the measured candidate from which the descent
        began."""
        found: dict[Place, Made] = {}
        for n, row, began in places:
            for moved in neighbours(row, self._moves[n]):
                found.setdefault((n, moved.tobytes()), Made(n, moved, NEIGHBOUR, (began,)))
        return list(found.values())

    def _transplants(self, told: Told) -> list[Made]:
        """The decisions of a measured candidate in every other sketch."""
        here, rows = self.sketches[told.sketch], told.row[None]
        others = [(m, s) for m, s in enumerate(self.sketches) if m != told.sketch]
        return [Made(m, transplant(rows, here, s)[0], TRANSPLANTED, (told,)) for m, s in others]

    # -- lineage -------------------------------------------------------------------------------------------

    def _note(self, found: Sequence[Made]) -> None:
        """Records what candidates of this round would be made from. The first way counts."""
        for made in found:
            self._origins.setdefault((made.sketch, made.row.tobytes()), made)

    def _parents(self, place: Place) -> tuple[Parent, ...]:
        made = self._origins.get(place)
        if made is None:
            return ()
        return tuple(Parent(self._filled(p.sketch, p.row).trace_hash, made.how) for p in made.parents)

    def _filled(self, sketch: int, row: Ints) -> Candidate:
        s = self.sketches[sketch]
        return Candidate(s, {h.name: h.options[int(k)] for h, k in zip(s.holes, row, strict=True)})

    # -- the pool: drafts and children ---------------------------------------------------------------------

    def _ranked_pool(self) -> tuple[list[Described], list[tuple[float, int, int]]]:
        """Drafts and children, and their ranking. A round that is filled by steps needs neither."""
        children = self._children(self.rng("breed", self._round))
        self._note(children)
        pool = [*self._pool_of_drafts(), *self._describe([c.place for c in children], "bred")]
        return pool, self._ranking(pool)

    def _pool_of_drafts(self) -> list[Described]:
        """The drafts. They are made when they are first needed."""
        if self._drafts is None:
            o, rng = self.options, self.rng("draft", 0)
            kept = draft(self.scorings, rng, o.draft, o.keep, o.spread)
            self._drafts = [self._described(n, rows, DRAFTED) for n, rows in kept]
            self._drafted = together(self._drafts)
            for array in self._drafted:
                array.setflags(write=False)
        return self._drafts

    def _children(self, rng: np.random.Generator) -> list[Made]:
        """Mutants and crossovers of the best so far, for sketches without good drafts, and crossovers between
        different sketches."""
        told = self._best(self.options.parents)
        found = self._crossed(told, rng)
        best = [t for t in told if is_bred(self.sketches[t.sketch])]
        for n in sorted({t.sketch for t in best}):
            mine = [t for t in best if t.sketch == n]
            parents = np.stack([t.row for t in mine])
            half = max(1, self.options.children * len(parents) // (2 * len(best)))
            one, left, right = rng.integers(0, len(parents), (3, half))
            mutants = mutate(parents[one], self._moves[n], rng)
            crossed = mutate(crossover(parents[left], parents[right], rng), self._moves[n], rng)
            found += [Made(n, row, MUTATED, (mine[a],)) for row, a in zip(mutants, one, strict=True)]
            for row, a, b in zip(crossed, left, right, strict=True):
                found.append(Made(n, row, CROSSED, (mine[a], mine[b]) if a != b else (mine[a],)))
        return found

    def _crossed(self, told: Sequence[Told], rng: np.random.Generator) -> list[Made]:
        """Children of two candidates of different sketches, in the sketch of the faster parent."""
        pairs = [(a, b) for n, a in enumerate(told) for b in told[n + 1 :] if a.sketch != b.sketch]
        pairs = pairs[: self.options.children // 2]
        alike: dict[tuple[int, int], list[tuple[Told, Told]]] = {}
        for a, b in pairs:
            alike.setdefault((a.sketch, b.sketch), []).append((a, b))
        found = []
        for (one, other), mine in alike.items():
            brought = transplant(np.stack([b.row for _, b in mine]), self.sketches[other], self.sketches[one])
            children = crossover(np.stack([a.row for a, _ in mine]), brought, rng)
            found += [Made(one, row, CROSSED, pair) for row, pair in zip(children, mine, strict=True)]
        return found

    def _consider(self, places: Iterable[Found]) -> None:
        """Makes these candidates the album of the round. All are described and predicted at once."""
        self._album.turn(places)
        self._said = Prediction.joined(())
        self._predict_new()

    def _describe(self, places: Sequence[Found], made_by: str) -> list[Described]:
        """Describes the candidates that were not proposed yet, sketch by sketch."""
        rows: dict[int, dict[Place, Ints]] = {}
        for n, row in places:
            place = (n, row.tobytes())
            if place not in self._asked:
                rows.setdefault(n, {})[place] = row
        self._album.add([(n, row) for n, mine in rows.items() for row in mine.values()])
        self._predict_new()
        return [
            self._album.described(n, [*mine.values()], made_by, self._said)
            for n, mine in sorted(rows.items())
        ]

    def _predict_new(self) -> None:
        """Gets the model's prediction for the candidates that were added to the album."""
        first = len(self._said)
        if first < len(self._album):
            new = self._album.matrix[first:], self._album.prior[first:]
            self._said = Prediction.joined([self._said, predicted(self.model, *new, self.task.workload.key)])

    # -- ranking -------------------------------------------------------------------------------------------

    def _ranking(self, pool: Sequence[Described]) -> list[tuple[float, int, int]]:
        """(predicted seconds, index in the pool, row), the most promising first: see acquisition.py."""
        prediction = self._predicted(pool)
        owner = np.concatenate([np.full(len(d), n) for n, d in enumerate(pool)])
        rows = np.concatenate([np.arange(len(d)) for d in pool])
        best = order(prediction, min((t.seconds for t in self._told), default=float("inf")))
        columns = (prediction.seconds[best], owner[best], rows[best])
        return list(zip(*(c.tolist() for c in columns), strict=True))

    def _predicted(self, pool: Sequence[Described]) -> Prediction:
        """The model's prediction for a pool. The drafts, which come first, are one array for the model."""
        drafts = any(d.made_by == DRAFTED for d in pool)  # the pool holds all drafts, or none
        said = [predicted(self.model, *self._drafted, self.task.workload.key)] if drafts else []
        return Prediction.joined([*said, *(d.said for d in pool if d.said is not None)])

    def _choose(
        self,
        pool: Sequence[Described],
        ranking: Sequence[tuple[float, int, int]],
        out: list[Candidate],
        count: int,
    ) -> None:
        """Takes the first candidates of the ranking that differ in family and in their loops.

        There may be too few of them, because some sketches have few families, and small spaces have few
        programs.
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
        """Whether neither this candidate nor one with the same loops was proposed."""
        return self._is_open(d, row) and d.look(row) not in self._looks

    def _is_open(self, d: Described, row: int) -> bool:
        """Whether the candidate was not proposed."""
        return d.place(row) not in self._asked

    def _rest(
        self,
        pool: Sequence[Described],
        ranking: Sequence[tuple[float, int, int]],
        out: list[Candidate],
        count: int,
        wanted: Callable[[Described, int], bool],
    ) -> None:
        """Fills the batch in the order of the ranking, with rows for which `wanted` holds, of any family."""
        for seconds, n, row in ranking:
            if len(out) >= count:
                return
            if wanted(pool[n], row):
                self._take_row(pool[n], row, seconds, out, count)

    def _take_row(self, d: Described, row: int, seconds: float, out: list[Candidate], count: int) -> None:
        c, before = self._filled(d.sketch, d.choices[row]), len(out)
        if d.place(row) not in self._asked and len(out) < count:
            parents = self._parents(d.place(row)) if d.made_by in MADE_OF_OTHERS else ()
            c = replace(c, made_by=d.made_by, parents=parents, predicted=seconds)
        self._take(c, out, count)
        if len(out) > before:
            self._looks.add(d.look(row))
            self._rows[d.place(row)] = (d.matrix[row], float(d.prior[row]))

    def _family(self, d: Described, row: int) -> Option:
        """The option indices of the register tiles. Without such tiles, the corner of the space."""
        pairs = zip(self.sketches[d.sketch].holes, d.choices[row].tolist(), strict=True)
        tiles = tuple(k for h, k in pairs if h.name.endswith("/tile"))
        return tiles or tuple(k // CORNER for k in d.choices[row].tolist())


def together(pool: Sequence[Described]) -> tuple[Floats, Floats]:
    """The features and the prior of all candidates."""
    return np.concatenate([d.matrix for d in pool]), np.concatenate([d.prior for d in pool])


def is_bred(sketch: Sketch) -> bool:
    """Whether a sample tells little about the space: general rules made it, or it has many stages."""
    return is_general(sketch) or sketch.size > LARGE


def is_general(sketch: Sketch) -> bool:
    """Whether one of the rules for any computation made it."""
    return GENERAL_RULE in sketch.made_by
