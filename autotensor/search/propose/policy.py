"""Policy: proposes the candidates of one task. This class does the bookkeeping; a subclass chooses
candidates.

    class Mine(Policy):
        def propose(self, count, rng):      candidates of self.sketches, the most promising first
        def tell(self, candidates, seconds):     results, None for a failure; call super().tell(…)

The first batch begins with the default and with suggested candidates. No candidate is proposed twice. If a
subclass proposes too few candidates, the batch is filled at random from the whole space. A policy that
proposes no candidates is the baseline.

Results that arrive before the first `ask` come from the log, round by round. If proposals depend only on the
seed and on the results of each round, a run that was killed continues as if it had not been killed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from autotensor.base.doors import inside, name_of
from autotensor.base.errors import InputError
from autotensor.schedule.sketch import Sketch
from autotensor.search.propose.album import Described, Floats, Place
from autotensor.search.propose.population import Ints, encode, sample
from autotensor.search.propose.stopping import Outlook
from autotensor.search.score.cost_model import CostModel, Prediction, predicted, tell_model
from autotensor.search.score.scoring import Scoring
from autotensor.search.task import Candidate, Task
from schedules.generate import generate, structure
from schedules.prior.rates import Rates

# proposals that are read for each candidate of a batch, because `propose` may be an endless generator
PROPOSALS = 64
END = object()  # stands for the end of the proposals


@dataclass(slots=True)
class Told:
    """One measured candidate."""

    seconds: float
    sketch: int
    row: Ints = field(repr=False)


class Policy:
    """Proposes candidates of one task, and gets their results."""

    warm: ClassVar[bool] = True  # False: the log and the shipped schedules suggest no candidates

    def __init__(
        self,
        task: Task,
        model: CostModel,
        rates: Rates,
        *,
        seed: int = 0,
        sketches: Sequence[Sketch] | None = None,
    ) -> None:
        """model: has learned the log's rows, and will learn the results. rates: this machine's, for the
        prior. sketches: the space; None: the sketches that the rules make."""
        self.task = task
        self.model = model
        self.rates = rates
        self.seed = seed
        dag = task.workload.dag
        self.sketches = tuple(sketches) if sketches is not None else generate(dag, task.target)
        self.scorings = tuple(Scoring(s, structure(s, dag), task.target, rates) for s in self.sketches)
        self.best: Candidate | None = None
        self.best_seconds = float("inf")
        self._number = {s.hash: n for n, s in enumerate(self.sketches)}
        self._asked: set[Place] = set()
        self._looks: set[bytes] = set()  # summaries of the loops of proposed candidates
        self._told: list[Told] = []
        self._rows: dict[Place, tuple[Floats, float]] = {}  # features and prior of proposed candidates
        self._seeds: tuple[Candidate, ...] = ()
        self._round = 0

    # -- for subclasses -------------------------------------------------------------------------------------

    def propose(self, count: int, rng: np.random.Generator) -> Iterable[Candidate]:
        """The next candidates, the most promising first. `count` are needed.

        Candidates that were proposed before are skipped, so the iterator may be endless. rng: the generator
        for this round.
        """
        return ()

    def outlook(self, count: int) -> Outlook | None:
        """The gain that is left for batches of `count`; None: unknown."""
        return None

    # -- asking ---------------------------------------------------------------------------------------------

    def default(self) -> Candidate:
        """The rules' choice without a measurement. It is always the first candidate."""
        first = self.sketches[0]
        return Candidate(first, first.defaults(), "default")

    def suggest(self, seeds: Sequence[Candidate]) -> None:
        """Adds candidates of this task's sketches. They are proposed right after the default."""
        self._seeds = (*self._seeds, *seeds)

    def skip_round(self) -> None:
        """Counts a round whose results came from the log, so that the next one uses other random numbers."""
        self._round += 1

    @property
    def space(self) -> int:
        """The number of candidates."""
        return sum(s.size for s in self.sketches)

    @property
    def asked(self) -> int:
        """The number of candidates that were proposed or came from the log."""
        return len(self._asked)

    @property
    def exhausted(self) -> bool:
        return len(self._asked) >= self.space

    def ask(self, count: int) -> list[Candidate]:
        """Up to `count` new candidates, the most promising first; fewer when the space is exhausted."""
        out: list[Candidate] = []
        rng = self.rng("ask", self._round)
        self._round += 1
        for c in (self.default(), *self._seeds):
            self._take(c, out, count)
        if len(out) < count:
            self._fill(out, count, rng)
        self._random(rng, out, count, tries=8)
        self._enumerate(out, count)
        return out

    def rng(self, purpose: str, number: int) -> np.random.Generator:
        """A generator for each purpose and round, so that the order of calls does not matter."""
        text = f"{self.seed}/{self.task.workload.key}/{purpose}/{number}"
        return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little"))

    def _fill(self, out: list[Candidate], count: int, rng: np.random.Generator) -> None:
        """Adds proposed candidates to the batch. Raises InputError for a candidate of another task."""
        for c in self._proposed(count - len(out), rng, PROPOSALS * count):
            if not self._fits(c):
                raise InputError(
                    f"policy {name_of(type(self))!r} proposes no candidate of {self.task.label!r}.",
                    fix="Take one of self.sketches, and one of the options of each of its holes; made_by is "
                    "a text.",
                )
            self._take(c, out, count)
            if len(out) >= count:
                return

    def _proposed(self, count: int, rng: np.random.Generator, most: int) -> Iterator[Any]:
        """Up to `most` proposals. Raises InputError if a policy from outside fails."""
        with inside("search policy", type(self), "in propose"):
            proposals = iter(self.propose(count, rng))
        for _ in range(most):
            with inside("search policy", type(self), "in propose"):
                c = next(proposals, END)
            if c is END:
                return
            yield c

    def _fits(self, c: object) -> bool:
        """Whether a proposal is a candidate of this task."""
        return (
            isinstance(c, Candidate)
            and isinstance(c.made_by, str)
            and self.candidate(c.sketch.hash, dict(c.decisions)) is not None
        )

    def _take(self, c: Candidate, out: list[Candidate], count: int) -> None:
        """Adds a candidate to the batch, unless the batch is full or the candidate was proposed before."""
        number, row = self._place_of(c)
        place = (number, row.tobytes())
        if len(out) < count and place not in self._asked:
            self._asked.add(place)
            out.append(c)

    def _place_of(self, c: Candidate) -> tuple[int, Ints]:
        """The index of the candidate's sketch, and its option indices."""
        return self._number[c.sketch.hash], encode(c.sketch, c.decisions)

    def _random(
        self, rng: np.random.Generator, out: list[Candidate], count: int, tries: int = 4, by_size: bool = True
    ) -> None:
        """Fills the batch at random, if new candidates are found. All candidates are equally likely, or,
        without `by_size`, all sketches."""
        sizes = np.asarray([s.size if by_size else 1 for s in self.sketches], dtype=np.float64)
        missing = count - len(out)
        if missing <= 0:
            return
        for n in rng.choice(len(self.sketches), missing * tries, p=sizes / sizes.sum()):
            s = self.sketches[int(n)]
            decisions = {h.name: h.options[int(rng.integers(0, len(h.options)))] for h in s.holes}
            self._take(Candidate(s, decisions, "random"), out, count)

    def _enumerate(self, out: list[Candidate], count: int) -> None:
        """Fills the batch with the remaining candidates of a space that was proposed almost completely."""
        if len(out) >= count or self.space > 4 * len(self._asked) + 4 * count:
            return
        for n, s in enumerate(self.sketches):
            rows = sample(s, self.scorings[n].state, s.size, self.rng("all", n))
            for row in range(len(rows)):
                self._take(Candidate(s, rows.decisions(row), "left over"), out, count)

    # -- telling --------------------------------------------------------------------------------------------

    def tell(self, candidates: Sequence[Candidate], seconds: Sequence[float | None]) -> None:
        """Takes results in order. None is a failure. Candidates may belong to an earlier run."""
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
                    self._told.append(Told(t, number, row))
            if t is not None and t < self.best_seconds:
                self.best, self.best_seconds = c, t
        if told:
            tell_model(self.model, *self._features(told), np.asarray(learned), self.task.workload.key)

    @property
    def told_s(self) -> tuple[float, ...]:
        """Seconds of all measured candidates that work, in order."""
        return tuple(t.seconds for t in self._told)

    def candidate(
        self, sketch_hash: str, decisions: dict[str, tuple[int, ...]], made_by: str = "log"
    ) -> Candidate | None:
        """A candidate from a record; None if this version's rules have no such sketch or options."""
        number = self._number.get(sketch_hash)
        if number is None:
            return None
        s = self.sketches[number]
        fits = len(decisions) == len(s.holes) and all(decisions.get(h.name) in h.options for h in s.holes)
        return Candidate(s, decisions, made_by) if fits else None

    # -- inputs of the cost model ---------------------------------------------------------------------------

    def predict(self, candidates: Sequence[Candidate]) -> Prediction:
        """The cost model's predictions for one or more candidates, in their order."""
        rows = [self._place_of(c) for c in candidates]
        return predicted(self.model, *self._features(rows), self.task.workload.key)

    def _features(self, rows: Sequence[tuple[int, Ints]]) -> tuple[Floats, Floats]:
        """Features [candidates, features], and prior [candidates]."""
        self._describe_missing(rows)
        known = [self._rows[n, row.tobytes()] for n, row in rows]
        return np.stack([m for m, _ in known]), np.asarray([p for _, p in known])

    def _describe_missing(self, rows: Sequence[tuple[int, Ints]]) -> None:
        """Computes the features of measured candidates that did not come from the pool."""
        missing: dict[int, list[Ints]] = {}
        for n, row in rows:
            if (n, row.tobytes()) not in self._rows:
                missing.setdefault(n, []).append(row)
        for n, mine in missing.items():
            d = self._described(n, np.stack(mine))
            for at in range(len(d)):
                self._rows[d.place(at)] = (d.matrix[at], float(d.prior[at]))
                self._looks.add(d.look(at))

    def _described(self, number: int, choices: Ints, made_by: str = "") -> Described:
        """Candidates of one sketch, with features and prior."""
        scoring = self.scorings[number]
        matrix, prior = scoring.described(choices)
        return Described(number, choices, matrix, prior, scoring, made_by)


class Uniform(Policy):
    """The baseline: all candidates of all sketches are equally likely."""

    warm = False


__all__ = ["Described", "Policy", "Told", "Uniform"]
