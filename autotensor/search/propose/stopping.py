"""Stopping: an estimate of the gain that is left in a task, and when this is too little to continue.

    times of the fastest trials ─────────▶ Outlook.chance   that as many further trials find a better one
    predictions of unmeasured candidates ▶ Outlook.gain     expected from the next batch

The distances between the fastest trials show how much faster another one may be. If nine trials are within
one percent of each other, the task is at its end. If each of nine trials is one percent slower than the one
before, the task is not at its end. A task is finished with confidence when its fastest trials are crowded,
and the last QUIET_BATCHES batches together gained less than WORTHWHILE. A smaller gain counts as luck.

docs/measured.md says how this rule was chosen, how often it is right and how much it saves. The cost model's
expected gain is not used: it separated finished from unfinished tasks worse than the number of trials alone.
Source of the tail: the exponential excess of extreme-value theory (Pickands, 1975; Gumbel's case).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from autotensor.search.propose.acquisition import below, expected_improvement
from autotensor.search.score.cost_model import Prediction

WORTHWHILE = 0.02  # smallest relative gain for which the search continues
UNLIKELY = 0.1  # the search stops when the chance of that gain is below this
QUIET_BATCHES = 3
TAIL = 8  # the number of fastest trials that are looked at: one batch
FINEST = 1e-4  # smallest mean distance of times, as a logarithm: no clock is finer
STEPS = 64  # steps of the integral over gains
LARGEST = 0.7  # upper end of the integral, as a logarithm: half of the time


@dataclass(frozen=True, slots=True)
class Outlook:
    """The estimated gain that is left in a task."""

    # chance that the same number of further trials find a candidate that beats the best by WORTHWHILE
    chance: float
    gain: float  # expected relative improvement of the best by the next batch


def outlook(p: Prediction, told_s: Sequence[float], count: int) -> Outlook:
    """The outlook after the times `told_s`, in any order, for batches of `count`. p: the prediction for
    unmeasured candidates."""
    best_s = min(told_s)
    return Outlook(chance_of_more(told_s), expected_gain(p, best_s, count)) if len(p) else Outlook(0.0, 0.0)


def chance_of_more(told_s: Sequence[float]) -> float:
    """The chance that the same number of further trials find a candidate that beats the best by WORTHWHILE.

    The logarithms of the fastest times are assumed to have an exponentially falling density. `scale` is the
    mean distance of the TAIL fastest times from the next one. Then the same number of further trials would
    have the same number of times below any limit. Trials of a search are not random draws; UNLIKELY makes up
    for this.

    >>> crowded, apart = ([1.0 + each * n for n in range(20)] for each in (0.001, 0.01))
    >>> round(chance_of_more(crowded), 2), round(chance_of_more(apart), 2), chance_of_more((1.0,))
    (0.01, 0.56, 1.0)
    """
    fastest = sorted(told_s)[: TAIL + 1]
    count = len(fastest) - 1
    if count < 1:
        return 1.0
    end = log(fastest[-1])
    scale = max(FINEST, sum(end - log(s) for s in fastest[:-1]) / count)
    expected = count * exp(-(end - log(fastest[0]) - log(1.0 - WORTHWHILE)) / scale)
    return 1.0 - exp(-expected)


def expected_gain(p: Prediction, best_s: float, count: int) -> float:
    """Relative improvement of `best_s` that the model expects from the `count` most promising candidates."""
    best = log(best_s)
    first = np.argsort(-expected_improvement(p, best_s), kind="stable")[:count]
    gains = np.asarray((np.arange(STEPS) + 0.5) * (LARGEST / STEPS), dtype=np.float64)
    # [gains, batch]
    reached = p.valid[first] * below((best - gains)[:, None], p.mean[first], p.spread[first])
    any_reached = 1.0 - np.prod(1.0 - reached, axis=1)
    return float((any_reached * np.exp(-gains)).sum() * (LARGEST / STEPS))


def quiet_batches(gains: Sequence[float]) -> int:
    """The number of last batches that together gained less than WORTHWHILE. The first batch always gains.

    >>> quiet_batches((1.0, 0.2, 0.0, 0.001)), quiet_batches((1.0, 0.0, 0.1)), quiet_batches(())
    (2, 0, 0)
    """
    left, count = 1.0, 0
    for gain in reversed(gains[1:]):
        left *= 1.0 - gain
        if left <= 1.0 - WORTHWHILE:
            break
        count += 1
    return count


def confident(chance: float, gains: Sequence[float]) -> bool:
    """Whether a task is finished: its fastest trials are crowded, and the last batches gained nothing."""
    return chance < UNLIKELY and quiet_batches(gains) >= QUIET_BATCHES
