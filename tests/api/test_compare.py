"""compare: which tensors of a quantised file and of its file in floats belong together, and their
differences.

The files in `quantised/` are onnxruntime.quantization's (`quantised/make.py`).
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotensor as at
from autotensor.api.comparing.agreement import Sums
from autotensor.api.comparing.onnx_layers import layers_of
from autotensor.base.errors import InputError
from autotensor.frontends.onnx.onnx_file import load

FILES = Path(__file__).parent / "quantised"
FLOATS = FILES / "float.onnx"
DATA = {"x": np.random.default_rng(2).standard_normal((12, 3, 12, 12)).astype(np.float32)}


@pytest.mark.parametrize(
    ("name", "layers", "alone"),
    [
        ("qdq", ["r1", "c2", "r2", "p", "f", "y"], ("c1",)),  # onnxruntime joined conv1 and relu1
        ("qoperator", ["c1", "c2", "s", "p", "y"], ()),
        ("dynamic", ["c1", "c2", "y"], ()),
    ],
)
@pytest.mark.sample(1)
def test_files_of_onnxruntime(name, layers, alone):
    found = at.compare(FLOATS, FILES / f"{name}.onnx", DATA)
    assert [c.name for c in found.layers] == layers
    assert found.alone == alone
    assert found.batches == 3
    for c in found.layers:
        assert c.agreement.cosine > 0.999, c
        assert c.agreement.snr_db > 34, c
    (y,) = found.results
    assert (y.name, y.shape) == ("y", (4, 5))
    assert y.agreement.top1 > 0.9
    assert 0 < y.agreement.max_abs < 0.1
    assert found.float_s > 0
    assert found.quantised_s > 0
    assert found.speedup > 0


def test_what_is_not_quantised_has_no_noise():
    found = at.compare(FLOATS, FILES / "dynamic.onnx", DATA)
    assert [c.agreement.snr_db == math.inf for c in found.layers] == [True, True, False]
    assert found.worst is found.layers[2]


def test_the_numbers_are_those_of_the_files():
    """Compared with onnx's own evaluator of the same tensors."""
    from onnx.reference import ReferenceEvaluator

    x = {"x": DATA["x"][:4]}
    found = {c.name: c for c in at.compare(FLOATS, FILES / "qdq.onnx", x).layers}
    sides = []
    for file, name in ((FLOATS, "r2"), (FILES / "qdq.onnx", "r2_DequantizeLinear_Output")):
        model = onnx.load(file)
        model.opset_import[0].version = 19  # the first for which the evaluator has DequantizeLinear
        model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
        sides.append(ReferenceEvaluator(model).run([name], x)[0].astype(np.float64))
    a, b = sides
    noise = 10 * np.log10((a**2).sum() / ((a - b) ** 2).sum())
    assert found["r2"].agreement.snr_db == pytest.approx(noise, abs=0.05)
    assert found["r2"].agreement.max_abs == pytest.approx(np.abs(a - b).max(), rel=1e-3)


def test_a_spoilt_layer_has_the_most_noise():
    model = onnx.load(FILES / "qdq.onnx")
    (scale,) = [t for t in model.graph.initializer if t.name == "w2_scale"]
    scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) * np.float32(1.5), "w2_scale"))
    found = at.compare(FLOATS, model, DATA)
    assert found.worst is not None
    assert found.worst.name == "c2"
    assert found.worst.agreement.snr_db < 10


def renamed(model):
    """The same model, with other names for all results of nodes."""
    made = {name for n in model.graph.node for name in n.output} - {o.name for o in model.graph.output}
    for n in model.graph.node:
        for names in (n.input, n.output):
            names[:] = [f"t/{name}" if name in made else name for name in names]
    return model


@pytest.mark.parametrize("name", ["qdq", "qoperator"])
def test_products_whose_names_differ_pair_by_their_order(name):
    floats = onnx.load(FLOATS)
    del floats.graph.node[1]  # without the first relu both forms give the convolution itself
    floats.graph.node[1].input[0] = floats.graph.node[2].input[1] = "c1"
    quantised = renamed(onnx.load(FILES / f"{name}.onnx"))
    found = at.compare(floats, quantised, DATA)
    assert [c.name for c in found.layers] == ["c1", "c2", "y"]
    assert not found.alone


def test_a_batch_norm_belongs_to_its_convolution():
    def conv(name, *more):
        nodes = [helper.make_node("Conv", ["x", "w"], [name]), *more]
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, 2, 4, 4)) for n in ("x", "y")]
        weights = {"w": np.ones((2, 2, 1, 1)), "one": np.ones(2), "zero": np.zeros(2)}
        held = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()]
        graph = helper.make_graph(nodes, "m", ends[:1], ends[1:], held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)

    norm = helper.make_node("BatchNormalization", ["c", "one", "zero", "zero", "one"], ["n"])
    floats = conv("c", norm, helper.make_node("Tanh", ["n"], ["y"]))
    assert [p.name for p in layers_of(load(floats)).products] == ["n"]
    folded = conv("folded", helper.make_node("Tanh", ["folded"], ["y"]))
    found = at.compare(floats, folded, {"x": np.ones((1, 2, 4, 4), np.float32)})
    assert [c.name for c in found.layers] == ["n"]


# -- sums ----------------------------------------------------------------------------------------------------


def test_batches_add_up():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 6, 5))
    whole, parts = (
        Sums.of(a, b, True).agreement(),
        (Sums.of(a[:2], b[:2], True) + Sums.of(a[2:], b[2:], True)),
    )
    assert parts.agreement().top1 == whole.top1 == (a.argmax(1) == b.argmax(1)).mean()
    assert parts.agreement().cosine == pytest.approx(whole.cosine)
    assert parts.agreement().snr_db == pytest.approx(whole.snr_db)


@pytest.mark.parametrize(
    ("a", "b", "cosine", "snr"),
    [
        ([0, 0], [0, 0], 1.0, math.inf),
        ([0, 0], [1, 0], 0.0, -math.inf),
        ([1, 2], [0, 0], 0.0, 0.0),
        ([], [], 1.0, math.inf),
    ],
)
def test_zeros(a, b, cosine, snr):
    found = Sums.of(np.array(a, np.float32), np.array(b, np.float32)).agreement()
    assert (found.cosine, found.snr_db) == (cosine, snr)


def test_what_is_not_a_number_stays_seen():
    found = (Sums.of(np.ones(2), np.array([1, np.nan])) + Sums.of(np.ones(2), np.ones(2))).agreement()
    assert math.isnan(found.cosine)
    assert math.isnan(found.max_abs)
    assert math.isnan(found.snr_db)


# -- bad input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, r"the data hold nothing; float takes x\."),
        ({"y": DATA["x"]}, r"the data hold y; float takes x\."),
        ({"x": DATA["x"][:0]}, r"the data hold no element of 'x'\."),
        (
            {"x": DATA["x"][:5]},
            r"float: got float32\[5, 3, 12, 12\] for its input x: float32\[4, 3, 12, 12\]\.",
        ),
        ({"x": DATA["x"].astype("f8")}, r"float: got float64\[4, 3, 12, 12\] for its input x: float32\["),
        (DATA["x"], r"data is a ndarray, not a dictionary of inputs by name\."),
    ],
)
def test_data_that_do_not_fit(data, said):
    with pytest.raises(at.AutotensorError, match=said):
        at.compare(FLOATS, FILES / "qdq.onnx", data)


def test_models_that_are_not_one():
    other = onnx.load(FILES / "qdq.onnx")
    for n in other.graph.node:
        n.input[:] = ["z" if name == "x" else name for name in n.input]
    other.graph.input[0].name = "z"
    with pytest.raises(InputError, match=r"float takes x, \w+ takes z\. Compare a model with its own"):
        at.compare(FLOATS, other, DATA)
    for name in ("qdq", "qoperator"):
        with pytest.raises(
            InputError, match=rf"{name} is quantised already\. Give the model in floats first"
        ):
            at.compare(FILES / f"{name}.onnx", FLOATS, DATA)
    longer = onnx.load(FLOATS)
    longer.graph.node.append(helper.make_node("Concat", ["y", "y"], ["yy"], axis=1))
    del longer.graph.output[:]
    longer.graph.output.append(helper.make_tensor_value_info("yy", TensorProto.FLOAT, (4, 10)))
    with pytest.raises(InputError, match=r"float gives \[4, 5\], \w+ gives \[4, 10\]\. Compare"):
        at.compare(FLOATS, longer, DATA)


def test_without_the_package_onnx_it_says_how_to_install_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "autotensor.api.comparing.onnx_layers", raising=False)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"package onnx, .* pip install 'autotensor\[onnx\]'\."):
        at.compare(FLOATS, FILES / "qdq.onnx", DATA)
