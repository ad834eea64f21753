"""How long models take to compile, and until their first result, by model and by part of the work.

    python benchmarks/compile_time.py resnet18 mobilenet_v2 bert_base llama:24
    python benchmarks/compile_time.py resnet18 --batches 8         one program for 1 to 8 pictures
    python benchmarks/compile_time.py net.onnx --threads 2
    python benchmarks/compile_time.py net.onnx --instant           by at.OnnxModel(…, instant=True)

Each model is compiled in its own process, with an empty cache. `llama:N` is a decoder of N layers for one
word, with weights in bfloat16. With one thread, seconds are processor time, which other work disturbs least.
With several threads, child processes compile too, and seconds are wall time. The shortest round counts.
Weights are random and made before the measurement starts. An ONNX file is read during the measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PARTS = ("import", "read", "plan", "compile", "open", "first call")


class Laps:
    """Measures the seconds of consecutive parts of the work."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.seconds: dict[str, float] = {}
        self.start()

    def start(self) -> None:
        """Starts the first part; the time before it belongs to no part."""
        self._began = self._clock()

    def end(self, part: str) -> None:
        now = self._clock()
        self.seconds[part] = now - self._began
        self._began = now


def measured(name: str, threads: int, batches: int) -> dict[str, Any]:
    """The seconds of each part, and the number of kernels. They are measured in this process, which has not
    yet imported autotensor."""
    laps = Laps(time.process_time if threads == 1 else time.perf_counter)
    import autotensor as at
    from autotensor.api.models import linked
    from autotensor.runtime.open_artifact import open_artifact

    laps.end("import")
    make, given = _model(name, batches)
    laps.start()
    model = make()
    laps.end("read")
    plan = at.plan_model(model, f"llvm -threads={threads}")
    laps.end("plan")
    artifact = linked(plan, None)
    laps.end("compile")
    function = open_artifact(artifact, threads=threads)
    laps.end("open")
    given = given or _ones(model)
    laps.start()
    function(**given)
    laps.end("first call")
    return {"seconds": laps.seconds, "kernels": len(plan.tasks)}


def instantly(name: str, threads: int) -> dict[str, Any]:
    """Like `measured`, for a function of a file that does not wait for compiled code."""
    laps = Laps(time.process_time if threads == 1 else time.perf_counter)
    import autotensor as at

    make = at.OnnxModel
    laps.end("import")
    function = make(name, f"llvm -threads={threads}", instant=True)
    laps.end("read")
    given = _declared(function)
    laps.start()
    function(**given)
    laps.end("first call")
    return {"seconds": laps.seconds, "kernels": 0}


def _declared(function: Any) -> dict[str, Any]:
    """Inputs for a function: arrays of ones. An extent that the file leaves open is 1."""
    import numpy as np

    from autotensor.frontends.onnx.signature import inputs_of

    shapes = {a: [d if isinstance(d, int) else 1 for d in a.dims] for a in inputs_of(function.model)}
    return {a.name: np.ones(shape, a.dtype.numpy) for a, shape in shapes.items()}


def _model(name: str, batches: int) -> tuple[Callable[[], Any], dict[str, Any]]:
    """A function that makes the model, and the model's inputs; no inputs for a file."""
    import numpy as np

    import autotensor as at
    from autotensor import te
    from autotensor.models import MODELS
    from autotensor.models.weights import shapes_of

    if Path(name).suffix == ".onnx":
        return lambda: at.from_onnx(name), {}
    if name.startswith("llama:"):
        from stored_weights import decoder

        graph, given = decoder(int(name.partition(":")[2]), capacity=128)
        return lambda: graph, given
    known, rng = MODELS.get(name), np.random.default_rng(0)
    given = dict(known.inputs(rng))
    if batches == 1:
        graph = known.build(batch=1)
        return lambda: graph, given
    weights = {n: rng.random(s, dtype=np.float32) for n, s in shapes_of(known.build).items()}
    batch = te.var("batch", range=(1, batches))
    return lambda: at.open_graph(lambda n: known.build(batch=n, weights=weights), batch), given


def _ones(graph: Any) -> dict[str, Any]:
    import numpy as np

    return {n: np.ones(x.shape, x.dtype.numpy) for n, x in zip(graph.input_names, graph.inputs, strict=True)}


def _in_child(name: str, options: argparse.Namespace) -> dict[str, Any]:
    threads = str(options.threads)
    command = [sys.executable, __file__, name, "--threads", threads, "--batches", str(options.batches)]
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [*command, *["--instant"] * options.instant, "--here"],
            env={**os.environ, "AUTOTENSOR_CACHE_DIR": cache, "OPENBLAS_NUM_THREADS": threads},
            stdout=subprocess.PIPE,
            check=True,
        )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="+", help="built-in models, llama:LAYERS, or ONNX files")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batches", type=int, default=1, help="run-time extents: batches of 1 to so many")
    parser.add_argument("--instant", action="store_true", help="ONNX files only: NumPy's answer comes first")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        name, threads = options.models[0], options.threads
        print(
            json.dumps(
                instantly(name, threads) if options.instant else measured(name, threads, options.batches)
            )
        )
        return
    print(f"{'model':20} {'kernels':>7} " + " ".join(f"{p:>10}" for p in (*PARTS, "all")))
    for name in options.models:
        rounds = [_in_child(name, options) for _ in range(options.rounds)]
        best = min(rounds, key=lambda r: sum(r["seconds"].values()))
        seconds = [best["seconds"].get(p, 0.0) for p in PARTS]
        cells = " ".join(f"{s:10.3f}" for s in (*seconds, sum(seconds)))
        print(f"{Path(name).stem:20} {best['kernels']:7} {cells}", flush=True)


if __name__ == "__main__":
    main()
