"""Weights: files of named arrays, and a checked way to read them by name.

weights = load_weights("resnet50.safetensors")      torchvision's names: conv1.weight, layer1.0.bn1.weight, …
graph = resnet.build(weights=weights)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autotensor.base.errors import InputError

Array = np.ndarray[Any, np.dtype[Any]]
Weights = Mapping[str, Array]

IGNORED = ("num_batches_tracked",)  # torch's batch norm counts its training steps


@dataclass(frozen=True, slots=True)
class Naming:
    """How checkpoints of a model spell its weights, beyond the names themselves."""

    source: str = "torchvision's"  # for messages: whose names they are
    prefix: str = ""  # checkpoints of the model with a head on top put this in front
    unused: tuple[str, ...] = ()  # beginnings and endings of names that the model has no use for

    def plain(self, weights: Weights) -> dict[str, Array]:
        """The weights by the model's own names, without those that it has no use for."""
        named = {n.removeprefix(self.prefix): a for n, a in weights.items()}
        dropped = (*self.unused, *IGNORED)
        return {n: a for n, a in named.items() if not n.startswith(self.unused) and not n.endswith(dropped)}


TORCHVISION = Naming()


def load_weights(path: str | Path) -> dict[str, Array]:
    """The arrays in a `.safetensors` or `.npz` file, by name.

    Raises InputError when the file is missing, damaged or of another kind. Nothing in it is executed.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no weights file {str(path)!r}.")
    try:
        if path.suffix == ".safetensors":
            from safetensors.numpy import load_file

            return dict(load_file(path))
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
    except Exception as error:  # safetensors and zipfile raise many kinds
        why = "it holds no plain arrays" if "pickle" in str(error) else error  # NumPy advises to unpickle it
        raise InputError(f"weights file {str(path)!r} cannot be read: {why}.") from error
    raise InputError(f"weights file {str(path)!r} has an unknown ending.", fix="Known: .safetensors, .npz.")


def checked(
    model: str,
    weights: Weights | None,
    shapes: Mapping[str, tuple[int, ...]],
    seed: int,
    naming: Naming = TORCHVISION,
) -> Mapping[str, Array]:
    """All weights of a model as float32, by name: the given ones, or ones drawn from the seed when asked for.

    Raises InputError for weights that are missing, misshaped, or of another model.
    """
    if weights is None:
        return Seeded(shapes, seed)
    weights = naming.plain(weights)
    extra = sorted(n for n in weights if n not in shapes)
    for name, shape in shapes.items():
        if name not in weights:
            near = difflib.get_close_matches(name, extra, n=1)
            raise InputError(
                f"{model}: weights lack {name!r} of shape {shape}.",
                fix=f"Did you mean {near[0]!r}?" if near else f"Names are {naming.source}.",
            )
        if np.shape(weights[name]) != shape:
            raise InputError(
                f"{model}: weight {name!r} has shape {np.shape(weights[name])}, expected {shape}."
            )
    if extra:
        more = f" and {len(extra) - 3} more" if len(extra) > 3 else ""
        raise InputError(
            f"{model}: weights hold {', '.join(map(repr, extra[:3]))}{more}, which it has not.",
            fix="Is it the file of another model?",
        )
    return {name: np.asarray(weights[name]).astype(np.float32, copy=False) for name in shapes}


class Seeded(Mapping[str, Array]):
    """Weights that are drawn when asked for: a mapping of names to the shapes that `shapes` says.

    Each array depends on the seed and its name only, so that two models share the weights that they name
    alike.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], seed: int) -> None:
        self.shapes = shapes
        self.seed = seed

    def __getitem__(self, name: str) -> Array:
        rng = np.random.default_rng([self.seed, *name.encode()])
        return draw(name, self.shapes[name], rng)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


def draw(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """A random array that keeps activations near unit scale.

    Weights: He initialisation (normal, variance 2 / fan-in; 1 / fan-in for the last layer). Batch norm:
    statistics that are not trivial, so that a wrong folding shows.
    """
    kind = name.rsplit(".", 1)[-1]
    values: Array
    match kind:
        case "running_mean":
            values = rng.normal(0.0, 0.2, shape)
        case "running_var":
            values = rng.uniform(0.5, 1.5, shape)
        case _ if kind.startswith("bias"):  # also bias_ih_l0 of recurrent layers
            values = rng.normal(0.0, 0.1, shape)
        case _ if len(shape) == 1:  # batch norm's gamma
            values = rng.uniform(0.6, 1.2, shape)
        case _:
            values = rng.standard_normal(shape, dtype=np.float32)
            scale = np.sqrt(2.0 / np.prod(shape[1:]))
            np.multiply(values, scale, out=values, dtype=np.float64, casting="same_kind")
    return np.asarray(values, dtype=np.float32)
