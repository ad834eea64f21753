"""Attention of opset 23: the fused operator where it means the same, the standard's definition elsewhere."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from making import model, node
from onnx.reference import ReferenceEvaluator

from autotensor.api.from_onnx import from_onnx
from autotensor.base.errors import AutotensorError
from autotensor.graph.evaluate import evaluate
from autotensor.graph.rules import optimize

B, H, N, M, D = 2, 4, 3, 5, 6
APART = {"q": (B, H, N, D), "k": (B, H, M, D), "v": (B, H, M, D)}
FLAT = {"q": (B, N, H * D), "k": (B, M, H * D), "v": (B, M, H * D)}
GROUPED = {"q": (B, H, N, D), "k": (B, 2, M, D), "v": (B, 2, M, D)}
HEADS = {"q_num_heads": H, "kv_num_heads": H}


def made(shapes, opset=23, outputs=("y",), masks=None, **attrs):
    types = {n: onnx.TensorProto.BOOL for n, kind in (masks or {}).items() if kind is bool}
    return model(
        [node("Attention", list(shapes), outputs, **attrs)], shapes, outputs, types=types, opset=opset
    )


def checked(m, shapes, bools=()):
    """Our graph; its values are those of onnx's own evaluator."""
    rng = np.random.default_rng(0)
    arrays = {
        n: rng.random(s) < 0.8 if n in bools else rng.standard_normal(s).astype(np.float32)
        for n, s in shapes.items()
    }
    if "mask" in arrays:
        arrays["mask"][..., :1, :] = False if bools else -np.inf  # a query that sees nothing
    graph = from_onnx(m)
    expected = ReferenceEvaluator(m).run(None, arrays)
    for got, want in zip(evaluate(graph, **arrays), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    return optimize(graph)


@pytest.mark.parametrize("attrs", [{}, {"is_causal": 1}, {"scale": 0.3}], ids=str)
@pytest.mark.parametrize("shapes", [APART, FLAT, GROUPED], ids=["apart", "flat", "grouped"])
def test_it_is_one_operator(shapes, attrs):
    more = HEADS if shapes is FLAT else {}
    after = checked(made(shapes, **more, **attrs), shapes)
    assert (after.count("attention"), after.count("softmax")) == (1, 0)


@pytest.mark.parametrize("kind", [bool, float])
@pytest.mark.parametrize("mask", [(N, M), (B, 1, N, M), (1, 1, 1, M)], ids=str)
@pytest.mark.parametrize("causal", [0, 1])
def test_masks(kind, mask, causal):
    shapes = {**APART, "mask": mask}
    bools = ("mask",) if kind is bool else ()
    after = checked(made(shapes, masks={"mask": kind}, is_causal=causal), shapes, bools)
    assert after.count("attention") == 1


def test_a_joint_projection_before_it_is_read_in_place():
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((7, 3 * H * D)).astype(np.float32)}
    nodes = [
        node("MatMul", ["x", "w"], ["y0"]),
        node("Split", ["y0"], ["q", "k", "v"], axis=2, num_outputs=3),
        node("Attention", ["q", "k", "v"], ["y"], **HEADS),
    ]
    after = optimize(from_onnx(model(nodes, {"x": (B, N, 7)}, weights=weights, opset=23)))
    assert (after.count("self_attention"), after.count("slice")) == (1, 0)


@pytest.mark.parametrize(
    ("attrs", "outputs"), [({"softcap": 2.0}, ("y",)), ({}, ("y", "", "", "scores"))], ids=["cap", "scores"]
)
def test_other_forms_are_imported_by_their_definition(attrs, outputs):
    m = made(APART, outputs=outputs, **attrs)
    del m.graph.output[1:]
    checked(m, APART)


def test_columns_that_no_number_of_heads_divides():
    shapes = {"q": (1, 3, 7), "k": (1, 3, 7), "v": (1, 3, 7)}
    with pytest.raises(AutotensorError, match=r"the_Attention.*7 columns cannot be divided among 2 heads"):
        from_onnx(made(shapes, q_num_heads=2, kv_num_heads=2))
