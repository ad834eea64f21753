"""Exported models, from our graphs and from torch's modules: onnxruntime gives the same results as
autotensor."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.onnx
ort = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
if str(BENCHMARKS) not in sys.path:
    sys.path.append(str(BENCHMARKS))

from nets.to_onnx import to_onnx  # noqa: E402
from reduced import REDUCED  # noqa: E402
from zoo_reduced import WIDER  # noqa: E402

from autotensor.graph.build import input, ops  # noqa: E402
from autotensor.graph.evaluate import evaluate  # noqa: E402
from autotensor.graph.ir import Graph  # noqa: E402


def run(graph: Graph, arrays: dict[str, np.ndarray], model=None) -> np.ndarray:
    """model: the ONNX model to run instead of the one that `to_onnx` makes of the graph."""
    model = model or to_onnx(graph)
    onnx.checker.check_model(model, full_check=True)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert [i.name for i in session.get_inputs()] == list(graph.input_names)
    return session.run(None, dict(arrays))[0]


WRITTEN = ("alexnet", "dit", "googlenet", "gpt2_decode", "mobilenet_v1", "ncf", "overfeat", "unet")


@pytest.mark.parametrize("name", [*REDUCED, *WRITTEN])
def test_models(name):
    graph, arrays = (WIDER | REDUCED)[name]()
    expected, got = evaluate(graph, **arrays)[0], run(graph, arrays)
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= 1e-4 * np.abs(expected).max()


SIZES = {  # of the reduced models' torch twins
    **{name: {"words": 30, "width": 12} for name in ("lstm", "gru", "gnmt")},
    "bilstm": {"words": 30, "hidden": 12},
    "gcn": {"features": 40},
    "moe": {"width": 16},
}


@pytest.mark.torch
@pytest.mark.parametrize("name", SIZES)
def test_models_that_torch_exports(name):
    """Their graphs have operators that ONNX lacks; each recurrent layer is one node."""
    nets, torch_to_onnx = (pytest.importorskip(m) for m in ("nets.plain", "nets.torch_to_onnx"))
    pytest.importorskip("onnxscript")
    graph, arrays = WIDER[name]()
    with pytest.raises(ValueError, match="to_onnx does not write operator"):
        to_onnx(graph)
    module = nets.load(name, {c.name: c.array for c in graph.constants if c.name}, **SIZES[name])
    model = torch_to_onnx.torch_to_onnx(module, arrays)
    layers = [n.op_type for n in model.graph.node if n.op_type in ("LSTM", "GRU")]
    assert len(layers) == {"lstm": 2, "gru": 2, "bilstm": 2, "gnmt": 8}.get(name, 0)
    expected, got = evaluate(graph, **arrays)[0], run(graph, arrays, model)
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("kind", ["bool", "float32"])
def test_attention_with_a_mask(kind):
    rng = np.random.default_rng(0)
    q, k, v = (input((1, 2, n, 4), name=name) for name, n in (("q", 3), ("k", 5), ("v", 5)))
    mask = input((1, 1, 3, 5), kind, "mask")
    graph = Graph((q, k, v, mask), ops.attention(q, k, v, mask, scale=0.3))
    arrays = {n.name: rng.standard_normal(n.shape).astype(np.float32) for n in (q, k, v)}
    values = rng.standard_normal(mask.shape)
    arrays["mask"] = values > -0.5 if kind == "bool" else values.astype(np.float32)
    np.testing.assert_allclose(run(graph, arrays), evaluate(graph, **arrays)[0], rtol=1e-5, atol=1e-6)


def test_what_it_does_not_write():
    x = input((1, 4, 4, 2))
    with pytest.raises(ValueError, match="to_onnx does not write operator 'argmax'"):
        to_onnx(Graph(x, ops.argmax(x)))
    with pytest.raises(ValueError, match="to_onnx writes channels first, not max_pool2d in NHWC"):
        to_onnx(Graph(x, ops.max_pool2d(x, 2, layout="NHWC")))
