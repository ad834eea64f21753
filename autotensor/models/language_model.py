"""Recurrent language models (Zaremba et al., 2014: the medium size).

The weights have the names of PyTorch's example word_language_model.

words: int64[batch, 35] ──▶ embedding ──▶ 2 layers of LSTM or GRU, 650 wide ──▶ dense ──▶ logits
"""

from __future__ import annotations

import numpy as np

from autotensor.base.errors import InputError
from autotensor.graph.build import input
from autotensor.graph.ir import Graph
from autotensor.models.parts import dense, weighted
from autotensor.models.recurrent import GATES, by_time, embedded, recurrent
from autotensor.models.weights import Array, Naming, Weights, WeightSource

WORDS, HIDDEN, LAYERS, TOKENS = 10_000, 650, 2, 35
NAMES = Naming("those of PyTorch's word_language_model")


def build(
    kind: str = "lstm",
    batch: int = 1,
    weights: Weights | None = None,
    seed: int = 0,
    *,
    tokens: int = TOKENS,
    vocabulary: int = WORDS,
    hidden: int = HIDDEN,
) -> Graph:
    """The graph. weights: `encoder.weight`, `rnn.weight_ih_l0`, …, `decoder.bias`.

    If weights is None, the weights are drawn from the seed.
    """
    if kind not in GATES:
        raise InputError(f"there is no language model of {kind!r}.", fix=f"Known: {', '.join(GATES)}.")
    w = WeightSource(kind, weights, seed, NAMES)
    words = input((batch, tokens), "int64", "words")
    y = embedded(words, w("encoder.weight", vocabulary, hidden))
    for layer in range(LAYERS):
        y = recurrent(kind, y, w, "rnn", hidden, layer)
    logits = dense(by_time(y), *weighted(w, "decoder", vocabulary, hidden))
    return w.graph((words,), (logits,), ("logits",))


def inputs(
    rng: np.random.Generator, batch: int = 1, tokens: int = TOKENS, vocabulary: int = WORDS
) -> dict[str, Array]:
    """Random words."""
    return {"words": rng.integers(0, vocabulary, (batch, tokens))}
