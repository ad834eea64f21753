"""Weights: files of named arrays, and how a model takes its weights, by name and shape.

weights = load_weights("resnet50.safetensors")      torchvision's names: conv1.weight, layer1.0.bn1.weight, …
graph = resnet.build(weights=weights)
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autotensor.base.errors import InputError
from autotensor.graph.build import constant
from autotensor.graph.constant_data import Data
from autotensor.graph.ir import Constant, Graph, GraphNode, Input

Array = np.ndarray[Any, np.dtype[Any]]
Weights = Mapping[str, Array]

IGNORED = ("num_batches_tracked",)  # torch's batch norm counts its training steps


@dataclass(frozen=True, slots=True)
class Naming:
    """How checkpoints of a model write its weights, apart from the names themselves."""

    source: str = "torchvision's"  # who gave the names, for messages
    prefix: str = ""  # checkpoints of the model with a head on top begin each name with this
    unused: tuple[str, ...] = ()  # beginnings and endings of names that the model does not use

    def plain(self, weights: Weights) -> dict[str, Array]:
        """The weights by the model's own names, without those that the model does not use."""
        named = {n.removeprefix(self.prefix): a for n, a in weights.items()}
        dropped = (*self.unused, *IGNORED)
        return {n: a for n, a in named.items() if not n.startswith(self.unused) and not n.endswith(dropped)}


TORCHVISION = Naming()


def load_weights(path: str | Path) -> dict[str, Array]:
    """The arrays in a `.safetensors` or `.npz` file, or in a Hugging Face folder of safetensors, by name.

    Raises InputError when the file is missing, damaged or of another kind. No code in it is executed.
    """
    path = Path(path)
    if path.is_dir():
        return {name: array for file in _shards(path) for name, array in load_weights(file).items()}
    if not path.is_file():
        raise InputError(f"there is no weights file {str(path)!r}.")
    try:
        if path.suffix == ".safetensors":
            import ml_dtypes  # noqa: F401  # gives NumPy the type bfloat16
            from safetensors.numpy import load_file

            return dict(load_file(path))
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
    except Exception as error:  # safetensors and zipfile raise many kinds
        # NumPy advises to unpickle the file
        why = "it holds no plain arrays" if "pickle" in str(error) else error
        raise InputError(f"weights file {str(path)!r} cannot be read: {why}.") from error
    raise InputError(f"weights file {str(path)!r} has an unknown ending.", fix="Known: .safetensors, .npz.")


def _shards(folder: Path) -> list[Path]:
    """The files that hold a folder's weights: the files in its index, or the only file."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return [folder / "model.safetensors"]
    try:
        # Only file names are used: an index comes from others, and "../x" would be read outside its folder.
        names = {Path(name).name for name in json.loads(index.read_text())["weight_map"].values()}
        return [folder / name for name in sorted(names)]
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise InputError(f"index {str(index)!r} names no files of weights.") from error


class Noted(dict[str, Any]):
    """Holds no weights.

    When a model is built with it, it notes the weights that the model takes, as name → shape.
    """


def shapes_of(build: Callable[..., Graph], *args: Any, **sizes: Any) -> Mapping[str, tuple[int, ...]]:
    """Every weight's shape, by name, in the order in which `build` takes the weights.

    No numbers are drawn.
    """
    noted = Noted()
    build(*args, weights=noted, **sizes)
    return noted


class WeightSource:
    """The weights of a model under construction: `w("fc.weight", 10, 256)` is a constant.

    These are the given weights as float32, or weights drawn from the seed. `graph` reports weights that do
    not fit, when all weights that the model takes are known.
    """

    def __init__(self, model: str, weights: Weights | None, seed: int, naming: Naming = TORCHVISION) -> None:
        self.model, self.seed, self.naming = model, seed, naming
        self.weights = weights if weights is None or isinstance(weights, Noted) else naming.plain(weights)
        self.shapes: dict[str, tuple[int, ...]] = {}

    def given(self, name: str) -> Any:
        """The weight as it was given, in whatever type; None if there is none."""
        return None if self.weights is None else self.weights.get(name)

    def noted(self, name: str, *shape: int) -> Constant:
        """A weight of which only the shape is read: the caller has the numbers in another form."""
        self.shapes[name] = shape
        return Constant(Data(np.broadcast_to(np.float32(0), shape), f"{name}: {shape}"), name)

    def __call__(self, name: str, *shape: int) -> Constant:
        self.shapes[name] = shape
        if self.weights is None:
            return constant(draw(name, shape, self.seed), name)
        given = self.given(name)
        if given is None or np.shape(given) != shape:  # its numbers are never read
            return self.noted(name, *shape)
        return constant(np.asarray(given).astype(np.float32, copy=False), name)

    def graph(
        self, inputs: tuple[Input, ...], outputs: tuple[GraphNode, ...], names: tuple[str, ...]
    ) -> Graph:
        """The model. Raises InputError for weights that are missing, misshaped or of another model."""
        if isinstance(self.weights, Noted):
            self.weights.update(self.shapes)
        elif self.weights is not None:
            self._check(self.weights)
        return Graph(inputs, outputs, self.model, names)

    def _check(self, weights: Weights) -> None:
        extra = sorted(n for n in weights if n not in self.shapes)
        for name, shape in self.shapes.items():
            if name not in weights:
                near = difflib.get_close_matches(name, extra, n=1)
                raise InputError(
                    f"{self.model}: weights lack {name!r} of shape {shape}.",
                    fix=f"Did you mean {near[0]!r}?" if near else f"Names are {self.naming.source}.",
                )
            if np.shape(weights[name]) != shape:
                raise InputError(
                    f"{self.model}: weight {name!r} has shape {np.shape(weights[name])}, expected {shape}."
                )
        if extra:
            more = f" and {len(extra) - 3} more" if len(extra) > 3 else ""
            raise InputError(
                f"{self.model}: weights hold {', '.join(map(repr, extra[:3]))}{more}, which it has not.",
                fix="Is it the file of another model?",
            )


def draw(name: str, shape: tuple[int, ...], seed: int) -> Array:
    """A random array that keeps activations near unit scale.

    Weights: He initialisation (normal, variance 2 / fan-in; 1 / fan-in for the last layer). Batch norm:
    statistics that are not trivial, so that a wrong folding is noticed. The array depends only on the seed
    and the name, so two models share weights of the same name.
    """
    rng = np.random.default_rng([seed, *name.encode()])
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
