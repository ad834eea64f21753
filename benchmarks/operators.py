"""Measures operators in autotensor and every installed library, on the same cores, in one run.

    python benchmarks/operators.py                                     all 134, default schedules
    python benchmarks/operators.py --trials 256 --processes 5          also tuned, with bounds: half a day
    python benchmarks/operators.py --only basic,GMM.s1.b1 --budget 600

Rows are the operators of benchmarks/suite (`--list` shows them). A run continues its file of results. Writes
JSON, a Markdown table, and (with matplotlib) pictures: bars against each peer, and a roofline.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import suite
from contests import report
from contests.contest import Timing
from contests.results import Results
from contests.table import Plan, Row, arguments, chosen, installed, make, ours, peers
from peers import cache_folder

TITLE = "Operators"


def rows_of(text: str) -> list[Row]:
    """The cases that --only names, by group or name; all cases without --only. Raises SystemExit for an
    unknown name."""
    try:
        found = [n for word in (text or "all").split(",") for n in suite.names(word)]
    except KeyError as error:
        raise SystemExit(str(error.args[0])) from error
    return [Row(n, partial(facts, n)) for n in dict.fromkeys(found)]


def facts(name: str) -> dict[str, float]:
    """The facts about an operator that a roofline needs."""
    case = suite.get(name)
    return {"flops": case.flops, "bytes": case.bytes, "useful": case.useful}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments(parser, "operators.json", "operators.db", rounds=3, block_s=0.1)
    parser.add_argument("--list", action="store_true", help="show the rows and end")
    options = parser.parse_args()
    if options.list:
        for group in suite.GROUPS:
            print(f"{group}: {', '.join(suite.names(group))}")
        return 0
    everybody = [
        *ours(options.threads, options.log, bool(options.trials)),
        *peers(options.threads, cache_folder(), numpy=True),
    ]
    plan = Plan(
        "operators",
        [] if options.report else rows_of(options.only),
        installed(chosen(everybody, options.contestants)),
        Timing(options.rounds, options.block, options.tries, options.seed),
        options.processes,
        retry=options.retry,
    )

    def write(results: Results) -> None:
        if not options.report:
            report.add_ceilings(results, options.threads)
        report.write(results, scale=1e6, unit="us")

    return make(plan, options, TITLE, write)


if __name__ == "__main__":
    sys.exit(main())
