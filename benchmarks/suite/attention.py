"""Attention of given queries, keys and values, with heads before tokens, as in torch."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from suite.case import Array, Case


@dataclass
class Attention(Case):
    """q: [1, heads, queries, depth], k and v: [1, heads, keys, depth]. causal: query i sees keys 0 … i."""

    name: str
    heads: int
    queries: int
    keys: int
    depth: int
    causal: bool = False

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (1, self.heads, self.queries, self.depth)

    @property
    def flops(self) -> int:
        return 4 * self.heads * self.queries * self.keys * self.depth

    @property
    def useful(self) -> float:
        return 0.5 * (1 + 1 / self.keys) if self.causal else 1.0

    def make(self, rng: np.random.Generator) -> tuple[list[Array], dict[str, Array]]:
        tokens = (self.queries, self.keys, self.keys)
        shapes = [(1, self.heads, n, self.depth) for n in tokens]
        return [rng.standard_normal(s, dtype=np.float32) for s in shapes], {}

    def compute(self, *tensors: Any) -> Any:
        import torch.nn.functional as F

        return F.scaled_dot_product_attention(*tensors, is_causal=self.causal)

    def nodes(self) -> list[Any]:
        from onnx import helper, numpy_helper

        def constant(name: str, value: Array) -> Any:
            return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value))

        scale = np.float32(1 / sqrt(self.depth))
        nodes = [
            constant("scale", np.asarray(scale)),
            helper.make_node("Mul", ["in0", "scale"], ["scaled"]),
            helper.make_node("Transpose", ["in1"], ["turned"], perm=[0, 1, 3, 2]),
            helper.make_node("MatMul", ["scaled", "turned"], ["scores"]),
        ]
        seen = "scores"
        if self.causal:
            hidden = np.where(np.tri(self.queries, self.keys) == 1, 0.0, -1e30).astype(np.float32)
            nodes += [constant("hidden", hidden), helper.make_node("Add", ["scores", "hidden"], ["seen"])]
            seen = "seen"
        nodes.append(helper.make_node("Softmax", [seen], ["weights"], axis=-1))
        nodes.append(helper.make_node("MatMul", ["weights", "in2"], ["out"]))
        return nodes

    def tensors(self) -> list[Any]:
        from autotensor import te
        from autotensor.operators import OPERATORS

        given = [te.placeholder(a.shape, name=n) for n, a in zip("qkv", self.arrays[0], strict=True)]
        return [*given, OPERATORS.get("attention").compute(*given, causal=self.causal)]
