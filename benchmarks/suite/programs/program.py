"""One tensor program: its te, its inputs, and the same program as array functions for NumPy, XLA and
torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Program:
    """`te` returns the inputs and then the outputs. `arrays(xp, *inputs)` returns the outputs; xp is NumPy
    (in float64 this is the reference), `jax.numpy` or `peers.torch_words`."""

    name: str
    suite: str
    te: Callable[[], Sequence[Any]]
    arrays: Callable[..., Any]
    integers: tuple[int, ...] = ()  # inputs that are int32, drawn below `below`
    below: int = 0
    numba: Callable[[], Callable[..., Any]] | None = None  # loops as a person would write them

    def inputs(self) -> list[Array]:
        """The inputs, which are the same in every process: normal numbers, or integers below `below`."""
        rng = np.random.default_rng(0)
        found = []
        for n, t in enumerate(t for t in self.te() if is_input(t)):
            shape = tuple(int(x) for x in t.shape)
            whole = n in self.integers
            values = rng.integers(0, self.below, shape) if whole else rng.standard_normal(shape)
            found.append(values.astype(np.int32 if whole else np.float32))
        return found

    def reference(self) -> list[Array]:
        """The outputs in float64."""
        wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in self.inputs()]
        out = self.arrays(np, *wide)
        return [np.asarray(o) for o in (out if isinstance(out, tuple) else (out,))]


def is_input(t: Any) -> bool:
    """Whether a te tensor is an input, not computed."""
    return type(t.op).__name__ == "Placeholder"
