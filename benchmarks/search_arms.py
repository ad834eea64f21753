"""How much does a cost model contribute to the search? Several ways to propose candidates, the arms, are
compared with the same sketches, prior and number of trials.

    python benchmarks/search_arms.py [--tasks odd,softmax] [--seeds 3] [--trials 200] [--json FILE]
    python benchmarks/search_arms.py --drawn 500:520 --arms xgb,prior,ridge,random --trials 64 [--equal-time]
    python benchmarks/search_arms.py --drawn 500:600 --screen 96        in which programs can a search gain?

Arms: `xgb` learns, `prior` does not learn, `ridge` is a linear model on the same features, `random` draws
evenly. `xgb~` and `prior~` search with a prior whose constants and rates are each halved or doubled, by the
seed. `xgb/tiles` has only the default's structure, `xgb/structure` has every structure, with the values that
rules choose. A random program counts if its space has at least 10,000 candidates. --screen N names the
programs in which N random trials find a schedule at least 10 % faster than the default. --equal-time gives
the other arms as many seconds as the first arm, including fits. Winners are timed again side by side, each as
two copies. A win counts only if the difference is larger than that between copies of one winner (A/A).
Everything else is a tie and counts half. The table also says how many trials the first arm needs to reach the
result of all trials of each other arm. The whole takes tasks × seeds × arms × trials × 0.2 s.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
from contests.results import machine
from replays.model_variants import Ridge
from replays.parts_of_space import only
from replays.search_tasks import SAMPLE, chosen
from replays.search_tasks import workload as task_workload
from replays.wrong_prior import wrong_constants, wrong_rates
from suite.programs.drawn import drawn, numbers_of

from autotensor.base.deadline import Deadline
from autotensor.base.target import Target, host
from autotensor.codegen.peak import measure_peak
from autotensor.compiler import compile_trace
from autotensor.runtime.arrays import aligned_copy
from autotensor.runtime.module import Module
from autotensor.runtime.timing_lock import timing_lock
from autotensor.schedule.primitives.algorithm import algorithm_tolerance
from autotensor.schedule.trace import Trace
from autotensor.search.events import Event, RoundDone
from autotensor.search.loop import tune
from autotensor.search.machine.calibration import calibrated
from autotensor.search.measuring.checks import make_inputs
from autotensor.search.measuring.measure_request import MeasureResult
from autotensor.search.measuring.measurer import LocalMeasurer, MeasureOptions
from autotensor.search.options import TuneOptions
from autotensor.search.run import TuningRun
from autotensor.search.task import Task
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload
from schedules.generate import default_trace, generate
from schedules.prior.rates import Rates
from tuning_db import connect

ROUNDS = 41  # rounds of the final comparison
LEAST_SPREAD = 0.005
LEAST_SPACE = 10_000  # least number of candidates of a random program that counts
RESAMPLED = 10_000  # number of resamplings for the bounds of a mean
# --screen names a program if random trials find a schedule this many times as fast as the default
AHEAD = 1.1
SCREENING = 7_001  # the seed of the random search of --screen; no arm uses it
UNBOUNDED = 1_000_000  # trials of a search that is limited by seconds
WRONG = "~"  # the mark after the name of an arm with a wrong prior


@dataclass(frozen=True)
class Search:  # all fields except `trace` go into the JSON
    """One search: the best time so far after every trial, and the winner."""

    model: str
    curve: tuple[float, ...]
    failures: int
    wall_s: float
    shares: dict[str, float]
    trace: Trace


class BusyMeasurer(LocalMeasurer):
    """A measurer for machines that are not idle: the fastest of many short samples counts."""

    def measure(
        self, workload: Workload, traces: Sequence[Trace], repeat: int | None = None, **how: Any
    ) -> list[MeasureResult]:
        results = super().measure(workload, traces, repeat, **how)
        return [replace(r, seconds=(min(r.seconds),) * len(r.seconds)) if r.ok else r for r in results]


def measurer_of(target: Target, busy: bool) -> LocalMeasurer:
    if busy:
        short = MeasureOptions(residency="hot", repeat=15, min_seconds=1e-5)
        return BusyMeasurer(target, short, numerics=algorithm_tolerance)
    return LocalMeasurer(target, MeasureOptions(residency="hot"), numerics=algorithm_tolerance)


def ridge(seed: int, target: Target | None) -> Ridge:
    return Ridge()


def search(
    workload: Workload,
    model: str,
    seed: int,
    trials: int,
    target: Target,
    rates: Rates,
    busy: bool,
    seconds: float | None = None,
) -> Search:
    """Runs one search, with so many trials, or with as many as fit into `seconds`."""
    curve: list[float] = []
    failures = 0

    def hear(event: Event) -> None:
        nonlocal failures
        if isinstance(event, RoundDone):
            failures = event.failures
            for s in event.seconds:
                best = curve[-1] if curve else float("inf")
                curve.append(best if s is None else min(best, s))

    named, _, part = model.partition("/")
    kind, wrong = named.removesuffix(WRONG), named.endswith(WRONG)
    options = TuneOptions(
        trials=UNBOUNDED if seconds else trials,
        seed=seed,
        model=ridge if kind == "ridge" else kind,
        patience=False,
        warm_start=False,
    )
    began = time.perf_counter()
    known = wrong_rates(rates, seed) if wrong else rates
    constants = wrong_constants(seed) if wrong else nullcontext()
    with measurer_of(target, busy) as measurer, constants, only(part):
        until = Deadline.after(seconds)
        asked = TuningRun([Task(workload, target)], options, connect(":memory:"), until, hear, "hot")
        report = tune(asked, measurer, known)
    (task,) = report.tasks
    assert task.best is not None
    wall = time.perf_counter() - began
    return Search(model, tuple(curve), failures, wall, dict(report.shares), task.best.trace)


def compare(
    workload: Workload, winners: list[Trace], target: Target, busy: bool
) -> tuple[list[float], float]:
    """The seconds of each winner, and the largest relative difference between two copies of one winner
    (A/A)."""
    dag = workload.dag
    # aligned as in a model's memory: unaligned inputs cost some schedules a tenth of their speed
    inputs = {n: aligned_copy(a) for n, a in make_inputs(dag, "normal", 0).items()}
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
    """The number of the first trial that is as fast as the goal; None if there is none."""
    return next((n for n, s in enumerate(curve, start=1) if s <= goal), None)


def contest(
    workload: Workload,
    arms: Sequence[str],
    seed: int,
    trials: int,
    target: Target,
    rates: Rates,
    busy: bool,
    equal_time: bool,
) -> dict[str, Any]:
    """Compares the arms on one task with one seed. Each seed has another order of the arms; with `equal_time`
    the first arm begins."""
    order = [*arms[seed % len(arms) :], *arms[: seed % len(arms)]]
    found: dict[str, Search] = {}
    for arm in arms if equal_time else order:
        seconds = found[arms[0]].wall_s if equal_time and found else None
        found[arm] = search(workload, arm, seed, trials, target, rates, busy, seconds)
    default = default_trace(workload.dag, target)
    times, spread = compare(workload, [default, *(found[arm].trace for arm in arms)], target, busy)
    seconds = dict(zip(("default", *arms), times, strict=True))
    first = arms[0]
    others = {}
    for arm in arms[1:]:
        gain = seconds[arm] / seconds[first] - 1.0
        goal = found[arm].curve[-1] * (1.0 + spread)
        others[arm] = {
            "gain": gain,
            "score": 0.5 if abs(gain) <= spread else float(gain > 0),
            "trials_to_reach": reached(found[first].curve, goal),
        }
    sketches = generate(workload.dag, target)
    return {
        "workload": workload.name,
        "seed": seed,
        "sketches": len(sketches),
        "space": sum(s.size for s in sketches),
        "space_hash": hashlib.sha256("".join(s.hash for s in sketches).encode()).hexdigest()[:12],
        "seconds": seconds,
        "spread": spread,
        "against": others,
        "gflops": workload.dag.flops() / seconds[first] / 1e9,
        "searches": {m: {k: v for k, v in asdict(s).items() if k != "trace"} for m, s in found.items()},
    }


def screened(workload: Workload, trials: int, target: Target, rates: Rates, busy: bool) -> float:
    """How many times as fast as the default the best of a random search is."""
    found = search(workload, "random", SCREENING, trials, target, rates, busy)
    (default, best), _ = compare(workload, [default_trace(workload.dag, target), found.trace], target, busy)
    return default / best


def workloads(tasks: str, numbers: str, target: Target) -> list[Workload]:
    """The workloads of tasks by name, or of random programs (`602,608,610:620`) whose spaces are large
    enough."""
    if not numbers:
        return [task_workload(name) for name in chosen(tasks, None)]
    found = []
    for n in numbers_of(numbers):
        workload = Workload.of(ComputeDAG.of(drawn(n).te()), f"drawn {n}")
        if sum(s.size for s in generate(workload.dag, target)) >= LEAST_SPACE:
            found.append(workload)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", default=",".join(SAMPLE), help="of replays/search_tasks.py, or families")
    parser.add_argument("--drawn", default="", help="random programs instead, as 7,10:20")
    parser.add_argument("--arms", default="xgb,random", help="the first one is compared with the others")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--equal-time", action="store_true", help="the others have the first one's seconds")
    parser.add_argument(
        "--screen", type=int, default=0, metavar="TRIALS", help="only name programs that count"
    )
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "search_arms.json")
    parser.add_argument(
        "--threads", type=int, default=0, help="of a kernel; 0: all cores (the machine must be idle)"
    )
    parser.add_argument("--busy", action="store_true", help="the machine is not idle; fastest samples count")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which none begins")
    asked = parser.parse_args()
    arms = asked.arms.split(",")
    target = host().with_threads(asked.threads) if asked.threads else host()
    rates = calibrated(None, target)
    began = time.perf_counter()
    rows: list[dict[str, Any]] = []
    asked_for = workloads(asked.tasks, asked.drawn, target)
    if asked.screen:
        for workload in asked_for:
            gain = screened(workload, asked.screen, target, rates, asked.busy)
            print(f"{workload.name:28} {gain:6.2f}  {'counts' if gain >= AHEAD else ''}", flush=True)
        return
    print(f"{'task':28} seed  {'default us':>10} " + " ".join(f"{a + ' us':>10}" for a in arms) + "  spread")
    for seed in range(asked.seeds):
        for workload in asked_for:
            if time.perf_counter() - began > asked.limit:
                break
            r = contest(workload, arms, seed, asked.trials, target, rates, asked.busy, asked.equal_time)
            rows.append(r)
            times = " ".join(f"{r['seconds'][a] * 1e6:10.1f}" for a in ("default", *arms))
            print(f"{r['workload']:28} {seed:4}  {times} {r['spread']:7.1%}", flush=True)
            write(asked.json, asked.busy, target, asked.trials, rows, time.perf_counter() - began)
    for arm, said in summarise(rows, asked.trials).items():
        low, high = said["bounds"]
        print(
            f"{arms[0]} against {arm}: {said['mean_gain']:+.1%} in the geometric mean ({low:+.1%} to "
            f"{high:+.1%}), score {said['score']:.1f} of {len(rows)}, reached after "
            f"{said['median_trials_to_reach']:g} trials (median)"
        )


def summarise(rows: Sequence[dict[str, Any]], trials: int) -> dict[str, dict[str, Any]]:
    """For each other arm, the comparison with the first arm: geometric means of gains over programs."""
    arms = list(rows[0]["against"]) if rows else []
    out = {}
    for arm in arms:
        mine = [r["against"][arm] for r in rows]
        of = {r["workload"]: [] for r in rows}
        for r in rows:
            of[r["workload"]].append(np.log1p(r["against"][arm]["gain"]))
        means = np.asarray([np.mean(v) for v in of.values()])
        out[arm] = {
            "mean_gain": float(np.expm1(means.mean())),
            "bounds": bounds(means),
            "score": sum(m["score"] for m in mine),
            "median_trials_to_reach": median(m["trials_to_reach"] or trials + 1 for m in mine),
        }
    return out


def bounds(means: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Bounds for the mean gain: nine of ten means lie between them if programs are drawn again (bootstrap;
    Efron, 1979)."""
    drawn_again = np.random.default_rng(0).choice(means, (RESAMPLED, len(means))).mean(axis=1)
    low, high = np.expm1(np.quantile(drawn_again, (0.05, 0.95)))
    return float(low), float(high)


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
