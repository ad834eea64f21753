"""The built-in models.

graph = MODELS.get("resnet50").build(batch=1)
arrays = MODELS.get("resnet50").inputs(np.random.default_rng(0))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from autotensor.base.registry import Registry
from autotensor.graph.ir import Graph
from autotensor.models import mlp, resnet, small_cnn
from autotensor.models.weights import load_weights

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Model:
    """A model: `build(batch=1, weights=None, seed=0)` gives its graph, `inputs(rng, batch=1)` samples."""

    name: str
    build: Callable[..., Graph]
    inputs: Callable[..., Mapping[str, Array]]
    about: str


MODELS: Registry[Model] = Registry("model")

for _name, _depth in (("resnet18", 18), ("resnet34", 34), ("resnet50", 50), ("resnet", 50)):
    _about = f"ResNet-{_depth} for 224x224 images, 1000 classes"
    MODELS.add(_name, Model(_name, partial(resnet.build, _depth), resnet.inputs, _about))
MODELS.add("mlp", Model("mlp", mlp.build, mlp.inputs, "perceptron 784-512-256-10"))
MODELS.add(
    "small_cnn", Model("small_cnn", small_cnn.build, small_cnn.inputs, "trained network for 8x8 digits")
)

__all__ = ["MODELS", "Model", "load_weights"]
