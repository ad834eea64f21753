"""Workloads that the tests of the search share: operators with rules in awkward sizes, and operators without
rules."""

from __future__ import annotations

from autotensor import te
from autotensor.operators.conv import conv2d
from autotensor.operators.matmul import batch_matmul
from autotensor.operators.norm import layer_norm
from autotensor.operators.pool import max_pool2d
from autotensor.operators.softmax import softmax
from autotensor.schedule.loop_picture import StagePicture, picture
from autotensor.schedule.schedule import Schedule
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload


def gemm(m: int, n: int, k: int, *, constant: bool = True, epilogue: bool = True) -> Workload:
    """A[m, k] @ B[k, n], followed by a bias and a relu."""
    a = te.placeholder((m, k), name="a")
    b = te.placeholder((k, n), name="b", constant=constant)
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    name = f"gemm {m}x{n}x{k}"
    if not epilogue:
        return Workload.of(ComputeDAG.of([a, b, c]), name)
    bias = te.placeholder((n,), name="bias", constant=True)
    d = te.compute((m, n), lambda i, j: te.maximum(c[i, j] + bias[j], 0.0), name="d")
    return Workload.of(ComputeDAG.of([a, b, bias, d]), name)


def conv(
    size: int, cin: int, cout: int, kernel: int, *, stride: int = 1, groups: int = 1, layout: str = "NHWC"
) -> Workload:
    """A convolution as in models: padded to keep its size, and followed by a relu."""
    shape = (1, size, size, cin) if layout == "NHWC" else (1, cin, size, size)
    x = te.placeholder(shape, name="x")
    w = te.placeholder((cout, cin // groups, kernel, kernel), name="w", constant=True)
    y = conv2d(x, w, stride=stride, padding=kernel // 2, groups=groups, layout=layout)
    z = te.compute(y.shape, lambda *i: te.maximum(y[i], 0.0), name="z")
    return Workload.of(
        ComputeDAG.of([x, w, z]), f"conv {layout} {size} {cin}-{cout} k{kernel} s{stride} g{groups}"
    )


def rows(kind: str, n: int, m: int) -> Workload:
    """Softmax or layer norm along rows."""
    x = te.placeholder((n, m), name="x")
    if kind == "softmax":
        return Workload.of(ComputeDAG.of([x, softmax(x)]), f"softmax {n}x{m}")
    gamma = te.placeholder((m,), name="gamma", constant=True)
    beta = te.placeholder((m,), name="beta", constant=True)
    return Workload.of(ComputeDAG.of([x, gamma, beta, layer_norm(x, gamma, beta)]), f"layer_norm {n}x{m}")


def pool(size: int, channels: int) -> Workload:
    x = te.placeholder((1, size, size, channels), name="x")
    y = max_pool2d(x, 3, stride=2, padding=1, layout="NHWC")
    return Workload.of(ComputeDAG.of([x, y]), f"max_pool {size} {channels}")


def batched(batch: int, m: int, n: int, k: int, *, transpose_b: bool = False) -> Workload:
    a = te.placeholder((batch, m, k), name="a")
    b = te.placeholder((batch, n, k) if transpose_b else (batch, k, n), name="b")
    return Workload.of(ComputeDAG.of([a, b, batch_matmul(a, b, transpose_b=transpose_b)]), "batch_matmul")


def transpose(*shape: int) -> Workload:
    """The dimensions after the first are rotated: NHWC to NCHW."""
    x = te.placeholder(shape, name="x")
    turned = (shape[0], shape[-1], *shape[1:-1])
    y = te.compute(turned, lambda n, c, *i: x[(n, *i, c)], name="y")
    return Workload.of(ComputeDAG.of([x, y]), f"transpose {shape}")


def log_cosh_pool(size: int, channels: int) -> Workload:
    """An operator of no library: the log of the mean of cosh over 2x2 windows of a depthwise convolution."""
    x = te.placeholder((size, size, channels), name="x")
    w = te.placeholder((3, 3, channels), name="w", constant=True)
    kh, kw = te.reduce_axis((0, 3), name="kh"), te.reduce_axis((0, 3), name="kw")
    inner = size - 2
    y = te.compute(
        (inner, inner, channels),
        lambda i, j, c: te.sum(x[i + kh, j + kw, c] * w[kh, kw, c], axis=[kh, kw]),
        name="y",
    )
    ph, pw = te.reduce_axis((0, 2), name="ph"), te.reduce_axis((0, 2), name="pw")
    half = inner // 2
    p = te.compute(
        (half, half, channels),
        lambda i, j, c: te.sum(te.cosh(y[2 * i + ph, 2 * j + pw, c] * 0.25), axis=[ph, pw]),
        name="p",
    )
    z = te.compute((half, half, channels), lambda i, j, c: te.log(p[i, j, c] * 0.25), name="z")
    return Workload.of(ComputeDAG.of([x, w, z]), f"log_cosh_pool {size} {channels}")


SMALL: tuple[Workload, ...] = (
    gemm(13, 37, 19),
    gemm(29, 50, 17, constant=False, epilogue=False),
    conv(9, 5, 40, 3),
    conv(10, 8, 32, 1, stride=2),
    conv(9, 24, 24, 3, groups=24),
    conv(8, 6, 10, 3, layout="NCHW"),
    rows("softmax", 7, 100),
    rows("layer_norm", 5, 83),
    pool(11, 20),
    batched(3, 7, 21, 9),
    batched(2, 9, 17, 12, transpose_b=True),
    transpose(1, 6, 7, 20),
    log_cosh_pool(12, 19),
)


def scheduled(workload: Workload, rows: int, columns: int, depth: int = 1, lanes: int = 8) -> StagePicture:
    """The reduction of a product, in tiles of rows × columns vectors."""
    s = Schedule(workload.dag)
    stage = s["t0"]
    i, j = stage.op.axis
    k = stage.op.reduce_axis[0]
    io, ii = stage.split(i, factor=rows)
    jo, ji = stage.split(j, factor=columns * lanes)
    jv, jl = stage.split(ji, factor=lanes)
    ko, ki = stage.split(k, factor=depth)
    stage.reorder(io, jo, ko, ki, ii, jv, jl)
    for axis in (ki, ii, jv):
        stage.unroll(axis)
    stage.vectorize(jl)
    return picture(s.state, {}).stages[0]
