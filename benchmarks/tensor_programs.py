"""Tensor programs that no kernel rule was written for, against XLA and numba, on the same cores, in one run.

    python benchmarks/tensor_programs.py                          the suites, default schedules
    python benchmarks/tensor_programs.py --trials 128             also tuned
    python benchmarks/tensor_programs.py --only images --drawn 60 a suite, and sixty programs drawn at random

Every contestant is a process of its own; they are timed in turns, and every answer is compared with NumPy's
in float64. Writes JSON and a Markdown table with ratios to the best peer.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))

from contests import table
from contests.contest import REFERENCE, Contestant, Timing
from contests.results import Results, times
from contests.table import Plan, Row, arguments, make
from peers import Spec
from suite.programs import PROGRAMS

TITLE = "Tensor programs"
MOST = 10.0  # a larger ratio says more of the peer than of us, and is left out of means
PEERS = ("jax", "numba")


def rows_of(only: str, drawn: int) -> list[Row]:
    """The programs of suites or names; and so many drawn ones. Raises SystemExit where there are none."""
    words = [w for w in only.split(",") if w]
    found = [p.name for p in PROGRAMS if not words or p.suite in words or p.name in words]
    names = [*found, *(f"drawn {n}" for n in range(drawn))]
    if not names:
        raise SystemExit(f"no suite or program is called {only!r}. Suites: {', '.join(suites())}.")
    return [Row(n, dict) for n in names]


def suites() -> list[str]:
    return list(dict.fromkeys(p.suite for p in PROGRAMS))


def contestants(threads: int, log: str, tuned: bool) -> list[Contestant]:
    """Who takes part: of ours the default, and what was tuned."""
    found = [Contestant(REFERENCE, Spec("reference", threads))]
    found.append(Contestant("default", Spec("ours", threads), mine=True))
    if tuned:
        found.append(Contestant("tuned", Spec("ours", threads, log=log), mine=True))
    environment = {"NUMBA_NUM_THREADS": str(threads)}
    others = [Contestant(name, Spec(name, threads, environment=environment)) for name in PEERS]
    return [*found, *(c for c in others if not table.why_missing(c.spec.kind))]


def medians(results: Results, row: str) -> dict[str, float]:
    """Seconds of every contestant: the median over sets of processes."""
    names = dict.fromkeys(n for u in results.rows[row]["units"] for n in u["cells"])
    found = {n: [t for t in times(results.rows[row], n) if t is not None] for n in names}
    return {n: median(t) for n, t in found.items() if t}


def ratio(found: Mapping[str, float], mine: str) -> float | None:
    """How many times as fast as the best peer we are; None without one."""
    peers = [found[p] for p in PEERS if p in found]
    return min(peers) / found[mine] if peers and mine in found else None


def mean(ratios: Sequence[float]) -> float:
    kept = [r for r in ratios if r <= MOST]
    return math.exp(sum(map(math.log, kept)) / len(kept)) if kept else float("nan")


def page(rows: Mapping[str, Mapping[str, float]]) -> str:
    """The table: milliseconds, and times as fast as the best peer."""
    mine = [m for m in ("default", "tuned") if any(m in r for r in rows.values())]
    head = ["program", *mine, *PEERS, *(f"peer ÷ {m}" for m in mine)]
    lines = [f"# {TITLE}", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    ratios: dict[str, list[float]] = {m: [] for m in mine}
    for name, found in rows.items():
        cells = [f"{1e3 * found[c]:.3f}" if c in found else "" for c in (*mine, *PEERS)]
        for m in mine:
            r = ratio(found, m)
            cells.append("" if r is None else f"{r:.2f}")
            if r is not None:
                ratios[m].append(r)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines.append("")
    for m in mine:
        ahead = sum(r >= 1 for r in ratios[m])
        lines.append(
            f"{m}: {mean(ratios[m]):.2f} times the best peer in the geometric mean (ratios above {MOST:.0f} "
            f"left out), ahead in {ahead} of {len(ratios[m])}, worst {min(ratios[m], default=math.nan):.2f}."
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments(parser, "tensor-programs.json", "tensor-programs.db", rounds=5, block_s=0.05)
    parser.add_argument("--drawn", type=int, default=0, metavar="N", help="also N programs drawn at random")
    options = parser.parse_args()
    everybody = contestants(options.threads, options.log, bool(options.trials))
    plan = Plan(
        "programs",
        [] if options.report else rows_of(options.only, options.drawn),
        everybody,
        Timing(options.rounds, options.block, options.tries, options.seed),
        options.processes,
        retry=options.retry,
    )

    def write(results: Results) -> None:
        text = page({row: medians(results, row) for row in results.rows})
        options.json.with_suffix(".md").write_text(text)
        print(text)

    return make(plan, options, TITLE, write)


if __name__ == "__main__":
    sys.exit(main())
