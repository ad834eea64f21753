"""The imperative style: tensors, a tape, Python control flow, in PyTorch's spelling.

    from autotensor import imperative as torch

    x = torch.tensor(3.0, requires_grad=True)
    loss = torch.square(x - y)
    loss.backward()
    print(x.grad)

Start reading at `tensor.py`, then `engine.py`; `traced.py` is `at.compile`.
"""

from autotensor.imperative import nn, optim
from autotensor.imperative.engine import device, no_grad
from autotensor.imperative.ops import (
    abs,
    concat,
    conv2d,
    cross_entropy,
    exp,
    gelu,
    log,
    log_softmax,
    matmul,
    max_pool2d,
    maximum,
    mm,
    mse,
    ones,
    randn,
    relu,
    sigmoid,
    softmax,
    sqrt,
    square,
    tanh,
    where,
    xavier,
    zeros,
)
from autotensor.imperative.tensor import Tensor, tensor
from autotensor.imperative.traced import compile

__all__ = [
    "Tensor",
    "abs",
    "compile",
    "concat",
    "conv2d",
    "cross_entropy",
    "device",
    "exp",
    "gelu",
    "log",
    "log_softmax",
    "matmul",
    "max_pool2d",
    "maximum",
    "mm",
    "mse",
    "nn",
    "no_grad",
    "ones",
    "optim",
    "randn",
    "relu",
    "sigmoid",
    "softmax",
    "sqrt",
    "square",
    "tanh",
    "tensor",
    "where",
    "xavier",
    "zeros",
]
