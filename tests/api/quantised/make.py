"""Makes the files in this folder: a small classifier in floats, and its files by onnxruntime.quantization.

python tests/api/quantised/make.py        onnxruntime 1.32 and onnx 1.23 wrote the files in this folder
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

HERE = Path(__file__).parent
BATCH = (4, 3, 12, 12)


def classifier() -> onnx.ModelProto:
    """conv, relu, conv, sum, relu, mean, product; [4, 3, 12, 12] ─▶ [4, 5]."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.standard_normal((8, 3, 3, 3)) / 5,
        "b1": rng.standard_normal(8) / 5,
        "w2": rng.standard_normal((8, 8, 3, 3)) / 8,
        "b2": rng.standard_normal(8) / 5,
        "w3": rng.standard_normal((8, 5)),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1] * 4, name="conv1"),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], pads=[1] * 4, name="conv2"),
        helper.make_node("Add", ["c2", "r1"], ["s"], name="add"),
        helper.make_node("Relu", ["s"], ["r2"], name="relu2"),
        helper.make_node("GlobalAveragePool", ["r2"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flat"),
        helper.make_node("MatMul", ["f", "w3"], ["y"], name="product"),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, BATCH)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (BATCH[0], 5))],
        [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


class Samples(CalibrationDataReader):
    """Eight batches of random images."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self.left = [{"x": rng.standard_normal(BATCH).astype(np.float32)} for _ in range(8)]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self.left.pop() if self.left else None


if __name__ == "__main__":
    floats = HERE / "float.onnx"
    onnx.save(classifier(), floats)
    types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8, "per_channel": True}
    for name, form in (("qdq", QuantFormat.QDQ), ("qoperator", QuantFormat.QOperator)):
        quantize_static(floats, HERE / f"{name}.onnx", Samples(), quant_format=form, **types)
    quantize_dynamic(floats, HERE / "dynamic.onnx", op_types_to_quantize=["MatMul"])
