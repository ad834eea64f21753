"""Which candidates of a batch need another sample: a race that ends for each when its place is clear.

    after 3 rounds    A 1.00   B 1.01   C 1.40   D 9.00      C and D are slower than A: they stop
    after 4 rounds    A 1.00   B 1.01                        all requested samples; so many has
                                                             the leader always: the next batch is held to it

All samples of a round are taken side by side, so candidates are compared round by round (base.paired_times):
what the machine does to one it does to its neighbours. In a batch of the search a candidate stops when it is
likely slower: by more than LIKELY in the middle of its ratios to the leader. At the end of a run, where
something is claimed of the winner, it stops only when it is surely slower by more than LEAST, so that looking
after every round does not find differences where there are none.

On 27 tasks of eight networks with seven candidates each (two busy cores, 2026-11), replayed in 16 orders: the
search's rule takes 3.0 times less time than ten samples of each (3.0 in either half of the tasks) and chooses
what is 1.0 % slower than the best. Only the surely slower stopped, and five of each: 2.3 times, 0.94 %. Ten
of each: 0.7 %. Differences of 0.1 % between two ways are chance.
Source: racing as in Maron and Moore, Hoeffding Races (NIPS 1993).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from autotensor.base.paired_times import paired
from autotensor.search.measuring.measure_request import LEAST_SAMPLES

FINAL_SAMPLES = (5, 15)  # least and greatest number of samples of each contestant in a final race
SLOW = 3.0  # multiple of the best time that is slower, however noisy the machine is
LEAST = 0.01  # share of the leader's time
LIKELY = 0.02  # share of the leader's time: a candidate that differs by less may be the leader
LEAST_APART = 0.10  # share of the incumbent's time, which is from another batch


def racing(
    samples: Mapping[int, Sequence[float]],
    wanted: int,
    incumbent_s: float | None = None,
    *,
    sure: bool = False,
) -> set[int]:
    """The candidates that need another sample, of those in the race; `wanted` samples are enough of each.

    sure: a candidate that is likely slower goes on until that is sure.

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
