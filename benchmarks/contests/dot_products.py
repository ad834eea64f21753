"""How near products and convolutions of bytes and bfloat16 come to the peak of their dot instruction.

python benchmarks/contests/dot_products.py [--layers 40] [--trials 0]

Layers are drawn from the products and the 1x1 and 3x3 convolutions of common networks. Each is written in te
and scheduled by the rules, or by a search with --trials. It is timed in turns with the instruction's peak and
with the same layer in float32. If the schedule computes a layer without a dot, the layer is compared with the
peak of FMAs.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

import autotensor as at
from autotensor import te
from autotensor.codegen.dot_instructions import known_dots
from autotensor.codegen.peak import measure_peak

PRODUCTS = (  # rows, columns, depth
    *((n, d, d) for n, d in ((128, 768), (197, 384), (197, 768), (128, 1024), (384, 256), (512, 512))),
    *((n, 4 * d, d) for n, d in ((128, 768), (197, 384), (197, 192), (128, 312))),
    *((n, d, 4 * d) for n, d in ((128, 768), (197, 384), (197, 192), (128, 312))),
    *((1, 1000, d) for d in (512, 1280, 2048)),
    *((1024, 1024, 1024), (49, 768, 3072), (3136, 96, 96), (64, 3072, 768)),
)
CONVOLUTIONS = (  # pixels along a side, channels in and out, window, stride
    *((56, 64, 64, 3, 1), (56, 64, 128, 3, 2), (28, 128, 128, 3, 1), (28, 128, 256, 3, 2)),
    *((14, 256, 256, 3, 1), (14, 256, 512, 3, 2), (7, 512, 512, 3, 1), (112, 32, 32, 3, 1)),
    *((56, 64, 64, 1, 1), (56, 64, 256, 1, 1), (56, 256, 64, 1, 1), (56, 256, 128, 1, 1)),
    *((28, 512, 128, 1, 1), (28, 128, 512, 1, 1), (14, 1024, 256, 1, 1), (14, 256, 1024, 1, 1)),
    *((7, 2048, 512, 1, 1), (7, 512, 2048, 1, 1), (28, 512, 1024, 1, 2), (7, 320, 1280, 1, 1)),
    *((14, 384, 64, 1, 1), (14, 96, 576, 1, 1), (28, 32, 192, 1, 1), (14, 160, 960, 1, 1)),
)
TYPES = {  # types of the operands, and of the sums
    "u8s8": ("uint8", "int8", "int32"),
    "s8s8": ("int8", "int8", "int32"),
    "bf16": ("bfloat16", "bfloat16", "float32"),
    "f32": ("float32", "float32", "float32"),
}
Layer = tuple[int, ...]
Built = tuple[Any, Any, float, str]  # kernel, its argument, operations, instruction or ""


def drawn(count: int, seed: int) -> list[Layer]:
    every: list[Layer] = [*PRODUCTS, *CONVOLUTIONS]
    return random.Random(seed).sample(every, min(count, len(every)))


def written(layer: Layer, a: str, w: str, total: str) -> tuple[list[te.Tensor], float]:
    """The layer in te (data, weights, result), and its operations."""

    def wide(x: Any) -> Any:
        return x if str(x.dtype) == total else x.astype(total)

    if len(layer) == 3:
        m, n, k = layer
        A, W = te.placeholder((m, k), a, name="A"), te.placeholder((k, n), w, name="W", constant=True)
        r = te.reduce_axis(k)
        C = te.compute((m, n), lambda i, j: te.sum(wide(A[i, r]) * wide(W[r, j]), axis=r), name="C")
        return [A, W, C], 2.0 * m * n * k
    h, ci, co, window, stride = layer
    pad = window // 2
    X = te.placeholder((h, h, ci), a, name="X")
    W = te.placeholder((window, window, ci, co), w, name="W", constant=True)
    P = X
    if pad:

        def padded(y: Any, x: Any, c: Any) -> Any:
            inside = te.all(y >= pad, y < h + pad, x >= pad, x < h + pad)
            return te.if_then_else(inside, X[y - pad, x - pad, c], te.const(0, a))

        P = te.compute((h + 2 * pad, h + 2 * pad, ci), padded, name="P")
    size = (h + 2 * pad - window) // stride + 1
    kh, kw, c = (te.reduce_axis(n) for n in (window, window, ci))

    def term(y: Any, x: Any, o: Any) -> Any:
        return te.sum(wide(P[y * stride + kh, x * stride + kw, c]) * wide(W[kh, kw, c, o]), axis=[kh, kw, c])

    C = te.compute((size, size, co), term, name="C")
    return [X, W, C], 2.0 * size * size * co * window * window * ci


def numbers(t: te.Tensor, rng: np.random.Generator) -> Any:
    if str(t.dtype) == "bfloat16":
        return rng.standard_normal(t.shape).astype(ml_dtypes.bfloat16)
    if t.dtype.is_float:
        return rng.standard_normal(t.shape).astype("float32")
    ends = np.iinfo(t.dtype.numpy)
    return rng.integers(ends.min, ends.max + 1, t.shape).astype(t.dtype.numpy)


def built(layer: Layer, kind: str, threads: int, trials: int) -> Built:
    args, operations = written(layer, *TYPES[kind])
    target = f"llvm -threads={threads}"
    if trials:
        at.tune(args, trials=trials, target=target, progress=False)
    f = at.build(args, target=target)
    found = re.search(r'tensorize\("[^"]*", "([^"]*)"\)', f.source("trace"))
    rng = np.random.default_rng(0)
    data, weights = (numbers(t, rng) for t in args[:2])
    return f.bind(W=weights), data, operations, found[1] if found else ""


def rates(b: Built, threads: int, rounds: int) -> tuple[float, float]:
    """Operations per second of the kernel, and of the peak, timed in turns."""
    f, data, operations, name = b
    dot = known_dots().get(name) if name else None
    mine, peaks = [], []
    for _ in range(rounds):
        peaks.append(measure_peak(threads, dot=dot, seconds=0.03))
        mine.append(operations / min(f.time([data])))
    return statistics.median(mine), statistics.median(peaks)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--layers", type=int, default=40)
    options.add_argument("--types", default="u8s8,s8s8,bf16")
    options.add_argument("--threads", default="1,2")
    options.add_argument("--trials", type=int, default=0)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seed", type=int, default=2026)
    asked = options.parse_args()
    layers = drawn(asked.layers, asked.seed)
    for kind in asked.types.split(","):
        for threads in map(int, asked.threads.split(",")):
            shares, gains = [], []
            for layer in layers:
                b = built(layer, kind, threads, asked.trials)
                mine, peak = rates(b, threads, asked.rounds)
                plain, _ = rates(built(layer, "f32", threads, 0), threads, asked.rounds)
                shares.append(mine / peak)
                gains.append(mine / plain)
                size = "x".join(map(str, layer))
                print(
                    f"{kind} {threads} threads {size:>20}: {mine / 1e9:6.0f} G operations/s, "
                    f"{mine / peak:4.0%} of {b[3] or 'FMA'}, {mine / plain:4.2f} x float32",
                    flush=True,
                )
            share, gain = statistics.geometric_mean(shares), statistics.geometric_mean(gains)
            print(
                f"{kind} {threads} threads: {share:.0%} of peak, "
                f"{gain:.2f} x float32, least {min(gains):.2f} x"
            )


if __name__ == "__main__":
    main()
