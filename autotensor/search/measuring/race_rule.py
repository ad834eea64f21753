"""The rule that says which candidates of a batch need another sample. Clearly slower candidates stop.

    after 3 rounds    A 1.00   B 1.01   C 1.40   D 9.00      C and D are slower than A: they stop
    after 4 rounds    A 1.00   B 1.01                        all requested samples; the leader always gets
                                                             all: the next batch is compared with it

All samples of a round are taken side by side, so candidates are compared round by round (base.paired_times).
A disturbance of the machine changes the times of all candidates of the round. In a batch of the search, a
candidate stops when it is likely slower: when the median of its ratios to the leader is more than LIKELY
above 1. At the end of a run, the winner is claimed to be faster. So there a candidate stops only when it is
surely slower by more than LEAST. Otherwise, looking after every round would find differences where there are
none.

The rules were compared on 27 tasks of eight networks with seven candidates each, replayed in 16 orders (two
busy cores, 2026-11). Differences of 0.1 % between two rules are chance.

    rule                                                    time of sampling    chosen candidate
    ten samples of each                                     1                   0.7 % slower than the best
    five samples of each, only the surely slower stop       1 / 2.3             0.94 % slower
    the search's rule                                       1 / 3.0             1.0 % slower

The search's rule takes 1 / 3.0 of the time in either half of the tasks.
Source: racing as in Maron and Moore, Hoeffding Races (NIPS 1993).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from autotensor.base.paired_times import paired
from autotensor.search.measuring.measure_request import LEAST_SAMPLES

FINAL_SAMPLES = (5, 15)  # least and greatest number of samples of each contestant in a final race
# a candidate with more than this multiple of the best time is slower, however noisy the machine is
SLOW = 3.0
LEAST = 0.01  # share of the leader's time by which a candidate must surely be slower, in a final race
LIKELY = 0.02  # share of the leader's time: a candidate that differs by less may be the leader
LEAST_APART = 0.10  # share of the incumbent's time, because that time is from another batch


def racing(
    samples: Mapping[int, Sequence[float]],
    wanted: int,
    incumbent_s: float | None = None,
    *,
    sure: bool = False,
) -> set[int]:
    """The candidates in the race that need another sample. `wanted` samples of each are enough.

    sure: a candidate that is likely slower continues until this is certain.

    >>> sorted(racing({0: [1.0, 1.0, 1.0], 1: [1.01, 0.99, 1.0], 2: [1.4, 1.4, 1.4]}, wanted=4))
    [0, 1]
    """
    judged = {n: median(s) for n, s in samples.items() if len(s) >= LEAST_SAMPLES}
    if not judged:
        return set(samples)
    leader = min(judged, key=judged.__getitem__)
    best = min(judged[leader], incumbent_s or judged[leader])
    going_on = {n for n, s in samples.items() if len(s) < LEAST_SAMPLES}
    for n, seconds in judged.items():
        apart = seconds > SLOW * best
        apart = apart or (incumbent_s is not None and seconds > (1.0 + LEAST_APART) * incumbent_s)
        if len(samples[n]) < wanted and not apart and not _slower(samples[n], samples[leader], sure):
            going_on.add(n)
    return going_on


def _slower(mine: Sequence[float], leaders: Sequence[float], sure: bool) -> bool:
    if mine is leaders:
        return False
    ratio = paired(mine, leaders)
    return ratio.lower > 1.0 + LEAST if sure else ratio.middle > 1.0 + LIKELY


__all__ = ["LEAST", "LEAST_APART", "LIKELY", "SLOW", "racing"]
