"""Modules: objects that hold parameters and other modules.

class LinearLayer(nn.Module):
    def __init__(self, ins, outs):
        self.w = nn.Parameter(randn(ins, outs))
        self.b = nn.Parameter(randn(outs))

    def forward(self, x):
        return mm(x, self.w) + self.b
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from autotensor.base.errors import InputError
from autotensor.imperative import engine, ops
from autotensor.imperative.tensor import Tensor
from autotensor.runtime.files import checkpoint


def Parameter(value: Any) -> Tensor:
    """A tensor that requires a gradient, with a copy of the value."""
    array = value.numpy().copy() if isinstance(value, Tensor) else np.array(value, np.float32)
    return Tensor(engine.leaf(array, "w"), requires_grad=True)


class Module:
    """Base of layers and models: define `forward`, and assign parameters and modules as attributes."""

    def forward(self, *args: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def __call__(self, *args: Any) -> Any:
        return self.forward(*args)

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """Names like `layer.w`, in order of assignment."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor) and value.requires_grad:
                yield f"{prefix}{name}", value
            elif isinstance(value, Module):
                yield from value.named_parameters(f"{prefix}{name}.")

    def parameters(self) -> list[Tensor]:
        return [p for _, p in self.named_parameters()]

    def save(self, path: str | Path) -> None:
        """Writes all parameters. At every moment the file is either the old one or the new one."""
        checkpoint.save(path, {name: p.numpy() for name, p in self.named_parameters()})

    def load(self, path: str | Path) -> None:
        """Gives all parameters the values in the file. Raises InputError if one is missing or has another
        shape."""
        arrays, _ = checkpoint.load(path)
        for name, p in self.named_parameters():
            if name not in arrays or arrays[name].shape != p.shape:
                raise InputError(f"{path} holds no parameter {name!r} of shape {p.shape}.")
        with engine.no_grad():
            for name, p in self.named_parameters():
                p.assign(arrays[name])


class Linear(Module):
    """x [n, ins] · wᵀ + b; w: [outs, ins]."""

    def __init__(self, ins: int, outs: int, seed: int | None = None) -> None:
        self.w = Parameter(ops.xavier(outs, ins, seed=seed))
        self.b = Parameter(np.zeros(outs, np.float32))

    def forward(self, x: Any) -> Tensor:
        return ops.matmul(x, self.w.T) + self.b


class Conv2d(Module):
    """Convolution of NCHW images."""

    def __init__(
        self, ins: int, outs: int, kernel: int, stride: int = 1, padding: int = 0, seed: int | None = None
    ) -> None:
        self.w = Parameter(ops.xavier(outs, ins, kernel, kernel, seed=seed))
        self.b = Parameter(np.zeros(outs, np.float32))
        self.stride = stride
        self.padding = padding

    def forward(self, x: Any) -> Tensor:
        return ops.conv2d(x, self.w, self.b, stride=self.stride, padding=self.padding)
