"""Does the cost grow like the work? Larger batches, wider layers and more threads, for autotensor and every
peer.

    python benchmarks/scaling.py                              default schedules, 1 thread and all of them
    python benchmarks/scaling.py --trials 100 --processes 3   also tuned, with bounds
    python benchmarks/scaling.py --only resnet18@b1,resnet18@b8 --threads 2

For each network it measures the latency, the time of setting up (for autotensor: compiling, with nothing
cached), the time of tuning, and the memory of setting up and tuning. Each figure is shown with its growth
from the ladder's first rung. Every row has its own processes. Writes scaling-tN.json for every number of
threads N, and one scaling.md and one picture for all of them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from contests import scaling_page
from contests.contest import Contestant, Timing
from contests.results import Results
from contests.table import Plan, Row, arguments, chosen, installed, make, ours, peers
from jobs.networks import Network
from models import prepare
from peers import cache_folder

TITLE = "Scaling"
LADDERS = (
    ("resnet18@b1", "resnet18@b8", "resnet18@b32"),  # 1, 8, 32 times the work
    ("small_cnn@b32w1", "small_cnn@b32w10"),  # convolutions, nearly 100 times the work
    ("mlp@b32w1", "mlp@b32w10"),  # dense layers, 32 times the work: input and output stay unchanged
)
UNCACHED = {"AUTOTENSOR_CACHE_BYTES": "0", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}


def contestants(threads: int, options: argparse.Namespace) -> list[Contestant]:
    """The contestants: those of --contestants, or else all, in their natural layout and with strict
    numerics."""
    everybody = [
        *ours(threads, options.log, bool(options.trials)),
        *peers(threads, cache_folder()),
    ]
    if not options.contestants:
        everybody = [c for c in everybody if not c.name.endswith(("-fast", "-cl"))]
    return installed([uncached(c) for c in chosen(everybody, options.contestants)])


def uncached(c: Contestant) -> Contestant:
    """The contestant, without files that an earlier run has left on the disk."""
    return replace(c, spec=replace(c.spec, environment={**c.spec.environment, **UNCACHED}))


def counts(text: str) -> tuple[int, ...]:
    """
    >>> counts("1,2")
    (1, 2)
    """
    found = tuple(int(word) for word in text.split(","))
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of thread counts")
    return found


def file_of(path: Path, threads: int) -> Path:
    """scaling.json ─▶ scaling-t2.json: each number of threads has its own file."""
    return path.with_name(f"{path.stem}-t{threads}{path.suffix}")


def names_of(text: str) -> list[str]:
    """The rows that --only names, in the order of the ladders. Raises SystemExit for an unknown row."""
    known = [name for ladder in LADDERS for name in ladder]
    asked = [name for name in text.split(",") if name]
    if wrong := [name for name in asked if name not in known]:
        raise SystemExit(f"no row is called {wrong[0]!r}. Known: {', '.join(known)}.")
    return [name for name in known if not asked or name in asked]


def table(threads: int, names: Sequence[str], options: argparse.Namespace, budget: float | None) -> int:
    """Measures all rows with so many threads. Returns the exit status of `make`."""
    changed = {"threads": threads, "json": file_of(options.json, threads), "budget": budget}
    own = argparse.Namespace(**{**vars(options), **changed})
    taking_part = contestants(threads, own)
    rows = [Row(n, Network.named(n).facts, partial(prepare, n, taking_part, suite="scaling")) for n in names]
    timing = Timing(own.rounds, own.block, own.tries, own.seed)
    plan = Plan("scaling", rows, taking_part, timing, own.processes, retry=own.retry, apart=True)
    return make(plan, own, TITLE, lambda _: None)


def write(path: Path) -> None:
    """Writes the page and the picture for all results next to `path`."""
    files = sorted(path.parent.glob(f"{path.stem}-t*{path.suffix}"))
    scaling_page.write([Results.read(f) for f in files], LADDERS, path.with_suffix(".md"))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, conflict_handler="resolve"
    )
    arguments(parser, "scaling.json", "models.db", rounds=3, block_s=0.5)
    cores = parser.get_default("threads")
    teams = tuple(sorted({1, cores}))
    parser.add_argument("--threads", type=counts, default=teams, metavar="N,N", help="default: %(default)s")
    options = parser.parse_args()
    names = names_of(options.only)
    began, status = time.monotonic(), []
    for left, threads in zip(range(len(options.threads), 0, -1), options.threads, strict=True):
        rest = None if options.budget is None else (options.budget - (time.monotonic() - began)) / left
        status.append(table(threads, names, options, rest))
    write(options.json)
    return max(status)


if __name__ == "__main__":
    sys.exit(main())
