"""Drafts: the candidates of whole spaces that the prior finds fastest, and some random ones.

every sketch ──all candidates, or a sample and its children──▶ prior ──best of all sketches──▶ drafts
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from autotensor.search.propose.population import Ints, Population, moves_of, mutate, sample, unique
from autotensor.search.score.scoring import Scoring

Floats = npt.NDArray[np.float64]

PARENTS = 256  # number of candidates of a sample that have children
CHILDREN = 8  # number of children of each parent


def draft(
    spaces: Sequence[Scoring],
    rng: np.random.Generator,
    looked_at: int,
    keep: int,
    spread: int,
) -> list[tuple[int, Ints]]:
    """The drafts of each sketch that has any: the sketch's index, and rows of option indices.

    looked_at: the most candidates of one sketch that are scored.
    keep: the number of best candidates of all sketches that become drafts.
    spread: the number of additional random drafts, the same number from each sketch.
    """
    pops, priors = [], []
    for space in spaces:
        pop = sample(space.sketch, space.state, looked_at, rng)
        prior = space.prior(pop.choices)
        if space.sketch.size > len(pop):
            pop, prior = _bred(pop, prior, space, rng)
        pops.append(pop)
        priors.append(prior)
    everything = np.concatenate(priors)
    owner = np.concatenate([np.full(len(p), n) for n, p in enumerate(priors)])
    rows = np.concatenate([np.arange(len(p)) for p in priors])
    order = np.argsort(everything, kind="stable")
    each = -(-spread // len(pops))
    by_chance = [np.flatnonzero(owner == n)[rng.permutation(len(p))[:each]] for n, p in enumerate(priors)]
    kept = np.unique(np.concatenate([order[:keep], *by_chance]))
    found = ((n, pops[n].choices[rows[kept[owner[kept] == n]]]) for n in range(len(pops)))
    return [(n, choices) for n, choices in found if len(choices)]


def _bred(
    pop: Population, prior: Floats, space: Scoring, rng: np.random.Generator
) -> tuple[Population, Floats]:
    """One generation of evolution by the prior alone, for sketches that are too large to score completely."""
    parents = pop.choices[np.argsort(prior, kind="stable")[:PARENTS]]
    moves = moves_of(pop.sketch.holes)
    rows = np.concatenate([mutate(parents, moves, rng) for _ in range(CHILDREN)])
    young = unique(rows)
    found = space.prior(young)
    choices = np.concatenate([pop.choices, young])
    _, first = np.unique(choices, axis=0, return_index=True)
    first = np.sort(first)
    return Population(pop.sketch, pop.state, choices[first]), np.concatenate([prior, found])[first]
