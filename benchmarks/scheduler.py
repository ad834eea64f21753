"""Which task should be tuned next? Task schedulers, replayed on the histories of a tuning log.

    python benchmarks/scheduler.py --log tuning.db [--draws 20] [--fewest 32] [--json FILE]

The tasks of the log are treated as one model. Each task has a weight, such that the tasks have random shares
of the model's untuned time. The shares are drawn again for every replay. When a scheduler picks a task, the
task gets the next batch of its history, which takes as many seconds as in the log. So all schedulers get the
same batches in another order, and with better choices the time of the whole model falls sooner. A task whose
history has ended cannot be picked.

The cost model's predictions for a task are those in its own history. The replay ignores that the model would
learn from other tasks in another order. It prints the seconds of tuning until the model's time is within 5, 2
and 1 % of its final value, and the mean excess over the final value until then. Each figure is the geometric
mean of ratios to round-robin's.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from replays.histories import History, Told, rates_in
from replays.histories import read as read_histories
from stopping import replayed

from autotensor.search.propose.allocation import Standing
from autotensor.search.propose.stopping import outlook
from autotensor.search.score.roofline import lower_bound
from schedules.generate import generate
from schedules.prior.rates import Rates
from tuning_db import connect

WITHIN = (0.05, 0.02, 0.01)
BATCH = 8
INF = float("inf")


@dataclass(frozen=True, slots=True)
class Arm:
    """One task, and its results batch by batch."""

    told: Sequence[Told]
    standings: Sequence[Standing]  # the standing before each batch, and after the last


@dataclass(frozen=True, slots=True)
class Descent:
    """The fall of the whole model's time: (seconds of tuning, seconds of the model) after every batch."""

    points: Sequence[tuple[float, float]]

    def reaches(self, within: float) -> float:
        end = self.points[-1][1]
        return next(at for at, total in self.points if total <= (1.0 + within) * end)

    def excess(self) -> float:
        """The mean over tuning of the model's time divided by its final time, minus 1."""
        end, area = self.points[-1][1], 0.0
        for (at, total), (then, _) in zip(self.points, self.points[1:], strict=False):
            area += (then - at) * (total / end - 1.0)
        return area / (self.points[-1][0] - self.points[0][0])


Policy = Callable[[Sequence[Standing]], int]  # open tasks → the index of the next task


def round_robin(standings: Sequence[Standing]) -> int:
    return min(range(len(standings)), key=lambda n: standings[n].batches)


def most(score: Callable[[Standing], float]) -> Policy:
    """A policy that picks the task with the highest score. Tasks without a time come first."""

    def pick(standings: Sequence[Standing]) -> int:
        fresh = [n for n, s in enumerate(standings) if s.batches == 0]
        return fresh[0] if fresh else max(range(len(standings)), key=lambda n: score(standings[n]))

    return pick


def expected(s: Standing) -> float:
    """The predicted gain of the whole model per batch, by the cost model only."""
    return s.task.weight * s.best_s * (s.outlook.gain if s.outlook is not None else 0.25)


POLICIES: Mapping[str, Policy] = {
    "round-robin": round_robin,
    "recent gains": most(lambda s: replace(s, outlook=None).gain_s),
    "recent gains per second": most(lambda s: replace(s, outlook=None).rate),
    "model's expectation per second": most(lambda s: expected(s) / s.batch_s),
    "both": most(lambda s: s.gain_s),
    "both per second": most(lambda s: s.rate),
}


def bound_of(h: History, rates: Rates) -> float:
    """The roofline bound that the run used."""
    sketches = generate(h.task.workload.dag, h.task.target)
    return lower_bound(h.task, rates, cold=not rates.warm_weights, sketches=sketches)


def arm_of(h: History, told: Sequence[Told], bound_s: float) -> Arm:
    standings = [Standing(h.task, INF, bound_s, 0, (), False)]
    spent = 0.0
    for n, t in enumerate(told, 1):
        spent += t.seconds
        promise = None if t.left is None else outlook(t.left, t.told_s, BATCH)
        gains = tuple(x.gain for x in told[:n])
        standings.append(Standing(h.task, t.best_s, bound_s, n, gains, False, promise, spent / n))
    return Arm(told, standings)


def scheduled(arms: Sequence[Arm], weights: Sequence[float], pick: Policy) -> Descent:
    """Replays one scheduler. A task without a time counts with the time of its first batch."""
    at = [0] * len(arms)
    spent, points = 0.0, []
    while open_ := [n for n, a in enumerate(arms) if at[n] < len(a.told)]:
        now = [
            replace(arms[n].standings[at[n]], task=replace(arms[n].standings[0].task, weight=weights[n]))
            for n in open_
        ]
        n = open_[pick(now)]
        spent += arms[n].told[at[n]].seconds
        at[n] += 1
        total = sum(w * a.told[max(0, k - 1)].best_s for w, a, k in zip(weights, arms, at, strict=True))
        points.append((spent, total))
    return Descent(points)


def compare(arms: Sequence[Arm], draws: int, seed: int = 0) -> dict[str, dict[str, float]]:
    """Compares every policy with round-robin, by geometric means over draws of weights."""
    rng = np.random.default_rng(seed)
    first = np.asarray([a.told[0].best_s for a in arms])
    logs: dict[str, list[list[float]]] = {name: [] for name in POLICIES}
    for _ in range(draws):
        weights = (rng.dirichlet(np.ones(len(arms))) / first).tolist()
        for name, pick in POLICIES.items():
            found = scheduled(arms, weights, pick)
            logs[name].append([np.log(x) for x in (*map(found.reaches, WITHIN), found.excess())])
    base = np.asarray(logs["round-robin"])
    columns = (*(f"seconds to {w:.0%}" for w in WITHIN), "excess")
    return {
        name: dict(zip(columns, np.exp((np.asarray(rows) - base).mean(axis=0)).tolist(), strict=True))
        for name, rows in logs.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=20, help="of shares of the whole")
    parser.add_argument("--fewest", type=int, default=32, help="trials of a history that is long enough")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with connect(str(asked.log), readonly=True) as store:
        histories = read_histories(store, asked.fewest)
        bounds = [bound_of(h, rates_in(store, h)) for h in histories]
    if len(histories) < 2:
        raise SystemExit(
            f"{asked.log} has fewer than two tasks with {asked.fewest} trials in one run on this machine."
        )
    told = [r.told for r in replayed(histories, str(asked.log))]
    arms = [arm_of(h, t, b) for h, t, b in zip(histories, told, bounds, strict=True)]
    found = compare(arms, asked.draws)
    seconds = [t.seconds for a in arms for t in a.told]
    print(f"{len(arms)} tasks, {len(seconds)} batches of {np.quantile(seconds, 0.1):.1f} to "
          f"{np.quantile(seconds, 0.9):.1f} s (nine in ten); times relative to round-robin")  # fmt: skip
    for name, row in found.items():
        print(f"{name:32}" + "  ".join(f"{column} {value:.2f}" for column, value in row.items()))
    if asked.json:
        report = {"tasks": len(arms), "draws": asked.draws, "batches_s": seconds, "policies": found}
        asked.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
