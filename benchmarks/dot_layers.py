"""Layers drawn at random from networks, in int8, bfloat16 and float32: what share of an instruction's peak
does the default schedule of a plain te program reach?

    python benchmarks/dot_layers.py draw 40 --json LAYERS        needs torch, timm, torchvision, transformers
    python benchmarks/dot_layers.py time LAYERS --json FILE

The frame has products (`Linear`) and 1x1 and 3x3 convolutions without groups, with fewer than 200 M
multiply-adds. A hash orders the networks of all three libraries, and the layers of a network. Each network
gives its first layer. Networks are built without memory ("meta"), with their default inputs or with 128
words. Networks that cannot run in this way give no layer.

Programs have images with channels last. Sums of bytes become bytes (`te.requantize`), sums of bfloat16 become
bfloat16. Each layer's programs and the peaks of both instructions are timed alternately on one thread, with
data in the caches. All figures are the best of short samples, because other programs may use the machine.
Results of bytes are compared with NumPy's.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np

import autotensor as at
from autotensor import te
from autotensor.base.target import host
from autotensor.codegen.dot_instructions import available
from autotensor.codegen.peak import measure_peak

MOST = 200e6  # multiply-adds
WORDS = 128
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Layer:
    """A product has a `height` of 1 and a row for each point of its `width`."""

    network: str
    height: int
    width: int
    inputs: int
    outputs: int
    kernel: int
    stride: int

    @property
    def results(self) -> tuple[int, int]:
        pad = self.kernel // 2
        return tuple((n + 2 * pad - self.kernel) // self.stride + 1 for n in (self.height, self.width))  # type: ignore[return-value]

    @property
    def multiply_adds(self) -> int:
        rows, columns = self.results
        return rows * columns * self.inputs * self.outputs * self.kernel**2

    def __str__(self) -> str:
        kind = "product" if self.height == 1 else f"{self.kernel}x{self.kernel}/{self.stride}"
        return f"{kind} {self.height}x{self.width}x{self.inputs}->{self.outputs} ({self.network})"


# -- the draw ----------------------------------------------------------------------------------------------


def _order(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def drawn(count: int, seed: int) -> Iterator[Layer]:
    from nets.architecture_frames import LIBRARIES, names

    networks = [f"{library}/{name}" for library in LIBRARIES for name in names(library)]
    found = 0
    for network in sorted(networks, key=lambda n: _order(f"{seed}/{n}")):
        try:
            layers = {layer for layer in layers_of(network) if 0 < layer.multiply_adds < MOST}
        except Exception:  # a network that cannot be built or run in this way
            continue
        if layers:
            yield min(layers, key=lambda layer: _order(f"{seed}/{layer}"))
            found += 1
        if found == count:
            return


def layers_of(network: str) -> list[Layer]:
    """The layers of a network that are in the frame."""
    import torch

    found: list[Layer] = []

    def record(module: Any, given: Any, result: Any) -> None:
        x = given[0]
        if isinstance(module, torch.nn.Linear):
            rows = int(np.prod(x.shape[:-1]))
            found.append(Layer(network, 1, rows, module.in_features, module.out_features, 1, 1))
        elif module.groups == 1 and module.kernel_size in ((1, 1), (3, 3)) and module.dilation == (1, 1):
            kernel, stride = module.kernel_size[0], module.stride[0]
            if module.stride == (stride, stride) and module.padding == (kernel // 2, kernel // 2):
                sizes = (x.shape[2], x.shape[3], x.shape[1], module.out_channels)
                found.append(Layer(network, *map(int, sizes), kernel, stride))

    with torch.no_grad(), torch.device("meta"):
        module, given = _built(network)
        for part in module.modules():
            if isinstance(part, (torch.nn.Linear, torch.nn.Conv2d)):
                part.register_forward_hook(record)
        module.eval()(**given) if isinstance(given, dict) else module.eval()(given)
    return found


def _built(network: str) -> tuple[Any, Any]:
    import torch

    library, _, name = network.partition("/")
    if library == "timm":
        import timm

        module = timm.create_model(name)
        return module, torch.empty(1, *module.default_cfg.get("input_size", (3, 224, 224)))
    if library == "torchvision":
        import torchvision

        return torchvision.models.get_model(name, weights=None), torch.empty(1, 3, 224, 224)
    import transformers

    config = transformers.AutoConfig.for_model(name)
    if hasattr(config, "use_cache"):
        config.use_cache = False
    return transformers.AutoModel.from_config(config), {"input_ids": torch.zeros(1, WORDS, dtype=torch.int64)}


# -- programs ----------------------------------------------------------------------------------------------


def program(layer: Layer, kind: str) -> list[te.Tensor]:
    """The te program: arguments, then the result."""
    data, weights, sums = {
        "int8": ("uint8", "int8", "int32"),
        "bfloat16": ("bfloat16", "bfloat16", "float32"),
        "float32": ("float32", "float32", "float32"),
    }[kind]
    h, w, k, step = layer.height, layer.width, layer.kernel, layer.stride
    pad = k // 2
    X = te.placeholder((h, w, layer.inputs), data, name="X")
    W = te.placeholder((layer.outputs, layer.inputs, k, k), weights, name="W", constant=True)

    def padded(y: Any, x: Any, c: Any) -> Any:
        inside = te.all(y >= pad, y < h + pad, x >= pad, x < w + pad)
        return te.if_then_else(inside, X[y - pad, x - pad, c], te.const(0, data))

    P = te.compute((h + 2 * pad, w + 2 * pad, layer.inputs), padded, name="P") if pad else X
    p, q, c = (te.reduce_axis(n, name=name) for n, name in ((k, "p"), (k, "q"), (layer.inputs, "c")))
    shape = (*layer.results, layer.outputs)

    def term(y: Any, x: Any, o: Any) -> Any:
        pixel = P[y * step + p, x * step + q, c].astype(sums)
        return te.sum(pixel * W[o, c, p, q].astype(sums), axis=[p, q, c])

    C = te.compute(shape, term, name="C")
    if kind == "int8":
        S = te.placeholder((layer.outputs,), "float32", name="S", constant=True)
        Y = te.compute(shape, lambda y, x, o: te.requantize(C[y, x, o], S[o], 128, "uint8"), name="Y")
        return [X, W, S, Y]
    if kind == "bfloat16":
        return [X, W, te.compute(shape, lambda y, x, o: C[y, x, o].astype("bfloat16"), name="Y")]
    return [X, W, C]


def arguments(layer: Layer, kind: str) -> tuple[Array, dict[str, Array]]:
    rng = np.random.default_rng(0)
    shape, weights = (layer.height, layer.width, layer.inputs), (layer.outputs, layer.inputs)
    weights = (*weights, layer.kernel, layer.kernel)  # type: ignore[assignment]
    if kind == "int8":
        scale = (rng.random(layer.outputs) / 512).astype("float32")
        w = rng.integers(-128, 128, weights).astype("int8")
        return rng.integers(0, 256, shape).astype("uint8"), {"W": w, "S": scale}
    numpy_type = at.base.dtype.bfloat16.numpy if kind == "bfloat16" else np.float32
    return rng.standard_normal(shape).astype(numpy_type), {
        "W": rng.standard_normal(weights).astype(numpy_type)
    }


def exact(layer: Layer, x: Array, w: Array, s: Array) -> Array:
    """NumPy's result of the program of bytes: float64 holds its sums exactly."""
    pad, k, step = layer.kernel // 2, layer.kernel, layer.stride
    wide = np.pad(x.astype("f8"), ((pad, pad), (pad, pad), (0, 0)))
    (rows, columns), total = layer.results, np.zeros((*layer.results, layer.outputs))
    for p in range(k):
        for q in range(k):
            part = wide[p : p + step * (rows - 1) + 1 : step, q : q + step * (columns - 1) + 1 : step]
            total += part @ w[:, :, p, q].T.astype("f8")
    return np.clip(np.rint(total.astype("f4") * s) + np.float32(128), 0, 255).astype("uint8")


# -- times -------------------------------------------------------------------------------------------------


def timed(layer: Layer, rounds: int) -> dict[str, Any]:
    """A row: operations per second of each kind and of each instruction's peak, the best of all rounds."""
    calls: dict[str, Callable[[], float]] = {}
    for kind in ("int8", "bfloat16", "float32"):
        x, constants = arguments(layer, kind)
        made = at.build(program(layer, kind), target="llvm -threads=1", name=kind).bind(**constants)
        if kind == "int8":
            assert np.array_equal(made(x), exact(layer, x, constants["W"], constants["S"])), layer
        calls[kind] = lambda made=made, x=x: min(made.time([x], repeat=8, min_seconds=0.0015))
    peaks = {k: _peak(n) for k, n in (("int8", "vpdpb"), ("bfloat16", "bf16"))}
    rates: dict[str, list[float]] = {n: [] for n in (*calls, *(f"{k}_peak" for k in peaks))}
    for _ in range(rounds):
        for kind, call in calls.items():
            rates[kind].append(2 * layer.multiply_adds / call())
        for kind, peak in peaks.items():
            rates[f"{kind}_peak"].append(peak())
    return {**asdict(layer), **{n: max(found) for n, found in rates.items()}}


def _peak(word: str) -> Callable[[], float]:
    """The rate of the fastest instruction of the host whose name has the word."""
    fitting = [d for d in available(host()) if word in d.name and d.rows == 1]
    best = max(fitting, key=lambda d: d.columns)
    return lambda: measure_peak(dot=best)


def said(rows: Sequence[dict[str, Any]]) -> str:
    lines = []
    for kind in ("int8", "bfloat16"):
        shares = [r[kind] / r[f"{kind}_peak"] for r in rows]
        gains = [r[kind] / r["float32"] for r in rows]
        slower = sum(g < 1 for g in gains)
        lines.append(
            f"{kind:8} {len(rows)} layers: {geometric_mean(shares):.3f} of the peak ({min(shares):.2f} to "
            f"{max(shares):.2f}), {geometric_mean(gains):.2f} x float32 ({min(gains):.2f} and more, "
            f"{slower} slower)"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    draw, times = verbs.add_parser("draw"), verbs.add_parser("time")
    draw.add_argument("count", type=int)
    draw.add_argument("--seed", type=int, default=0)
    times.add_argument("layers", type=Path)
    times.add_argument("--rounds", type=int, default=5)
    for verb in (draw, times):
        verb.add_argument("--json", type=Path, required=True, help="rows, one a line")
    options = parser.parse_args()
    if options.verb == "draw":
        with options.json.open("w") as out:
            for layer in drawn(options.count, options.seed):
                print(layer, flush=True)
                out.write(json.dumps(asdict(layer)) + "\n")
        return
    rows = []
    for line in options.layers.read_text().splitlines():
        layer = Layer(**json.loads(line))
        rows.append(row := timed(layer, options.rounds))
        shares = (f"{k} {row[k] / 1e9:.0f} ({row[k] / row[f'{k}_peak']:.2f})" for k in ("int8", "bfloat16"))
        print(f"{layer!s:70} {' '.join(shares)} float32 {row['float32'] / 1e9:.0f}", flush=True)
        with options.json.open("a") as out:
            out.write(json.dumps(row) + "\n")
    print(said(rows))


if __name__ == "__main__":
    main()
