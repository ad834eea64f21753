"""Loads whose lanes share vectors: the shared vectors that are found contain the lanes of each load."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotensor.base.dtype import bool_, float32, int32
from autotensor.codegen.shared_vectors import LEAST_LANES, MOST_SOURCES, SharedVectors, shared_vectors
from autotensor.ir.expr import Broadcast, Expr, Load, Ramp, Var, const
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.stmt import Evaluate, Stmt, Store
from autotensor.ir.visit import loads

i = Var("i")
A, B = Buffer("A", (4096,), float32), Buffer("B", (4096,), float32)
R, C = Buffer("R", (64,), float32, Scope.REGISTER), Buffer("C", (4096,), bool_)


def strided(first: int, step: int, lanes: int = 8, buffer: Buffer = A) -> Load:
    return Load(buffer, (Ramp(i * 64 + first, step, lanes),))


def stores(*values: Expr, into: Buffer = B) -> list[Stmt]:
    return [Store(into, (Ramp(const(16 * n), 1, v.dtype.lanes),), v) for n, v in enumerate(values)]


def found(stmts: list[Stmt]) -> list[SharedVectors]:
    return [x for group in shared_vectors(stmts, loads).values() for x in group]


def test_three_colours_are_three_vectors() -> None:
    stmts = stores(*(strided(c, 3) for c in range(3)))
    groups = shared_vectors(stmts, loads)
    ((first, (shared,)),) = groups.items()
    assert first is stmts[0]
    assert (shared.vectors, shared.is_square) == ((0, 8, 16), False)
    assert shared.sources(strided(1, 3))[:4] == ((0, 1), (0, 4), (0, 7), (1, 2))


def test_columns_of_a_square_are_its_rows_transposed() -> None:
    stmts = stores(*(strided(c, 64, 4) for c in (5, 3, 4, 6)))
    (shared,) = found(stmts)
    assert shared.is_square
    assert shared.vectors == (3, 67, 131, 195)
    assert list(shared.wanted) == [strided(c, 64, 4) for c in (3, 4, 5, 6)]


def test_a_square_is_loaded_where_its_first_column_is_wanted() -> None:
    stmts = stores(strided(0, 1), *(strided(c, 64, 4) for c in range(4)))
    assert list(shared_vectors(stmts, loads)) == [stmts[1]]


def test_what_a_square_takes_no_stream_has() -> None:
    columns = [strided(c, 8) for c in range(8)]
    square, *others = found(stores(*columns, strided(64, 3), strided(65, 3), strided(66, 3)))
    assert square.is_square
    assert [x.is_square for x in others] == [False]
    assert not square.wanted.keys() & others[0].wanted.keys()


WHOLE = [strided(c, 2) for c in range(2)]
NOT_SHARED: dict[str, list[Stmt]] = {
    "one half": stores(WHOLE[0]),
    "written": stores(*WHOLE, into=A),
    "masked": stores(*(Load(A, x.indices, Ramp(i, 1, 8) < Broadcast(i, 8)) for x in WHOLE)),
    "beside something else": [*stores(*WHOLE), Evaluate(i)],
    "of bools": stores(*(strided(c, 2, buffer=C) for c in range(2))),
    "of registers": stores(*(strided(c, 2, buffer=R) for c in range(2))),
    "few lanes": stores(*(strided(c, 2, LEAST_LANES // 2) for c in range(2))),
    "side by side": stores(strided(0, 1), strided(7, -1)),
    "indices that may wrap": stores(*(Load(A, (Ramp(const(c, int32), 2, 8),)) for c in range(2))),
}


def test_two_halves_are_two_vectors() -> None:
    (shared,) = found(stores(*WHOLE))
    assert shared.vectors == (0, 8)


@pytest.mark.parametrize("name", NOT_SHARED)
def test_these_are_loaded_by_themselves(name: str) -> None:
    assert not found(NOT_SHARED[name])


PLACES = st.lists(st.tuples(st.integers(0, 20), st.integers(2, 9)), min_size=1, max_size=20)


@given(PLACES, st.sampled_from([4, 8]))
def test_every_lane_is_where_it_is_said_to_be_and_nothing_else_is_loaded(
    places: list[tuple[int, int]], lanes: int
) -> None:
    """Loads from `first`, each lane a `step` further."""
    wanted = {strided(first, step, lanes): (first, step) for first, step in places}
    seen: set[Load] = set()
    for shared in found(stores(*wanted)):
        held = {at + k for at in shared.vectors for k in range(lanes)}
        assert held == {p for at in shared.wanted.values() for p in at}
        for load in shared.wanted:
            first, step = wanted[load]
            sources = shared.sources(load)
            told = [shared.vectors[v] + lane for v, lane in sources]
            assert told == [first + k * step for k in range(lanes)]
            assert shared.is_square or len({v for v, _ in sources}) <= MOST_SOURCES
        assert not seen & shared.wanted.keys()
        seen |= shared.wanted.keys()


@pytest.mark.parametrize(
    ("step", "mixes", "groups"), [(4, False, 1), (5, False, 0), (7, True, 1), (8, True, 0)]
)
def test_more_vectors_are_mixed_where_one_instruction_does(step: int, mixes: bool, groups: int) -> None:
    """Up to four, or to seven of sixteen."""
    stmts = stores(*(strided(c, step, 16) for c in range(step)))
    assert sum(map(len, shared_vectors(stmts, loads, mixes).values())) == groups


def test_what_is_written_before_is_shared_and_what_is_written_behind_is_not() -> None:
    near = Buffer("near", (64,), float32, Scope.LOCAL)
    made = stores(*(strided(8 * c, 1) for c in range(3)), into=near)
    turned = stores(*(Load(near, (Ramp(const(c), 3, 8),)) for c in range(3)))
    groups = shared_vectors([*made, *turned], loads)
    assert [(stmt, len(found)) for stmt, found in groups.items()] == [(turned[0], 1)]
    assert not shared_vectors([*turned, *made], loads)
    assert not shared_vectors([*made[:2], *turned, made[2]], loads)
