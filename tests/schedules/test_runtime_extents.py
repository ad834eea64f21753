"""Every sketch of the rules for an open computation gives the right results for all extents."""

from __future__ import annotations

import random
from typing import Any

import pytest
from comparison import near
from open_convolutions import open_convolution

from autotensor import te
from autotensor.base.target import Target, parse
from autotensor.compiler import compile_trace
from autotensor.runtime.open_artifact import open_artifact
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.primitives.below import Below
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.fixed_extents import corners, fixed, narrowed
from autotensor.te.reference import evaluate, random_inputs
from autotensor.te.workload import Workload
from schedules.generate import default_trace, generate
from schedules.over_range import trace_over_range

TARGET, ONE = parse("llvm -threads=2"), parse("llvm -threads=1")
ZEN = parse("llvm -mcpu=x86-64-v3 -threads=1")


def convolution(height: Any, width: Any) -> list[te.Tensor]:
    """3x3 over an image with a border of zeros."""
    x = te.placeholder((1, height, width, 16), name="x")
    w = te.placeholder((16, 16, 3, 3), name="w", constant=True)
    r, q, c = (te.reduce_axis(e, name=a) for a, e in (("r", 3), ("q", 3), ("c", 16)))

    def padded(b: Any, i: Any, j: Any, k: Any) -> Any:
        return te.if_then_else(
            te.all(i >= 1, i < height + 1, j >= 1, j < width + 1), x[b, i - 1, j - 1, k], 0.0
        )

    p = te.compute((1, height + 2, width + 2, 16), padded, name="p")
    y = te.compute(
        (1, height, width, 16),
        lambda b, i, j, o: te.sum(p[b, i + r, j + q, c] * w[o, c, r, q], axis=[r, q, c]),
        name="y",
    )
    return [x, w, y]


def attention(length: Any) -> list[te.Tensor]:
    """One head of 16: softmax(q kᵀ) v."""
    q, k, v = (te.placeholder((length, 16), name=name) for name in "qkv")
    d, a, b, c = te.reduce_axis(16, "d"), *(te.reduce_axis(length, name) for name in "abc")
    s = te.compute((length, length), lambda i, j: te.sum(q[i, d] * k[j, d], axis=d), name="s")
    top = te.compute((length,), lambda i: te.max(s[i, a], axis=a), name="top")
    e = te.compute((length, length), lambda i, j: te.exp(s[i, j] - top[i]), name="e")
    total = te.compute((length,), lambda i: te.sum(e[i, b], axis=b), name="total")
    p = te.compute((length, length), lambda i, j: e[i, j] / total[i], name="p")
    return [q, k, v, te.compute((length, 16), lambda i, o: te.sum(p[i, c] * v[c, o], axis=c), name="o")]


def counts(of: Any, among: Any) -> list[te.Tensor]:
    """How often each number is among the terms."""
    p, k = te.placeholder((among,), "int32", name="p"), te.reduce_axis(among, name="k")
    x = te.placeholder((of,), "int32", name="x")
    found = te.compute(
        (of,), lambda i: te.sum(te.cast("int32", (te.cast("int64", p[k]) == i).expr()), axis=k), name="found"
    )
    return [p, x, te.compute((of,), lambda i: x[i] * 100 + found[i], name="y")]


def ranks(length: Any) -> list[te.Tensor]:
    """The place that each number has when they are sorted."""
    x, k = te.placeholder((length,), "int32", name="x"), te.reduce_axis(length, name="k")

    def is_before(i: Any) -> Any:
        return te.any(x[k] < x[i], te.all((x[k] == x[i]).expr(), k.var < i))

    return [x, te.compute((length,), lambda i: te.sum(te.cast("int32", is_before(i)), axis=k), name="y")]


def held(length: Any, _: Any) -> list[te.Tensor]:
    """Rows that begin further down in every column. The last row is repeated for rows beyond it."""
    x = te.placeholder((length, 24), name="x")
    return [x, te.compute((length, 24), lambda i, j: x[te.minimum(i + j, length - 1), j], name="y")]


OPEN = {
    "held": held,
    "counts": counts,
    "ranks": lambda n, _: ranks(n),
    "product": lambda n, m: [
        a := te.placeholder((n, 24), name="A"),
        b := te.placeholder((24, m), name="B"),
        te.compute((n, m), lambda i, j: te.sum(a[i, K] * b[K, j], axis=K), name="C"),
    ],
    "convolution": convolution,
    "convolution in steps of 4": lambda *_: convolution(
        te.var("n", range=(12, 40), multiple_of=4), te.var("m", range=(4, 20), multiple_of=4)
    ),
    "attention": lambda n, _: attention(n),
}
K = te.reduce_axis(24, name="k")


MOST = 6  # sketches of a computation that are tested by default


@pytest.mark.parametrize("name", OPEN)
def test_sketches(name: str) -> None:
    _check(name, MOST)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPEN)
def test_all_sketches(name: str) -> None:
    _check(name, None)


@pytest.mark.parametrize("algorithm", ["winograd_f2", "winograd_f4"])
@pytest.mark.parametrize("name", ["convolution", "convolution in steps of 4"])
def test_algorithms(name: str, algorithm: str) -> None:
    dag = _open(name)
    conv = next(s.name for s in dag.stages if s.combiner is not None)
    _compare(dag, Trace((UseAlgorithm(conv, algorithm),)))


@pytest.mark.parametrize("name", ["counts", "ranks"])
def test_one_thread_takes_one_pass_or_compares(name: str) -> None:
    _check(name, MOST, ONE)


def _check(name: str, most: int | None, target: Target = TARGET) -> None:
    dag = _open(name)
    for sketch in generate(dag, target)[:most]:
        _compare(dag, sketch.fill(sketch.defaults()), target)


def _open(name: str) -> ComputeDAG:
    args = OPEN[name](te.var("n", range=(3, 40)), te.var("m", range=(3, 21)))
    return Workload.of(ComputeDAG.of(args)).dag


def _compare(dag: ComputeDAG, trace: Trace, target: Target = TARGET) -> None:
    rng = random.Random(0)
    f = open_artifact(compile_trace(dag, trace, target), threads=target.num_cores)
    for n, values in enumerate([*corners(dag), {s: rng.randint(s.least, s.most) for s in dag.symbols()}]):
        own = fixed(dag, values)
        inputs = random_inputs(own, n)
        (out,) = own.outputs
        near(own, inputs, evaluate(own, inputs, accumulate=float), {out.name: f(**inputs)})


def test_narrower_ranges_have_lesser_extents_and_the_same_symbols() -> None:
    dag = open_convolution(4, 40)
    narrow = narrowed(dag, dict.fromkeys(dag.symbols(), 14))
    assert [a.extent for a in narrow.stages[-1].axes] == [1, 14, 14, 16]
    assert [(s.name, s.least, s.most) for s in narrow.symbols()] == [("height", 4, 14), ("width", 4, 14)]
    assert narrow.stages[0].buffers[0].shape == (1, 16, 16, 16)


def test_a_convolution_has_schedules_for_parts_of_the_range() -> None:
    """Winograd's tiles for 80 pixels leave over a third of their rows at 32."""
    trace = trace_over_range(open_convolution(24, 80, channels=64), ZEN)
    ends = [s.points for s in trace.steps if isinstance(s, Below)]
    assert ends == sorted(ends, reverse=True)
    assert ends
    assert 24 * 24 < ends[-1] <= ends[0] < 80 * 80


def test_a_short_kernel_has_one_schedule() -> None:
    n = te.var("n", range=(1, 64))
    x = te.placeholder((n, 8), name="x")
    dag = ComputeDAG.of([x, te.compute((n, 8), lambda i, j: x[i, j] + 1.0, name="y")])
    assert trace_over_range(dag, ZEN) == default_trace(dag, ZEN)
