"""Ways to take samples, replayed on existing samples: the cost of each way, and its choice.

samples [candidates, rounds] ─┬─ way: ten of each ───────────▶ chosen, seconds spent
                              └─ way: race_rule.racing ──────▶ chosen, seconds spent
regret: the chosen candidate's time over the best's, in rounds that no way has seen
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from autotensor.search.measuring.race_rule import racing

SEEN = 15  # rounds that a way may use; the other rounds give the truth
FIXED = 10
Table = Sequence[Sequence[float]]  # seconds of a call, for each candidate and round


@dataclass(frozen=True)
class Replay:
    """The result of one way on one task."""

    spent_s: float
    chosen: int
    samples: int
    regret: float  # 0: it chose the best


def sample_seconds(call_s: float, least_s: float) -> float:
    """The seconds of one sample: the calls that together last long enough."""
    return max(1.0, round(least_s / call_s)) * call_s


def fixed(table: Table, count: int = FIXED) -> dict[int, Sequence[float]]:
    """Takes `count` samples of each candidate."""
    return {n: row[:count] for n, row in enumerate(table)}


def raced(table: Table, wanted: int, *, sure: bool = False) -> dict[int, Sequence[float]]:
    """Takes samples like the measurer, at most `wanted` of each candidate. sure: as in a final race."""
    samples: dict[int, Sequence[float]] = {n: () for n in range(len(table))}
    for at in range(wanted):
        going_on = racing(samples, wanted, sure=sure)
        samples |= {n: table[n][: at + 1] for n in going_on}
    return samples


def replay(table: Table, way: Callable[[Table], Mapping[int, Sequence[float]]], least_s: float) -> Replay:
    """Runs a way on the first SEEN rounds. It chooses the candidate with the fastest median."""
    seen = [row[:SEEN] for row in table]
    taken = way(seen)
    chosen = min(taken, key=lambda n: median(taken[n]))
    truth = [median(row[SEEN:]) for row in table]
    spent = sum(sample_seconds(s, least_s) for row in taken.values() for s in row)
    return Replay(spent, chosen, sum(map(len, taken.values())), truth[chosen] / min(truth) - 1.0)
