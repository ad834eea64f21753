"""Spread: a policy that measures what a cost model is to learn from, not what one holds for best.

Half of every batch is drawn by chance; all sketches are drawn equally often. For the other half a few
candidates are drawn in the same way, and the prior takes one.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from autotensor.search.propose.policy import Policy
from autotensor.search.propose.population import sample
from autotensor.search.task import Candidate

DRAWN = 48  # candidates of which the prior takes one


class Spread(Policy):
    """Candidates from everywhere, promising ones more often."""

    warm = False

    def propose(self, count: int, rng: np.random.Generator) -> Iterable[Candidate]:
        for turn in range(16 * count):
            number = int(rng.integers(0, len(self.sketches)))
            s = self.sketches[number]
            rows = sample(s, self.scorings[number].state, DRAWN if turn % 2 else 1, rng)
            row = int(np.argmin(self.scorings[number].prior(rows.choices)))
            yield Candidate(s, rows.decisions(row), "promising" if turn % 2 else "random")
