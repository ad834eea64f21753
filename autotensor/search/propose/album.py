"""The model's inputs for candidates. Each candidate is described once; those of one sketch together.

    places ──▶ in the album since the last round? ──no──▶ Scoring, sketch by sketch
                     │ yes                                    │
                     └───────────────▶ Album ◀────────────────┘ ──▶ Described, sketch by sketch

Formulas take about as long for one candidate as for a hundred, and the neighbours of the best are the same in
many rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autotensor.search.propose.population import Ints
from autotensor.search.score.cost_model import Prediction
from autotensor.search.score.features import NAMES
from autotensor.search.score.scoring import Scoring

Floats = npt.NDArray[np.float64]
# index of the sketch, and row of option indices: identity of a candidate, cheaper than its key
Place = tuple[int, bytes]
Found = tuple[int, Ints]  # the same, with the row as an array


@dataclass(slots=True)
class Described:
    """Candidates of one sketch, with the model's inputs for them."""

    sketch: int
    choices: Ints  # [candidates, holes]
    matrix: Floats  # [candidates, features]
    prior: Floats  # [candidates], seconds
    scoring: Scoring
    made_by: str
    said: Prediction | None = None  # the model's prediction in this round
    known_looks: tuple[bytes, ...] = ()  # summaries for all candidates, or () if not computed yet
    _places: tuple[Place, ...] = ()

    @property
    def looks(self) -> tuple[bytes, ...]:
        """Summaries of the candidates' loops. Candidates with equal summaries are the same program."""
        if not self.known_looks:
            self.known_looks = self.scoring.looks(self.choices)
        return self.known_looks

    @property
    def places(self) -> tuple[Place, ...]:
        if not self._places:
            self._places = tuple((self.sketch, choices.tobytes()) for choices in self.choices)
        return self._places

    def look(self, row: int) -> bytes:
        return self.looks[row]

    def place(self, row: int) -> Place:
        return self.places[row]

    def __len__(self) -> int:
        return len(self.prior)


class Album:
    """The candidates of a round. The next round uses the same album."""

    def __init__(self, scorings: Sequence[Scoring]) -> None:
        self._scorings = scorings
        self._at: dict[Place, int] = {}
        self._looks: dict[Place, bytes] = {}
        self._given: list[Described] = []  # returned in this round; their looks may have been computed since
        self.matrix: Floats = np.zeros((0, len(NAMES)))  # [candidates, features]
        self.prior: Floats = np.zeros(0)  # [candidates], seconds

    def __len__(self) -> int:
        return len(self.prior)

    def turn(self, wanted: Iterable[Found]) -> None:
        """Drops all candidates except these, and adds the missing ones."""
        found = {(n, row.tobytes()): (n, row) for n, row in wanted}
        kept = [place for place in self._at if place in found]
        rows = [self._at[place] for place in kept]
        self.matrix, self.prior = self.matrix[rows], self.prior[rows]
        self._at = {place: n for n, place in enumerate(kept)}
        for d in self._given:
            self._looks |= zip(d.places, d.known_looks, strict=False)
        self._looks = {place: self._looks[place] for place in kept if place in self._looks}
        self._given = []
        self.add(found.values())

    def add(self, wanted: Iterable[Found]) -> None:
        """Describes the candidates that are not in the album."""
        new: dict[int, dict[Place, Ints]] = {}
        for n, row in wanted:
            place = (n, row.tobytes())
            if place not in self._at:
                new.setdefault(n, {})[place] = row
        matrices, priors = [self.matrix], [self.prior]
        for n, rows in new.items():
            choices = np.stack([*rows.values()])
            matrix, prior = self._scorings[n].described(choices)
            matrices.append(matrix)
            priors.append(prior)
            self._at |= {place: len(self._at) + at for at, place in enumerate(rows)}
        self.matrix, self.prior = np.concatenate(matrices), np.concatenate(priors)

    def described(self, sketch: int, rows: Sequence[Ints], made_by: str, said: Prediction) -> Described:
        """Some candidates of one sketch. said: the prediction for the whole album."""
        places = tuple((sketch, row.tobytes()) for row in rows)
        at = np.asarray([self._at[place] for place in places], dtype=np.int64)
        looks = tuple(self._looks[place] for place in places if place in self._looks)
        choices, scoring = np.stack(rows), self._scorings[sketch]
        found = Described(
            sketch,
            choices,
            self.matrix[at],
            self.prior[at],
            scoring,
            made_by,
            said.of(at),
            looks if len(looks) == len(places) else (),
            places,
        )
        self._given.append(found)
        return found


__all__ = ["Album", "Described", "Floats", "Found", "Place"]
