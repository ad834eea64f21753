"""Measures random tensor programs, so that the log becomes a data set for cost models.

    python benchmarks/logs/program_log.py --log data.db --programs 2000
    python benchmarks/cost_model.py --log data.db --folds 10

Every program (suite/programs/drawn.py) is a run of the tuner with candidates from its whole space
(replays/spread.py). After it was stopped, the same command continues. Nothing else should run on the cores on
which it measures.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from replays.spread import Spread
from suite.programs.drawn import drawn

import autotensor as at
from autotensor.base.errors import AutotensorError

CANDIDATES = 30


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--log", required=True)
    parser.add_argument("--first", type=int, default=0, help="number of the first program")
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--candidates", type=int, default=CANDIDATES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no program begins after them")
    asked = parser.parse_args()
    end = time.monotonic() + 60.0 * asked.minutes
    for number in range(asked.first, asked.first + asked.programs):
        if time.monotonic() > end:
            break
        program = drawn(number)
        try:
            report = at.tune(
                list(program.te()),
                asked.candidates,
                f"llvm -threads={asked.threads}",
                db=asked.log,
                name=program.name,
                model="prior",
                policy=Spread,
                effort="full",
                progress=False,
            )
        except AutotensorError as refused:
            print(f"{program.name}: {refused}", flush=True)
            continue
        (task,) = report.tasks
        print(
            f"{program.name}: {report.trials} trials, {task.failures} failed, {report.elapsed_s:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
