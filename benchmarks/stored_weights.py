"""Compares a model with several numerics, in turns: its time, its results against float32's, the size of its
file.

    python benchmarks/stored_weights.py bert_base --numerics fast,bf16 --threads 1 --rounds 25
    python benchmarks/stored_weights.py llama --layers 24 --numerics wide,fast

Weights are random. `llama` is a Llama-shaped decoder with so many layers, for one row. Its weights are exact
in bfloat16: `fast` stores them in 16 bits, `wide` keeps float32. With one thread, seconds are the processor
time of the calling thread, which other programs disturb least. With several threads, seconds are wall time.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import ml_dtypes
import numpy as np

import autotensor as at
from autotensor.graph.ir import Graph
from autotensor.graph.rules import weight_storage
from autotensor.models import MODELS, llama
from autotensor.models.weights import shapes_of

Array = np.ndarray[Any, Any]
WIDE = "wide"  # fast numerics that store no weights in 16 bits


def decoder(layers: int, capacity: int) -> tuple[Graph, dict[str, Array]]:
    """A decoder for one word after cached words, with weights that are exact in bfloat16, and its inputs."""
    size, rng = replace(llama.SMALL, layers=layers), np.random.default_rng(0)
    weights = {
        name: (rng.standard_normal(shape, dtype=np.float32) * shape[-1] ** -0.5).astype(ml_dtypes.bfloat16)
        for name, shape in shapes_of(llama.build, size=size).items()
    }
    given = llama.inputs(np.random.default_rng(1), capacity=capacity, size=size)
    return llama.build(1, weights, capacity=capacity, size=size), given


def compiled(graph: Graph, numerics: str, threads: int, path: Path) -> int:
    """Writes the model's file and returns its size."""
    kept = weight_storage.narrowest
    if numerics == WIDE:
        weight_storage.narrowest = lambda array: None
    try:
        known = "fast" if numerics == WIDE else numerics
        at.compile_model(graph, target=f"llvm -threads={threads} -numerics={known}").save(path)
    finally:
        weight_storage.narrowest = kept
    return path.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", help="a built-in model, or llama")
    parser.add_argument("--numerics", default="fast,bf16", help=f"of fast, strict, bf16, fp16, {WIDE}")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--layers", type=int, default=24, help="of llama")
    parser.add_argument("--capacity", type=int, default=128, help="of llama's cache, in words")
    options = parser.parse_args()
    if options.model == "llama":
        graph, given = decoder(options.layers, options.capacity)
    else:
        model = MODELS.get(options.model)
        graph, given = model.build(batch=1), model.inputs(np.random.default_rng(0))
    clock: Callable[[], float] = time.thread_time if options.threads == 1 else time.perf_counter
    functions, sizes = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.numerics.split(","):
            sizes[name] = compiled(graph, name, options.threads, Path(folder) / name)
        for name in sizes:
            functions[name] = at.load(Path(folder) / name)
        results = {name: _first(f(**given)).ravel().astype(np.float64) for name, f in functions.items()}
        seconds: dict[str, list[float]] = {name: [] for name in functions}
        for turn in range(options.rounds):
            for name in [*functions][:: 1 if turn % 2 else -1]:
                began = clock()
                functions[name](**given)
                seconds[name].append(clock() - began)
    base = next(iter(functions))
    for name, took in seconds.items():
        ratio = median(a / b for a, b in zip(seconds[base], took, strict=True))
        a, b = results[base], results[name]
        cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        print(
            f"{name:8} {median(took) * 1e3:9.3f} ms (least {min(took) * 1e3:.3f})  {ratio:.2f} x {base}  "
            f"cosine {cosine:.6f}  {sizes[name] / 1e6:.1f} MB"
        )


def _first(results: Any) -> Array:
    return results[0] if isinstance(results, tuple) else results


if __name__ == "__main__":
    main()
