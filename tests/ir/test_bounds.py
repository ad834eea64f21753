"""Intervals and proofs."""

import pytest

from autotensor.base.dtype import int8, int64, uint8
from autotensor.ir.bounds import EVERYTHING, Interval, bounds, interval, prove
from autotensor.ir.expr import (
    Broadcast,
    Call,
    Cast,
    Load,
    Ramp,
    Symbol,
    Var,
    all_of,
    const,
    maximum,
    minimum,
    select,
)
from autotensor.ir.func import Buffer

i, j, n, f = Var("i"), Var("j"), Var("n"), Var("f")
RANGES = {i: Interval(0, 3), j: Interval(0, 7)}
D8 = Buffer("D", (8,), int8)


@pytest.mark.parametrize(
    ("e", "lo", "hi"),
    [
        (i * 8 + j, 0, 31),
        (i - i, 0, 0),
        (i * 8 - i * 7, 0, 3),
        (j - i, -3, 7),
        (i * j, 0, 21),
        (j // 4, 0, 1),
        (j // -4, -2, 0),
        (j % 5, 0, 4),
        ((j + 16) % 32, 16, 23),
        (n % 8, 0, 7),
        (n % -8, -7, 0),
        (minimum(i, 2) + maximum(j, 3), 3, 9),
        (select(i < 2, i, j + 10), 0, 17),
        (select(i < 4, i, n), 0, 3),
        (Cast(int64, i < 2), 0, 1),
        (Ramp(i * 4, 1, 4), 0, 15),
        (Ramp(i, -1, 4), -3, 3),
        (Broadcast(j, 8), 0, 7),
        (n & 15, 0, 15),
        (j >> 1, 0, 3),
        (i << 2, 0, 12),
        (i | j, 0, 7),
        (Cast(int64, Load(D8, (i,))), -128, 127),
        (Call("abs", (i - 2,), int64), 0, 2),
    ],
)
def test_interval(e, lo, hi):
    assert interval(e, RANGES) == Interval(lo, hi)


def test_unknown_is_unbounded():
    assert interval(n + i, RANGES) == EVERYTHING
    assert interval(minimum(n, 5), RANGES) == Interval(None, 5)


def test_narrow_types_may_wrap():
    x = Var("x", uint8)
    assert interval(x + 1, {x: Interval(0, 3)}) == Interval(1, 4)
    assert interval(x - 1, {x: Interval(0, 3)}) == Interval(0, 255)
    assert prove(x < x + 1) is None  # 255 + 1 is 0
    assert prove(n < n + 1) is True


@pytest.mark.parametrize(
    ("cond", "expected"),
    [
        (i * 8 + j < 32, True),
        (i * 8 + j < 31, None),
        (i > 3, False),
        (i <= j, None),
        (i + j >= i, True),
        ((i + 1).equal(i), False),
        ((i * 2).equal(j * 4 + 1), False),  # even is never odd
        (all_of(i < 4, j < 8), True),
        (all_of(i < 4, j > 8), False),
        (~(i < 0), True),
        ((i > 9) | (j < 8), True),
        (Ramp(i * 4, 1, 4) < Broadcast(const(16), 4), True),
        (Ramp(n, 1, 4) < Broadcast(n + 4, 4), True),
        (Ramp(n, 1, 4) < Broadcast(n + 3, 4), None),
        (Ramp(n, 1, 4) < Broadcast(n, 4), False),
        (Ramp(n, 1, 4) <= Broadcast(n, 4), None),
    ],
)
def test_prove(cond, expected):
    assert prove(cond, RANGES) is expected


@pytest.mark.parametrize(
    ("assumed", "cond"),
    [
        (i * 8 + j < 17, i * 8 + j + 3 < 20),
        (i * 8 + j < 17, i < 3),
        (i * 8 + j < 17, (i * 8 + j) * 100 + 99 < 1700),
        (j < minimum(8, 17 - 8 * i), i * 8 + j < 17),
        (maximum(i, j) <= 2, i + j <= 4),
        (all_of(i * 8 + j < 17, n >= 0, n < 4), (i * 8 + j) * 4 + n < 68),
        (all_of(i * 8 + j < 17, n * 4 + f < 10), (i * 8 + j) * 10 + (n * 4 + f) < 170),
        (~(i >= 2), i < 2),
        ((n // 2).equal(1), n // 2 + 1 <= 2),
        (n > j, n >= 1),
    ],
)
def test_assumptions(assumed, cond):
    assert prove(cond, RANGES) is None
    assert prove(cond, RANGES, [assumed]) is True


def test_a_fact_is_used_again_when_later_ones_narrow_its_terms():
    tile, end = Var("tile", int64), Var("end", int64)
    known = bounds({tile: Interval(0, 3), end: Interval(3, 40)}).assuming(tile * 11 < end).assuming(tile > 0)
    assert known.decide(const(11, int64) < end) is None
    assert known.settled().decide(const(11, int64) < end) is True
    assert known.settled().decide(const(12, int64) < end) is None


def test_a_fact_is_used_again_when_later_ones_make_a_factor_a_number():
    n, i = Symbol("n", int64, 1, 40), Var("i")
    tiles = (n + 7) // 8
    known = bounds({}).in_loop(i, const(0), n * tiles).assuming(n > 32)
    assert known.settled().decide(i < n * 5) is True
    assert known.settled().decide(i < n * 5 - 1) is None


def test_a_loop_of_a_few_turns_from_a_run_time_extent_on_ends_after_them():
    n, i = Symbol("n", int64, 1, 40), Var("i")
    known = bounds({}).in_loop(i, n + 1, const(2))
    assert known.decide(i < n + 3) is True
    assert known.decide(i < n + 2) is None


def test_a_loop_that_has_turns_has_a_positive_number_of_them():
    n, i, known = Symbol("n", int64, 1, 64), Var("i"), bounds({})
    for turns in (maximum(n - 39, 0), maximum(-3, maximum(n - 39, 0)), maximum(minimum(n - 39, n * 2), 0)):
        inside = known.in_loop(i, const(0), turns)
        assert inside.decide(i + 39 < n)
    assert known.in_loop(i, const(0), maximum(n - 39, 1)).decide(i + 39 < n) is None


def test_contradictions_break_nothing():
    assert interval(i // i, RANGES, [i < 0]) is not None
    assert prove(i < 2, RANGES, [i > 5, i < 1]) in (True, False, None)


def test_text():
    assert (str(Interval(0, 3)), str(EVERYTHING)) == ("[0, 3]", "[-inf, inf]")
