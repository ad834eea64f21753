"""Weights that fit into 16 bits stay in 16 bits if products of few rows read them; no number changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import planting
import pytest

import autotensor as at
from autotensor import te
from autotensor.api import models
from autotensor.base.dtype import bfloat16, float16
from autotensor.graph.build import constant, input, ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph
from autotensor.graph.rules import IN_16_BITS, PASSES, Pass, optimize, weight_storage
from autotensor.graph.rules.weight_storage import in_16_bits, narrowest
from autotensor.ir.expr import Binary, Cast, Op, const
from autotensor.ir.func import Program
from autotensor.ir.node import map_children
from autotensor.models import llama
from autotensor.models.llama import LlamaSize
from autotensor.models.weights import shapes_of
from autotensor.runtime.open_artifact import open_artifact

N, K = 640, 384
HALVES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


def drawn(*shape: int, kind: str = "bfloat16", seed: int = 0) -> Any:
    """Numbers that the type holds, as float32."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * shape[-1] ** -0.5).astype(HALVES.get(kind, kind)).astype("f4")


def product(rows: int, kind: str = "bfloat16", n: int = N, k: int = K) -> Graph:
    x = input((rows, k))
    return Graph(x, ops.relu(ops.dense(x, drawn(n, k, kind=kind), drawn(n, kind=kind, seed=1))))


def types(graph: Graph) -> list[str]:
    return sorted({str(c.dtype) for c in graph.constants if c.ndim == 2})


# -- which -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "kind", "size", "kept"),
    [
        (1, "bfloat16", (N, K), "bfloat16"),
        (2, "float16", (N, K), "float16"),
        (1, "float32", (N, K), "float32"),  # it has more bits
        (3, "bfloat16", (N, K), "float32"),  # L2 is fast enough
        (16, "bfloat16", (2048, 2048), "bfloat16"),  # from memory
        (17, "bfloat16", (2048, 2048), "float32"),
        (1, "bfloat16", (100, 100), "float32"),
    ],
)
def test_few_rows_and_large_weights(rows: int, kind: str, size: tuple[int, int], kept: str) -> None:
    graph = optimize(product(rows, kind, *size))
    assert types(graph) == [kept]
    assert graph.count("cast") == (kept != "float32")


def test_weights_that_come_in_16_bits() -> None:
    """A model that is written in 16 bits, or that casts its weights itself."""
    x = input((1, K), "bfloat16")
    w = drawn(K, N).astype(ml_dtypes.bfloat16)
    assert types(optimize(Graph(x, ops.matmul(x, w)))) == ["bfloat16"]
    x = input((1, K))
    assert types(optimize(Graph(x, ops.matmul(x, ops.cast(constant(w), dtype="float32"))))) == ["bfloat16"]


def test_a_table_that_is_a_weight_too_is_stored_once() -> None:
    words = input((1,), "int64")
    table = constant(drawn(N, K))
    row = ops.take(table, words)
    graph = optimize(Graph(words, ops.dense(row * 2.0, table)))
    assert [str(c.dtype) for c in graph.constants if c.ndim == 2] == ["bfloat16"]
    assert graph.count("cast") == 2
    (got,), (want,) = (evaluate(g, np.array([5])) for g in (graph, Graph(words, ops.dense(row * 2.0, table))))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("other", ["output", "relu", "many rows", "sum"])
def test_a_weight_that_others_read_in_float32_stays(other: str) -> None:
    x, w = input((1, K)), constant(drawn(N, K))
    y = ops.dense(x, w)
    inputs, outputs = [x], [y]
    if other == "output":
        outputs.append(w)
    elif other == "relu":
        outputs.append(ops.relu(w))
    elif other == "many rows":
        inputs.append(input((50, K)))
        outputs.append(ops.dense(inputs[1], w))
    else:
        inputs.append(input((K,), "int64"))
        outputs.append(ops.take(constant(np.arange(9)), inputs[1]) + ops.sum(w, axis=0))
    assert in_16_bits(graph := Graph(tuple(inputs), tuple(outputs))) is graph


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        ([1.0, -0.0, 0.0, 3.0], bfloat16),
        ([2.0**120, 2.0], bfloat16),
        ([np.inf, -np.inf, 0.5], bfloat16),
        ([2.0**-133], bfloat16),  # its least number
        ([1.0 + 2.0**-10], float16),
        ([2.0**-24, 1.0 + 2.0**-9], float16),  # its least number
        ([1.0 + 2.0**-10, 1e5], None),
        ([0.1], None),
        ([2.0**-134], None),
    ],
)
def test_the_type_that_holds_all_numbers(numbers: list[float], kind: object) -> None:
    array = np.array(numbers, np.float32)
    assert narrowest(array) is kind
    late = np.concatenate([np.ones(weight_storage.SAMPLE, np.float32), array])
    assert narrowest(late) is kind


def test_nan_stays_what_it_is() -> None:
    one, other = (np.array([bits], np.uint32).view(np.float32) for bits in (0x7FC00000, 0x7F812345))
    assert narrowest(one) is bfloat16
    assert narrowest(other) is None


@pytest.mark.parametrize(
    ("bits", "kind"),
    [
        (0x7F800000, bfloat16),  # infinity
        (0x80000000, bfloat16),  # -0
        (0x00010000, bfloat16),  # denormal in both
        (0x3F800001, None),
        (0x7F810001, None),  # NaNs, whose bits conversions to bfloat16 change
        (0x7F810000, float16),
    ],
)
def test_every_bit_counts(bits: int, kind: object) -> None:
    array = np.zeros(weight_storage.SAMPLE + 9, np.float32)
    array.view(np.uint32)[-1] = bits
    assert narrowest(array) is kind


# -- what they compute -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*HALVES])
@pytest.mark.parametrize("rows", [1, 2])
def test_products_are_those_of_float32(rows: int, kind: str, tmp_path: Any) -> None:
    graph = product(rows, kind)
    x = drawn(rows, K, kind="float32", seed=2)
    weights = drawn(N, K, kind=kind).astype(np.float64)
    want = np.maximum(x.astype(np.float64) @ weights.T + drawn(N, kind=kind, seed=1), 0)
    f = at.compile_model(graph)
    terms = np.sqrt((x.astype(np.float64) ** 2) @ (weights.T**2))
    assert (np.abs(f(x) - want) <= 4 * 2.0**-24 * np.sqrt(K) * (np.abs(want) + terms.max())).all()
    assert len(f.artifact.meta["kernels"]) == 1, "nothing is widened by a kernel of its own"
    path = tmp_path / "model.atm"
    f.save(path)
    assert path.stat().st_size < 2 * N * K + 60_000
    np.testing.assert_array_equal(at.load(path)(x), f(x))


def test_every_number_of_16_bits_widens_to_itself() -> None:
    for kind, half in HALVES.items():
        every = np.arange(1 << 16).astype(np.uint16).view(half).astype(np.float32)
        numbers = np.where(np.isfinite(every), every, 0).astype(np.float32)
        w = np.zeros((1 << 16, 8), np.float32)
        w[:, 3] = numbers
        x = input((1, 8))
        graph = Graph(x, ops.dense(x, w))
        assert types(optimize(graph)) == [kind]
        a = np.zeros((1, 8), np.float32)
        a[0, 3] = 1
        np.testing.assert_array_equal(at.compile_model(graph)(a)[0], numbers)


def test_a_decoder_of_bfloat16_is_half_as_large(tmp_path: Any) -> None:
    size = LlamaSize(layers=1, hidden=512, heads=4, groups=2, inner=1024, vocabulary=2000)
    names = shapes_of(llama.build, size=size)
    weights = {n: drawn(*s, seed=k).astype(ml_dtypes.bfloat16) for k, (n, s) in enumerate(names.items())}
    given = llama.inputs(np.random.default_rng(0), capacity=8, size=size)
    made = {}
    for name, kept in (("stored", weight_storage.in_16_bits), ("wide", lambda graph: graph)):
        passes = tuple(Pass(p.name, kept) if p is IN_16_BITS else p for p in PASSES)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(models, "PASSES", passes)
            f = at.compile_model(llama.build(1, weights, capacity=8, size=size))
        f.save(tmp_path / name)
        made[name] = f(**given)[0], (tmp_path / name).stat().st_size
    np.testing.assert_allclose(made["stored"][0], made["wide"][0], rtol=1e-4, atol=1e-4)
    assert made["stored"][1] < 0.6 * made["wide"][1]


def test_one_plan_serves_few_rows_and_many() -> None:
    """The number of rows is known only at the call."""
    n, w = te.var("n", range=(1, 24)), constant(drawn(N, K))

    def model(rows: int) -> Graph:
        x = input((rows, K), name="x")
        return Graph(x, ops.dense(x, w))

    f = at.compile_model(at.open_graph(model, n), target="llvm -threads=1")
    for rows in (1, 2, 17):
        x = drawn(rows, K, kind="float32", seed=rows)
        np.testing.assert_allclose(f(x), x @ w.array.T, rtol=1e-5, atol=1e-5)


# -- planted faults --------------------------------------------------------------------------------------


def wrong_widening(program: Program) -> Program | None:
    """Widening gives the next number of bfloat16."""
    hits = []

    def change(node: Any) -> Any:
        if isinstance(node, Cast) and node.a.dtype.is_half and not node.dtype.is_half:
            hits.append(node)
            return Binary(Op.MUL, node, const(1 + 2.0**-7, node.dtype))
        return map_children(node, change)

    run = tuple(replace(f, body=change(f.body)) for f in program.run)
    return replace(program, run=run) if hits else None


def test_a_planted_fault_a_wrong_widening() -> None:
    plan = at.plan_model(product(1))
    wrong, _ = planting.model_with(plan, 0, wrong_widening)
    x = drawn(1, K, kind="float32", seed=2)
    (want,) = evaluate(plan.graph, x)
    assert np.abs(open_artifact(wrong)(x) - want).max() > 1e-4 * np.abs(want).max()


def test_a_planted_fault_a_type_that_does_not_hold_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = product(1, "float16")
    x = drawn(1, K, kind="float32", seed=2)
    (want,) = evaluate(graph, x)
    monkeypatch.setattr(weight_storage, "narrowest", lambda array: bfloat16)
    assert np.abs(at.compile_model(graph)(x) - want).max() > 1e-4 * np.abs(want).max()
