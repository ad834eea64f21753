"""A second copy of a model's memory, in float64, for a run that does not round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autotensor.base.dtype import dtype_of
from autotensor.runtime.files.artifact import ArgSpec

Array = np.ndarray[Any, Any]


class Wide:
    """The model's memory in float64: an element at byte b of the model's array is at byte 4·b of the copy."""

    SPREAD = 4  # an element of two bytes takes eight

    def __init__(self, memory: Sequence[Array]) -> None:
        self.sizes = [m.nbytes for m in memory]
        self.memory: dict[int, Array] = {}

    def view(self, spec: ArgSpec, slot: tuple[int, int]) -> Array:
        arg, offset = slot
        kind = dtype_of(spec.dtype)
        if arg not in self.memory:
            self.memory[arg] = np.zeros(self.SPREAD * self.sizes[arg] + 8, np.uint8)
        strides = []
        step = self.SPREAD * kind.bytes
        for n in reversed(spec.shape):
            strides.append(step)
            step *= n
        wide = np.dtype(np.float64) if kind.is_float else kind.numpy
        return np.ndarray(spec.shape, wide, self.memory[arg], self.SPREAD * offset, tuple(reversed(strides)))
