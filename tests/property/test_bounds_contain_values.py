"""An interval contains every value that the expression takes, and a proof is never wrong."""

import random

import pytest
from hypothesis import given, settings
from int_expressions import CASES, Case, cases, values

from autotensor.ir.bounds import interval, prove

QUICK = settings(max_examples=200, deadline=None)


def check(case: Case) -> None:
    e, ranges, assumed = case
    found = interval(e, ranges, assumed)
    proved = prove(e, ranges, assumed) if e.dtype.is_bool else None
    for env, value in values(e, ranges, assumed):
        for v in value if isinstance(value, list) else [value]:
            assert found.has(int(v)), f"{e} is {v} at {env}, outside {found}"
            assert proved in (None, v), f"{e} was said to be {proved}, but at {env} it is {v}"


@QUICK
@given(cases())
def test_intervals_and_proofs(case):
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("make", CASES)
def test_intervals_and_proofs_at_length(make):
    rng = random.Random(1)
    for _ in range(20_000):
        check(make(rng.choice))
