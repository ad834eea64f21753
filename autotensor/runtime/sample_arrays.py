"""Arrays for calling a compiled function when only its speed matters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from autotensor.base.dtype import dtype_of
from autotensor.runtime.files.artifact import ArgSpec

Array = np.ndarray[Any, np.dtype[Any]]


def sample_inputs(
    args: Iterable[ArgSpec], index_range: Callable[[str], tuple[int, int] | None], seed: int = 0
) -> tuple[Array, ...]:
    """Random arrays for the arguments that a caller gives: normal floats, small integers.

    index_range: the values that an argument's elements may have if they are indices (`Artifact.index_range`).
    """
    rng = np.random.default_rng(seed)
    out = []
    for spec in args:
        if spec.role not in ("input", "constant"):
            continue
        kind, inside = dtype_of(spec.dtype), index_range(spec.name)
        values = rng.standard_normal(spec.shape) if kind.is_float else rng.integers(0, 2, spec.shape)
        out.append((values if inside is None else np.clip(values, *inside)).astype(kind.numpy))
    return tuple(out)


__all__ = ["sample_inputs"]
