"""torch's functions with NumPy's names, which programs' array functions call as `xp`. Most names are torch's
own.

Loops over steps are Python's loops, because torch has no loop that carries state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def __getattr__(name: str) -> Any:
    return getattr(torch, name)


def array(x: Any) -> Any:
    """A copy of x as a tensor."""
    return x.clone()


def asarray(x: Any, dtype: Any) -> Any:
    return x.to(dtype)


def einsum(spec: str, *operands: Any, optimize: bool = False) -> Any:
    return torch.einsum(spec, *operands)  # torch uses opt_einsum for several operands if it is installed


def max(x: Any, axis: Any) -> Any:
    return torch.amax(x, axis)


def min(x: Any, axis: Any) -> Any:
    return torch.amin(x, axis)


def maximum(x: Any, y: Any) -> Any:
    return torch.maximum(x, y) if torch.is_tensor(y) else torch.clamp_min(x, y)


def pad(x: Any, width: int, mode: str) -> Any:
    """Pads the two axes of an image at both ends."""
    kind = {"edge": "replicate"}[mode]
    return torch.nn.functional.pad(x[None, None], (width,) * 4, mode=kind)[0, 0]


def std(x: Any, axis: int) -> Any:
    return torch.std(x, axis, correction=0)


def take(x: Any, at: Any, axis: int) -> Any:
    return torch.index_select(x, axis, at)


def transpose(x: Any, axes: Sequence[int]) -> Any:
    return torch.permute(x, tuple(axes))


def add_at(size: int, at: Any, x: Any) -> Any:
    """Adds up the rows of x at the indices `at`."""
    return torch.zeros((size, x.shape[1]), dtype=x.dtype).index_add(0, at, x)


def scan(step: Callable[..., Any], state: Any, sequence: Any) -> Any:
    """The states after each step; `state` is the first state."""
    found = [state]
    for x in sequence:
        found.append(step(found[-1], x))
    return torch.stack(found)
