"""No legal schedule changes what is computed.

Every case goes through `comparison.check`: the interpreter on the scheduled loops, on the program after all
passes (each pass verified), and native code on 1, 2, 3 and 16 threads give the same bits as the interpreter
for the empty trace.
"""

from __future__ import annotations

import pytest
from comparison import check, check_texts
from hypothesis import HealthCheck, Phase, given, settings
from strategies import Case, case_of, scheduled

LONG = 2000
CHUNK = 100

QUICK = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)


@QUICK
@given(scheduled())
def test_any_legal_trace(case: Case) -> None:
    check(*case)
    check_texts(*case)


@pytest.mark.parametrize("seed", range(0, 60, 10))
@pytest.mark.sample(3)
def test_known_seeds(seed: int) -> None:
    """The first cases of the long run."""
    for n in range(seed, seed + 10):
        dag, trace = case_of(n)
        check(dag, trace, seed=n)
        check_texts(dag, trace)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(0, LONG, CHUNK))
def test_at_length(first: int) -> None:
    for n in range(first, first + CHUNK):
        dag, trace = case_of(n, steps=14)
        check(dag, trace, seed=n)
        check_texts(dag, trace)
