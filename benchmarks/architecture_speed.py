"""Architectures drawn at random, untuned, against the best of onnxruntime, OpenVINO and Inductor.

    python benchmarks/architecture_speed.py --judged architectures.jsonl --draw timm=20,torchvision=7

The architectures are the first ones, in the order in which `architectures.py` drew them, that its file of
results calls right and that have fewer than 200 million parameters at their full size. The batch is 1. Prints
the geometric mean by kind: an architecture with attention is a transformer, all others are convolutional. A
run continues its file of results.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from contests import report
from contests.contest import SETUP_TIMEOUT_S, Contestant, Timing, ask, child_of, why_not
from contests.ratios import geometric_mean
from contests.results import Results
from contests.table import Plan, Row, arguments, chosen, installed, make, peers
from jobs.architecture_job import Drawn
from peers import Spec, cache_folder

TITLE = "Drawn architectures, untuned, batch 1"
PEERS = "onnxruntime,openvino,inductor,inductor-cl"


def prepare(name: str, spec: Spec) -> str:
    """Makes the architecture's folder in a separate process. Returns the reason if that failed."""
    with child_of(spec) as child:
        asked = {"do": "prepare", "suite": "architectures", "job": name, "specs": [asdict(spec)]}
        answer = ask(child, asked, SETUP_TIMEOUT_S)
    for note in answer.get("notes", []):
        print(f"{name}: {note}")
    return why_not(answer)


def right(judged: Path, wanted: Mapping[str, int]) -> list[str]:
    """The names of the first architectures of each library for which every route was right. wanted: library →
    how many."""
    found: dict[str, list[str]] = {library: [] for library in wanted}
    for row in map(json.loads, judged.read_text().splitlines()):
        states = {r["status"] for r in row["routes"].values()}
        if states and states <= {"ok", "not torch's"} and row["library"] in found:
            found[row["library"]].append(f"{row['library']}:{row['name']}")
    return [name for library, names in found.items() for name in names[: wanted[library]]]


def summary(results: Results) -> str:
    """The geometric means of the best peer's time divided by ours, and the worst rows."""
    ratios: dict[str, dict[str, float]] = {}
    for name, row in results.rows.items():
        cells = row["units"][0]["cells"]
        times = {c: cell["median"] for c, cell in cells.items() if "median" in cell}
        mine = times.pop("default-fast", None)
        best = min((times[c] for c in PEERS.split(",") if c in times), default=None)
        if mine and best:
            ratios.setdefault(row.get("kind", "?"), {})[name] = best / mine
    lines = []
    for kind, found in ratios.items():
        worst = sorted(found.items(), key=lambda item: item[1])[:5]
        told = ", ".join(f"{n} {r:.2f}" for n, r in worst)
        lines.append(f"{kind}: {geometric_mean(found.values()):.2f} of {len(found)}; least: {told}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--judged", type=Path, default=Path("architectures.jsonl"))
    parser.add_argument("--draw", default="timm=20,torchvision=7,transformers=13")
    arguments(parser, "architecture-speed.json", "", rounds=3, block_s=0.5)
    options = parser.parse_args()
    wanted = {k: int(v) for k, v in (w.split("=") for w in options.draw.split(","))}
    names = [n for n in options.only.split(",") if n] or right(options.judged, wanted)
    spec = Spec("ours", options.threads, numerics="fast")
    everybody = [Contestant("default-fast", spec, mine=True), *peers(options.threads, cache_folder())]
    contestants = installed(chosen(everybody, options.contestants or f"default-fast,{PEERS}"))
    rows = [Row(n, Drawn.named(n).facts, partial(prepare, n, spec)) for n in names]
    timing = Timing(options.rounds, options.block, options.tries, options.seed)
    plan = Plan("architectures", rows, contestants, timing, options.processes, retry=options.retry)
    status = make(plan, options, TITLE, lambda results: report.write(results, scale=1e3, unit="ms"))
    print(summary(Results.open(options.json, options.threads, TITLE, fresh=False)))
    return status


if __name__ == "__main__":
    sys.exit(main())
