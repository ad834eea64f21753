"""Whatever `simplify` does to an expression, its value stays the same for every value of its variables."""

import random

import pytest
from hypothesis import given, settings
from int_expressions import CASES, Case, cases, value_of, values

from autotensor.ir.affine import affine, to_expr
from autotensor.ir.simplify import simplify

QUICK = settings(max_examples=150, deadline=None)


def check(case: Case) -> None:
    e, ranges, assumed = case
    after = simplify(e, ranges, assumed)
    assert after.dtype == e.dtype
    for env, value in values(e, ranges, assumed):
        got = value_of(after, env)
        assert got == value, f"{e}  ->  {after}  at {env}: {value} became {got}"


@QUICK
@given(cases())
def test_value(case):
    check(case)


@QUICK
@given(cases())
def test_a_simple_expression_stays(case):
    e, ranges, assumed = case
    once = simplify(e, ranges, assumed)
    assert simplify(once, ranges, assumed) is once


@QUICK
@given(cases())
def test_affine_form(case):
    e, ranges, _ = case
    a = affine(e)
    if a is not None:
        for env, value in values(e, ranges, ()):
            assert value_of(to_expr(a), env) == value


@pytest.mark.slow
@pytest.mark.parametrize("make", CASES)
def test_value_at_length(make):
    rng = random.Random(0)
    for _ in range(20_000):
        check(make(rng.choice))
