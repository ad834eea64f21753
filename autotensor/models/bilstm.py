"""A tagger that reads both ways (Huang et al., 2015: BiLSTM, without the CRF): a tag for every word.

words: int64[batch, 50] ──▶ embedding 100 ──▶ LSTM forwards │ LSTM backwards, 256 wide each ──▶ dense ──▶ tags
"""

from __future__ import annotations

import numpy as np

from autotensor.graph.build import constant, input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.recurrent import by_time, dense, layer_shapes, recurrent
from autotensor.models.weights import Array, Naming, Weights, checked

WORDS, EMBEDDING, HIDDEN, LAYERS, TAGS, TOKENS = 20_000, 100, 256, 2, 9, 50
NAMES = Naming("this model's own; torch's for the layers")


def build(
    batch: int = 1,
    weights: Weights | None = None,
    seed: int = 0,
    *,
    tokens: int = TOKENS,
    vocabulary: int = WORDS,
    hidden: int = HIDDEN,
) -> Graph:
    """The graph. weights: `words.weight`, `rnn.weight_ih_l0`, `rnn.weight_ih_l0_reverse`, …, `tags.bias`."""
    w = checked("bilstm", weights, shapes(vocabulary, hidden), seed, NAMES)
    words = input((batch, tokens), "int64", "words")
    y: GraphNode = by_time(ops.take(constant(w["words.weight"], "words.weight"), words))
    for layer in range(LAYERS):
        ways = [recurrent("lstm", y, w, "rnn", layer, reverse) for reverse in (False, True)]
        y = ops.concat(*ways, axis=2)
    head = (constant(w[n], n) for n in ("tags.weight", "tags.bias"))
    return Graph((words,), (dense(by_time(y), *head),), "bilstm", ("tags",))


def shapes(vocabulary: int = WORDS, hidden: int = HIDDEN) -> dict[str, tuple[int, ...]]:
    """Every weight's shape, by name."""
    found: dict[str, tuple[int, ...]] = {"words.weight": (vocabulary, EMBEDDING)}
    for layer in range(LAYERS):
        for reverse in (False, True):
            found |= layer_shapes("lstm", "rnn", layer, 2 * hidden if layer else EMBEDDING, hidden, reverse)
    return found | {"tags.weight": (TAGS, 2 * hidden), "tags.bias": (TAGS,)}


def inputs(
    rng: np.random.Generator, batch: int = 1, tokens: int = TOKENS, vocabulary: int = WORDS
) -> dict[str, Array]:
    """Random words."""
    return {"words": rng.integers(0, vocabulary, (batch, tokens))}
