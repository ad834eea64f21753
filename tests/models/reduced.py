"""The built-in models in small sizes for tests, with all parts of their structure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from autotensor.graph.ir import Graph
from autotensor.models import bert, dcgan, gpt2, mobilenet, resnet, resnet3d, vgg
from autotensor.models.transformer import Size

TINY = Size(layers=2, hidden=64, heads=4, vocabulary=100, positions=40)
DRAW = 5  # seed of all inputs


def _rng() -> np.random.Generator:
    return np.random.default_rng(DRAW)


# name → a function that makes the graph and its inputs
REDUCED: Mapping[str, Callable[[], tuple[Graph, Mapping[str, Any]]]] = {
    "resnet18": lambda: (resnet.build(18, image=32), resnet.inputs(_rng(), image=32)),
    "mobilenet_v2": lambda: (mobilenet.build(image=32, classes=10), mobilenet.inputs(_rng(), image=32)),
    "vgg16": lambda: (vgg.build(image=32, hidden=64, classes=10), vgg.inputs(_rng(), image=32)),
    "r3d_18": lambda: (
        resnet3d.build(frames=4, image=16, classes=10),
        resnet3d.inputs(_rng(), frames=4, image=16),
    ),
    "dcgan": lambda: (dcgan.build(batch=2, latent=20, width=8), dcgan.inputs(_rng(), 2, 20)),
    "bert_base": lambda: (bert.build(2, tokens=24, size=TINY), bert.inputs(_rng(), 2, 24, TINY)),
    "gpt2": lambda: (gpt2.build(tokens=33, size=TINY), gpt2.inputs(_rng(), 1, 33, TINY)),
}
