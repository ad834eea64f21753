"""Populations contain only options of the holes, and each kind of move does what its name says."""

from __future__ import annotations

import numpy as np
import pytest
from fakes import TARGET
from zoo import SMALL, gemm

from autotensor.schedule.sketch import Hole, Sketch
from autotensor.schedule.state import State
from autotensor.search.propose.population import (
    Ints,
    Population,
    crossover,
    encode,
    moves_of,
    mutate,
    near_options,
    neighbours,
    sample,
    transplant,
    unique,
)
from schedules.generate import generate, structure

SIZES = [5, 1, 3, 8]
MOVES = moves_of(
    tuple(Hole(f"h{n}", tuple((v,) for v in range(1, size + 1)), (1,)) for n, size in enumerate(SIZES))
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def random_rows(count: int, seed: int = 0) -> Ints:
    return np.stack([rng(seed + n).integers(0, size, count) for n, size in enumerate(SIZES)], axis=1)


def inside(rows: Ints) -> bool:
    return bool(((rows >= 0) & (rows < np.asarray(SIZES))).all())


def test_a_small_sketch_is_sampled_whole() -> None:
    dag = gemm(13, 37, 19).dag
    sketch = generate(dag, TARGET)[0]
    pop = sample(sketch, structure(sketch, dag), 10_000, rng())
    assert len(pop) == sketch.size == len({tuple(r) for r in pop.choices.tolist()})


def test_a_sketch_without_holes_has_one_candidate() -> None:
    dag = gemm(5, 4, 3).dag
    pop = sample(Sketch(), State.initial(dag), 16, rng())
    assert len(pop) == 1
    assert pop.decisions(0) == {}


@pytest.mark.parametrize("workload", SMALL, ids=lambda w: w.name)
def test_samples_are_distinct_and_can_be_filled(workload: object) -> None:
    dag = workload.dag  # type: ignore[attr-defined]
    for sketch in generate(dag, TARGET):
        pop = sample(sketch, structure(sketch, dag), 40, rng())
        assert 1 <= len(pop) <= max(40, sketch.size)
        assert len({tuple(r) for r in pop.choices.tolist()}) == len(pop)
        for row in (0, len(pop) - 1):
            decisions = pop.decisions(row)
            sketch.fill(decisions)
            assert encode(sketch, decisions).tolist() == pop.choices[row].tolist()


def test_mutants_differ_in_at_most_one_hole_and_stay_inside() -> None:
    rows = random_rows(500)
    mutants = mutate(rows, MOVES, rng(1))
    assert inside(mutants)
    changed = (mutants != rows).sum(axis=1)
    assert changed.max() == 1
    assert 0.3 < changed.mean() < 1.0
    assert {int(n) for n in np.nonzero(mutants != rows)[1]} == {0, 2, 3}  # hole 1 has one option


def test_crossover_takes_every_hole_from_a_parent() -> None:
    a, b = random_rows(300), random_rows(300, seed=50)
    child = crossover(a, b, rng(2))
    assert ((child == a) | (child == b)).all()
    assert (child != a).any()
    assert (child != b).any()


def test_neighbours_have_one_similar_option() -> None:
    found = neighbours(np.asarray([2, 0, 1, 4]), MOVES).tolist()
    assert sorted(found) == [
        [1, 0, 1, 4],
        [2, 0, 0, 4],
        [2, 0, 1, 3],
        [2, 0, 1, 5],
        [2, 0, 2, 4],
        [3, 0, 1, 4],
    ]
    assert neighbours(np.asarray([0]), moves_of((Hole("h", ((3,),), (3,)),))).shape == (0, 1)


def test_similar_tiles_differ_a_little_in_each_component() -> None:
    options = tuple((rows_, columns) for rows_ in (1, 2, 4, 8) for columns in (1, 2, 3, 4))
    near = near_options(Hole("tile", options, (1, 1)))
    assert {options[n] for n in near[options.index((4, 2))]} >= {(4, 1), (4, 3), (2, 2), (8, 2)}


def test_nothing_to_mutate() -> None:
    empty = np.zeros((3, 0), dtype=np.int64)
    assert mutate(empty, [], rng()).shape == (3, 0)
    assert mutate(np.zeros((0, 4), dtype=np.int64), MOVES, rng()).shape == (0, 4)


def test_unique_keeps_the_first_of_each() -> None:
    rows = np.asarray([[1, 2], [0, 1], [1, 2], [0, 0]])
    assert unique(rows).tolist() == [[1, 2], [0, 1], [0, 0]]


def test_picture_of_a_subset_is_the_subset_of_the_picture() -> None:
    dag = gemm(40, 64, 32).dag
    sketch = generate(dag, TARGET)[0]
    pop = sample(sketch, structure(sketch, dag), 200, rng())
    some = Population(pop.sketch, pop.state, pop.choices[[3, 17, 40]])
    whole, part = pop.picture.stages[0], some.picture.stages[0]
    assert (
        np.broadcast_to(whole.points, len(pop))[[3, 17, 40]].tolist()
        == np.broadcast_to(part.points, 3).tolist()
    )


def test_components_of_an_option_are_one_decision() -> None:
    sketch = Sketch(holes=(Hole("tile", ((2, 3), (4, 1)), (4, 1)),))
    pop = Population(sketch, State.initial(gemm(5, 4, 3).dag), np.asarray([[1], [0]]))
    assert pop.decisions(0) == {"tile": (4, 1)}
    assert pop.decisions(1) == {"tile": (2, 3)}


def test_decisions_are_carried_to_another_sketch() -> None:
    """Holes are matched by name: a hole gets the same option, or the nearest one. Other holes keep their
    defaults."""
    here = Sketch(holes=(Hole("rows", ((1,), (4,), (16,)), (4,)), Hole("unroll", ((1,), (2,)), (1,))))
    there = Sketch(
        holes=(Hole("lanes", ((8,), (16,)), (16,)), Hole("rows", ((2,), (3,), (16,), (32,)), (2,)))
    )
    rows = np.asarray([[0, 1], [1, 0], [2, 0]])
    assert transplant(rows, here, there).tolist() == [[1, 0], [1, 1], [1, 2]]


@pytest.mark.parametrize("workload", SMALL[:6], ids=lambda w: w.name)
def test_transplants_can_be_filled(workload: object) -> None:
    dag = workload.dag  # type: ignore[attr-defined]
    sketches = generate(dag, TARGET)
    for a in sketches[:4]:
        pop = sample(a, structure(a, dag), 8, rng())
        for b in sketches[:4]:
            carried = Population(b, structure(b, dag), transplant(pop.choices, a, b))
            for row in range(len(carried)):
                b.fill(carried.decisions(row)).replay(dag)
            if a is b:
                assert (carried.choices == pop.choices).all()
