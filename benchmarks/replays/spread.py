"""Spread: a policy that measures candidates from which a cost model can learn, not those that a model
predicts as best.

Half of every batch is drawn at random, with all sketches equally often. Each candidate of the other half is
the one with the best prior among several that are drawn in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from autotensor.search.propose.policy import Policy
from autotensor.search.propose.population import sample
from autotensor.search.task import Candidate

DRAWN = 48  # how many candidates are drawn, of which the prior chooses one


class Spread(Policy):
    """Proposes candidates from the whole space, promising ones more often."""

    warm = False

    def propose(self, count: int, rng: np.random.Generator) -> Iterable[Candidate]:
        for turn in range(16 * count):
            number = int(rng.integers(0, len(self.sketches)))
            s = self.sketches[number]
            rows = sample(s, self.scorings[number].state, DRAWN if turn % 2 else 1, rng)
            row = int(np.argmin(self.scorings[number].prior(rows.choices)))
            yield Candidate(s, rows.decisions(row), "promising" if turn % 2 else "random")
