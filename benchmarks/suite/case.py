"""A case of the operator table, as a torch module, as an ONNX model and as a kernel of autotensor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
OPSET = 20  # the first with Gelu


class Case(ABC):
    """One operator on fixed shapes. Arrays are float32 in torch's layout (channels first)."""

    name: str
    # 2 or 3: the spatial axes of a convolution that torch can also compute channels last
    channels_last: int = 0
    has_numpy: bool = False

    @abstractmethod
    def make(self, rng: np.random.Generator) -> tuple[list[Array], dict[str, Array]]:
        """Inputs in order, and constants by name."""

    @property
    @abstractmethod
    def output_shape(self) -> tuple[int, ...]:
        """The shape of the result in torch's layout."""

    @property
    @abstractmethod
    def flops(self) -> int:
        """Nominal floating-point operations, including those on padding; 0 if their number does not
        matter."""

    @property
    def useful(self) -> float:
        """The share of the operations on data, not on padding."""
        return 1.0

    @property
    def bytes(self) -> int:
        """The bytes of inputs, constants and result, which must at least be moved."""
        inputs, constants = self.arrays
        read = sum(a.nbytes for a in inputs) + sum(a.nbytes for a in constants.values())
        return read + 4 * prod(self.output_shape)

    @cached_property
    def arrays(self) -> tuple[list[Array], dict[str, Array]]:
        """The arrays of the case, which are the same in every process."""
        return self.make(np.random.default_rng(0))

    # -- the peers -------------------------------------------------------------------------------------------

    @abstractmethod
    def compute(self, *tensors: Any) -> Any:
        """The result by torch, from inputs and then constants."""

    def numpy(self, *arrays: Array) -> Array:
        """The result by NumPy, as a person would write it. Only if `has_numpy`."""
        raise NotImplementedError(self.name)

    @abstractmethod
    def nodes(self) -> list[Any]:
        """ONNX nodes from in0, in1 …, and constants by name, to `out`."""

    def integers(self) -> dict[str, Sequence[int]]:
        """Integer constants of the ONNX nodes: shapes and axes."""
        return {}

    def module(self) -> Any:
        """A torch module that holds the constants as parameters."""
        import torch

        case, constants = self, self.arrays[1]

        class Operator(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                for key, value in constants.items():
                    frozen = torch.nn.Parameter(torch.from_numpy(value), requires_grad=False)
                    self.register_parameter(key, frozen)

            def forward(self, *inputs: Any) -> Any:
                return case.compute(*inputs, *(getattr(self, key) for key in constants))

        return Operator().eval()

    def onnx(self) -> bytes:
        """The operator as an ONNX model with its constants inside."""
        from onnx import TensorProto, helper, numpy_helper

        inputs, constants = self.arrays
        kept = [numpy_helper.from_array(v, k) for k, v in constants.items()]
        kept += [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in self.integers().items()]
        taken = [
            helper.make_tensor_value_info(f"in{n}", TensorProto.FLOAT, a.shape) for n, a in enumerate(inputs)
        ]
        given = [helper.make_tensor_value_info("out", TensorProto.FLOAT, self.output_shape)]
        graph = helper.make_graph(self.nodes(), "operator", taken, given, kept)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
        return bytes(model.SerializeToString())

    # -- ours ------------------------------------------------------------------------------------------------

    @abstractmethod
    def tensors(self) -> list[Any]:
        """te tensors: inputs, constants (with their names), result."""

    def to_ours(self, array: Array) -> Array:
        """An input in the layout of `tensors`."""
        return array

    def constant_to_ours(self, array: Array) -> Array:
        """A constant in the layout of `tensors`."""
        return array

    def from_ours(self, array: Array) -> Array:
        """autotensor's result in torch's layout."""
        return array
