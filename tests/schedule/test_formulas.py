"""Formulas give the same numbers as arrays. Values of few holes are tabulated, and nothing is recorded
twice."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotensor.schedule.formulas import TABLE, Formula, NotRecorded, Sheet, any_of, elementwise
from autotensor.schedule.index_regions import ceil_div, divisor, least, multiplied, scrambled, where

OPTIONS = (
    np.asarray([[1, 2], [3, 4], [8, 1]]),
    np.arange(1, 61)[:, None],
    np.asarray([[5]]),
    np.arange(1, 41)[:, None],
)


def chosen(seed: int, rows: int = 30) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, len(o), rows) for o in OPTIONS], axis=1)


def numbers_of(choices: np.ndarray) -> list[np.ndarray]:
    return [o[choices[:, n], m] for n, o in enumerate(OPTIONS) for m in range(o.shape[1])]


def recorded(sheet: Sheet) -> list[Formula]:
    return [sheet.hole(n, m) for n, o in enumerate(OPTIONS) for m in range(o.shape[1])]


OPERATIONS = (
    lambda a, b: a + b,
    lambda a, b: 3 - a,
    lambda a, b: a * b % 1009,
    lambda a, b: a // (abs(b) + 1),
    lambda a, b: -a,
    lambda a, b: ceil_div(a, abs(b) + 1),
    lambda a, b: least(a, b),
    lambda a, b: divisor(a, b),
    lambda a, b: where(a > b, a, 7),
    lambda a, b: where((a == b) | (b <= 3), b, a),
    lambda a, b: multiplied(abs(a), 12345),
    lambda a, b: scrambled(abs(a), b),
    lambda a, b: np.clip(a, 2, 9),
    lambda a, b: (a ^ (b >> 1)) & 1023,
)


def made(seed: int, values: list) -> list:
    """A chain of drawn operations; the same for arrays and for formulas."""
    rng = random.Random(seed)
    for _ in range(25):
        a, b = rng.choice(values), rng.choice([*values, 1, 0, 4])
        values = [*values, rng.choice(OPERATIONS)(a, b) % 65537]
    return [*values, np.sqrt(abs(values[-1]) + 1.0) / 3, np.log2(abs(values[-2]) + 1.0) ** 1.5]


@given(st.integers(0, 10**6))
def test_drawn_formulas_are_what_arrays_give(seed: int) -> None:
    choices = chosen(seed)
    sheet = Sheet(OPTIONS, choices)
    plan = sheet.plan(made(seed, recorded(sheet)))
    sheet.done()
    for rows in (choices, chosen(seed + 1, 3)):
        for found, wanted in zip(plan.evaluate(rows), made(seed, numbers_of(rows)), strict=True):
            assert np.array_equal(found, wanted)


def test_a_formula_is_recorded_once() -> None:
    sheet = Sheet(OPTIONS, chosen(0))
    a, b = sheet.hole(0, 0), sheet.hole(1, 0)
    assert a + b is a + b
    assert a * 1 is a
    assert a + 0 is a
    assert a - 0 is a
    assert a + 1 is not a + 1.0


def test_few_decisions_are_tabulated_and_many_computed() -> None:
    calls = []

    @elementwise
    def watched(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        calls.append(len(a))
        return a * b

    sheet = Sheet(OPTIONS, chosen(0))
    few = watched(sheet.hole(0, 0), sheet.hole(1, 0))  # 180 decisions
    many = watched(sheet.hole(1, 0), sheet.hole(3, 0))  # 2400
    assert TABLE < 60 * 40
    plan = sheet.plan((few, many))
    assert calls == [180]
    plan.evaluate(chosen(1, 7))
    plan.evaluate(chosen(2, 9))
    assert calls == [180, 7, 9]


def test_several_numbers_of_a_candidate() -> None:
    both = elementwise(lambda a, b: np.stack([a, a + b]))
    choices = chosen(3)
    sheet = Sheet(OPTIONS, choices)
    table = both(sheet.hole(0, 0), sheet.hole(3, 0)), both(sheet.hole(1, 0), sheet.hole(3, 0))
    found = sheet.plan([t[n] for t in table for n in range(2)]).evaluate(choices)
    a, _, b, _, d = numbers_of(choices)
    assert [f.tolist() for f in found] == [x.tolist() for x in (a, a + d, b, b + d)]


def test_what_is_so_of_any_is_a_condition_unless_it_is_so_of_all() -> None:
    choices = chosen(4)
    sheet = Sheet(OPTIONS, choices)
    a, b = sheet.hole(0, 0), sheet.hole(1, 0)
    assert any_of(a > 0)
    assert not any_of(a > 8)
    assert sheet.conditions == []
    assert any_of(b > 59) == bool((choices[:, 1] == 59).any())
    assert [answer for _, answer in sheet.conditions] == [bool((choices[:, 1] == 59).any())]
    assert any_of(True)
    assert any_of(np.asarray([False, True]))


def test_what_cannot_be_recorded_is_refused() -> None:
    a = Sheet(OPTIONS, chosen(5)).hole(0, 0)
    for wrong in (lambda: bool(a), lambda: np.asarray(a), lambda: a + np.arange(3)):
        with pytest.raises(NotRecorded):
            wrong()
