"""Chains of stencils whose stages slide along a loop give the same results as without a schedule."""

from __future__ import annotations

import random

import pytest
from comparison import Different, check, check_texts
from stencil_chains import sliding_case

from autotensor.lowering.nest import boxes

LONG = 600
CHUNK = 50


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.sample(6)
def test_any_chain_and_ring(seed: int) -> None:
    dag, trace = sliding_case(random.Random(seed))
    check(dag, trace, seed=seed)
    check_texts(dag, trace)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(16, LONG, CHUNK))
def test_many_chains_and_rings(first: int) -> None:
    for seed in range(first, first + CHUNK):
        dag, trace = sliding_case(random.Random(seed))
        check(dag, trace, seed=seed)
        check_texts(dag, trace)


def test_a_ring_that_is_too_short_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: rows are folded one too early, so that the newest one takes the place of one still needed."""

    def folded(rows: int) -> int:
        return max(1, rows - 1)

    monkeypatch.setattr(boxes, "places_of", folded)
    found = 0
    for seed in range(16):
        dag, trace = sliding_case(random.Random(seed))
        try:
            check(dag, trace, seed=seed, native=False)
        except Different:
            found += 1
    assert found >= 4
