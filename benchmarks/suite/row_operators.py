"""Operators that read every element a few times: softmax, norms, sums, gelu. Memory decides their speed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from suite.case import Array, Case

EPSILON = 1e-12  # BERT's


@dataclass
class Rows(Case):
    """`kind` over the last axis (norm2: over the last two) of an input of `shape`."""

    name: str
    kind: str  # softmax, layer_norm, gelu, sum, relu, norm2
    shape: tuple[int, ...]

    @property
    def has_numpy(self) -> bool:  # type: ignore[override]
        return self.kind != "gelu"  # NumPy has no erf

    @property
    def output_shape(self) -> tuple[int, ...]:
        return {"sum": self.shape[:-1], "norm2": self.shape[:-2]}.get(self.kind, self.shape)

    @property
    def flops(self) -> int:
        return {"sum": 1, "norm2": 2}.get(self.kind, 0) * prod(self.shape)

    def make(self, rng: np.random.Generator) -> tuple[list[Array], dict[str, Array]]:
        x = rng.standard_normal(self.shape, dtype=np.float32)
        if self.kind != "layer_norm":
            return [x], {}
        width = self.shape[-1]
        return [x], {n: rng.standard_normal(width, dtype=np.float32) for n in ("gamma", "beta")}

    def compute(self, *tensors: Any) -> Any:
        import torch
        import torch.nn.functional as F

        x, *constants = tensors
        match self.kind:
            case "softmax":
                return torch.softmax(x, -1)
            case "layer_norm":
                return F.layer_norm(x, self.shape[-1:], *constants, EPSILON)
            case "gelu":
                return F.gelu(x)
            case "sum":
                return x.sum(-1)
            case "relu":
                return torch.relu(x)
            case "norm2":
                return torch.linalg.vector_norm(x, dim=(-2, -1))
        raise ValueError(self.kind)

    def numpy(self, *arrays: Array) -> Array:
        x, *constants = arrays
        match self.kind:
            case "softmax":
                e = np.exp(x - x.max(-1, keepdims=True))
                return np.asarray(e / e.sum(-1, keepdims=True))
            case "layer_norm":
                d = x - x.mean(-1, keepdims=True)
                scale = np.sqrt((d * d).mean(-1, keepdims=True) + EPSILON)
                return np.asarray(d / scale * constants[0] + constants[1])
            case "sum":
                return np.asarray(x.sum(-1))
            case "relu":
                return np.maximum(x, 0)
            case "norm2":
                flat = x.reshape(x.shape[0], -1)
                return np.asarray(np.sqrt(np.einsum("bi,bi->b", flat, flat)))
        raise ValueError(self.kind)

    def integers(self) -> dict[str, Sequence[int]]:
        return {"sum": {"axes": [len(self.shape) - 1]}, "norm2": {"axes": [1, 2]}}.get(self.kind, {})

    def nodes(self) -> list[Any]:
        from onnx import helper

        node = helper.make_node
        match self.kind:
            case "softmax":
                return [node("Softmax", ["in0"], ["out"], axis=-1)]
            case "layer_norm":
                inputs = ["in0", "gamma", "beta"]
                return [node("LayerNormalization", inputs, ["out"], axis=-1, epsilon=EPSILON)]
            case "gelu":
                return [node("Gelu", ["in0"], ["out"])]
            case "sum":
                return [node("ReduceSum", ["in0", "axes"], ["out"], keepdims=0)]
            case "relu":
                return [node("Relu", ["in0"], ["out"])]
            case "norm2":
                return [node("ReduceL2", ["in0", "axes"], ["out"], keepdims=0)]
        raise ValueError(self.kind)

    def tensors(self) -> list[Any]:
        from autotensor import te
        from autotensor.operators import OPERATORS

        x = te.placeholder(self.shape, name="x")
        match self.kind:
            case "norm2":
                i, j = (te.reduce_axis(n, name=a) for n, a in zip(self.shape[1:], "ij", strict=True))
                total = te.compute(
                    self.shape[:1], lambda q: te.sum(x[q, i, j] * x[q, i, j], axis=(i, j)), name="total"
                )
                return [x, te.compute(self.shape[:1], lambda q: te.sqrt(total[q]), name="norm")]
            case "layer_norm":
                width = self.shape[-1:]
                constants = [te.placeholder(width, name=n, constant=True) for n in ("gamma", "beta")]
                return [x, *constants, OPERATORS.get("layer_norm").compute(x, *constants, eps=EPSILON)]
            case "sum":
                return [x, OPERATORS.get("sum").compute(x, axis=len(self.shape) - 1)]
        return [x, OPERATORS.get(self.kind).compute(x)]


def rows() -> dict[str, Callable[[], Case]]:
    """All row operators by name."""
    found: dict[str, Callable[[], Case]] = {
        "softmax_1536x128": partial(Rows, "softmax_1536x128", "softmax", (1536, 128)),
        "layernorm_128x768": partial(Rows, "layernorm_128x768", "layer_norm", (128, 768)),
        "gelu_128x3072": partial(Rows, "gelu_128x3072", "gelu", (128, 3072)),
        "sum_1024x1024": partial(Rows, "sum_1024x1024", "sum", (1024, 1024)),
        "overhead_relu16": partial(Rows, "overhead_relu16", "relu", (16,)),
    }
    for batch in (1, 16):
        for s, shape in enumerate(((256, 256), (512, 512), (1024, 1024), (4096, 1024))):
            name = f"NRM.s{s}.b{batch}"
            found[name] = partial(Rows, name, "norm2", (batch, *shape))
    return found
