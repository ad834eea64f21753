"""Scoring: the prior, features and looks of many candidates of one sketch at once.

    scoring = Scoring(sketch, state, target, rates)
    scoring.prior(choices)         seconds by the prior [candidates]
    scoring.described(choices)     features [candidates, features], and the prior
    scoring.looks(choices)         summaries of the candidates' loops

The functions that compute a candidate's loops (its picture), its prior and its features are written for
numbers. Here these functions get formulas of the decisions in place of numbers. So the functions are called
once for a sketch, and the recorded formulas are evaluated for any number of candidates
(`schedule/formulas.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autotensor.base.garbage import uncollected
from autotensor.base.target import Target
from autotensor.schedule.formulas import Plan, Sheet
from autotensor.schedule.loop_picture import appearance, looks, picture
from autotensor.schedule.sketch import Sketch
from autotensor.schedule.state import Ref, State
from autotensor.search.score.features import columns, matrix_of
from schedules.prior.predict import predict
from schedules.prior.rates import Rates

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Recorded:
    """The formulas of a sketch, valid for populations with the same conditions."""

    conditions: Plan
    hold: tuple[bool, ...]
    prior: Plan
    described: Plan  # features, and the prior as the last
    looks: Plan
    about: tuple[object, ...]  # descriptions of the numbers in `looks`

    def fit(self, choices: Ints) -> bool:
        values = self.conditions.evaluate(choices) if self.hold else ()
        return all(bool(np.any(v)) is hold for v, hold in zip(values, self.hold, strict=True))


class Scoring:
    """A sketch's candidates as the search sees them, given by their option indices [candidates, holes]."""

    def __init__(self, sketch: Sketch, state: State, target: Target, rates: Rates) -> None:
        """state: the sketch's structure, replayed once."""
        self.sketch, self.state, self.target, self.rates = sketch, state, target, rates
        self._recorded: list[_Recorded] = []

    def prior(self, choices: Ints) -> Floats:
        """Seconds of each candidate by the prior."""
        (seconds,) = self._of(choices).prior.evaluate(choices)
        return _full(seconds, len(choices))

    def described(self, choices: Ints) -> tuple[Floats, Floats]:
        """Features [candidates, features], and seconds by the prior."""
        *values, seconds = self._of(choices).described.evaluate(choices)
        return matrix_of(values, len(choices)), _full(seconds, len(choices))

    def looks(self, choices: Ints) -> tuple[bytes, ...]:
        """Summaries of loops. Candidates of a task with equal summaries are the same program."""
        mine = self._of(choices)
        values = mine.looks.evaluate(choices)
        half = len(mine.about)
        return looks(tuple(zip(mine.about, values[:half], values[half:], strict=True)), len(choices))

    def _of(self, choices: Ints) -> _Recorded:
        """The formulas that are valid for a population."""
        for recorded in self._recorded:
            if recorded.fit(choices):
                return recorded
        self._recorded.insert(0, self._record(choices))
        return self._recorded[0]

    def _record(self, choices: Ints) -> _Recorded:
        with uncollected():
            return self._recorded_with(choices)

    def _recorded_with(self, choices: Ints) -> _Recorded:
        holes = self.sketch.holes
        sheet = Sheet([np.asarray(h.options, dtype=np.int64) for h in holes], choices)
        values: dict[Ref, Any] = {
            Ref(h.name, m): sheet.hole(n, m) for n, h in enumerate(holes) for m in range(len(h.default))
        }
        p = picture(self.state, values)
        seconds, terms = predict(p, self.target, self.rates)
        seen = appearance(p)
        recorded = _Recorded(
            sheet.plan([truth for truth, _ in sheet.conditions]),
            tuple(answer for _, answer in sheet.conditions),
            sheet.plan((seconds,)),
            sheet.plan((*columns(p, terms, seconds, self.target), seconds)),
            sheet.plan((*(number for _, number, _ in seen), *(counts for _, _, counts in seen))),
            tuple(what for what, _, _ in seen),
        )
        sheet.done()
        return recorded


def _full(x: Any, count: int) -> Floats:
    return np.array(np.broadcast_to(x, (count,)))


__all__ = ["Scoring"]
