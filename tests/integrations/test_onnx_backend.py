"""The backend interface of the onnx package."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
backend = pytest.importorskip("autotensor.integrations.onnx_backend")

from autotensor.base.errors import ArgumentError  # noqa: E402


def model() -> onnx.ModelProto:
    text = "g (float[n, 3] a, float[n, 3] b) => (float[n, 3] y) { y = Sub(a, b) }"
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')


A, B = np.ones((2, 3), np.float32), np.full((2, 3), 3, np.float32)


@pytest.mark.parametrize("inputs", [[A, B], {"b": B, "a": A}, [onnx.numpy_helper.from_array(A), B]])
def test_a_prepared_model_runs(inputs):
    prepared = backend.prepare(model(), "CPU")
    np.testing.assert_array_equal(prepared.run(inputs)[0], A - B)


def test_a_model_runs_at_once():
    np.testing.assert_array_equal(backend.run_model(model(), [A, B])[0], A - B)


def test_a_node_runs():
    node = onnx.helper.make_node("Sub", ["p", "q"], ["r"])
    np.testing.assert_array_equal(backend.run_node(node, [A, B])[0], A - B)
    old = onnx.helper.make_node("Softmax", ["p"], ["r"])
    np.testing.assert_allclose(backend.run_node(old, [A], opset_version=11)[0].sum(1), 1)


def test_the_cpu_is_the_only_device():
    assert backend.supports_device("CPU")
    assert backend.supports_device("CPU:0")
    assert not backend.supports_device("CUDA")
    with pytest.raises(ArgumentError, match=r"device 'CUDA' is not supported\. Known: CPU\."):
        backend.prepare(model(), "CUDA")
