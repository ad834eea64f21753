"""One call on a machine with a card: is everything right, and how fast is it beside the libraries.

    python benchmarks/gpu.py [--target cuda|opencl] [--minutes 8] [--out results/gpu-NAME.json] [--trials 64]

In this order, until the time is up; the JSON is written after every part:

    operators   every operator × sample case under its default schedule against its NumPy reference
    products    float32 products (TF32 off) of 512 … 4096, untuned and tuned, against cuBLAS through torch
    memory      elementwise and row sums: bytes a second, and as a share of a copy's
    layers      convolution + bias + ReLU against cuDNN through torch
    models      ResNet-50 (batch 1, 32) and BERT-base, untuned, against torch eager and Inductor max-autotune

Without torch only ours are timed. On OpenCL sizes are small, and the rival is a product written by hand
(hand_gemm.py).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from nets import hand_gemm

import autotensor as at
from autotensor import te
from autotensor.api.models import default_traces, link_model, plan_model
from autotensor.base.errors import AutotensorError, TargetError
from autotensor.base.target import Target, parse
from autotensor.compiler import compile_trace
from autotensor.models import MODELS
from autotensor.operators import OPERATORS
from autotensor.runtime.device.devices import device_of
from autotensor.runtime.open_artifact import open_artifact
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace

REPEAT, LEAST_S = 7, 0.02
NEAR = 2e-4  # of the largest answer, for operators in float32

Row = dict[str, Any]


class Clock:
    """How much of the budget is left."""

    def __init__(self, minutes: float) -> None:
        self._until = time.monotonic() + 60.0 * minutes

    def left_s(self) -> float:
        return self._until - time.monotonic()


def main() -> None:
    asked = arguments()
    target, clock = parse(asked.target), Clock(asked.minutes)
    try:
        device = device_of(target)
    except TargetError as error:
        raise SystemExit(f"gpu.py: {error}") from error
    result: dict[str, Any] = {
        "device": device.name,
        "target": target.key(),
        "torch": torch_version(),
        "parts": {},
    }
    small = target.kind == "opencl"
    parts: dict[str, Callable[[], Iterator[Row]]] = {
        "operators": lambda: operators(target),
        "products": lambda: products(
            target, asked.trials, clock, (256, 512) if small else (512, 1024, 2048, 4096)
        ),
        "memory": lambda: memory(target, 1 << (20 if small else 26)),
        "layers": lambda: layers(target, small),
        "models": lambda: models(target, small),
    }
    for name, part in parts.items():
        rows: list[Row] = []
        result["parts"][name] = rows
        for row in part():
            rows.append(row)
            print(name, json.dumps(row), flush=True)
            asked.out.parent.mkdir(parents=True, exist_ok=True)
            asked.out.write_text(json.dumps(result, indent=1) + "\n")
            if clock.left_s() < 0:
                rows.append({"stopped": "the time is up"})
                break
        asked.out.write_text(json.dumps(result, indent=1) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="cuda -arch=sm_90")
    parser.add_argument("--minutes", type=float, default=7.5)
    parser.add_argument("--trials", type=int, default=48, help="per product; 0: untuned only")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "gpu.json")
    return parser.parse_args()


# -- ours ----------------------------------------------------------------------------------------


def seconds(f: Any, arrays: list[np.ndarray[Any, Any]]) -> float:
    f(*arrays)  # compiles, and makes the graph
    f(*arrays)
    return median(f.time(arrays, repeat=REPEAT, min_seconds=LEAST_S))


def untuned(args: list[te.Tensor], target: Target, name: str) -> Any:
    dag = ComputeDAG.of(args)
    return open_artifact(compile_trace(dag, default_trace(dag, target), target, name))


def drawn(*shapes: tuple[int, ...]) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def operators(target: Target) -> Iterator[Row]:
    """One row: how many cases are right, and which are not."""
    wrong, count = [], 0
    for name, op in OPERATORS.items():
        for number, case in enumerate(op.cases):
            count += 1
            arrays = case.arrays(np.random.default_rng(number))
            inputs = [te.placeholder(a.shape, str(a.dtype), name=f"x{n}") for n, a in enumerate(arrays)]
            wanted = np.asarray(op.reference(*arrays, **case.attrs))
            try:
                f = untuned([*inputs, op.compute(*inputs, **case.attrs)], target, name)
                found = f(*(np.array(a, order="C") for a in arrays))
            except AutotensorError as error:
                wrong.append(f"{name}-{number}: {error.what}")
                continue
            scale = max(1.0, float(np.max(np.abs(wanted), initial=0.0, where=np.isfinite(wanted))))
            near = NEAR if wanted.dtype == np.float32 else 2e-2
            if not np.allclose(found, wanted, rtol=near, atol=near * scale, equal_nan=True):
                wrong.append(f"{name}-{number}")
    yield {"cases": count, "right": count - len(wrong), "wrong": wrong}


def products(target: Target, trials: int, clock: Clock, sizes: tuple[int, ...]) -> Iterator[Row]:
    for n in sizes:
        a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
        k = te.reduce_axis(n, name="k")
        c = te.compute((n, n), lambda i, j, a=a, b=b, k=k: te.sum(a[i, k] * b[k, j], axis=k), name="C")
        arrays = drawn((n, n), (n, n))
        f = untuned([a, b, c], target, "product")
        row: Row = {"n": n, "untuned_s": seconds(f, arrays), "error": error_of(f(*arrays), arrays)}
        if trials and clock.left_s() > 60:
            with tempfile.TemporaryDirectory() as folder:
                db = Path(folder) / "log.db"
                deadline = min(60.0, clock.left_s() / 4)
                report = at.tune([a, b, c], trials, target, db=db, deadline_s=deadline, progress=False)
                row["trials"] = report.trials
                row["tuned_s"] = seconds(at.build([a, b, c], target=target, db=db), arrays)
        row |= rival(lambda torch, n=n: product_of(torch, n))
        if target.kind == "opencl":
            row["hand_s"], tile = hand_gemm.best(device_of(target), n)
            row |= {
                "hand_tile": astuple(tile),
                "of_hand": row["hand_s"] / row.get("tuned_s", row["untuned_s"]),
            }
        row["tflops"] = 2 * n**3 / min(row["untuned_s"], row.get("tuned_s", 1e9)) / 1e12
        yield row


def error_of(found: np.ndarray[Any, Any], arrays: list[np.ndarray[Any, Any]]) -> float:
    wanted = arrays[0].astype(np.float64) @ arrays[1]
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def memory(target: Target, count: int) -> Iterator[Row]:
    x = te.placeholder((count,), name="x")
    copy = te.compute((count,), lambda i: x[i] + 0.0, name="copy")
    (data,) = drawn((count,))
    base = 8 * count / seconds(untuned([x, copy], target, "copy"), [data])
    yield {"what": "copy", "bytes_per_s": base}
    relu = te.compute((count,), lambda i: te.maximum(te.exp(x[i]), 1.0), name="y")
    rate = 8 * count / seconds(untuned([x, relu], target, "exp"), [data])
    yield {"what": "exp and maximum", "bytes_per_s": rate, "of_copy": rate / base}
    rows, long = count // 1024, 1024
    m = te.placeholder((rows, long), name="m")
    k = te.reduce_axis(long, name="k")
    sums = te.compute((rows,), lambda i: te.sum(m[i, k], axis=k), name="sums")
    rate = 4 * count / seconds(untuned([m, sums], target, "sums"), [data.reshape(rows, long)])
    yield {"what": "sums of rows", "bytes_per_s": rate, "of_copy": rate / base}


def layers(target: Target, small: bool) -> Iterator[Row]:
    """3x3 convolution + bias + ReLU of ResNet's sizes, batch 1 (and 32 on a card)."""
    for batch in (1,) if small else (1, 32):
        for size, channels in ((56, 64), (28, 128), (14, 256), (7, 512)):
            x = at.input((batch, channels, size, size))
            w, bias = drawn((channels, channels, 3, 3), (channels, 1, 1))
            graph = at.ops.relu(at.ops.conv2d(x, w, padding=1) + bias)
            plan = plan_model(graph, target)
            f = open_artifact(link_model(plan, default_traces(plan)))
            row: Row = {"size": size, "channels": channels, "batch": batch}
            row["untuned_s"] = seconds(f, drawn((batch, channels, size, size)))
            row |= rival(lambda torch, b=batch, s=size, c=channels: layer_of(torch, b, s, c))
            yield row


def models(target: Target, small: bool) -> Iterator[Row]:
    wanted = (("small_cnn", 1),) if small else (("resnet50", 1), ("resnet50", 32), ("bert_base", 1))
    for name, batch in wanted:
        model = MODELS.get(name)
        plan = plan_model(model.build(batch), target)
        f = open_artifact(link_model(plan, default_traces(plan)))
        arrays = list(model.inputs(np.random.default_rng(0), batch).values())
        row: Row = {"model": name, "batch": batch, "untuned_s": seconds(f, arrays), "call_s": wall(f, arrays)}
        if name == "resnet50":
            row |= rival(lambda torch, b=batch: resnet_of(torch, b))
        yield row


def wall(f: Any, arrays: list[np.ndarray[Any, Any]]) -> float:
    """Seconds of a call from outside, copies to the device and back included."""
    samples = []
    for _ in range(REPEAT):
        began = time.perf_counter()
        f(*arrays)
        samples.append(time.perf_counter() - began)
    return median(samples)


# -- rivals --------------------------------------------------------------------------------------


def torch_version() -> str | None:
    try:
        import torch
    except ImportError:
        return None
    return str(torch.__version__) if torch.cuda.is_available() else None


def rival(make: Callable[[Any], dict[str, Callable[[], Any]]]) -> Row:
    """Seconds of what torch runs on the card; {} without torch and a card."""
    if torch_version() is None:
        return {}
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    out: Row = {}
    with torch.no_grad():
        for name, run in make(torch).items():
            out[f"{name}_s"] = torch_seconds(torch, run)
    return out


def torch_seconds(torch: Any, run: Callable[[], Any]) -> float:
    for _ in range(3):
        run()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    count, samples = 1, []
    while len(samples) < REPEAT:
        torch.cuda.synchronize()
        first.record()
        for _ in range(count):
            run()
        last.record()
        torch.cuda.synchronize()
        spent = first.elapsed_time(last) * 1e-3
        if spent < LEAST_S:
            count *= 2
            continue
        samples.append(spent / count)
    return median(samples)


def product_of(torch: Any, n: int) -> dict[str, Callable[[], Any]]:
    a, b = (torch.randn(n, n, device="cuda") for _ in range(2))
    return {"cublas": lambda: torch.mm(a, b)}


def layer_of(torch: Any, batch: int, size: int, channels: int) -> dict[str, Callable[[], Any]]:
    layer = torch.nn.Sequential(torch.nn.Conv2d(channels, channels, 3, padding=1), torch.nn.ReLU())
    layer = layer.cuda().eval().to(memory_format=torch.channels_last)
    x = torch.randn(batch, channels, size, size, device="cuda").to(memory_format=torch.channels_last)
    return {"cudnn": lambda: layer(x)}


def resnet_of(torch: Any, batch: int) -> dict[str, Callable[[], Any]]:
    try:
        import torchvision
    except ImportError:
        return {}
    net = torchvision.models.resnet50(weights=None).cuda().eval()
    x = torch.randn(batch, 3, 224, 224, device="cuda")
    fast = torch.compile(net, mode="max-autotune")
    return {"eager": lambda: net(x), "inductor": lambda: fast(x)}


if __name__ == "__main__":
    main()
