"""The weights that models draw from a seed, as arrays by name, for the same models in other libraries."""

from __future__ import annotations

from collections.abc import Mapping

from autotensor.models.weights import Array, draw


def drawn_weights(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, Array]:
    return {name: draw(name, shape, seed) for name, shape in shapes.items()}
