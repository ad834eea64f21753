"""Numerics bf16 and fp16: which weights and values are rounded, and with which error. Nothing else is
rounded."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import planting
import pytest

import autotensor as at
from autotensor.api import models
from autotensor.base.errors import TargetError
from autotensor.base.target import host, parse
from autotensor.codegen.dot_instructions import available
from autotensor.graph.build import constant, input, ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Apply, Graph
from autotensor.graph.partition import partition
from autotensor.graph.rules import bfloat16_products, optimize
from autotensor.graph.rules.bfloat16_products import in_bfloat16
from autotensor.ir.expr import Dot, Load, Ramp, const
from autotensor.ir.func import Program
from autotensor.ir.node import map_children
from autotensor.ir.rewrite import substitute
from autotensor.ir.visit import free_vars
from autotensor.runtime.open_artifact import open_artifact
from schedules.generate import default_trace

BF16 = "llvm -mcpu=znver4 -threads=2 -numerics=bf16"
HALF = 2.0**-9  # greatest relative error of a number that was rounded to bfloat16
HAS_BF16 = "x86.vdpbf16ps.512" in {d.name for d in available(host())}
needs_bf16 = pytest.mark.skipif(not HAS_BF16, reason="the processor has no AVX512-BF16")


def drawn(*shape: int, seed: int = 0) -> Any:
    rng = np.random.default_rng([seed, *shape])
    return (rng.standard_normal(shape) * np.prod(shape[1:]) ** -0.5).astype(np.float32)


def residual() -> Graph:
    """A residual block, a 3x3 whose channels Winograd's method would not take, and a layer of one row."""
    x = input((1, 32, 9, 9))
    y = ops.relu(ops.conv2d(x, drawn(32, 32, 1, 1), drawn(32, seed=1)))
    z = ops.conv2d(ops.relu(ops.conv2d(y, drawn(48, 32, 3, 3), stride=1, padding=1)), drawn(32, 48, 1, 1))
    pooled = ops.global_avg_pool2d(ops.relu(z + y))
    return Graph(x, ops.dense(ops.flatten(pooled), drawn(600, 32)))


def perceptron(rows: int, *widths: int) -> Graph:
    x = y = input((rows, widths[0]))
    for n, (a, b) in enumerate(pairwise(widths)):
        y = ops.gelu(ops.dense(y, drawn(b, a, seed=n), drawn(b, seed=n + 9)))
    return Graph(x, y)


def rounded(a: Any) -> Any:
    return a.astype(ml_dtypes.bfloat16).astype(np.float64)


# -- which -----------------------------------------------------------------------------------------------


def test_what_products_read_is_stored_in_16_bits_by_who_makes_it() -> None:
    graph = in_bfloat16(optimize(residual()))
    kernels = [(g.name, [str(b.dtype) for b in g.workload.dag.inputs]) for g in partition(graph)]
    assert kernels[:4] == [
        ("transpose 32x9x9 +cast", ["float32"]),
        ("conv2d 1x1 9x9x32->32 +add+relu+cast", ["bfloat16", "bfloat16", "float32"]),
        ("conv2d 3x3 9x9x32->48 +relu+cast", ["bfloat16", "bfloat16"]),
        ("conv2d 1x1 9x9x48->32 +add+relu", ["bfloat16"] * 3),  # the shortcut, too
    ]
    assert [str(o.dtype) for o in graph.outputs] == ["float32"]


@pytest.mark.parametrize(
    "y",
    [
        lambda x: ops.dense(x, drawn(64, 32)),  # its rows are few
        lambda x: ops.dense(ops.reshape(x, (6, 16)), drawn(8, 16)),  # and here its columns
        lambda x: ops.matmul(x, ops.transpose(x)),  # no weights
        lambda x: ops.conv2d(ops.reshape(x, (1, 3, 8, 4)), drawn(16, 3, 3, 3)),  # nine terms in a line
        lambda x: ops.conv2d(ops.reshape(x, (1, 3, 2, 16)), drawn(16, 3, 1, 7), dilation=2),
        lambda x: ops.conv2d(ops.reshape(x, (1, 8, 4, 3)), drawn(8, 1, 3, 3), groups=8, padding=1),
    ],
)
def test_other_products_stay(y: Any) -> None:
    x = input((3, 32))
    graph = optimize(Graph(x, y(x)))
    assert in_bfloat16(graph).outputs == graph.outputs


def test_colours_of_an_image_are_read_in_16_bits() -> None:
    """The 7 columns of 3 colours are neighbours in memory, and enough terms."""
    graph = in_bfloat16(
        optimize(Graph(x := input((1, 3, 9, 9)), ops.conv2d(x, drawn(16, 3, 7, 7), padding=3)))
    )
    (kernel,) = (g.workload for g in partition(graph) if "conv2d" in g.name)
    assert {str(b.dtype) for b in kernel.dag.inputs} == {"bfloat16"}
    assert "tdpbf16ps" in str(default_trace(kernel.dag, parse("llvm -mcpu=sapphirerapids -threads=1")))


def test_a_result_that_the_caller_gets_is_not_rounded() -> None:
    x = input((8, 32))
    y = ops.relu(ops.dense(x, drawn(32, 32)))
    graph = in_bfloat16(optimize(Graph(x, (y, ops.dense(y, drawn(16, 32))))))
    first = graph.outputs[0]
    assert isinstance(first, Apply)
    assert first.op == "relu"
    assert graph.count("dense") == 2


def test_views_are_of_what_is_stored() -> None:
    x = input((8, 2, 32))
    y = ops.exp(x)
    graph = Graph(x, ops.dense(ops.reshape(y, (16, 32)), drawn(16, 32)) + ops.reshape(ops.sum(y), (1, 1)))
    after = in_bfloat16(optimize(graph))
    assert partition(after)[0].name == "exp 8x2x32 +cast"
    assert next(str(n.dtype) for n in after.applies if n.op == "reshape") == "bfloat16"


def test_where_winograds_method_is_as_fast_float32_stays() -> None:
    def net(size: int, stride: int) -> Graph:
        x = input((1, 64, size, size))
        return Graph(x, ops.conv2d(x, drawn(64, 64, 3, 3), padding=1, stride=stride))

    for size, stride, kept in ((56, 1, "float32"), (56, 2, "bfloat16"), (6, 1, "bfloat16")):
        (task,) = (t for t in at.plan_model(net(size, stride), BF16).tasks if "3x3" in t.name)
        assert str(task.workload.dag.inputs[0].dtype) == kept, (size, stride)


@pytest.mark.parametrize(
    ("target", "types"),
    [
        ("llvm -mcpu=znver4", {"float32"}),
        (BF16, {"bfloat16"}),
        ("llvm -mcpu=haswell -numerics=bf16", {"float32"}),  # no instruction: weights are rounded only
        ("llvm -mcpu=znver4 -numerics=fp16", {"float32"}),
    ],
)
def test_numerics_of_targets(target: str, types: set[str]) -> None:
    plan = at.plan_model(perceptron(64, 256, 256), target)
    (group,) = (g for g in plan.groups if g.head.op == "dense")
    weights = [x for x in group.inputs if x.ndim == 2]
    assert {str(x.dtype) for x in weights} == types
    if "numerics" in target:
        (w,) = (c.array for c in plan.graph.constants if c.ndim == 2)
        half = np.float16 if "fp16" in target else ml_dtypes.bfloat16
        np.testing.assert_array_equal(w.astype(np.float32), drawn(256, 256).astype(half).astype(np.float32))


def test_rows_of_a_log_are_those_of_fast_numerics() -> None:
    assert parse(BF16).key() == parse("llvm -mcpu=znver4 -threads=2").key()


def test_weights_that_would_become_infinite_stay() -> None:
    w = drawn(600, 256) * np.float32(1e6)
    graph = at.plan_model(ops.dense(input((1, 256)), w), "llvm -numerics=fp16").graph
    assert [str(c.dtype) for c in graph.constants] == ["float32"]
    np.testing.assert_array_equal(graph.constants[0].array, w)


def test_gpus_have_no_such_numerics() -> None:
    with pytest.raises(TargetError, match="numerics 'bf16' are of processors, and the target is 'cuda'"):
        at.plan_model(perceptron(8, 32, 32), "cuda -numerics=bf16")


def test_the_default_schedule_is_the_instruction() -> None:
    tasks = [t for t in at.plan_model(residual(), BF16).tasks if "conv2d" in t.name]
    assert len(tasks) >= 2
    for task in tasks:
        assert "vdpbf16ps" in str(default_trace(task.workload.dag, parse(BF16))), task.name


# -- what it computes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", [residual(), perceptron(33, 48, 80, 17)], ids=["residual", "perceptron"])
def test_kernels_compute_what_the_graph_says(graph: Graph) -> None:
    """Equal to NumPy on the rounded operands, within the allowed difference of float32 sums."""
    x = drawn(*graph.inputs[0].shape, seed=5)
    (want,) = evaluate(at.plan_model(graph, numerics("bf16")).graph, x)
    got = at.compile_model(graph, target=numerics("bf16"))(x)
    # a value next to the middle between two of bfloat16 may be rounded either way by either
    assert np.abs(got - want).max() < 0.1 * HALF * np.abs(want).max()


def test_a_product_is_that_of_rounded_operands() -> None:
    x, w = drawn(33, 70, seed=5), drawn(50, 70)
    node = input((33, 70))
    got = at.compile_model(Graph(node, ops.dense(node, w)), target=numerics("bf16"))(x)
    want = rounded(x) @ rounded(w).T
    exact = x.astype(np.float64) @ w.T.astype(np.float64)
    terms = np.sqrt((rounded(x) ** 2) @ (rounded(w) ** 2).T)
    if HAS_BF16:
        assert (np.abs(got - want) <= 4 * 2.0**-23 * np.sqrt(70) * (np.abs(want) + terms)).all()
    # each term is off by two roundings, of independent signs: four standard deviations of their sum
    assert (np.abs(got - exact) <= 4 * np.sqrt(2) * HALF * terms).all()


def numerics(kind: str) -> str:
    return f"llvm -threads=2 -numerics={kind}"


@pytest.mark.parametrize("kind", ["bf16", "fp16"])
@pytest.mark.parametrize("graph", [residual(), perceptron(40, 96, 256, 64)], ids=["residual", "perceptron"])
def test_a_network_is_near_its_float32(graph: Graph, kind: str) -> None:
    x = drawn(*graph.inputs[0].shape, seed=6)
    whole, narrow = (at.compile_model(graph, target=numerics(k))(x).ravel() for k in ("fast", kind))
    cosine = whole @ narrow / np.linalg.norm(whole) / np.linalg.norm(narrow)
    assert cosine > 0.9999
    assert (whole != narrow).any()


def test_a_file_is_half_as_large_and_gives_the_same_bits(tmp_path: Any) -> None:
    graph, sizes = perceptron(40, 512, 1024, 512), []
    x = drawn(40, 512, seed=7)
    for kind in ("fast", "bf16"):
        f = at.compile_model(graph, target=f"llvm -mcpu=native -threads=2 -numerics={kind}")
        f.save(tmp_path / kind)
        np.testing.assert_array_equal(at.load(tmp_path / kind)(x), f(x))
        sizes.append((tmp_path / kind).stat().st_size)
    if HAS_BF16:
        assert sizes[1] < 0.6 * sizes[0]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.sample(4)
def test_random_graphs_keep_their_meaning(
    random_graph: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every product in bfloat16, however small."""
    for name in ("ROWS", "DEPTH", "COLUMNS"):
        monkeypatch.setattr(bfloat16_products, name, 1)
    monkeypatch.setattr(models, "pays_in_bfloat16", lambda dag, target: True)
    graph = random_graph(seed)
    x = np.random.default_rng(seed).standard_normal(graph.inputs[0].shape).astype(np.float32)
    after = at.plan_model(graph, numerics("bf16")).graph
    made = several(at.compile_model(graph, target=numerics("bf16"))(x))
    for want, said, got in zip(evaluate(graph, x), evaluate(after, x), made, strict=True):
        scale = max(1.0, float(np.abs(want).max(initial=0)))
        assert np.abs(said - want).max(initial=0) < 40 * HALF * scale
        assert np.abs(got - said).max(initial=0) < 4 * HALF * scale
        assert got.dtype == want.dtype


def several(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


# -- planted faults --------------------------------------------------------------------------------------


def wrong_pairing(program: Program) -> Program | None:
    """The two numbers of a word change places before the dot instruction. For tiles, the first tile is used
    again."""
    hits = []

    def change(node: Any) -> Any:
        match node:
            case Dot(sums, Load(b, (Ramp(base, 1, 2),), mask), panel, rows, group, name):
                hits.append(node)
                turned = Load(b, (Ramp(base + 1, -1, 2),), mask)
                return Dot(change(sums), turned, panel, rows, group, name)
            case Dot(sums, Load(b, (index,), mask), panel, rows, group, name):
                hits.append(node)
                first = substitute(index, {v: const(0, v.dtype) for v in free_vars(index)})
                return Dot(change(sums), Load(b, (first,), mask), panel, rows, group, name)
        return map_children(node, change)

    run = tuple(replace(f, body=change(f.body)) for f in program.run)
    return replace(program, run=run) if hits else None


@needs_bf16
def test_a_planted_fault_a_wrong_pairing() -> None:
    plan = at.plan_model(perceptron(33, 48, 80), numerics("bf16"))
    number = next(n for n, t in enumerate(plan.tasks) if "dense" in t.name)
    found = planting.model_with(plan, number, wrong_pairing)
    assert found is not None
    x = drawn(33, 48, seed=5)
    (want,) = evaluate(plan.graph, x)
    right = at.compile_model(perceptron(33, 48, 80), target=numerics("bf16"))(x)
    limit = 0.1 * HALF * np.abs(want).max()
    assert np.abs(right - want).max() < limit
    assert np.abs(open_artifact(found[0])(x) - want).max() > 10 * limit


def test_a_planted_fault_weights_cut_off_instead_of_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    node = input((33, 64))
    graph = optimize(Graph(node, ops.dense(node, drawn(50, 64))))
    x = drawn(33, 64, seed=5)
    exact = rounded(x) @ rounded(drawn(50, 64)).T
    terms = np.sqrt((rounded(x) ** 2) @ (rounded(drawn(50, 64)) ** 2).T)

    def off(changed: Graph) -> bool:
        (got,) = evaluate(changed, x)
        return bool((np.abs(got - exact) > 4 * 2.0**-23 * 8 * (np.abs(exact) + terms)).any())

    def cut(array: Any, name: str = "") -> Any:
        bits = array.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
        return constant(bits.view(np.float32).astype(ml_dtypes.bfloat16), name)

    assert not off(in_bfloat16(graph))
    wide = bfloat16_products.constant
    monkeypatch.setattr(bfloat16_products, "constant", lambda a, name="": cut(drawn(50, 64), name))
    assert off(in_bfloat16(graph))
    assert wide is constant
