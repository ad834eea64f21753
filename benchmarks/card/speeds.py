"""Items that are measured, together with libraries if these are installed. Each item checks its numbers
first.

The rivals are cuBLAS and cuDNN through torch, or without torch cuBLAS through CuPy. On a simulated card and
on OpenCL sizes are small, and the times are no measure of a real card.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from nets import hand_gemm

import autotensor as at
from autotensor import te
from autotensor.api.models import default_traces, link_model, plan_model
from autotensor.base.target import Target
from autotensor.compiler import compile_state
from autotensor.runtime.device.devices import device_of
from autotensor.runtime.open_artifact import open_artifact
from card.checks import TENSOR_CORES_FROM, Row, model_of, untuned
from card.failures import compare

REPEAT, LEAST_S = 7, 0.02
NEAR = {"float32": 2e-4, "tf32": 5e-3, "float16": 5e-3}  # largest errors, as a share of the largest result
DEADLINE_S = 60.0  # seconds for the search of one task


def seconds(f: Any, arrays: list[np.ndarray[Any, Any]], small: bool = False) -> float:
    f(*arrays)  # the first call compiles and makes the CUDA graph
    f(*arrays)
    return median(f.time(arrays, repeat=1 if small else REPEAT, min_seconds=1e-6 if small else LEAST_S))


def drawn(*shapes: tuple[int, ...], dtype: str = "float32") -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


# -- products ------------------------------------------------------------------------------------------------


def product_names(target: Target, small: bool) -> list[str]:
    sizes = (32, 64) if small else (512, 1024, 2048, 4096)
    types = ["float32"]
    if target.capability >= TENSOR_CORES_FROM:
        types += ["tf32", "float16"]
    return [f"{t}-{n}" for t in types for n in sizes]


def product(target: Target, item: str, small: bool) -> Row:
    """C = A B under its default schedule. tf32 must be requested by a schedule; this one is in tests/kit."""
    kind, _, size = item.partition("-")
    n = int(size)
    dtype = "float16" if kind == "float16" else "float32"
    arrays = drawn((n, n), (n, n), dtype=dtype)
    args = matrices(n, dtype)
    if kind == "tf32":
        from gpu_cases import tensor_cores

        state = tensor_cores(args[-1], 8, "mma.m16n8k8.tf32").state
        f: Any = open_artifact(compile_state(state, target, "product_tf32"))
    else:
        f = untuned(args, target, "product")
    wanted = arrays[0].astype(np.float64) @ arrays[1].astype(np.float64)
    row: Row = {"n": n, "type": kind, "worst": compare(f(*arrays), wanted, NEAR[kind])}
    row["ours_s"] = seconds(f, arrays, small)
    row["tflops"] = 2 * n**3 / row["ours_s"] / 1e12
    row |= rival(lambda torch: product_of(torch, n, kind)) or cublas_by_cupy(n, kind)
    if target.kind == "opencl":
        row["hand_s"], tile = hand_gemm.best(device_of(target), n)
        row |= {"hand_tile": astuple(tile), "of_hand": row["hand_s"] / row["ours_s"]}
    if "cublas_s" in row:
        row["of_cublas"] = row["cublas_s"] / row["ours_s"]
    return row


def matrices(n: int, dtype: str) -> list[te.Tensor]:
    """A, B and their product, summed in float32."""
    a, b = (te.placeholder((n, n), dtype, name=name) for name in "AB")
    k = te.reduce_axis(n, name="k")

    def term(i: te.Expr, j: te.Expr) -> te.Expr:
        return te.cast("float32", a[i, k]) * te.cast("float32", b[k, j])

    return [a, b, te.compute((n, n), lambda i, j: te.sum(term(i, j), axis=k), name="C")]


# -- memory, layers, models ----------------------------------------------------------------------------------

MEMORY_NAMES = ("copy", "exp_and_maximum", "sums_of_rows")


def memory(target: Target, item: str, small: bool) -> Row:
    """Bytes per second of kernels that compute almost nothing."""
    count = 1 << (12 if small else 26)
    rows, long = max(1, count // 1024), 1024
    x, m = te.placeholder((count,), name="x"), te.placeholder((rows, long), name="m")
    k = te.reduce_axis(long, name="k")
    (data,) = drawn((count,))
    match item:
        case "copy":
            args = [x, te.compute((count,), lambda i: x[i] + 0.0, name="copy")]
            wanted, moved = data, 8 * count
        case "exp_and_maximum":
            args = [x, te.compute((count,), lambda i: te.maximum(te.exp(x[i]), 1.0), name="y")]
            wanted, moved = np.maximum(np.exp(data), 1.0), 8 * count
        case _:
            data = data.reshape(rows, long)
            args = [m, te.compute((rows,), lambda i: te.sum(m[i, k], axis=k), name="sums")]
            wanted, moved = data.astype(np.float64).sum(axis=1), 4 * count
    f = untuned(args, target, item)
    worst = compare(f(data), wanted, NEAR["float32"])
    took = seconds(f, [data], small)
    return {"worst": worst, "ours_s": took, "bytes_per_s": moved / took}


def layer_names(small: bool) -> list[str]:
    """Names of 3x3 convolutions with bias and ReLU in ResNet's sizes: image, channels, batch."""
    if small:
        return ["8-8-1"]
    return [f"{s}-{c}-{b}" for b in (1, 32) for s, c in ((56, 64), (28, 128), (14, 256), (7, 512))]


def layer(target: Target, item: str, small: bool) -> Row:
    size, channels, batch = map(int, item.split("-"))
    w, bias, data = drawn((channels, channels, 3, 3), (channels, 1, 1), (batch, channels, size, size))
    graph = at.ops.relu(at.ops.conv2d(at.input(data.shape), w, padding=1) + bias)
    plan = plan_model(graph, target)
    f = open_artifact(link_model(plan, default_traces(plan)))
    padded = np.pad(data[:1].astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded[0], (3, 3), axis=(1, 2))
    wanted = np.maximum(np.einsum("chwyx,ocyx->ohw", windows, w, optimize=True) + bias, 0.0)
    row: Row = {"worst": compare(f(data)[0], wanted, NEAR["float32"]), "ours_s": seconds(f, [data], small)}
    return row | rival(lambda torch: layer_of(torch, batch, size, channels))


def whole_model(target: Target, name: str, small: bool) -> Row:
    graph, arrays = model_of(name, small)
    plan = plan_model(graph, target)
    f = open_artifact(link_model(plan, default_traces(plan)))
    row: Row = {"ours_s": seconds(f, arrays, small), "call_s": wall(f, arrays, 1 if small else REPEAT)}
    return row | (rival(resnet_of) if name == "resnet18" and not small else {})


def wall(f: Any, arrays: list[np.ndarray[Any, Any]], repeat: int) -> float:
    """The seconds of a call, including the copies to the device and back."""
    samples = []
    for _ in range(repeat):
        began = time.perf_counter()
        f(*arrays)
        samples.append(time.perf_counter() - began)
    return median(samples)


# -- tuning --------------------------------------------------------------------------------------------------

TUNED = ("product", "product_float16", "softmax")


def tuning(target: Target, name: str, small: bool, trials: int) -> Row:
    """A search on the card: its best schedule against the default, and figures of the search."""
    n = 32 if small else 1024
    dtype = "float16" if name.endswith("float16") else "float32"
    x, y = drawn((n, n), (n, n), dtype=dtype)
    match name:
        case "softmax":
            a = te.placeholder((n, n), name="A")
            k, r = te.reduce_axis(n, name="k"), te.reduce_axis(n, name="r")
            high = te.compute((n,), lambda i: te.max(a[i, k], axis=k), name="high")
            e = te.compute((n, n), lambda i, j: te.exp(a[i, j] - high[i]), name="e")
            total = te.compute((n,), lambda i: te.sum(e[i, r], axis=r), name="total")
            args = [a, te.compute((n, n), lambda i, j: e[i, j] / total[i], name="Y")]
            powers = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
            arrays, wanted = [x], powers / powers.sum(axis=1, keepdims=True)
        case _:
            args, arrays = matrices(n, dtype), [x, y]
            wanted = x.astype(np.float64) @ y
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "log.db"
        report = at.tune(args, trials, target, db=db, deadline_s=DEADLINE_S, progress=False)
        f = at.build(args, target=target, db=db)
        row: Row = {"trials": report.trials, "worst": compare(f(*arrays), wanted, NEAR[dtype])}
        row["tuned_s"] = seconds(f, arrays, small)
    row["default_s"] = seconds(untuned(args, target, name), arrays, small)
    return row | {"speedup": row["default_s"] / row["tuned_s"]}


# -- rivals --------------------------------------------------------------------------------------------------


def rival(make: Callable[[Any], dict[str, Callable[[], Any]]]) -> Row:
    """The seconds of torch's functions on the card; {} without torch or without a card."""
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    with torch.no_grad():
        return {f"{name}_s": torch_seconds(torch, run) for name, run in make(torch).items()}


def torch_seconds(torch: Any, run: Callable[[], Any]) -> float:
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    return event_seconds(
        run, torch.cuda.synchronize, first.record, last.record, lambda: first.elapsed_time(last) * 1e-3
    )


def event_seconds(
    run: Callable[[], Any],
    finish: Callable[[], Any],
    begin: Callable[[], Any],
    end: Callable[[], Any],
    between: Callable[[], float],
) -> float:
    """The median of REPEAT samples, each at least LEAST_S long, measured by the card's own events."""
    for _ in range(3):
        run()
    count, samples = 1, []
    while len(samples) < REPEAT:
        finish()
        begin()
        for _ in range(count):
            run()
        end()
        finish()
        spent = between()
        if spent < LEAST_S:
            count *= 2
            continue
        samples.append(spent / count)
    return median(samples)


def cublas_by_cupy(n: int, kind: str) -> Row:
    """The seconds of cuBLAS through CuPy, for a machine without torch; {} without CuPy."""
    try:
        import cupy
    except ImportError:
        return {}
    if kind == "tf32" or not hasattr(cupy, "matmul"):
        return {}
    a, b = (cupy.asarray(x) for x in drawn((n, n), (n, n), dtype=kind))
    first, last = cupy.cuda.Event(), cupy.cuda.Event()
    stream = cupy.cuda.get_current_stream()
    took = event_seconds(
        lambda: cupy.matmul(a, b),
        stream.synchronize,
        lambda: first.record(stream),
        lambda: last.record(stream),
        lambda: cupy.cuda.get_elapsed_time(first, last) * 1e-3,
    )
    return {"cublas_s": took}


def product_of(torch: Any, n: int, kind: str) -> dict[str, Callable[[], Any]]:
    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    dtype = torch.float16 if kind == "float16" else torch.float32
    a, b = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in range(2))
    return {"cublas": lambda: torch.mm(a, b)}


def layer_of(torch: Any, batch: int, size: int, channels: int) -> dict[str, Callable[[], Any]]:
    net = torch.nn.Sequential(torch.nn.Conv2d(channels, channels, 3, padding=1), torch.nn.ReLU())
    net = net.cuda().eval().to(memory_format=torch.channels_last)
    x = torch.randn(batch, channels, size, size, device="cuda").to(memory_format=torch.channels_last)
    return {"cudnn": lambda: net(x)}


def resnet_of(torch: Any) -> dict[str, Callable[[], Any]]:
    try:
        import torchvision
    except ImportError:
        return {}
    net = torchvision.models.resnet18(weights=None).cuda().eval()
    x = torch.randn(1, 3, 224, 224, device="cuda")
    fast = torch.compile(net, mode="max-autotune")
    return {"eager": lambda: net(x), "inductor": lambda: fast(x)}
