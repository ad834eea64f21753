"""Tensor programs without kernel rules of their own, compared with other compilers on the same cores.

    python benchmarks/tensor_programs.py                          the suites, default schedules
    python benchmarks/tensor_programs.py --trials 128             also tuned
    python benchmarks/tensor_programs.py --only images --drawn 0:60 a suite and sixty drawn programs

Peers: XLA (`jax`), torch eager, torch.compile (max-autotune), opt_einsum with torch for programs with an
einsum, numba in the loops that a person would write, and Halide with each of its autoschedulers
(`peers/environments.py halide`). Every contestant has its own process. They are timed in turns, and every
result is compared with NumPy's in float64. Writes JSON and a Markdown table with ratios to the best peer, and
to Halide alone. `--budget SECONDS` stops the command; the same command then continues.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))

from contests import table
from contests.contest import REFERENCE, Contestant, Timing
from contests.results import Results, times
from contests.table import Plan, Row, arguments, make
from peers import AUTOSCHEDULERS, Spec, cache_folder
from suite.programs import PROGRAMS
from suite.programs.drawn import numbers_of

TITLE = "Tensor programs"
MOST = 10.0  # a larger ratio says more about the peer than about autotensor, and does not count in means
HALIDE = tuple(f"halide-{a.lower()}" for a in AUTOSCHEDULERS)
PEERS = ("jax", "torch", "inductor", "opt_einsum", "numba", *HALIDE)
COLUMNS = {"jax": ("jax",), "torch": ("torch",), "inductor": ("inductor",), "opt_einsum": ("opt_einsum",),
           "numba": ("numba",), "halide": HALIDE}  # fmt: skip
PIPELINES = ("images", "stencils")  # the suites for which Halide is made
WORST = 5  # programs that the page names


def rows_of(only: str, drawn: str) -> list[Row]:
    """The rows: programs of suites or by name, and drawn programs by number. Raises SystemExit for an unknown
    name."""
    words = [w for w in only.split(",") if w]
    found = [p.name for p in PROGRAMS if not words or p.suite in words or p.name in words]
    names = [*found, *(f"drawn {n}" for n in numbers_of(drawn))]
    if not names:
        raise SystemExit(f"no suite or program is called {only!r}. Suites: {', '.join(suites())}.")
    return [Row(n, dict) for n in names]


def suites() -> list[str]:
    return list(dict.fromkeys(p.suite for p in PROGRAMS))


def contestants(threads: int, log: str, tuned: bool) -> list[Contestant]:
    """The contestants: autotensor with its default schedules, with `tuned` also with tuned ones, and the
    peers."""
    found = [Contestant(REFERENCE, Spec("reference", threads))]
    found.append(Contestant("default", Spec("ours", threads), mine=True))
    if tuned:
        found.append(Contestant("tuned", Spec("ours", threads, log=log), mine=True))
    environment = {"TORCHINDUCTOR_CACHE_DIR": os.path.join(cache_folder(), "inductor")}
    others = [Contestant(name, Spec(name, threads, environment=environment)) for name in PEERS]
    return [*found, *(c for c in others if not table.why_missing(c.spec.kind))]


def medians(results: Results, row: str) -> dict[str, float]:
    """The seconds of every contestant: the median over sets of processes."""
    names = dict.fromkeys(n for u in results.rows[row]["units"] for n in u["cells"])
    found = {n: [t for t in times(results.rows[row], n) if t is not None] for n in names}
    return {n: median(t) for n, t in found.items() if t}


def ratio(found: Mapping[str, float], mine: str, names: Sequence[str] = PEERS) -> float | None:
    """The best peer's time over autotensor's time; None if no peer has a time."""
    peers = [found[p] for p in names if p in found]
    return min(peers) / found[mine] if peers and mine in found else None


def mean(ratios: Sequence[float]) -> float:
    """The geometric mean of the ratios that are not above MOST."""
    kept = [r for r in ratios if r <= MOST]
    return math.exp(sum(map(math.log, kept)) / len(kept)) if kept else float("nan")


def page(rows: Mapping[str, Mapping[str, float]]) -> str:
    """The table with milliseconds and the ratios to the best peer, and then the summary."""
    mine = [m for m in ("default", "tuned") if any(m in r for r in rows.values())]
    columns = [c for c, names in COLUMNS.items() if any(n in r for r in rows.values() for n in names)]
    head = ["program", *mine, *columns, *(f"peer ÷ {m}" for m in mine)]
    lines = [f"# {TITLE}", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for name, found in rows.items():
        times_ = [found.get(m) for m in mine]
        times_ += [min((found[n] for n in COLUMNS[c] if n in found), default=None) for c in columns]
        cells = ["" if t is None else f"{1e3 * t:.3f}" for t in times_]
        cells += ["" if (r := ratio(found, m)) is None else f"{r:.2f}" for m in mine]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    pipelines = {p.name for p in PROGRAMS if p.suite in PIPELINES}
    for m in mine:
        lines += ["", *_summary(rows, m, PEERS, "the best peer")]
        some = {n: r for n, r in rows.items() if n in pipelines}
        lines += [
            "",
            *_summary(some, m, HALIDE, "Halide's best autoscheduler on image pipelines and stencils"),
        ]
    return "\n".join(lines) + "\n"


def _summary(rows: Mapping[str, Mapping[str, float]], mine: str, peers: Sequence[str], who: str) -> list[str]:
    """A sentence about the ratios, and the worst programs with their best peers. Empty if there is no
    ratio."""
    ratios = {n: r for n, found in rows.items() if (r := ratio(found, mine, peers)) is not None}
    if not ratios:
        return []
    worst = sorted(ratios, key=lambda n: ratios[n])[:WORST]
    named = (
        f"{n} {ratios[n]:.2f} ({min((p for p in peers if p in rows[n]), key=rows[n].__getitem__)})"
        for n in worst
    )
    ahead = sum(r >= 1 for r in ratios.values())
    return [
        f"{mine}: {mean([*ratios.values()]):.2f} times {who} in the geometric mean (ratios above {MOST:.0f} "
        f"left out), ahead in {ahead} of {len(ratios)}. Worst: {', '.join(named)}."
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments(parser, "tensor-programs.json", "tensor-programs.db", rounds=5, block_s=0.05)
    parser.add_argument(
        "--drawn", default="", metavar="NUMBERS", help="also programs drawn at random, as 7,100:160"
    )
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
