"""The zoo's other models in small sizes for tests (see reduced.py), and the shapes of their weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from reduced import TINY, _rng

from autotensor.graph.ir import Graph
from autotensor.models import (
    alexnet,
    bilstm,
    dit,
    gcn,
    gnmt,
    googlenet,
    gpt2_decode,
    language_model,
    mobilenet_v1,
    moe,
    ncf,
    overfeat,
    unet,
    vgg,
)
from autotensor.models.weights import shapes_of

PLAIN = {"divisor": 8, "classes": 10}
LANGUAGE = {"tokens": 7, "vocabulary": 30, "hidden": 12}
WORDS = {"tokens": 7, "vocabulary": 30}
DIT = dit.DitSize(layers=2, hidden=32, heads=4, picture=8)
GCN = {"nodes": 50, "features": 40, "degree": 12}
PAIRS = {"users": 40, "items": 30}

# name → a function that makes the graph and its inputs
WIDER: Mapping[str, Callable[[], tuple[Graph, Mapping[str, Any]]]] = {
    "alexnet": lambda: (alexnet.build(2, image=96, **PLAIN), alexnet.inputs(_rng(), 2, image=96)),
    "overfeat": lambda: (overfeat.build(image=103, **PLAIN), overfeat.inputs(_rng(), image=103)),
    "vgg19": lambda: (vgg.build(image=32, hidden=64, classes=10, depth=19), vgg.inputs(_rng(), image=32)),
    "googlenet": lambda: (googlenet.build(image=64, classes=10), googlenet.inputs(_rng(), image=64)),
    "mobilenet_v1": lambda: (
        mobilenet_v1.build(2, image=64, divisor=4, classes=10),
        mobilenet_v1.inputs(_rng(), 2, image=64),
    ),
    "unet": lambda: (unet.build(image=32, width=8), unet.inputs(_rng(), image=32)),
    "lstm": lambda: (language_model.build("lstm", 2, **LANGUAGE), language_model.inputs(_rng(), 2, **WORDS)),
    "gru": lambda: (language_model.build("gru", 2, **LANGUAGE), language_model.inputs(_rng(), 2, **WORDS)),
    "bilstm": lambda: (bilstm.build(2, **LANGUAGE), bilstm.inputs(_rng(), 2, **WORDS)),
    "gnmt": lambda: (gnmt.build(2, **LANGUAGE), gnmt.inputs(_rng(), 2, **WORDS)),
    "gpt2_decode": lambda: (
        gpt2_decode.build(2, capacity=9, size=TINY),
        gpt2_decode.inputs(_rng(), 2, capacity=9, size=TINY),
    ),
    "dit": lambda: (dit.build(2, size=DIT), dit.inputs(_rng(), 2, size=DIT)),
    "gcn": lambda: (gcn.build(**GCN), gcn.inputs(_rng(), **GCN)),
    "moe": lambda: (moe.build(tokens=12, hidden=16), moe.inputs(_rng(), tokens=12, hidden=16)),
    "ncf": lambda: (ncf.build(5, **PAIRS), ncf.inputs(_rng(), 5, **PAIRS)),
}
SHAPES: Mapping[str, Callable[[], Mapping[str, tuple[int, ...]]]] = {
    "alexnet": lambda: shapes_of(alexnet.build, image=96, **PLAIN),
    "overfeat": lambda: shapes_of(overfeat.build, image=103, **PLAIN),
    "vgg19": lambda: shapes_of(vgg.build, image=32, hidden=64, classes=10, depth=19),
    "googlenet": lambda: shapes_of(googlenet.build, classes=10),
    "mobilenet_v1": lambda: shapes_of(mobilenet_v1.build, divisor=4, classes=10),
    "unet": lambda: shapes_of(unet.build, width=8),
    "lstm": lambda: shapes_of(language_model.build, "lstm", **LANGUAGE),
    "gru": lambda: shapes_of(language_model.build, "gru", **LANGUAGE),
    "bilstm": lambda: shapes_of(bilstm.build, **LANGUAGE),
    "gnmt": lambda: shapes_of(gnmt.build, **LANGUAGE),
    "gpt2_decode": lambda: shapes_of(gpt2_decode.build, capacity=9, size=TINY),
    "dit": lambda: shapes_of(dit.build, size=DIT),
    "gcn": lambda: shapes_of(gcn.build, **GCN),
    "moe": lambda: shapes_of(moe.build, hidden=16),
    "ncf": lambda: shapes_of(ncf.build, **PAIRS),
}
