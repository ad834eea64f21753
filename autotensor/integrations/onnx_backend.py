"""autotensor as a backend of the `onnx` package.

import autotensor.integrations.onnx_backend as backend
outputs = backend.prepare(model).run([x])           or backend.run_model(model, [x])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.backend.base import Backend, BackendRep

from autotensor.api.from_onnx import OnnxModel
from autotensor.base.errors import ArgumentError


class AutotensorRep(BackendRep):
    """A prepared model."""

    def __init__(self, model: OnnxModel) -> None:
        self.model = model

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs for these inputs: a sequence in order, a mapping by name, or a single array."""
        if isinstance(inputs, Mapping):
            return self.model(**{name: _array(v) for name, v in inputs.items()})
        return self.model(*(map(_array, inputs) if isinstance(inputs, (list, tuple)) else (_array(inputs),)))


def _array(value: Any) -> Any:
    """The value as an array; the package passes types that NumPy lacks as protobuf tensors."""
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


class AutotensorBackend(Backend):
    """See the module's docstring."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> AutotensorRep:
        if not cls.supports_device(device):
            raise ArgumentError(f"device {device!r} is not supported.", fix="Known: CPU.")
        return AutotensorRep(OnnxModel(model, rounded=True))  # the package's tests expect it

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Any = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """The results of one node of the standard domain; `opset_version` is the newest unless given."""
        arrays = [np.asarray(_array(v)) for v in inputs]
        names = [name for name in node.input if name]
        graph = helper.make_graph(
            [node],
            "node",
            [
                helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
                for n, a in zip(names, arrays, strict=True)
            ],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
        )
        opset = helper.make_opsetid("", kwargs.get("opset_version", onnx.defs.onnx_opset_version()))
        return cls.prepare(helper.make_model(graph, opset_imports=[opset]), device).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.partition(":")[0] == "CPU"


is_compatible = AutotensorBackend.is_compatible
prepare = AutotensorBackend.prepare
run_model = AutotensorBackend.run_model
run_node = AutotensorBackend.run_node
supports_device = AutotensorBackend.supports_device
