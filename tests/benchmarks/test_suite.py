"""The operators of the benchmark: the definitions in te, torch, NumPy and ONNX compute the same."""

from __future__ import annotations

import numpy as np
import pytest
import suite
from peers import Skip
from suite.attention import Attention
from suite.capsule import Capsule
from suite.conv import Conv
from suite.fused import Fused
from suite.matmul import Dense, Product
from suite.pools import Pool
from suite.row_operators import Rows
from suite.written_in_te import Diffusion, LogCoshPool, Pairs

from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate

SMALL = (
    Conv("c1", 2, (9,), 4, 6, 3, 2, 1),
    Conv("c2", 1, (7, 6), 4, 6, 3, 1, 1, 2),
    Conv("groups", 1, (6, 6), 4, 8, 3, 1, 1, 1, 2),
    Conv("depthwise", 1, (6, 6), 4, 4, 3, 2, 1, 1, 4),
    Conv("c3", 1, (3, 5, 4), 2, 3, 3, 1, 1),
    Conv("transposed", 2, (3, 4), 4, 3, 4, 2, 1, transposed=True),
    Capsule("capsule", 2, 5, 2, 3, 3, 2, 1),
    Product("plain", 5, 6, 7),
    Product("turned", 5, 6, 7, transpose_a=True),
    Product("batched", 5, 6, 7, batch=2),
    Product("constant", 5, 6, 7, constant_b=True),
    Dense("dense", 5, 6, 7),
    Dense("biased", 5, 6, 7, bias=True),
    *(Rows(k, k, (3, 8)) for k in ("softmax", "layer_norm", "gelu", "sum", "relu")),
    Rows("norm2", "norm2", (2, 3, 8)),
    Fused(Conv("head", 1, (5, 5), 4, 6, 3, 1, 1), ("bias", "add", "relu")),
    Fused(Conv("narrow", 1, (4, 4), 4, 4, 3, 1, 1, 1, 4), ("bias", "relu6")),
    Fused(Dense("layer", 3, 5, 4), ("bias", "gelu")),
    Fused(Dense("shortcut", 3, 5, 4), ("bias", "add")),
    Attention("attention", 2, 3, 5, 4),
    Attention("causal", 2, 4, 4, 3, causal=True),
    Pool("max_pool", 7, 3, 3, 2, 1),
    Pool("mean", 4, 3),
)
WRITTEN = (
    LogCoshPool("log_cosh_pool", 4, 2, 3),
    *(Pairs(kind, kind, 3, 4, 5) for kind in ("distance", "tropical", "kernel")),
    Diffusion("diffusion", 3, 4),
)
by_name = pytest.mark.parametrize("case", [*SMALL, *WRITTEN], ids=lambda c: c.name)


def ours(case):
    """The te definition, evaluated by the reference, in torch's layout."""
    tensors = case.tensors()
    inputs, constants = case.arrays
    given = [case.to_ours(a) for a in inputs] + [case.constant_to_ours(a) for a in constants.values()]
    dag = ComputeDAG.of(tensors)
    arrays = {t.name: a for t, a in zip(tensors, given, strict=False)}
    assert [t.shape for t in tensors[:-1]] == [a.shape for a in given]
    return case.from_ours(evaluate(dag, arrays)[dag.outputs[-1].name])


def close(a, b):
    return a.shape == b.shape and np.abs(a - b).max() <= 1e-5 * np.abs(b).max()


@by_name
def test_numpy_computes_the_same(case):
    found = ours(case)
    assert found.shape == case.output_shape
    if case.has_numpy:
        inputs, constants = case.arrays
        assert close(np.asarray(case.numpy(*inputs, *constants.values())), found)


@pytest.mark.torch
@by_name
def test_torch_computes_the_same(case):
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        got = case.module()(*map(torch.from_numpy, case.arrays[0]))
    assert close(got.numpy(), ours(case))


@pytest.mark.onnx
@pytest.mark.parametrize("case", SMALL, ids=lambda c: c.name)
def test_onnx_computes_the_same(case):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(case.onnx(), providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {f"in{n}": a for n, a in enumerate(case.arrays[0])})
    assert close(got, ours(case))


@pytest.mark.onnx
def test_what_nobody_has_is_not_asked_of_the_libraries():
    pytest.importorskip("onnx")
    with pytest.raises(Skip, match="there is no ONNX model of it"):
        WRITTEN[0].onnx()


def test_a_tail_of_unknown_operators_is_refused():
    with pytest.raises(ValueError, match="'swish' cannot follow an operator here; known: bias"):
        Fused(Dense("dense", 3, 5, 4), ("swish",))


def test_groups_have_what_they_promise():
    assert {g: len(suite.names(g)) for g in suite.GROUPS} == {
        "basic": 23,
        "ansor1": 40,
        "ansor16": 10,
        "gemm": 61,
    }
    assert all(suite.get(n).name == n for n in suite.names("all"))
    with pytest.raises(KeyError, match="no operator is called 'nothing'; the groups are basic"):
        suite.names("nothing")


@pytest.mark.parametrize(
    ("name", "flops", "useful"),
    [
        ("C2D.s2.b1", 2 * 14 * 14 * 256 * 256 * 9, (40 / 42) ** 2),
        ("GRP.s1.b1", 2 * 56 * 56 * 64 * 16, 1.0),
        ("T2D.s0.b1", 2 * 16 * 512 * 256 * 16, (14 / 16) ** 2),
        ("CAP.s1.b1", 2 * 64 * 64 * 32 * 32 * 9, (22 / 24) ** 2),
        ("bert_ffn", 2 * 128 * 768 * 3072, 1.0),
    ],
)
def test_operations_are_counted_with_and_without_padding(name, flops, useful):
    case = suite.get(name)
    assert case.flops == flops
    assert case.useful == pytest.approx(useful)
