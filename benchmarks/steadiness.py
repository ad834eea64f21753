"""How fast and how steady calls are when other programs use the cores, with autotensor's threads and with
libgomp's.

    python benchmarks/steadiness.py [--only turns,busy-dcgan] [--rounds 6] [--seconds 0.5] [--json FILE]

    alone           calls back to back
    idle5, idle50   so many milliseconds of pause before each call
    turns           in turns with onnxruntime in one process, whose threads spin after a call
    two             two Python threads, each with its own module
    busy            while another process keeps a core busy

Models are not tuned. Each figure is taken over the calls of `rounds` processes; providers take turns. New
rows replace the old rows in the file. Writes JSON and a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from contests.markdown import grid, paragraphs
from contests.results import Results

CHILD = Path(__file__).with_name("jobs") / "steadiness_child.py"
PROVIDERS = ("openmp-system", "pool")  # libgomp, autotensor's own
SCENES: Mapping[str, Sequence[str]] = {
    "alone": ("softmax", "dcgan", "mobilenet_v2", "resnet18"),
    "idle5": ("softmax", "dcgan"),
    "idle50": ("softmax", "dcgan"),
    "turns": ("softmax", "dcgan", "mobilenet_v2"),
    "two": ("softmax", "dcgan", "mobilenet_v2"),
    "busy": ("softmax", "dcgan", "mobilenet_v2"),
}
HEADS = ("median", "mean", "p99")
TITLE = "Calls while other programs use the cores"


def prepare(model: str, folder: Path) -> None:
    """Writes the files for the child process: the compiled model, the same model for onnxruntime, and
    inputs."""
    import onnx
    from nets.to_onnx import to_onnx

    import autotensor as at
    from autotensor.graph.build import input, ops
    from autotensor.graph.ir import Graph
    from autotensor.models import MODELS

    rng = np.random.default_rng(0)
    if model == "softmax":
        x = input((1024, 1024), name="x")
        graph = Graph((x,), (ops.softmax(x),), "softmax", ("y",))
        inputs = {"x": rng.standard_normal((1024, 1024), dtype=np.float32)}
    else:
        graph = MODELS.get(model).build()
        inputs = MODELS.get(model).inputs(rng)
    folder.mkdir()
    np.savez(folder / "inputs.npz", **inputs)
    onnx.save(to_onnx(graph), str(folder / "model.onnx"))
    at.compile_model(graph, db=":memory:", progress=False).save(folder / "model.atm")


def calls(scene: str, folder: Path, provider: str, seconds: float) -> list[float]:
    """The microseconds of each call in one process."""
    command = [sys.executable, str(CHILD), scene, str(folder), str(seconds)]
    environment = {**os.environ, "AUTOTENSOR_PROVIDER": provider}
    out = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    found: list[float] = json.loads(out.stdout)
    return found


def summary(processes: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Figures of all calls of some processes, in microseconds.

    >>> summary([[1.0, 3.0], [2.0, 6.0]])["median"]
    2.5
    """
    every = np.concatenate(processes)
    found: dict[str, Any] = {"median": np.median(every), "mean": every.mean()}
    found |= {f"p{q}": np.percentile(every, q) for q in (90, 99)}
    medians = [round(float(np.median(p)), 1) for p in processes]
    return {k: round(float(v), 1) for k, v in found.items()} | {"calls": len(every), "medians": medians}


def page(results: Results) -> str:
    """The Markdown table."""
    machine = results.data["machine"]
    heads = [f"{h}, {who}" for h in HEADS for who in ("libgomp", "ours", "ratio")]
    texts = paragraphs(
        f"# {TITLE}",
        f"{machine['cpu']}, {machine['cores']} cores. Microseconds of a call; each figure is of all calls of "
        "some processes, in which the two take turns (`benchmarks/steadiness.py` says what the scenes are). "
        "Ratio: ours against libgomp's.",
    )
    rows = []
    for name, row in results.rows.items():
        cells = []
        for which in HEADS:
            theirs, mine = (row[p][which] for p in PROVIDERS)
            cells += [f"{theirs:,.0f}", f"{mine:,.0f}", f"{mine / theirs:.2f}"]
        rows.append((name, *cells))
    return "\n".join((*texts, *grid(("", *heads), rows)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="scenes, or rows (busy-dcgan), with commas")
    parser.add_argument("--rounds", type=int, default=6, help="processes of each provider")
    parser.add_argument("--seconds", type=float, default=0.5, help="of calls in each process")
    parser.add_argument("--fresh", action="store_true", help="forget what the file holds")
    here = Path(__file__).parent / "results"
    parser.add_argument("--json", type=Path, default=here / "steadiness.json")
    options = parser.parse_args()
    every = [(scene, model) for scene, models in SCENES.items() for model in models]
    asked = options.only.split(",") if options.only else list(SCENES)
    rows = [(s, m) for s, m in every if s in asked or f"{s}-{m}" in asked]
    results = Results.open(options.json, os.cpu_count() or 1, TITLE, fresh=options.fresh)
    with tempfile.TemporaryDirectory() as scratch:
        for model in dict.fromkeys(m for _, m in rows):
            prepare(model, Path(scratch) / model)
        for scene, model in rows:
            found: dict[str, list[list[float]]] = {p: [] for p in PROVIDERS}
            for k in range(options.rounds):
                for provider in PROVIDERS[:: 1 if k % 2 == 0 else -1]:
                    found[provider].append(calls(scene, Path(scratch) / model, provider, options.seconds))
            row = {p: summary(processes) for p, processes in found.items()}
            results.rows[f"{scene} {model}"] = row
            results.write()
            print(f"{scene} {model}", *(f"{p} {row[p]['median']}/{row[p]['mean']}" for p in PROVIDERS))
    options.json.with_suffix(".md").write_text(page(results))


if __name__ == "__main__":
    main()
