"""Stopping: what is believed to be left to be gained in a task, and when that is too little to go on.

    times of the fastest told ───────────▶ Outlook.chance   that as many trials again find one that is better
    predictions of what was not measured ▶ Outlook.gain     that the next batch is expected to bring

How close together the fastest lie says how much faster another may be: nine within one percent of each other
are the end of a task, nine that are one percent apart from one to the next are not. A task is finished with
confidence when its fastest are crowded and the last QUIET_BATCHES batches brought nothing.

What the cost model promises has no say in that. In 50 histories of 80 trials (of benchmarks/search_tasks.py,
two quiet cores, 2026-11) its chance of something better told batches after which 2 % were left from others
hardly better than a coin: area under the curve 0.53, that of the crowd 0.67. A rule by the model's chance and
two quiet batches was right for 78 % of the tasks of which it spoke and saved 24 % of 64 trials. This one was
right for 20 of 21 and saves 10 %: of 29 histories on which its form was chosen 12 of 12, of the others 8 of
9. Knowing the future would save 56 %.
Source of the tail: the exponential excess of extreme-value theory (Pickands, 1975; Gumbel's case).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from autotensor.search.acquire import below, expected_improvement
from autotensor.search.model import Prediction

WORTHWHILE = 0.02  # relative gain for which one would go on
UNLIKELY = 0.15  # chance of it at which one stops
QUIET = 0.01  # relative gain of a batch that brought nothing
QUIET_BATCHES = 4
TAIL = 8  # of the fastest told: a batch
FINEST = 1e-4  # mean distance of equal times, as a logarithm: no clock tells less
STEPS = 64  # of the integral over gains
LARGEST = 0.7  # gain of one batch that is thought of, as a logarithm: half of the time


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is believed to be left in a task."""

    chance: float  # that as many trials again find a candidate which is better than the best by WORTHWHILE
    gain: float  # expected relative improvement of the best by the next batch


def outlook(p: Prediction, told_s: Sequence[float], count: int) -> Outlook:
    """The outlook after times of `told_s`, in any order, for batches of `count`; `p` is of what is left."""
    best_s = min(told_s)
    return Outlook(chance_of_more(told_s), expected_gain(p, best_s, count)) if len(p) else Outlook(0.0, 0.0)


def chance_of_more(told_s: Sequence[float]) -> float:
    """The chance that as many trials again find one that is better than the best by WORTHWHILE.

    Logarithms of the fastest times are taken to thin out towards zero as an exponential does: `scale` is the
    mean distance of the TAIL fastest from the next one, and so many of as many trials again are expected
    below any time. Trials of a search are no random draws; how wrong that makes it is in UNLIKELY.

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
    """Relative improvement of `best_s` that the model expects of the `count` most promising."""
    best = log(best_s)
    first = np.argsort(-expected_improvement(p, best_s), kind="stable")[:count]
    gains = np.asarray((np.arange(STEPS) + 0.5) * (LARGEST / STEPS), dtype=np.float64)
    # [gains, batch]
    reached = p.valid[first] * below((best - gains)[:, None], p.mean[first], p.spread[first])
    any_reached = 1.0 - np.prod(1.0 - reached, axis=1)
    return float((any_reached * np.exp(-gains)).sum() * (LARGEST / STEPS))


def quiet_batches(gains: Sequence[float]) -> int:
    """How many of the last batches brought nothing; the first of all brings everything.

    >>> quiet_batches((1.0, 0.2, 0.0, 0.001)), quiet_batches((1.0, 0.0, 0.1)), quiet_batches(())
    (2, 0, 0)
    """
    return next((n for n, gain in enumerate(reversed(gains[1:])) if gain >= QUIET), max(0, len(gains) - 1))


def confident(chance: float, gains: Sequence[float]) -> bool:
    """Whether a task is finished: the fastest are crowded, and the last batches brought nothing."""
    return chance < UNLIKELY and quiet_batches(gains) >= QUIET_BATCHES
