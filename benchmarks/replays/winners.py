"""The results of one search of a task: its best schedule after 0, 8, 16 … trials, in a file.

    found = search("layer2", options)      an empty log, no shipped schedules, one seed, no early end
    found.winners[8]                       the best trace after eight trials, as JSON
    found.curve                            (trials, seconds since the start, best seconds so far)

The winner after n trials is the result of a search of n trials: the search makes its final race there, and
then goes on. The winner is timed again together with the others. The first guess, after 0 trials, is the
default schedule.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from contests.results import source_hash

from autotensor.base import switches
from autotensor.base.deadline import NEVER
from autotensor.base.target import Target
from autotensor.resolve import resolve
from autotensor.schedule.primitives.algorithm import algorithm_tolerance
from autotensor.search.loop import tune
from autotensor.search.measuring.measure_request import MeasureOptions
from autotensor.search.measuring.measurer import LocalMeasurer
from autotensor.search.options import TuneOptions
from autotensor.search.run import TuningRun
from autotensor.search.task import Task
from replays.search_tasks import workload
from schedules.generate import default_trace
from schedules.prior.rates import Rates
from tuning_db import connect

FIRST = 8  # number of trials of the first winner after the default


@dataclass(frozen=True)
class Asked:
    """The settings of a search. Other settings are another search."""

    trials: int
    seed: int
    threads: int
    numerics: str
    source: str  # hash of autotensor's source
    cpu: str = "native"


@dataclass(frozen=True)
class Found:
    """The results of one search."""

    asked: Asked
    winners: Mapping[int, str]  # number of trials → trace as JSON
    # after each race: trials, elapsed seconds, the winner's seconds in the race
    curve: Sequence[tuple[int, float, float]]
    trials: int
    failures: int
    wall_s: float
    shares: Mapping[str, float]  # kind of work → seconds


def steps(trials: int) -> tuple[int, ...]:
    """
    >>> steps(100)
    (0, 8, 16, 32, 64, 100)
    """
    found = [0]
    step = FIRST
    while step < trials:
        found.append(step)
        step *= 2
    return (*found, trials)


def same_before(winners: Mapping[int, str], after: int) -> int | None:
    """The first smaller number of trials with the same winner; None if the winner is new.

    >>> same_before({0: "a", 8: "b", 16: "b"}, 16), same_before({0: "a", 8: "b"}, 8)
    (8, None)
    """
    return next((n for n in sorted(winners) if n < after and winners[n] == winners[after]), None)


def asked(trials: int, seed: int, threads: int, numerics: str, cpu: str) -> Asked:
    return Asked(trials, seed, threads, numerics, source_hash(), cpu)


def search(name: str, what: Asked, target: Target, rates: Rates) -> Found:
    """Searches one task from nothing. Data stay in the caches between calls, as in the contest."""
    task, store = Task(workload(name), target, name=name), connect(":memory:")
    options = TuneOptions(seed=what.seed, patience=False, warm_start=False)
    measuring = MeasureOptions(residency="hot", peak_flops=rates.peak(target.num_cores))
    won = {0: default_trace(task.workload.dag, target).to_json()}
    curve: list[tuple[int, float, float]] = []
    shares: Counter[str] = Counter()
    began = time.monotonic()
    with (
        switches.override(no_shipped=True),
        LocalMeasurer(target, measuring, numerics=algorithm_tolerance) as measurer,
    ):
        for step in steps(what.trials)[1:]:
            asked_so_far = replace(options, trials=step)
            report = tune(TuningRun([task], asked_so_far, store, NEVER, residency="hot"), measurer, rates)
            won[step] = resolve(task.workload, target, store).trace.to_json()
            curve.append((step, time.monotonic() - began, report.tasks[0].best_s or math.inf))
            shares.update(report.shares)
    failures = sum(t.failures for t in report.tasks)
    return Found(what, won, curve, report.trials, failures, time.monotonic() - began, dict(shares))


# -- files ---------------------------------------------------------------------------------------------------


def write(found: Found, folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    scratch = folder / f".{name}.{os.getpid()}"
    scratch.write_text(json.dumps(asdict(found)) + "\n")
    os.replace(scratch, folder / f"{name}.json")


def read(folder: Path, name: str) -> Found:
    data = json.loads((folder / f"{name}.json").read_text())
    data["asked"] = Asked(**data["asked"])
    data["winners"] = {int(n): t for n, t in data["winners"].items()}
    data["curve"] = [(int(n), at, best) for n, at, best in data["curve"]]
    return Found(**data)


def kept(folder: Path, name: str, what: Asked) -> Found | None:
    """The search with these settings, if the folder has it."""
    if not (folder / f"{name}.json").exists():
        return None
    found = read(folder, name)
    return found if found.asked == what else None
