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
from autotensor.models import bert, dcgan, gpt2, mlp, mobilenet, resnet, resnet3d, small_cnn, vgg
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


def _add(
    name: str, build: Callable[..., Graph], inputs: Callable[..., Mapping[str, Array]], about: str
) -> None:
    MODELS.add(name, Model(name, build, inputs, about))


for _name, _depth in (("resnet18", 18), ("resnet34", 34), ("resnet50", 50), ("resnet", 50)):
    _about = f"ResNet-{_depth} for 224x224 images, 1000 classes"
    _add(_name, partial(resnet.build, _depth), resnet.inputs, _about)
_add("mobilenet_v2", mobilenet.build, mobilenet.inputs, "MobileNetV2 for 224x224 images, 1000 classes")
_add("vgg16", vgg.build, vgg.inputs, "VGG-16 for 224x224 images, 1000 classes")
_add("r3d_18", resnet3d.build, resnet3d.inputs, "3D-ResNet-18 for clips of 16 frames 112x112, 400 classes")
_add("dcgan", dcgan.build, dcgan.inputs, "generator of DCGAN: 100 numbers to a 64x64 image")
_add("bert_base", bert.build, bert.inputs, "BERT-base for 128 tokens: last hidden state")
_add("gpt2", gpt2.build, gpt2.inputs, "GPT-2 small for a prompt of 128 tokens: logits")
_add("mlp", mlp.build, mlp.inputs, "perceptron 784-512-256-10")
_add("small_cnn", small_cnn.build, small_cnn.inputs, "trained network for 8x8 digits")

__all__ = ["MODELS", "Model", "load_weights"]
