"""autotensor as a backend of the `onnx` package.

import autotensor.integrations.onnx_backend as backend
outputs = backend.prepare(model).run([x])           or backend.run_model(model, [x])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
from onnx import numpy_helper
from onnx.backend.base import Backend, BackendRep

from autotensor.api.onnx_models import OnnxModel
from autotensor.base.errors import ArgumentError


class AutotensorRep(BackendRep):
    """A prepared model."""

    def __init__(self, model: OnnxModel) -> None:
        self.model = model

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Outputs for the inputs: a sequence in order, a mapping by name, or the one array."""
        if isinstance(inputs, Mapping):
            return self.model(**{name: _array(v) for name, v in inputs.items()})
        return self.model(*(map(_array, inputs) if isinstance(inputs, (list, tuple)) else (_array(inputs),)))


def _array(value: Any) -> Any:
    """Tensors in protobuf, which the package uses for types that NumPy lacks, as arrays."""
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


class AutotensorBackend(Backend):
    """See the module's docstring."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> AutotensorRep:
        if not cls.supports_device(device):
            raise ArgumentError(f"device {device!r} is not supported.", fix="Known: CPU.")
        return AutotensorRep(OnnxModel(model))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.partition(":")[0] == "CPU"


is_compatible = AutotensorBackend.is_compatible
prepare = AutotensorBackend.prepare
run_model = AutotensorBackend.run_model
run_node = AutotensorBackend.run_node
supports_device = AutotensorBackend.supports_device
