"""Plans: their costs and their legality. Descent finds the same plan as an exhaustive search."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from autotensor import te
from autotensor.base.target import parse
from autotensor.schedule.state import State
from autotensor.te.dag import ComputeDAG
from schedules.cpu import cpu_of
from schedules.generate import default_trace
from schedules.placement import cost, search
from schedules.placement.cost import Tiling
from schedules.placement.search import Places
from schedules.rules.pipeline import _places, group_of

TARGET = parse("llvm -mcpu=znver4 -threads=2")


def taps(x, count: int, axis: int, name: str):  # type: ignore[no-untyped-def]
    shape = tuple(n - (count - 1) * (a == axis) for a, n in enumerate(x.shape))

    def body(i, j):  # type: ignore[no-untyped-def]
        parts = [x[i + d, j] if axis == 0 else x[i, j + d] for d in range(count)]
        return sum(parts[1:], parts[0])

    return te.compute(shape, body, name=name)


def places(*outputs) -> Places:  # type: ignore[no-untyped-def]
    dag = ComputeDAG.of([*outputs])
    state = State.initial(dag)
    group = group_of(state, state.stages[-1], TARGET)
    assert group is not None
    return Places(group, {o.name: _places(state, state.stage(o.name)) for o in group.order[:-1]})


def image():  # type: ignore[no-untyped-def]
    return te.placeholder((1024, 1024), name="x")


def test_few_taps_are_computed_again_and_many_are_kept() -> None:
    x = image()
    two, many = (
        str(default_trace(ComputeDAG.of([x, taps(taps(x, n, 0, "a"), n, 1, "b")]), TARGET)) for n in (2, 15)
    )
    assert 's["a"].compute_inline()' in two
    assert 's["a"].compute_at(s["b"]' in many


def test_a_tile_holds_rows_enough_for_what_they_share() -> None:
    x = image()
    best = places(x, taps(taps(x, 15, 1, "a"), 15, 0, "b")).best()[0]
    assert best.plan.tiled == {"a"}
    assert best.tile[0] >= 16


def test_a_stage_that_is_read_outside_is_not_in_the_tile() -> None:
    x = image()
    a = taps(x, 3, 0, "a")
    b = taps(a, 3, 1, "b")
    found = places(x, taps(b, 3, 0, "c"))
    assert found.legal({"a": "tile", "b": "tile"})
    assert not found.legal({"a": "tile", "b": "whole"})
    assert found.legal({"a": "tile", "b": "inline"})


def test_bytes_that_move_are_felt_less_in_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    def costs() -> list[tuple[bool, float]]:
        x = image()
        found = places(x, taps(taps(x, 3, 0, "a"), 3, 0, "b"))
        return [(t.steps is not None, found.cost({"a": "tile"}, t)) for t in found._tilings]

    less = costs()
    monkeypatch.setattr(cost, "cpu_of", lambda t: replace(cpu_of(t), strips_felt=1.0))
    for (strip, some), (_, all_) in zip(less, costs(), strict=True):
        assert some < all_ if strip else some == all_


def test_few_steps_fetch_little_ahead() -> None:
    x = image()
    group, cpu = places(x, taps(taps(x, 3, 0, "a"), 3, 0, "b")).group, cpu_of(TARGET)
    shares = [cost._felt(Tiling.of(group, (n, 1024), ("i", 4)), cpu) for n in (8, 16, 1020)]
    assert shares[0] == 1.0 > shares[1] > shares[2] > cpu.strips_felt


@pytest.mark.parametrize("seed", range(6))
def test_descent_finds_what_trying_all_finds(seed: int) -> None:
    x = y = image()
    for n in range(4):
        y = taps(y, (2, 3, 5, 9)[(seed + n * (seed + 1)) % 4], n % 2, f"s{n}")
    found = places(x, y)
    names = [*found.free]
    every = [
        found.cost(dict(zip(names, choice, strict=True)), tiling)
        for choice in product(*(sorted(found.free[n]) for n in names))
        for tiling in found._tilings
    ]
    assert found.best()[0].cycles <= 1.02 * min(every)


def test_an_expression_that_grows_without_bounds_is_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    x = image()
    found = places(x, taps(taps(taps(x, 15, 0, "a"), 15, 1, "b"), 15, 0, "c"))
    assert found.plain().cycles == float("inf")


def test_tiles_are_of_rows_and_columns() -> None:
    x = image()
    found = places(x, taps(taps(x, 3, 0, "a"), 3, 1, "b"))
    tiles = search.tiles_of(found.group)
    assert (1022, 1022) not in tiles
    assert {t[1] for t in tiles} == {1022, 64, 128, 256, 512}
