"""Does the search beat chance? The same sketches, the same number of trials, model-guided against uniform.

    python benchmarks/search_vs_random.py [--tasks odd,softmax] [--seeds 3] [--trials 200] [--json FILE]

Winners are timed again side by side, each as two copies; a win counts only beyond what the copies of one
winner differ by (A/A), everything else is a tie and counts half. Also: how many trials the guided search
needs to reach what chance found in all of its own. Takes about 0.2 s a trial: tasks × seeds × 2 × trials ×
0.2 s, 20 minutes in all.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from contests.results import machine
from replays.search_tasks import SAMPLE, chosen
from replays.search_tasks import workload as task_workload

from autotensor.base.deadline import NEVER
from autotensor.base.target import Target, host
from autotensor.codegen.peak import measure_peak
from autotensor.compiler import compile_trace
from autotensor.runtime.arrays import aligned_copy
from autotensor.runtime.module import Module
from autotensor.runtime.timing_lock import timing_lock
from autotensor.schedule.trace import Trace
from autotensor.search.events import Event, RoundDone
from autotensor.search.loop import tune
from autotensor.search.machine.calibration import calibrated
from autotensor.search.measuring.measure_request import MeasureResult
from autotensor.search.measuring.measurer import LocalMeasurer, MeasureOptions
from autotensor.search.options import TuneOptions
from autotensor.search.run import TuningRun
from autotensor.search.score.prior import Rates
from autotensor.search.task import Task
from autotensor.te.reference import random_inputs
from autotensor.te.workload import Workload
from schedules.generate import generate
from tuning_db import connect

ROUNDS = 41  # of the final comparison
LEAST_SPREAD = 0.005


@dataclass(frozen=True)
class Search:  # the fields but `trace` go into the JSON
    """One search: the best time so far after every trial, and the winner."""

    model: str
    curve: tuple[float, ...]
    failures: int
    wall_s: float
    shares: dict[str, float]
    trace: Trace


class BusyMeasurer(LocalMeasurer):
    """For machines that are not idle: the fastest of many short samples counts."""

    def measure(
        self, workload: Workload, traces: Sequence[Trace], repeat: int | None = None, **how: Any
    ) -> list[MeasureResult]:
        results = super().measure(workload, traces, repeat, **how)
        return [replace(r, seconds=(min(r.seconds),) * len(r.seconds)) if r.ok else r for r in results]


def measurer_of(target: Target, busy: bool) -> LocalMeasurer:
    if busy:
        return BusyMeasurer(target, MeasureOptions(residency="hot", repeat=15, min_seconds=1e-5))
    return LocalMeasurer(target, MeasureOptions(residency="hot"))


def search(
    workload: Workload, model: str, seed: int, trials: int, target: Target, rates: Rates, busy: bool
) -> Search:
    curve: list[float] = []
    failures = 0

    def hear(event: Event) -> None:
        nonlocal failures
        if isinstance(event, RoundDone):
            failures = event.failures
            for s in event.seconds:
                best = curve[-1] if curve else float("inf")
                curve.append(best if s is None else min(best, s))

    options = TuneOptions(trials=trials, seed=seed, model=model, patience=False, warm_start=False)
    began = time.perf_counter()
    with measurer_of(target, busy) as measurer:
        asked = TuningRun([Task(workload, target)], options, connect(":memory:"), NEVER, hear, "hot")
        report = tune(asked, measurer, rates)
    (task,) = report.tasks
    assert task.best is not None
    wall = time.perf_counter() - began
    return Search(model, tuple(curve), failures, wall, dict(report.shares), task.best.trace)


def compare(
    workload: Workload, winners: list[Trace], target: Target, busy: bool
) -> tuple[list[float], float]:
    """Seconds of each winner, and the largest relative difference of two copies of one (A/A)."""
    dag = workload.dag
    # as in a model's arena: unaligned inputs cost some schedules a tenth
    inputs = {n: aligned_copy(a) for n, a in random_inputs(dag, 0).items()}
    bound = {n: a for n, a in inputs.items() if n in dag.constants}
    given = [a for n, a in inputs.items() if n not in bound]
    copies = [
        Module(compile_trace(dag, t, target), threads=target.num_cores).bind(**bound)
        for t in (*winners, *winners)
    ]
    samples: list[list[float]] = [[] for _ in copies]
    order = np.random.default_rng(0)
    with timing_lock():
        for m in copies:
            m.time(given, repeat=2, min_seconds=0.005)
        for _ in range(ROUNDS):
            for n in order.permutation(len(copies)):
                samples[n].extend(copies[n].time(given, repeat=1, min_seconds=1e-5 if busy else 0.003))
    times = [min(s) if busy else median(s) for s in samples]
    count = len(winners)
    spread = max(abs(times[n] / times[n + count] - 1.0) for n in range(count))
    return [min(times[n], times[n + count]) for n in range(count)], max(spread, LEAST_SPREAD)


def reached(curve: tuple[float, ...], goal: float) -> int | None:
    """Number of the first trial that is as fast as the goal."""
    return next((n for n, s in enumerate(curve, start=1) if s <= goal), None)


def contest(name: str, seed: int, trials: int, target: Target, rates: Rates, busy: bool) -> dict[str, Any]:
    """Guided against random on one task and seed."""
    workload = task_workload(name)
    order = ("xgb", "random") if seed % 2 == 0 else ("random", "xgb")
    found = {model: search(workload, model, seed, trials, target, rates, busy) for model in order}
    guided, blind = found["xgb"], found["random"]
    (guided_s, blind_s), spread = compare(workload, [guided.trace, blind.trace], target, busy)
    gain = blind_s / guided_s - 1.0
    score = 0.5 if abs(gain) <= spread else float(gain > 0)
    needed = reached(guided.curve, blind.curve[-1] * (1.0 + spread))
    return {
        "task": name,
        "workload": workload.name,
        "seed": seed,
        "space": sum(s.size for s in generate(workload.dag, target)),
        "guided_s": guided_s,
        "random_s": blind_s,
        "gain": gain,
        "spread": spread,
        "score": score,
        "trials_to_reach_random": needed,
        "gflops": workload.dag.flops() / guided_s / 1e9,
        "searches": {m: {k: v for k, v in asdict(s).items() if k != "trace"} for m, s in found.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", default=",".join(SAMPLE), help="of replays/search_tasks.py, or families")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument(
        "--json", type=Path, default=Path(__file__).parent / "results" / "search_vs_random.json"
    )
    parser.add_argument(
        "--threads", type=int, default=0, help="of a kernel; 0: all cores (the machine must be idle)"
    )
    parser.add_argument("--busy", action="store_true", help="the machine is not idle; fastest samples count")
    arguments = parser.parse_args()
    target = host().with_threads(arguments.threads) if arguments.threads else host()
    rates = calibrated(None, target)
    began = time.perf_counter()
    rows = []
    print(f"{'task':34} seed  guided us  random us    gain  spread score  trials to reach random")
    for name in chosen(arguments.tasks, None):
        for seed in range(arguments.seeds):
            r = contest(name, seed, arguments.trials, target, rates, arguments.busy)
            rows.append(r)
            print(
                f"{r['workload']:34} {seed:4} {r['guided_s'] * 1e6:10.1f} {r['random_s'] * 1e6:10.1f} "
                f"{r['gain']:+7.1%} {r['spread']:7.1%} {r['score']:5} "
                f"{r['trials_to_reach_random'] or 'never':>8}",
                flush=True,
            )
            write(arguments.json, arguments.busy, target, arguments.trials, rows, time.perf_counter() - began)
    summary = summarise(rows, arguments.trials)
    print(
        f"score {summary['score']:.1f} of {len(rows)}; guided reaches random's best after "
        f"{summary['median_trials_to_reach_random']:g} trials (median); {time.perf_counter() - began:.0f} s"
    )


def summarise(rows: list[dict[str, Any]], trials: int) -> dict[str, Any]:
    return {
        "score": sum(r["score"] for r in rows),
        "of": len(rows),
        "median_trials_to_reach_random": median(r["trials_to_reach_random"] or trials + 1 for r in rows),
        "geometric_mean_gain": float(np.exp(np.mean([np.log1p(r["gain"]) for r in rows]))) - 1.0,
    }


def write(
    path: Path, busy: bool, target: Target, trials: int, rows: list[dict[str, Any]], wall_s: float
) -> None:
    report = {
        "machine": machine(),
        "threads": target.num_cores,
        "busy": busy,
        "peak_flops": measure_peak(target.num_cores),
        "trials": trials,
        "wall_s": wall_s,
        "summary": summarise(rows, trials),
        "rows": rows,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
