"""How fast the search itself is: candidates scored per second, the time of ask and tell, shares of a tuning
run, and a fleet's coordinator with 50 workers that answer at once.

    python benchmarks/search_throughput.py [--trials 64] [--threads 1] [--json FILE]

The task is a 3x3 convolution of ResNet-50. The goals: ask(8) takes at most 40 ms of CPU time, and searching
takes at most 10 % of a run's wall time. The other shares of a run are lowering and compiling, checking, and
timing.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from contests.results import machine
from replays.search_tasks import TASKS
from replays.search_tasks import workload as task_workload

from autotensor.base.deadline import NEVER
from autotensor.base.target import Target, host
from autotensor.schedule.trace import Trace
from autotensor.search.loop import tune
from autotensor.search.measuring.measure_request import AtOnce, MeasureResult
from autotensor.search.measuring.measurer import LocalMeasurer, MeasureOptions
from autotensor.search.options import TuneOptions
from autotensor.search.propose.population import sample
from autotensor.search.propose.tuner import Tuner
from autotensor.search.run import TuningRun
from autotensor.search.score.boosted.xgb_model import XGBModel
from autotensor.search.score.features import features
from autotensor.search.task import Task
from autotensor.te.workload import Workload
from schedules.generate import generate, structure
from schedules.prior.predict import predict
from schedules.prior.rates import Rates
from tuning_db import connect
from tuning_db.records import Status

ASK_GOAL_MS = 40.0
SHARE_GOAL = 0.10


def scoring(workload: Workload, target: Target, rates: Rates, count: int) -> dict[str, float]:
    """Candidates of one sketch per second, for the loop picture, the prior and the features."""
    sketch = generate(workload.dag, target)[0]
    state = structure(sketch, workload.dag)
    found: dict[str, list[float]] = {"prior": [], "features": []}
    for seed in range(5):
        pop = sample(sketch, state, count, np.random.default_rng(seed))
        t0 = time.process_time()
        prior, terms = predict(pop.picture, target, rates)
        t1 = time.process_time()
        features(pop.picture, terms, prior, target)
        t2 = time.process_time()
        found["prior"].append(len(pop) / (t1 - t0))
        found["features"].append(len(pop) / (t2 - t0))
    return {f"candidates_per_s_{name}": max(values) for name, values in found.items()}


def asking(workload: Workload, target: Target, rates: Rates, rounds: int = 12) -> dict[str, float]:
    """CPU milliseconds of ask(8) and tell, with made-up times. The first ask drafts the whole space."""
    import xgboost  # noqa: F401  # imported here, because the import is not part of `ask`

    tuner = Tuner(Task(workload, target), XGBModel(), rates)
    rng = np.random.default_rng(0)
    asks, tells = [], []
    for _ in range(rounds):
        t0 = time.process_time()
        batch = tuner.ask(8)
        t1 = time.process_time()
        tuner.tell(batch, [float(c.predicted or 1e-3) * rng.uniform(0.7, 1.5) for c in batch])
        t2 = time.process_time()
        asks.append((t1 - t0) * 1e3)
        tells.append((t2 - t1) * 1e3)
    return {
        "first_ask_ms": asks[0],
        "ask_ms": median(asks[1:]),
        "ask_with_refit_ms": max(asks[1:]),
        "tell_ms": median(tells),
    }


def shares(workload: Workload, target: Target, rates: Rates, trials: int) -> dict[str, float]:
    """The shares of a real tuning run's wall time."""
    options = TuneOptions(trials=trials, patience=False)
    with LocalMeasurer(target, MeasureOptions(residency="hot")) as measurer:
        began = time.perf_counter()
        asked = TuningRun([Task(workload, target)], options, connect(":memory:"), NEVER, residency="hot")
        report = tune(asked, measurer, rates)
        wall = time.perf_counter() - began
        spent = measurer.spent
    return {
        "wall_s": wall,
        "s_per_trial": wall / report.trials,
        "share_search": report.shares["search"] / wall,
        "share_log": report.shares["log"] / wall,
        "share_lower_and_compile": spent.build / wall,
        "share_check": spent.check / wall,
        "share_time": spent.sample / wall,
        "share_race": report.shares["race"] / wall,  # this time is also part of the three shares above
        "share_wait_for_lock": spent.wait / wall,
    }


class AnsweredAtOnce(AtOnce):
    """Fifty workers that answer at once, with seconds made up from the trace's hash."""

    workers, in_flight = 50, 100  # two batches for each worker

    def __init__(self) -> None:
        self.asked: list[tuple[int, float]] = []  # trials so far, and this thread's CPU seconds until then

    def measure(
        self,
        workload: Workload,
        traces: Sequence[Trace],
        repeat: int | None = None,
        gated: Collection[int] = (),
    ) -> list[MeasureResult]:
        if repeat is None:  # final races come after the search
            before = self.asked[-1][0] if self.asked else 0
            self.asked.append((before + len(traces), time.thread_time()))
        made_up = [1e-4 * (1.0 + int(t.hash[:8], 16) / 2.0**32) for t in traces]
        return [MeasureResult(Status.OK, (s,) * 4, 0.01, max_error=0.0, tolerance=1e-5) for s in made_up]


def coordinating(target: Target, rates: Rates, tasks: int = 20, trials: int = 5120) -> dict[str, float]:
    """Measures the process that proposes candidates and writes the log, by the CPU time of its main thread
    (its other thread fits the cost model). Returns the time until every task had two batches, and the trials
    per second after that."""
    chosen = list(TASKS)[:: len(TASKS) // tasks][:tasks]
    options = TuneOptions(trials=trials, patience=False, effort="full")
    asked = [Task(task_workload(name), target) for name in chosen]
    began, measurer = time.thread_time(), AnsweredAtOnce()
    tune(TuningRun(asked, options, connect(":memory:"), NEVER, residency="hot"), measurer, rates)
    (first, ready), (last, end) = measurer.asked[2 * len(asked)], measurer.asked[-1]
    return {
        "coordinator_first_batches_s": ready - began,
        "coordinator_trials_per_s": (last - first) / (end - ready),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--threads", type=int, default=0, help="of a kernel; 0: all cores")
    parser.add_argument(
        "--json", type=Path, default=Path(__file__).parent / "results" / "search_throughput.json"
    )
    arguments = parser.parse_args()
    target = host().with_threads(arguments.threads) if arguments.threads else host()
    workload = task_workload("layer2")
    rates = Rates.guess(target)
    report: dict[str, Any] = {
        "workload": workload.name,
        "space": sum(s.size for s in generate(workload.dag, target)),
        **scoring(workload, target, rates, 4096),
        **asking(workload, target, rates),
        **coordinating(target, rates),
        **shares(workload, target, rates, arguments.trials),
    }
    for name, value in report.items():
        print(f"{name:28} {value:.4g}" if isinstance(value, float) else f"{name:28} {value}")
    print(f"ask(8): {report['ask_ms']:.0f} ms, goal {ASK_GOAL_MS:.0f}")
    print(f"search: {report['share_search']:.1%} of wall time, goal {SHARE_GOAL:.0%}")
    report["machine"] = machine()
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
