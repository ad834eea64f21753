"""Computations on which searches are compared: what rules know well, and one that they do not."""

from __future__ import annotations

from collections.abc import Callable

from autotensor import te
from autotensor.operators.conv import conv2d
from autotensor.operators.softmax import softmax
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload


def gemm(m: int, n: int, k: int) -> Workload:
    a = te.placeholder((m, k), name="a")
    b = te.placeholder((k, n), name="b", constant=True)
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    return Workload.of(ComputeDAG.of([a, b, c]), f"gemm {m}x{n}x{k}")


def convolution(
    size: int, cin: int, cout: int, kernel: int, *, stride: int = 1, groups: int = 1, name: str = ""
) -> Workload:
    """NHWC, padded so that stride 1 keeps the size, relu behind."""
    x = te.placeholder((1, size, size, cin), name="x")
    w = te.placeholder((cout, cin // groups, kernel, kernel), name="w", constant=True)
    y = conv2d(x, w, stride=stride, padding=kernel // 2, groups=groups, layout="NHWC")
    z = te.compute(y.shape, lambda *i: te.maximum(y[i], 0.0), name="z")
    return Workload.of(ComputeDAG.of([x, w, z]), name or f"conv{kernel}x{kernel} {size}x{size}x{cin}-{cout}")


def row_softmax(n: int, m: int) -> Workload:
    x = te.placeholder((n, m), name="x")
    return Workload.of(ComputeDAG.of([x, softmax(x)]), f"softmax {n}x{m}")


def log_cosh_pool(size: int, cin: int, cout: int) -> Workload:
    """Nobody's operator: log of the mean of cosh over 2x2 windows of a 3x3 convolution."""
    x = te.placeholder((1, size + 2, size + 2, cin), name="x")
    w = te.placeholder((cout, cin, 3, 3), name="w", constant=True)
    y = conv2d(x, w, layout="NHWC")
    half = size // 2
    ph, pw = te.reduce_axis((0, 2), name="ph"), te.reduce_axis((0, 2), name="pw")
    p = te.compute(
        (1, half, half, cout),
        lambda n, i, j, c: te.sum(te.cosh(y[n, 2 * i + ph, 2 * j + pw, c] * 0.1), axis=[ph, pw]),
        name="p",
    )
    z = te.compute(p.shape, lambda *i: te.log(p[i] * 0.25), name="z")
    return Workload.of(ComputeDAG.of([x, w, z]), f"log-cosh pool of conv {size}x{size}x{cin}-{cout}")


TASKS: dict[str, Callable[[], Workload]] = {
    "gemm": lambda: gemm(251, 387, 513),
    "depthwise": lambda: convolution(56, 128, 128, 3, groups=128, name="depthwise 3x3 56x56x128"),
    "softmax": lambda: row_softmax(512, 1000),
    "conv": lambda: convolution(28, 128, 128, 3),
    "unknown": lambda: log_cosh_pool(28, 64, 64),
}
