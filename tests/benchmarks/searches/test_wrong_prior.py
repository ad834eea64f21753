"""A prior whose constants are wrong: only inside the block, and by halves and doubles only."""

from __future__ import annotations

from replays.wrong_prior import CONSTANTS, wrong_constants, wrong_rates

from autotensor.base.target import parse
from schedules.cpu import cpu_of
from schedules.prior import predict
from schedules.prior.rates import Rates


def test_the_priors_constants_are_wrong_inside_the_block_and_right_behind_it():
    target = parse("llvm -mcpu=x86-64-v3")
    right = cpu_of(target)
    with wrong_constants(3):
        wrong = predict.cpu_of(target)
        ratios = {
            getattr(wrong, n) / getattr(right, n) for n in CONSTANTS if isinstance(getattr(right, n), float)
        }
        assert ratios == {0.5, 2.0}
        assert cpu_of(target) == right  # schedules keep theirs
    assert predict.cpu_of(target) == right


def test_rates_are_halved_and_doubled():
    rates = Rates(4.0, (8.0, 16.0), 32.0, team_flops=7.0)
    wrong = wrong_rates(rates, 1)
    pairs = zip((wrong.flops, *wrong.bandwidths, wrong.memory_bandwidth), (4.0, 8.0, 16.0, 32.0), strict=True)
    assert {a / b for a, b in pairs} == {0.5, 2.0}
    assert wrong.team_flops is None  # it would still have the right peak, unlike the peak of one core
    assert wrong == wrong_rates(rates, 1) != wrong_rates(rates, 2)
