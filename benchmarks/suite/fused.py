"""An operator and the operators that follow it in a network (bias, shortcut, activation), as one computation.

    Fused(Conv("c", 1, (56, 56), 64, 64, 3, 1, 1), ("bias", "add", "relu"))

The bias is a constant, one number per channel; the shortcut is an input in the shape of the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from suite.case import Array, Case
from suite.conv import Conv

KINDS = ("bias", "add", "relu", "relu6", "gelu")


@dataclass
class Fused(Case):
    """`head` (a convolution or a dense layer), then the operators of `tail` in order."""

    head: Case
    tail: tuple[str, ...]

    def __post_init__(self) -> None:
        if wrong := [k for k in self.tail if k not in KINDS]:
            raise ValueError(f"{wrong[0]!r} cannot follow an operator here; known: {', '.join(KINDS)}.")
        self.name = "_".join((self.head.name, *self.tail))

    @property
    def channels_last(self) -> int:  # type: ignore[override]
        return self.head.channels_last

    @property
    def output_shape(self) -> tuple[int, ...]:
        return self.head.output_shape

    @property
    def flops(self) -> int:
        return self.head.flops

    @property
    def useful(self) -> float:
        return self.head.useful

    @property
    def _channel_axis(self) -> int:
        """The axis of the channels in torch's layout of the result."""
        return 1 if isinstance(self.head, Conv) else len(self.output_shape) - 1

    def make(self, rng: np.random.Generator) -> tuple[list[Array], dict[str, Array]]:
        inputs, constants = self.head.make(rng)
        for kind in self.tail:
            if kind == "add":
                inputs = [*inputs, rng.standard_normal(self.output_shape, dtype=np.float32)]
            elif kind == "bias":
                channels = self.output_shape[self._channel_axis]
                constants = {**constants, "shift": rng.standard_normal(channels, dtype=np.float32)}
        return inputs, constants

    def compute(self, *tensors: Any) -> Any:
        import torch
        import torch.nn.functional as F

        rest = list(tensors)
        inputs, constants = self.arrays
        count = len(inputs) - self.tail.count("add")
        first, others = rest[:count], rest[count : len(inputs)]
        weights = rest[len(inputs) : len(inputs) + len(constants) - self.tail.count("bias")]
        y = self.head.compute(*first, *weights)
        for kind in self.tail:
            match kind:
                case "bias":
                    around = [1] * (y.dim() - self._channel_axis - 1)
                    y = y + rest[-1].reshape(-1, *around)
                case "add":
                    y = y + others.pop(0)
                case "relu":
                    y = torch.relu(y)
                case "relu6":
                    y = F.relu6(y)
                case "gelu":
                    y = F.gelu(y)
        return y

    def nodes(self) -> list[Any]:
        from onnx import helper

        nodes, last = list(self.head.nodes()), "out"
        added = len(self.arrays[0]) - self.tail.count("add")
        for number, kind in enumerate(self.tail):
            if kind == "bias":  # the third input of Conv and Gemm
                nodes[-1].input.append("shift")
                continue
            nodes[-1].output[0] = last = f"before{number}"
            match kind:
                case "add":
                    nodes.append(helper.make_node("Add", [last, f"in{added}"], ["out"]))
                    added += 1
                case "relu":
                    nodes.append(helper.make_node("Relu", [last], ["out"]))
                case "relu6":
                    low, high = (f"bound{n}" for n in (0, 6))
                    for name, value in ((low, 0.0), (high, 6.0)):
                        nodes.insert(0, helper.make_node("Constant", [], [name], value_float=value))
                    nodes.append(helper.make_node("Clip", [last, low, high], ["out"]))
                case "gelu":
                    nodes.append(helper.make_node("Gelu", [last], ["out"]))
        return nodes

    def tensors(self) -> list[Any]:
        from autotensor import te
        from autotensor.operators import OPERATORS

        *given, y = self.head.tensors()
        shape = y.shape
        for kind in self.tail:
            match kind:
                case "bias":
                    shift = te.placeholder(shape[-1:], name="shift", constant=True)
                    given.append(shift)
                    y = OPERATORS.get("bias_add").compute(y, shift)
                case "add":
                    other = te.placeholder(shape, name="other")
                    given.insert(len(self.head.arrays[0]), other)
                    y = OPERATORS.get("add").compute(y, other)
                case "relu6":
                    y = OPERATORS.get("clip").compute(y, min=0.0, max=6.0)
                case _:
                    y = OPERATORS.get(kind).compute(y)
        return [*given, y]

    def to_ours(self, array: Array) -> Array:
        return self.head.to_ours(array)

    def constant_to_ours(self, array: Array) -> Array:
        return self.head.constant_to_ours(array)

    def from_ours(self, array: Array) -> Array:
        return self.head.from_ours(array)
