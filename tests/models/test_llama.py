"""Decoders of Llama's shape: chunks and single words say the same; refused configs; transformers."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor.api.model_compiling import compile_model
from autotensor.base.errors import InputError
from autotensor.models import llama
from autotensor.models.llama import LlamaSize, size_of

TINY = LlamaSize(layers=2, hidden=32, heads=4, groups=2, inner=48, vocabulary=50)
CONFIG = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 50, "rms_norm_eps": 1e-5,
}  # fmt: skip


def run(words, chunks, size, weights=None, capacity=9):
    """Logits of all words, which come in chunks of these lengths; the cache holds NaN at first."""
    batch = len(words)
    cache = np.full(llama.cache_shape(batch, capacity, size), np.nan, np.float32)
    found, at, steps = [], 0, {}
    for n in chunks:
        if n not in steps:
            graph = llama.build(batch, weights, tokens=n, capacity=capacity, size=size)
            steps[n] = compile_model(graph, db=":memory:")
        logits, entry = steps[n](words[:, at : at + n].copy(), np.array([at]), cache)
        llama.remember(cache, entry, at)
        found.append(logits)
        at += n
    return np.concatenate(found, axis=1)


def test_chunks_and_single_words_say_the_same():
    words = np.random.default_rng(0).integers(0, TINY.vocabulary, (2, 7))
    whole = run(words, (7,), TINY)
    for chunks in ((3, 3, 1), (1,) * 7):
        np.testing.assert_allclose(run(words, chunks, TINY), whole, rtol=1e-4, atol=1e-4)


def test_a_full_cache():
    cache = np.zeros(llama.cache_shape(1, 4, TINY), np.float32)
    with pytest.raises(InputError, match=r"positions 3 … 4 are outside the cache, which holds 4"):
        llama.remember(cache, cache[:, :, :, :, :2], 3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "gemma"}, "a config of model_type 'gemma'. Known: llama, qwen2"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "scaled rotary embeddings"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; only 'silu'"),
        ({"attention_bias": True}, "attention_bias puts one on the output"),
        ({"head_dim": 16}, "head_dim is 16, hidden / heads is 8"),
        ({"num_key_value_heads": 3}, "heads is a multiple of groups"),
    ],
)
def test_configs_that_are_refused(change, said):
    with pytest.raises(InputError, match=said):
        size_of({**CONFIG, **change})


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["llama", "tied", "qwen2"])
def test_as_transformers(kind):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    given = {**CONFIG, "tie_word_embeddings": kind == "tied", "pad_token_id": None}
    del given["model_type"]
    name = "Qwen2" if kind == "qwen2" else "Llama"
    config = getattr(transformers, f"{name}Config")(**given)
    theirs = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    for p in theirs.parameters():
        torch.nn.init.normal_(p, std=0.3)
    words = np.random.default_rng(1).integers(0, 50, (2, 7))
    with torch.no_grad():
        wanted = theirs(torch.from_numpy(words)).logits.numpy()
    weights = {n: p.numpy() for n, p in theirs.state_dict().items()}
    found = run(words, (4, 1, 1, 1), size_of(config.to_dict()), weights)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
