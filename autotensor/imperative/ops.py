"""Functions on tensors, in addition to the methods and operators that tensors have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autotensor.imperative.tensor import Tensor, apply, as_tensor, tensor


def square(x: Any) -> Tensor:
    """x * x."""
    t = as_tensor(x)
    return t * t


def matmul(a: Any, b: Any) -> Tensor:
    """a [m, k], b [k, n] ──▶ [m, n]; with more axes, the leading ones broadcast."""
    product: Tensor = as_tensor(a) @ b
    return product


mm = matmul


def where(condition: Any, a: Any, b: Any) -> Tensor:
    """a where the condition holds, else b. Both sides are in the program, so it can be traced."""
    return apply("where", condition, a, b)


def softmax(x: Any, axis: int = -1) -> Tensor:
    return apply("softmax", x, axis=axis)


def log_softmax(x: Any, axis: int = -1) -> Tensor:
    return apply("log_softmax", x, axis=axis)


def cross_entropy(logits: Any, labels: Any) -> Tensor:
    """mean(-sum(labels * log_softmax(logits))); labels: one distribution per row."""
    return -(as_tensor(labels) * log_softmax(logits)).sum(axis=-1).mean()


def mse(predictions: Any, targets: Any) -> Tensor:
    """mean((p - t)²)"""
    return square(as_tensor(predictions) - targets).mean()


def conv2d(x: Any, w: Any, bias: Any = None, stride: int = 1, padding: int = 0) -> Tensor:
    """x: NCHW, w: [Cout, Cin, KH, KW], bias: [Cout]."""
    inputs = [x, w] if bias is None else [x, w, bias]
    return apply("conv2d", *inputs, stride=stride, padding=padding)


def max_pool2d(x: Any, kernel: int, stride: int | None = None) -> Tensor:
    return apply("max_pool2d", x, kernel=kernel, stride=stride)


def concat(tensors: Sequence[Any], axis: int = 0) -> Tensor:
    return apply("concat", *tensors, axis=axis)


def zeros(*shape: int, requires_grad: bool = False) -> Tensor:
    return tensor(np.zeros(shape, np.float32), requires_grad=requires_grad)


def ones(*shape: int, requires_grad: bool = False) -> Tensor:
    return tensor(np.ones(shape, np.float32), requires_grad=requires_grad)


def randn(*shape: int, seed: int | None = None, requires_grad: bool = False) -> Tensor:
    """Normally distributed float32 numbers; the same ones for the same seed."""
    drawn = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return tensor(drawn, requires_grad=requires_grad)


def xavier(*shape: int, seed: int | None = None, requires_grad: bool = False) -> Tensor:
    """Uniform in ±sqrt(6 / (fan in + fan out)). A fan is the extent of axis 0 or 1, times the window's size.

    Source: Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks".
    """
    window = int(np.prod(shape[2:]))
    limit = float(np.sqrt(6.0 / ((shape[0] + shape[1]) * window)))
    drawn = np.random.default_rng(seed).uniform(-limit, limit, shape).astype(np.float32)
    return tensor(drawn, requires_grad=requires_grad)
