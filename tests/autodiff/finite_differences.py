"""Compares gradients with their definition: the change of a value along a random direction.

directional(f, arrays, n, d)   ──▶   (f(x + h d) - f(x - h d)) / 2h         float64, by NumPy references
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autotensor.autodiff import gradients
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph, GraphNode, Input

Array = np.ndarray[Any, Any]
STEP = 1e-6


def wide(array: Array) -> Array:
    """Floats as float64."""
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def directional(f: Callable[[Sequence[Array]], float], arrays: Sequence[Array], n: int, d: Array) -> float:
    """The slope of f along the direction d of array n."""
    ends = []
    for step in (STEP, -STEP):
        moved = list(arrays)
        moved[n] = arrays[n] + step * d
        ends.append(f(moved))
    return (ends[0] - ends[1]) / (2 * STEP)


def check_gradients(
    inputs: Sequence[Input],
    outputs: Sequence[GraphNode],
    arrays: Sequence[Array],
    rng: np.random.Generator,
    tolerance: float = 1e-5,
) -> int:
    """Compares the gradients of all float inputs; gives how many were compared.

    arrays: float64 for floats. Every output is weighted at random.
    """
    seeds = [rng.standard_normal(o.shape) for o in outputs]
    wanted = [n for n, x in enumerate(inputs) if x.dtype.is_float]
    if not wanted:
        return 0
    slopes = gradients(outputs, [inputs[n] for n in wanted], seeds)
    forward = Graph(tuple(inputs), tuple(outputs), "forward", tuple(f"y{n}" for n in range(len(outputs))))
    backward = Graph(tuple(inputs), slopes, "backward", tuple(f"g{n}" for n in range(len(slopes))))

    def total(values: Sequence[Array]) -> float:
        return sum(float((y * s).sum()) for y, s in zip(evaluate(forward, *values), seeds, strict=True))

    found = evaluate(backward, *arrays)
    for slope, n in zip(found, wanted, strict=True):
        direction = rng.standard_normal(arrays[n].shape)
        want, got = directional(total, arrays, n, direction), float((slope * direction).sum())
        assert abs(got - want) <= tolerance * (1 + abs(want)), (
            f"input {n} of {[str(x) for x in inputs]}: gradient {got}, finite differences {want}"
        )
    return len(wanted)
