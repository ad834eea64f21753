"""Does a second tuning end with the same result? Each model or program is tuned several times from nothing,
then all results are timed.

    python benchmarks/repeated_tunes.py resnet18 bert_base --trials 300 --threads 1
    python benchmarks/repeated_tunes.py unsharp harris pyramid --tunes 5 --trials 128 --json FILE

Models are built-in models, tuned by the command. Programs are those of `tensor_programs.py`. Each tune has an
empty log, no shipped schedules and its own seed. The result of each tune is loaded twice into one process.
All are timed in turns, to see how much the tunes differ, and how much two copies of one tune differ (A/A).

A choice is the schedule that one tune took for one task. A choice agrees if most tunes have the same one, or
if it is tied with theirs: the 95 % interval of the median paired ratio lies inside ± 2 %.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from contests.results import machine
from jobs.program_job import ProgramJob
from suite.programs import PROGRAMS

import autotensor as at
from autotensor.api.models import plan_model
from autotensor.base import switches
from autotensor.base.target import Target, host
from autotensor.compiler import compile_trace
from autotensor.models import MODELS
from autotensor.runtime.arrays import aligned_copy
from autotensor.runtime.module import Module
from autotensor.runtime.timing_lock import timing_lock
from autotensor.schedule.trace import Trace
from autotensor.search.measuring.checks import make_inputs
from autotensor.te.workload import Workload
from tuning_db import connect

ROUNDS = 61  # rounds, in each of which every file is timed once
TURN_S = 0.02
TIED = 0.02  # largest distance from 1 of the interval of a ratio

Choices = Mapping[str, Trace]  # workload key → trace


@dataclass(frozen=True)
class FromNothing:
    """The result of one tune."""

    file: Path
    choices: Choices
    seconds: float  # duration of the tune


@dataclass(frozen=True)
class TunedRepeatedly:
    """The results of one model or program. Times are in seconds. A tune's time is the mean of its two copies'
    medians."""

    name: str
    times: Sequence[float]
    spread: float  # slowest / fastest tune, minus one
    copies: float  # the same for the two copies of a tune; the greatest over all tunes
    choices: int  # tasks × tunes
    same: int
    tied: int
    tune_s: Sequence[float]


def tuned_model(name: str, folder: Path, trials: int, seed: int, threads: int) -> FromNothing:
    """Tunes a model by the command, in a separate process, as a user does."""
    out, lock = folder / f"{seed}.atm", folder / f"{seed}.lock"
    began = perf_counter()
    subprocess.run(
        [sys.executable, "-m", "autotensor", "tune", name, "--trials", str(trials), "--seed", str(seed),
         "--threads", str(threads), "--no-shipped", "--db", str(folder / f"{seed}.db"),
         "--lock", str(lock), "--out", str(out)],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    taken = json.loads(lock.read_text())["tasks"]
    choices = {t["workload"]: Trace.from_json(json.dumps(t["trace"])) for t in taken}
    return FromNothing(out, choices, perf_counter() - began)


def tuned_program(name: str, folder: Path, trials: int, seed: int, target: Target) -> FromNothing:
    tensors = list(ProgramJob.named(name).program.te())
    began = perf_counter()
    with connect(str(folder / f"{seed}.db")) as log:
        report = at.tune(tensors, trials, target, db=log, seed=seed, progress=False)
        out = folder / f"{seed}.atm"
        at.build(tensors, target=target, db=log).save(out)
    (task,) = report.tasks
    assert task.best is not None
    return FromNothing(out, {task.task.workload.key: task.best.trace}, perf_counter() - began)


def workloads_of(name: str, target: Target) -> dict[str, Workload]:
    if name in MODELS.names():
        return {t.workload.key: t.workload for t in plan_model(MODELS.get(name).build(), target).tasks}
    workload = Workload.of(ProgramJob.named(name).dag, name)
    return {workload.key: workload}


def in_turns(calls: Sequence[Callable[[], Any]]) -> list[list[float]]:
    """The seconds of each function in every round. Each round has another order."""
    samples: list[list[float]] = [[] for _ in calls]
    order = np.random.default_rng(0)
    with timing_lock():
        began = perf_counter()
        for call in calls:
            call()
        count = max(1, round(TURN_S * len(calls) / (perf_counter() - began)))
        for _ in range(ROUNDS):
            for n in order.permutation(len(calls)):
                began = perf_counter()
                for _ in range(count):
                    calls[n]()
                samples[n].append((perf_counter() - began) / count)
    return samples


def timed(files: Sequence[Path], threads: int) -> tuple[list[float], float]:
    """The seconds of each file, and the largest relative difference between two copies of one file."""
    loaded = [at.load(f, threads=threads) for f in (*files, *files)]
    rng = np.random.default_rng(0)
    inputs = [_input(a, rng) for a in loaded[0].signature.inputs]
    medians = [median(s) for s in in_turns([partial(m, *inputs) for m in loaded])]
    pairs = list(zip(medians[: len(files)], medians[len(files) :], strict=True))
    return [(a + b) / 2 for a, b in pairs], max(max(p) / min(p) - 1.0 for p in pairs)


def _input(like: Any, rng: np.random.Generator) -> Any:
    if np.issubdtype(like.dtype, np.integer):  # tokens, token types, masks
        return rng.integers(0, 2, like.shape).astype(like.dtype)
    return aligned_copy(rng.standard_normal(like.shape).astype(like.dtype))


def tied(workload: Workload, mine: Trace, theirs: Trace, target: Target) -> bool:
    """Whether the 95 % interval of the median of `mine / theirs` lies within ± TIED."""
    dag = workload.dag
    arrays = {n: aligned_copy(a) for n, a in make_inputs(dag, "normal", 0).items()}
    bound = {n: a for n, a in arrays.items() if n in dag.constants}
    given = [a for n, a in arrays.items() if n not in bound]
    modules = [
        Module(compile_trace(dag, t, target), threads=target.num_cores).bind(**bound) for t in (mine, theirs)
    ]
    ratios: list[float] = []
    with timing_lock():
        for _ in range(ROUNDS):
            a, b = (median(m.time(given, repeat=3, min_seconds=0.002)) for m in modules)
            ratios.append(a / b)
    low, high = interval_of_median(ratios)
    return max(abs(low - 1.0), abs(high - 1.0)) <= TIED


def interval_of_median(samples: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median, by order statistics (Conover, Practical Nonparametric Statistics,
    3.2).

    >>> interval_of_median([float(n) for n in range(61)])
    (22.0, 38.0)
    """
    count = len(samples)
    reach = 1.96 * count**0.5 / 2
    ranked = sorted(samples)
    return ranked[max(0, round(count / 2 - reach - 0.5))], ranked[
        min(count - 1, round(count / 2 + reach - 0.5))
    ]


def alike(
    tunes: Sequence[Choices], workloads: Mapping[str, Workload], target: Target
) -> tuple[int, int, int]:
    """The number of choices, how many of them are those of most tunes, and how many others are tied with
    those."""
    same = ties = 0
    for key, workload in workloads.items():
        counted = Counter(t[key].hash for t in tunes)
        most = next(t[key] for t in tunes if t[key].hash == counted.most_common(1)[0][0])
        others = {t[key].hash: t[key] for t in tunes if t[key].hash != most.hash}
        same += counted[most.hash]
        ties += sum(counted[h] for h, t in others.items() if tied(workload, t, most, target))
    return len(tunes) * len(workloads), same, ties


def row_of(name: str, folder: Path, asked: argparse.Namespace, target: Target) -> TunedRepeatedly:
    folder.mkdir()
    if name in MODELS.names():
        tunes = [tuned_model(name, folder, asked.trials, n, target.num_cores) for n in range(asked.tunes)]
    else:
        tunes = [tuned_program(name, folder, asked.trials, n, target) for n in range(asked.tunes)]
    times, copies = timed([t.file for t in tunes], target.num_cores)
    choices, same, ties = alike([t.choices for t in tunes], workloads_of(name, target), target)
    spread = max(times) / min(times) - 1.0
    return TunedRepeatedly(name, times, spread, copies, choices, same, ties, [t.seconds for t in tunes])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    programs = {p.name for p in PROGRAMS}
    parser.add_argument("names", nargs="+", choices=sorted({*MODELS.names(), *programs}), metavar="NAME")
    parser.add_argument("--tunes", type=int, default=5)
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--threads", type=int, default=host().num_cores)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    target = host().with_threads(asked.threads)
    rows: list[TunedRepeatedly] = []
    print(f"{'':24} {'fastest ms':>10} {'tunes differ':>12} {'copies (A/A)':>12}  choices: same  tied  of")
    with tempfile.TemporaryDirectory() as scratch, switches.override(no_shipped=True):
        for n, name in enumerate(asked.names):
            r = row_of(name, Path(scratch) / str(n), asked, target)
            rows.append(r)
            print(
                f"{r.name:24} {min(r.times) * 1e3:10.4g} {r.spread:12.1%} {r.copies:12.1%} "
                f"{r.same:14} {r.tied:5} {r.choices:3}",
                flush=True,
            )
            if asked.json:
                facts = {"machine": machine(), "threads": asked.threads, "trials": asked.trials}
                asked.json.write_text(
                    json.dumps({**facts, "rows": [asdict(r) for r in rows]}, indent=1) + "\n"
                )


if __name__ == "__main__":
    main()
