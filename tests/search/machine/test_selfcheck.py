"""The A/A check on made-up pairs: its conclusions and its sentences."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from autotensor.base.paired_times import Paired, paired
from autotensor.base.target import host
from autotensor.cli.verbs.doctor import aa_lines
from autotensor.schedule.trace import Trace
from autotensor.search.machine.equal_kernels import AAPair, aa_pair, sample_kernels, told_from, variation
from autotensor.search.machine.selfcheck import SelfCheck, judged
from autotensor.search.measuring.measurer import LocalMeasurer, MeasureOptions


def pair(ratio: float = 1.0, width: float = 0.0, seconds: float = 1e-3, reference: float = 1e-4) -> AAPair:
    """Fifteen rounds in which the first copy takes `ratio` times as long, give or take `width`."""
    mine = tuple(seconds * ratio * (1 + width * (n - 7) / 7) for n in range(15))
    return AAPair("k", seconds, paired(mine, (seconds,) * 15), (mine, (seconds,) * 15), (reference,) * 15)


def test_equal_copies_are_not_told_apart() -> None:
    assert not pair().claimed
    assert pair().resolution == 0.0
    assert not pair(0.997).claimed  # sure, but too little to matter
    assert not pair(0.98, width=0.5).claimed  # enough to matter, but not sure


@pytest.mark.parametrize("ratio", [0.97, 1.03])
def test_a_difference_between_copies_is_a_false_claim_whichever_is_faster(ratio: float) -> None:
    assert pair(ratio).claimed
    assert pair(ratio).resolution == pytest.approx(0.03, abs=1e-3)


def test_what_is_not_excluded_cannot_be_told() -> None:
    wide = replace(pair(), ratio=Paired(1.0, 0.9, 1.02))
    assert wide.resolution == pytest.approx(0.11, abs=2e-3)
    assert told_from([pair()] * 19 + [wide]) == 0.0  # nineteen of twenty
    assert told_from([pair()] * 9 + [wide]) == wide.resolution


def test_rounds_are_judged_together() -> None:
    """The second round is 10 % slower, and so is the reference kernel."""
    rounds = [
        [pair(seconds=1e-3), pair(seconds=2e-3)],
        [pair(seconds=1.1e-3, reference=1.1e-4), pair(1.03, seconds=2.2e-3, reference=1.1e-4)],
    ]
    found = judged(rounds, others=0.5, wall_s=3.0)
    assert (found.pairs, found.claimed) == (4, 1)
    assert found.spread == pytest.approx(variation([1.0, 1.1]))
    assert found.normalised < found.spread / 3
    assert found.drift == pytest.approx(0.1)
    assert not found.can_tell(0.01)
    assert found.can_tell(0.1)


def test_the_check_in_words() -> None:
    found = SelfCheck(40, 1, 0.003, 0.02, 0.012, 0.008, 0.05, 0.3, 14.2)
    assert aa_lines(asdict(found)) == [
        "40 races of equal kernels in 14 s: a difference was claimed in 1",
        "differences of 10% are visible, of 3% are visible, of 1% are not visible here and now "
        "(the limit is 2.0%)",
        "the same kernel again varies by 1.2%, divided by the reference kernel's time by 0.8%; the machine "
        "drifted by 5.0%; others used 0.3 cores",
    ]


def test_two_copies_are_two_candidates() -> None:
    """The measurer runs equal code only once. Copies do not count as equal code, and both are right."""
    with LocalMeasurer(host().with_threads(1), MeasureOptions(min_seconds=1e-4, asm=False)) as measurer:
        found = aa_pair(measurer, sample_kernels()[0], Trace(), repeat=4)
        assert measurer.spent.trials == 2
    assert found.kernel == "dense 32x128x128"
    assert 3 <= len(found.samples[0]) <= 4
