"""The imperative style, in PyTorch's spelling: tensors, a tape, modules, optimisers, traced functions.

    from autotensor import imperative as torch

    x = torch.tensor(3.0, requires_grad=True)
    loss = torch.square(x - y)
    loss.backward()
    print(x.grad)

Start reading at `tensor.py`, then `engine.py`; `traced_functions.py` is `at.compile`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from autotensor.imperative import nn, optim
from autotensor.imperative.engine import device, no_grad
from autotensor.imperative.ops import (
    concat,
    conv2d,
    cross_entropy,
    log_softmax,
    matmul,
    max_pool2d,
    mm,
    mse,
    ones,
    randn,
    softmax,
    square,
    where,
    xavier,
    zeros,
)
from autotensor.imperative.tensor import SPELLING, Tensor, tensor
from autotensor.imperative.traced_functions import compile


def __getattr__(name: str) -> Callable[..., Tensor]:
    """Elementwise operators by name: `imperative.exp` is the same operator as `Tensor.exp`."""
    return SPELLING(name, sys.modules[__name__])


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "Tensor",
    "compile",
    "concat",
    "conv2d",
    "cross_entropy",
    "device",
    "log_softmax",
    "matmul",
    "max_pool2d",
    "mm",
    "mse",
    "nn",
    "no_grad",
    "ones",
    "optim",
    "randn",
    "softmax",
    "square",
    "tensor",
    "where",
    "xavier",
    "zeros",
]
__all__ += sorted({*SPELLING.names()} - {*__all__})
