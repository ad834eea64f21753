"""What a search finds in minutes: how near the first guess, and the best of 8, 16, 32 … trials, are to the
best known.

    python benchmarks/found.py                                  all 60 tasks, 64 trials each
    python benchmarks/found.py --draw 7 --long 400              twenty tasks, drawn by a seed
    python benchmarks/found.py --only gemm,layer2 --budget 600

Each task is searched from nothing: an empty log, no shipped schedules, a fixed seed, no early end. After 8,
16, 32 … trials a final race gives the winner of a search of this length, and then the search goes on. All
these winners are in one process and are timed in turns with torch, onnxruntime, OpenVINO and the results of
metaschedule.py. The best known is the fastest of all. The least of many noisy times is partly luck, which
makes autotensor's shares smaller. All contestants are timed with their data in the caches.
Searches and contests are kept; the same command continues.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from contests import found_page
from contests.contest import Contestant, Timing
from contests.published_table import FILE
from contests.results import Results
from contests.table import Plan, Row, arguments, installed, make, peers
from jobs import metaschedule
from peers import Spec, cache_folder
from replays import winners
from replays.search_tasks import TASKS, chosen, family

from autotensor.base.target import Target, parse
from autotensor.search.machine.calibration import calibrated
from schedules.prior.rates import Rates
from tuning_db import connect

TRIAL_S = 0.15  # guessed seconds for a trial of the search
LIBRARIES = ("torch", "torch-cl", "onnxruntime", "openvino")


def search_all(
    names: Sequence[str], what: winners.Asked, target: Target, folder: Path, deadline: float
) -> tuple[str, ...]:
    """Searches the tasks that the folder lacks. Returns the tasks that have winners."""
    rates: Rates | None = None
    done = []
    for name in names:
        if winners.kept(folder, name, what) is None:
            if time.monotonic() + TRIAL_S * what.trials > deadline:
                continue
            rates = rates or calibrated(connect(":memory:"), target, kernels=True)
            found = winners.search(name, what, target, rates)
            winners.write(found, folder, name)
            best_s = found.curve[-1][2] if found.curve else math.nan
            print(
                f"{name}: {found.trials} trials ({found.failures} failed) in {found.wall_s:.0f} s, "
                f"{1e6 * best_s:.4g} us",
                flush=True,
            )
        done.append(name)
    return tuple(done)


def facts(name: str, folder: Path) -> dict[str, object]:
    """The facts about a task and its searches that the page needs."""
    found = winners.read(folder, name)
    return {
        "family": family(name),
        "flops": TASKS[name]().flops,
        "cpu": found.asked.cpu,
        "search": {
            "trials": found.trials,
            "failures": found.failures,
            "wall_s": found.wall_s,
            "shares": found.shares,
            "seed": found.asked.seed,
            "curve": [list(point) for point in found.curve],
        },
        "metaschedule": metaschedule.searches(name, found.asked.threads),
    }


def contestants(trials: int, threads: int, numerics: str, cpu: str, folder: Path) -> list[Contestant]:
    """autotensor's winners, which share one process, and torch, whose outputs are the reference. If
    autotensor's code is for this processor, also the other libraries and TVM, whose code always is."""
    mine = Spec("ours", threads, numerics=numerics, cpu=cpu, file=str(folder))
    found = [
        Contestant(f"{FILE}{n}", mine, mine=True, process="ours", variant=str(n))
        for n in winners.steps(trials)
    ]
    libraries = [c for c in peers(threads, cache_folder()) if c.name in LIBRARIES]
    if cpu != "native":
        return installed([*(c for c in libraries if c.name == "torch"), *found])
    return [*installed([*libraries, *found]), *metaschedule.contestants(threads)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments(parser, "found.json", "", rounds=11, block_s=0.05)
    parser.add_argument("--draw", type=int, metavar="SEED", help="twenty of the tasks, by this seed")
    parser.add_argument("--long", type=int, default=64, metavar="N", help="trials of each search")
    parser.add_argument("--numerics", choices=("fast", "strict"), default="fast")
    parser.add_argument(
        "--cpu", default="native", help="code for another processor, as x86-64-v2; libraries do not count"
    )
    options = parser.parse_args()
    names = chosen(options.only, options.draw)
    made_for = "" if options.cpu == "native" else f"-{options.cpu}"
    folder = Path(cache_folder()) / "found" / f"{options.numerics}-{options.seed}-{options.long}{made_for}"
    plan_rows: list[Row] = []
    if not options.report:
        deadline = math.inf if options.budget is None else time.monotonic() + options.budget
        print(
            f"{len(names)} tasks, at most {options.long * len(names)} trials, about "
            f"{TRIAL_S * options.long * len(names) / 60:.0f} min of searching.",
            flush=True,
        )
        what = winners.asked(options.long, options.seed, options.threads, options.numerics, options.cpu)
        target = parse(f"llvm -mcpu={options.cpu} -threads={options.threads} -numerics={options.numerics}")
        if options.fresh and folder.exists():
            for path in folder.glob("*.json"):
                path.unlink()
        searched = search_all(names, what, target, folder, deadline)
        plan_rows = [Row(n, partial(facts, n, folder)) for n in searched]
        if options.budget is not None:
            options.budget = max(0.0, deadline - time.monotonic())
    plan = Plan(
        "search",
        plan_rows,
        contestants(options.long, options.threads, options.numerics, options.cpu, folder),
        Timing(options.rounds, options.block, options.tries, options.seed),
        options.processes,
        retry=options.retry,
    )
    options.trials = 0  # the searches are done; the table only measures

    def write(results: Results) -> None:
        path = results.path.with_suffix(".md")
        path.write_text("\n".join(found_page.page(results)) + "\n")
        print(f"Wrote {path}")

    status = make(plan, options, "Found in minutes", write)
    return status or (3 if len(plan_rows) < len(names) and not options.report else 0)


if __name__ == "__main__":
    sys.exit(main())
