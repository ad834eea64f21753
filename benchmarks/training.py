"""Compares a step of training with torch eager and torch.compile, on the same cores, in turns.

    python benchmarks/training.py                              default schedules
    python benchmarks/training.py cnn@b64 --trials 300         also tuned

A step is the forward pass, the backward pass, the update, and the loss as a float. All contestants start from
the same weights. A contestant whose losses of the first steps differ from torch's is refused. Figures are
medians of all blocks; × is torch's time divided by autotensor's. Writes JSON and prints a Markdown table.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from contests.contest import Contestant, Field, Timing, ask, child_of, why_not
from contests.markdown import grid
from contests.results import Results
from jobs.training_job import NAMES, TrainingJob
from peers import Spec, cache_folder

TUNING_TIMEOUT_S = 1800.0


def contestants(threads: int, log: str, trials: int) -> list[Contestant]:
    """The contestants: autotensor untuned and, if `trials` is not 0, tuned; torch, and torch.compile."""
    mine = [Contestant("default", Spec("ours", threads), mine=True)]
    if trials:
        mine.append(Contestant("tuned", Spec("ours", threads, log=log), mine=True))
    return [
        *mine,
        Contestant("torch", Spec("eager-training", threads)),
        Contestant("inductor", Spec("compiled-training", threads)),
    ]


def table(rows: Mapping[str, Sequence[Mapping[str, Any]]], names: Sequence[str]) -> str:
    """The table: microseconds of a step, and the peers' times divided by autotensor's best."""
    mine = [n for n in names if n in ("default", "tuned")]
    peers = [n for n in names if n not in mine]
    head = ["step", *(f"{n} µs" for n in names), *(f"{n} ×" for n in peers)]
    lines = []
    for job, units in rows.items():
        times = {n: _time(units, n) for n in names}
        best = min((times[n] or float("inf") for n in mine), default=float("inf"))
        cells = [f"{times[n] * 1e6:,.0f}" if times[n] else _reason(units, n) for n in names]
        cells += [f"{times[n] / best:.2f}" if times[n] else "" for n in peers]
        lines.append((job, *cells))
    return "\n".join(grid(head, lines)).rstrip()


def _time(units: Sequence[Mapping[str, Any]], name: str) -> float:
    """The median of the processes' medians; 0 if there is none."""
    found = sorted(u[name]["median"] for u in units if "median" in u.get(name, {}))
    return float(found[len(found) // 2]) if found else 0.0


def _reason(units: Sequence[Mapping[str, Any]], name: str) -> str:
    return next((why_not(u[name])[:40] for u in units if name in u and why_not(u[name])), "")


def tuned(job: str, spec: Spec, trials: int, seed: int) -> None:
    """Fills the log, in a separate process. Raises SystemExit if that fails."""
    with child_of(spec) as child:
        asked = {"do": "tune", "suite": "training", "job": job, "trials": trials, "seed": seed}
        answer = ask(child, asked, TUNING_TIMEOUT_S)
    if why_not(answer):
        raise SystemExit(f"{job} could not be tuned: {why_not(answer)}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    add("jobs", nargs="*", help=f"such as {', '.join(NAMES)} (default: all of these)")
    add("--contestants", default="", metavar="NAME,NAME", help="these columns only (torch always runs)")
    add("--processes", type=int, default=1, help="sets of processes")
    add("--rounds", type=int, default=5)
    add("--block", type=float, default=0.2, metavar="SECONDS")
    add("--tries", type=int, default=3)
    add("--threads", type=int, default=cores)
    add("--trials", type=int, default=0, help="tune every step first")
    add("--log", default=os.path.join(cache_folder(), "training.db"))
    add("--seed", type=int, default=0)
    add("--fresh", action="store_true", help="forget the other rows that the file holds")
    add("--json", type=Path, default=Path(__file__).parent / "results" / "training.json")
    options = parser.parse_args()
    jobs = options.jobs or list(NAMES)
    for job in jobs:
        TrainingJob.named(job)  # a wrong name raises an error before anything is measured
    wanted = [n for n in options.contestants.split(",") if n]
    everybody = [
        c
        for c in contestants(options.threads, options.log, options.trials)
        if not wanted or c.name in wanted or c.name == "torch"
    ]
    try:
        results = Results.open(options.json, options.threads, "Steps of training", fresh=options.fresh)
    except ValueError as error:
        raise SystemExit(str(error)) from error
    timing = Timing(options.rounds, options.block, options.tries, options.seed)
    rows: dict[str, list[Mapping[str, Any]]] = results.data["rows"]
    for job in jobs:
        rows[job] = []
        for c in everybody:
            if c.name == "tuned":
                tuned(job, c.spec, options.trials, options.seed)
        for _ in range(options.processes):
            with tempfile.TemporaryDirectory() as folder, Field(everybody, Path(folder), timing) as field:
                rows[job].append(field.unit("training", job))
        results.write()
        print(table({job: rows[job]}, [c.name for c in everybody]), flush=True)
    columns = dict.fromkeys(name for units in rows.values() for unit in units for name in unit)
    print("\n" + table(rows, tuple(columns)))
    return int(any("refused" in cell for units in rows.values() for unit in units for cell in unit.values()))


if __name__ == "__main__":
    sys.exit(main())
