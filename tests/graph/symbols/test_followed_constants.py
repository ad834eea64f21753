"""Constants that differ between extents: their formulas, and models that read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.base.errors import GraphError
from autotensor.graph.ir import GraphNode
from autotensor.graph.symbols.followed_constants import (
    FORMS,
    Form,
    affine,
    averages,
    band,
    between,
    held,
    mirrored,
    wrapped,
)
from autotensor.graph.tables import windows

p, n = te.var("p", range=(1, 24)), te.var("n", range=(4, 40))
ops = at.ops
Array = np.ndarray[Any, Any]


@pytest.mark.parametrize(
    ("form", "array"),
    [
        (affine, np.arange(5, 12)),
        (affine, 3.0 - 2 * np.arange(4)[:, None] + np.zeros((1, 3))),
        (affine, np.array(7)),
        (wrapped, (np.arange(8) - 3) % 8),
        (wrapped, np.arange(12) % 4),
        (mirrored, np.pad(np.arange(9), (2, 3), "reflect")),
        (held, np.pad(np.arange(9), (2, 3), "edge")),
        (averages, windows(7, 3)),
        (averages, windows(4, 6)),
        (band, np.tri(5, 9, 4, bool)),
        (band, np.where(np.tri(5, 9, 4, bool), 0.0, -np.inf).astype(np.float32)[None]),
    ],
)
def test_forms(form: Form, array: Array) -> None:
    numbers = form.numbers(array)
    made = te.compute(array.shape, lambda *i: te.cast(array.dtype.name, form.element(numbers, *i)))
    np.testing.assert_array_equal(at.build([made], target="llvm -threads=1")(), array)


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize(("places", "count"), [(10, 5), (7, 5), (3, 9), (600, 300)])
def test_shares_of_neighbours(places: int, count: int, ends: bool) -> None:
    rows = np.arange(places, dtype=np.float64)
    x = (
        rows * (count - 1) / (places - 1)
        if ends
        else np.clip((rows + 0.5) * count / places - 0.5, 0, count - 1)
    )
    shares = np.maximum(1 - np.abs(x[:, None] - np.arange(count)), 0).astype(np.float32)
    numbers = between.numbers(shares)
    made = te.compute(shares.shape, lambda i, j: te.cast("float32", between.element(numbers, i, j)))
    np.testing.assert_allclose(at.build([made], target="llvm -threads=1")(), shares, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "array",
    [np.arange(9) ** 2, np.array([0.5, 1.5]), np.array([0, -np.inf]), np.eye(3)[::-1], np.zeros((0,), int)],
)
@pytest.mark.filterwarnings("error")
def test_what_has_no_formula(array: Array) -> None:
    assert all(form.numbers(array) is None for form in FORMS)


def positions(past: int, length: int) -> tuple[GraphNode, Array]:
    table = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)
    x = at.input((past, length, 8), name="x")
    taken = ops.take(table, np.arange(past, past + length), axis=0)
    return x + taken, table[past : past + length]


def mask(past: int, length: int) -> tuple[GraphNode, Array]:
    seen = np.where(np.tri(length, past + length, past, bool), 0.0, -9.0).astype(np.float32)
    x = at.input((past, length, 8), name="x")
    y = ops.reshape(ops.concat(x, x, axis=1), (past, 2, length * 8))
    return x + ops.sum((seen), axis=1, keepdims=True) + ops.sum(y) * 0.0, seen.sum(1, keepdims=True)


def share(past: int, length: int) -> tuple[GraphNode, Array]:
    places = ops.divide(np.arange(length, dtype=np.float32), float(length))
    wanted = (np.arange(length, dtype=np.float32) / np.float32(length))[:, None]
    return at.input((past, length, 8), name="x") + ops.reshape(places, (length, 1)), wanted


@pytest.mark.parametrize("added", [positions, mask, share])
def test_models_compute_them(added: Callable[[int, int], tuple[GraphNode, Array]]) -> None:
    f = at.compile_model(at.open_graph(lambda p, n: added(p, n)[0], p, n), target="llvm -threads=1")
    for past, length in ((1, 4), (24, 40), (7, 5), (2, 33)):
        x = np.random.default_rng(past).standard_normal((past, length, 8)).astype(np.float32)
        np.testing.assert_allclose(f(x), x + added(past, length)[1], rtol=1e-5, atol=1e-5)


MOVES: dict[str, Callable[[Array], Array]] = {
    "roll": lambda i: np.roll(i, 3),
    "mirror": lambda i: np.pad(i, (2, 3), "reflect"),
    "hold": lambda i: np.pad(i, (2, 3), "edge"),
    "repeat": lambda i: np.tile(i, 3),
    "turn": lambda i: i[::-1].copy(),
}


@pytest.mark.parametrize("name", MOVES)
def test_elements_are_taken_from_places_that_follow(name: str) -> None:
    def make(p: int, n: int) -> GraphNode:
        return ops.take(at.input((p, n, 3), name="x"), MOVES[name](np.arange(n)), axis=1) * 2.0

    f = at.compile_model(at.open_graph(make, p, n), target="llvm -threads=1")
    for rows, columns in ((1, 4), (24, 40), (7, 5), (2, 33)):
        x = np.random.default_rng(rows).standard_normal((rows, columns, 3)).astype(np.float32)
        np.testing.assert_array_equal(f(x), x[:, MOVES[name](np.arange(columns))] * 2)


TABLES: dict[str, Callable[[int], Array]] = {
    "steps": lambda n: np.arange(n) * max(n, 10),
    "a first place": lambda n: np.arange(n) + max(n, 10),
    "a roll": lambda n: np.roll(np.arange(n), 3 if n > 9 else 1),
    "a border": lambda n: np.pad(np.arange(n), (2, 2) if n > 9 else (1, 3), "reflect"),
    "a mask": lambda n: np.tri(3, n, n - (4 if n > 9 else 5), bool).astype(np.int64),
    "a number": lambda n: np.array([max(n, 10)]),
    "a great number": lambda n: np.array([5000 if n > 9 else 5003]),
    "a first place among many": lambda n: np.arange(n) + (5000 if n > 9 else 5003),
    "no form": lambda n: np.arange(n) ** 2 if n < 10 else np.arange(n),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_that_does_not_follow_at_lesser_extents_is_refused(name: str) -> None:
    def make(n: int) -> GraphNode:
        table = TABLES[name](n).astype(np.float32)
        return at.input(table.shape, name="x") + ops.multiply(table, np.float32(2))

    with pytest.raises(GraphError, match=r"at n = \d+, .* has a number that the graphs at greater"):
        at.plan_model(at.open_graph(make, n), "llvm -threads=1")


@pytest.mark.parametrize("table", [lambda p, n: np.arange(n) * min(p, n), lambda p, n: np.array([max(p, n)])])
def test_a_number_that_is_another_one_where_only_one_symbol_is_small_is_refused(
    table: Callable[[int, int], Array],
) -> None:
    """p, at most 24, is less than n at the least, the middle and the greatest extents."""

    def make(p: int, n: int) -> GraphNode:
        return at.input((p, n), name="x") + table(p, n).astype(np.float32)

    with pytest.raises(GraphError, match=r"at p = 24, n = 5, .* has a number that the graphs at greater"):
        at.plan_model(at.open_graph(make, p, n), "llvm -threads=1")


def test_operators_that_are_other_ones_at_lesser_extents_are_refused() -> None:
    def make(n: int) -> GraphNode:
        x = at.input((n, 3), name="x")
        return ops.relu(x) if n > 20 else ops.relu(x) * 3.0

    with pytest.raises(
        GraphError, match=r"at n = \d+, the graph has other operators than at greater extents"
    ):
        at.plan_model(at.open_graph(make, n), "llvm -threads=1")


def test_operators_that_do_nothing_on_one_element_may_be_left_out_there() -> None:
    def make(p: int, n: int) -> GraphNode:
        row, x = at.input((1, n), name="row"), at.input((p, n), name="x")
        return x + (ops.broadcast_to(row, (p, n)) if p > 1 else row)

    f = at.compile_model(at.open_graph(make, p, n), target="llvm -threads=1")
    for rows in (1, 2, 24):
        row, x = np.ones((1, 4), np.float32), np.full((rows, 4), 2, np.float32)
        given = {"row": row, "x": x}
        np.testing.assert_array_equal(f(**given), row + x)


def grid(h: int, w: int) -> GraphNode:
    """x + half of the column and the row of each element, as detectors add them."""
    x = at.ops.reshape(at.input((h, w, 2), name="x"), (h * w * 2,))
    rows = at.ops.broadcast_to(np.arange(h).reshape(h, 1, 1), (h, w, 1))
    columns = at.ops.broadcast_to(np.arange(w).reshape(1, w, 1), (h, w, 1))
    places = at.ops.reshape(at.ops.concat(columns, rows, axis=-1), (h * w * 2,))
    return at.ops.relu(at.ops.reshape(at.ops.cast(places, "float32") * 0.5, (h * w * 2,))) + x


def test_a_grid_follows_its_extents() -> None:
    h, w = te.var("h", range=(3, 12)), te.var("w", range=(3, 12))
    f = at.compile_model(at.open_graph(grid, h, w), target="llvm -mcpu=x86-64-v3 -threads=1")
    places = np.stack(np.meshgrid(np.arange(9), np.arange(5)), axis=-1).reshape(-1)
    np.testing.assert_array_equal(f(np.ones((5, 9, 2), np.float32)), places * 0.5 + 1)
