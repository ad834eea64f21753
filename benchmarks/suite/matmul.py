"""Matrix products: of two inputs (no contestant may pack these beforehand), and with constant weights (all
may).

gemm_251x387x513     m x n x k, both operands are inputs
dense_128x768x3072   x[m, k] times the transpose of a constant weight[n, k], as a layer of a network
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Any

import numpy as np

from suite.case import Array, Case

SQUARES = (32, 48, 64, 96, 128, 192, 256, 384, 640, 768, 896, 1280, 1536, 2048)
ODD = ((31, 33, 37), (100, 100, 100), (127, 129, 131), (251, 387, 513), (333, 777, 555), (1000, 1000, 1000))
THIN = (
    (8192, 64, 64), (64, 8192, 64), (64, 64, 8192), (16, 16, 16384), (2048, 2048, 16), (4096, 32, 512),
    (32, 4096, 512), (1, 4096, 4096),
)  # fmt: skip
LAYERS = (  # rows of activations, outputs, inputs
    (128, 768, 768), (128, 2304, 768), (128, 768, 3072),  # BERT base, 128 tokens
    (384, 1024, 1024), (384, 4096, 1024), (384, 1024, 4096),  # BERT large, 384 tokens
    (1024, 768, 768), (1024, 3072, 768), (1024, 768, 3072),  # BERT base, batch 8
    (1, 2304, 768), (1, 3072, 768), (1, 768, 3072), (1, 50257, 768),  # GPT-2, one token
    (8, 3072, 768), (8, 768, 3072),  # GPT-2, eight sequences
    (1, 4096, 4096), (1, 11008, 4096), (16, 4096, 4096), (128, 4096, 4096),  # a model of 7e9 weights
    (1, 1000, 512), (1, 1000, 2048), (16, 1000, 2048), (1, 4096, 9216), (32, 4096, 4096),  # classifiers
    (2048, 512, 16), (2048, 256, 512), (2048, 64, 256),  # a recommender's perceptron
    (3136, 64, 64), (3136, 256, 64), (784, 512, 128), (196, 1024, 256), (49, 2048, 512), (49, 512, 2048),
)  # fmt: skip


@dataclass
class Product(Case):
    """a: [batch, m, k] times b: [batch, k, n]; with batch 0 both are matrices. transpose_a: a is [k, m]."""

    name: str
    m: int
    n: int
    k: int
    batch: int = 0
    transpose_a: bool = False
    constant_b: bool = False

    @property
    def has_numpy(self) -> bool:  # type: ignore[override]
        return not self.constant_b

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (self.batch, self.m, self.n) if self.batch else (self.m, self.n)

    @property
    def flops(self) -> int:
        return 2 * max(1, self.batch) * self.m * self.n * self.k

    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        front = (self.batch,) if self.batch else ()
        a = (self.k, self.m) if self.transpose_a else (self.m, self.k)
        return (*front, *a), (*front, self.k, self.n)

    def make(self, rng: np.random.Generator) -> tuple[list[Array], dict[str, Array]]:
        a, b = (rng.standard_normal(s, dtype=np.float32) for s in self.shapes())
        return ([a], {"b": b}) if self.constant_b else ([a, b], {})

    def compute(self, *tensors: Any) -> Any:
        import torch

        a, b = tensors
        if self.batch:
            return torch.bmm(a, b)
        return torch.mm(a.t() if self.transpose_a else a, b)

    def numpy(self, *arrays: Array) -> Array:
        a, b = arrays
        return np.matmul(a.T if self.transpose_a else a, b)

    def nodes(self) -> list[Any]:
        from onnx import helper

        b = "b" if self.constant_b else "in1"
        if self.transpose_a:
            return [helper.make_node("Gemm", ["in0", b], ["out"], transA=1)]
        return [helper.make_node("MatMul", ["in0", b], ["out"])]

    def tensors(self) -> list[Any]:
        from autotensor import te
        from autotensor.operators import OPERATORS

        left, right = self.shapes()
        a = te.placeholder(left, name="a")
        b = te.placeholder(right, name="b", constant=self.constant_b)
        if self.batch:
            return [a, b, OPERATORS.get("batch_matmul").compute(a, b)]
        if self.transpose_a:
            return [a, b, OPERATORS.get("matmul").compute(a, b, transpose_a=True)]
        return [a, b, OPERATORS.get("matmul").compute(a, b)]


@dataclass
class Dense(Case):
    """x: [m, k] times the transpose of a constant w: [n, k], and optionally plus a constant bias: [n]."""

    name: str
    m: int
    n: int
    k: int
    bias: bool = False

    has_numpy = True

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (self.m, self.n)

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    def make(self, rng: np.random.Generator) -> tuple[list[Array], dict[str, Array]]:
        x = rng.standard_normal((self.m, self.k), dtype=np.float32)
        constants = {"w": rng.standard_normal((self.n, self.k), dtype=np.float32) / np.float32(sqrt(self.k))}
        if self.bias:
            constants["bias"] = rng.standard_normal(self.n, dtype=np.float32)
        return [x], constants

    def compute(self, *tensors: Any) -> Any:
        import torch.nn.functional as F

        return F.linear(*tensors)

    def numpy(self, *arrays: Array) -> Array:
        x, w, *bias = arrays
        return x @ w.T + bias[0] if bias else x @ w.T

    def nodes(self) -> list[Any]:
        from onnx import helper

        return [helper.make_node("Gemm", ["in0", *self.arrays[1]], ["out"], transB=1)]

    def tensors(self) -> list[Any]:
        from autotensor import te
        from autotensor.operators import OPERATORS

        x = te.placeholder((self.m, self.k), name="x")
        constants = [te.placeholder(v.shape, name=n, constant=True) for n, v in self.arrays[1].items()]
        return [x, *constants, OPERATORS.get("dense").compute(x, *constants)]


def products() -> dict[str, Callable[[], Case]]:
    """All products by name."""
    found: dict[str, Callable[[], Case]] = {
        "matmul_1024": partial(Product, "matmul_1024", 1024, 1024, 1024),
        "matmul_1024_ta": partial(Product, "matmul_1024_ta", 1024, 1024, 1024, transpose_a=True),
        "matmul_512": partial(Product, "matmul_512", 512, 512, 512),
        "matmul_1024_constB": partial(Product, "matmul_1024_constB", 1024, 1024, 1024, constant_b=True),
        "bert_ffn": partial(Dense, "bert_ffn", 128, 3072, 768, bias=True),
        "bmm_attn": partial(Product, "bmm_attn", 128, 128, 64, batch=12),
    }
    for batch in (1, 16):
        for s, (n, m, k) in enumerate(((128, 128, 128), (512, 32, 512), (512, 512, 512), (1024,) * 3)):
            name = f"GMM.s{s}.b{batch}"
            found[name] = partial(Product, name, n, m, k, batch=batch)
    for m, n, k in (*((s, s, s) for s in SQUARES), *ODD, *THIN):
        found[f"gemm_{m}x{n}x{k}"] = partial(Product, f"gemm_{m}x{n}x{k}", m, n, k)
    for m, n, k in LAYERS:
        found[f"dense_{m}x{n}x{k}"] = partial(Dense, f"dense_{m}x{n}x{k}", m, n, k)
    return found
