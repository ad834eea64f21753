"""How much each ingredient contributes: ResNet-18 is tuned with everything, and then again without one
ingredient.

    python benchmarks/ablations.py --trials 500 [--model resnet18] [--processes 5] [--only full,no-winograd]

Every variant is tuned from its own empty log, in its own process, with the same number of trials and the same
seed. Then all variants are timed in turns. A variant's file is kept. It is made again if autotensor's source
has changed (or with --fresh).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from contests import report
from contests.contest import Contestant, Timing
from contests.markdown import grid, paragraphs
from contests.published_table import FILE, Table, compared, typical
from contests.report import figure
from contests.results import Results, source_hash
from contests.table import Plan, Row, arguments, installed, make
from jobs.networks import Network
from models import prepare
from peers import Spec, cache_folder
from replays.variants import VARIANTS, build


def build_here(options: argparse.Namespace) -> dict[str, Any]:
    """Makes one variant in this process. Returns the numbers of trials and tasks, and the seconds."""
    began, graph = time.perf_counter(), Network.named(options.model).graph()
    asked = {"trials": options.trials, "threads": options.threads, "seed": options.seed}
    found = build(VARIANTS[options.build], graph, options.out, **asked)
    return {**found, "seconds": time.perf_counter() - began}


def made(name: str, options: argparse.Namespace, folder: Path) -> Path | None:
    """The variant's file. If it does not exist, a separate process makes it. None if that failed."""
    out = folder / f"{name}.atm"
    log = out.with_suffix(".json")
    asked = {"trials": options.trials, "threads": options.threads, "seed": options.seed}
    if log.exists() and json.loads(log.read_text()).get("asked") == {**asked, "source": source_hash()}:
        return out
    for stale in folder.glob(f"{name}.*"):
        stale.unlink()
    command = [sys.executable, __file__, "--model", options.model, "--build", name, "--out", str(out)]
    command += [word for key, value in asked.items() for word in (f"--{key}", str(value))]
    limit = 600 + 5 * options.trials
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        print(f"{name}: not made within {limit} s.")
        return None
    if done.returncode:
        print(f"{name}: not made. {' '.join(done.stderr.strip().splitlines()[-1:]) or done.returncode}")
        return None
    facts = json.loads(done.stdout.strip().splitlines()[-1])
    log.write_text(json.dumps({**facts, "asked": {**asked, "source": source_hash()}}))
    print(f"{name}: {facts['trials']} trials, {facts['tasks']} tasks, {facts['seconds']:.0f} s", flush=True)
    return out


def page(results: Results, model: str) -> Iterable[str]:
    """The table as Markdown."""
    row = results.rows[model]
    m, whole = results.data["machine"], f"{FILE}full"
    yield from paragraphs(
        f"# What each ingredient is worth: {model}, {results.data['threads']} threads",
        f"{m['cpu']}, {m['cores']} cores. Each variant is tuned from an empty log with the same number of "
        f"trials; {len(row['units'])} set(s) of processes, timed in turns. Times as slow as with everything, "
        "with the one-sided 95 % bound over processes.",
    )
    rows = []
    for name, variant in VARIANTS.items():
        column = f"{FILE}{name}"
        if not any(column in u["cells"] for u in row["units"]):
            continue
        time_s, least_s = typical(row, column), typical(row, column, "min")
        ratio = compared(row, column, whole)
        if time_s is None or least_s is None:
            rows.append((name, variant.about, "–", "–", "–"))
            continue
        slower = "–" if ratio is None else f"{ratio.value:.2f}"
        if ratio is not None and ratio.lower > 0 and name != "full":
            bound = f"≥ {ratio.lower:.2f}" if ratio.value >= 1 else f"≤ {ratio.upper:.2f}"
            slower += f" ({bound})"
        rows.append((name, variant.about, figure(1e3 * time_s), figure(1e3 * least_s), slower))
    yield from grid(("taken away", "what remains", "ms", "least ms", "times as slow"), rows)
    yield from report.notes(Table.of(results))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--build", choices=VARIANTS, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    arguments(parser, "ablations.json", "", rounds=5, block_s=0.5)
    parser.set_defaults(trials=500)
    options = parser.parse_args()
    if options.build:
        print(json.dumps(build_here(options)))
        return 0
    names = [n for n in options.only.split(",") if n] or list(VARIANTS)
    if wrong := [n for n in names if n not in VARIANTS]:
        raise SystemExit(f"no variant is called {wrong[0]!r}. Known: {', '.join(VARIANTS)}.")
    folder = Path(cache_folder()) / "ablations" / options.model
    folder.mkdir(parents=True, exist_ok=True)
    if options.fresh:
        for path in folder.iterdir():
            path.unlink()
    found: dict[str, Path] = {}
    if not options.report:
        print(f"Making {len(names)} variants, at most {len(names) * options.trials} trials.", flush=True)
        found = {n: path for n in names if (path := made(n, options, folder)) is not None}
    contestants = [Contestant("torch", Spec("torch", options.threads))]
    contestants += [
        Contestant(
            f"{FILE}{n}", Spec("ours", VARIANTS[n].threads or options.threads, file=str(path)), mine=True
        )
        for n, path in found.items()
    ]
    ready: Callable[[], str] = partial(prepare, options.model, contestants)
    row = Row(options.model, Network.named(options.model).facts, ready)
    timing = Timing(options.rounds, options.block, options.tries, options.seed)
    plan = Plan("models", [row], installed(contestants), timing, options.processes, retry=options.retry)
    options.trials = 0  # the variants are already tuned; the table only measures

    def write(results: Results) -> None:
        path = results.path.with_suffix(".md")
        path.write_text("\n".join(page(results, options.model)) + "\n")
        print(f"Wrote {path}")

    return make(plan, options, "Ablations", write)


if __name__ == "__main__":
    sys.exit(main())
