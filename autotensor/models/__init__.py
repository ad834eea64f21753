"""The built-in models, one in a file, and the layers and weights with which they are written.

graph = MODELS.get("resnet50").build(batch=1)
arrays = MODELS.get("resnet50").inputs(np.random.default_rng(0))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from autotensor.base.registry import Registry
from autotensor.graph.ir import Graph
from autotensor.models import (
    alexnet,
    bert,
    bilstm,
    dcgan,
    dit,
    gcn,
    gnmt,
    googlenet,
    gpt2,
    gpt2_decode,
    language_model,
    llama,
    mlp,
    mobilenet,
    mobilenet_v1,
    moe,
    ncf,
    overfeat,
    resnet,
    resnet3d,
    small_cnn,
    unet,
    vgg,
)
from autotensor.models.weights import load_weights, shapes_of

Array = np.ndarray[Any, np.dtype[Any]]
Shapes = Mapping[str, tuple[int, ...]]
NOT_TRAINED = ("running_mean", "running_var")  # a norm's running statistics are not parameters


@dataclass(frozen=True, slots=True)
class Model:
    """A model.

    `build(batch=1, weights=None, seed=0)` gives its graph, `inputs(rng, batch=1)` sample inputs.
    """

    name: str
    build: Callable[..., Graph]
    inputs: Callable[..., Mapping[str, Array]]
    about: str
    shapes: Callable[..., Shapes] | None = None  # name of a weight → its shape
    gflop: float | None = None  # of one inference at batch 1; building the graph only to count would be slow

    def __repr__(self) -> str:
        return f"Model({self.name}: {self.about})"

    @property
    def parameters(self) -> int | None:
        """How many numbers are trained; None if the model does not state its weights' shapes."""
        if self.shapes is None:
            return None
        return sum(math.prod(s) for n, s in self.shapes().items() if not n.endswith(NOT_TRAINED))


MODELS: Registry[Model] = Registry("model")


def _add(
    name: str,
    build: Callable[..., Graph],
    inputs: Callable[..., Mapping[str, Array]],
    about: str,
    gflop: float,
) -> None:
    MODELS.add(name, Model(name, build, inputs, about, partial(shapes_of, build), gflop))


IMAGES = "for 224x224 images, 1000 classes"

for _name, _depth, _gflop in (
    ("resnet18", 18, 3.64),
    ("resnet34", 34, 7.34),
    ("resnet50", 50, 8.22),
    ("resnet101", 101, 15.7),
    ("resnet152", 152, 23.1),
    ("resnet", 50, 8.22),
):
    _add(_name, partial(resnet.build, _depth), resnet.inputs, f"ResNet-{_depth} {IMAGES}", _gflop)
for _depth, _gflop in ((16, 31), (19, 39.3)):
    _add(f"vgg{_depth}", partial(vgg.build, depth=_depth), vgg.inputs, f"VGG-{_depth} {IMAGES}", _gflop)
for _name, _module, _about, _gflop in (
    ("alexnet", alexnet, f"AlexNet {IMAGES}", 1.43),
    ("overfeat", overfeat, "OverFeat (fast) for 231x231 images, 1000 classes", 5.61),
    ("googlenet", googlenet, f"GoogLeNet with batch norms {IMAGES}", 3.02),
    ("mobilenet_v1", mobilenet_v1, f"MobileNetV1 {IMAGES}", 1.15),
    ("mobilenet_v2", mobilenet, f"MobileNetV2 {IMAGES}", 0.627),
    ("unet", unet, "U-Net for 256x256 pictures: masks of 2 classes", 96.5),
    ("r3d_18", resnet3d, "3D-ResNet-18 for clips of 16 frames 112x112, 400 classes", 81.5),
    ("dcgan", dcgan, "generator of DCGAN: 100 numbers to a 64x64 image", 0.234),
    ("dit", dit, "DiT-S/2: one denoising step of a 32x32 latent", 12.2),
    ("bert_base", bert, "BERT-base for 128 tokens: last hidden state", 22.4),
    ("gpt2", gpt2, "GPT-2 small for a prompt of 128 tokens: logits", 32.3),
    ("gpt2_decode", gpt2_decode, "GPT-2 small for one more word, behind a cache of 256", 0.257),
    ("bilstm", bilstm, "tagger of 2 LSTM layers both ways, 50 words", 0.232),
    ("gnmt", gnmt, "translator of LSTM layers with attention, 24 words", 6.13),
    ("gcn", gcn, "graph convolutions at the size of Cora: 2708 nodes", 0.128),
    ("moe", moe, "mixture of 8 experts, 2 for each of 128 tokens", 2.7),
    ("ncf", ncf, "collaborative filtering at the size of MovieLens-20M", 0.000214),
    ("mlp", mlp, "perceptron 784-512-256-10", 0.00107),
    ("small_cnn", small_cnn, "trained network for 8x8 digits", 0.000249),
):
    _add(_name, _module.build, _module.inputs, _about, _gflop)
for _bits in (4, 8):
    _add(
        f"llama_{_bits}bit", partial(llama.build, bits=_bits, rounded=8), llama.inputs,
        f"decoder of 0.35 B numbers of {_bits} bits for one more word, behind a cache of 256", 0.373,
    )  # fmt: skip
for _kind, _gflop in (("lstm", 0.93), ("gru", 0.811)):
    _add(
        _kind, partial(language_model.build, _kind), language_model.inputs,
        f"language model of 2 {_kind.upper()} layers, 35 words: logits", _gflop,
    )  # fmt: skip

__all__ = ["MODELS", "Model", "load_weights"]
