"""A tagger that reads in both directions (Huang et al., 2015: BiLSTM, without the CRF): a tag for each word.

words: int64[batch, 50] ──▶ embedding 100 ──▶ LSTM forwards │ LSTM backwards, 256 wide each ──▶ dense ──▶ tags
"""

from __future__ import annotations

import numpy as np

from autotensor.graph.build import input
from autotensor.graph.ir import Graph
from autotensor.models.parts import dense, weighted
from autotensor.models.recurrent import both_ways, by_time, embedded
from autotensor.models.weights import Array, Naming, Weights, WeightSource

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
    w = WeightSource("bilstm", weights, seed, NAMES)
    words = input((batch, tokens), "int64", "words")
    y = embedded(words, w("words.weight", vocabulary, EMBEDDING))
    for layer in range(LAYERS):
        y = both_ways("lstm", y, w, "rnn", hidden, layer)
    tags = dense(by_time(y), *weighted(w, "tags", TAGS, 2 * hidden))
    return w.graph((words,), (tags,), ("tags",))


def inputs(
    rng: np.random.Generator, batch: int = 1, tokens: int = TOKENS, vocabulary: int = WORDS
) -> dict[str, Array]:
    """Random words."""
    return {"words": rng.integers(0, vocabulary, (batch, tokens))}
