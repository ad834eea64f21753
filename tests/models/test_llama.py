"""Decoders of Llama's shape: chunks and single words give the same results; refused configs; transformers."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from autotensor.api.model_compiling import compile_model
from autotensor.base.dtype import dtype_of
from autotensor.base.errors import InputError
from autotensor.models import llama
from autotensor.models.llama import LlamaSize, size_of
from autotensor.models.packed_rows import rounded_rows
from autotensor.models.weights import shapes_of

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


@pytest.mark.parametrize("kept", ["float16", "bfloat16"])
@pytest.mark.parametrize("chunk", [1, 6])
@pytest.mark.sample(2)
def test_a_cache_of_half_the_bytes(kept, chunk):
    words, capacity = np.random.default_rng(0).integers(0, TINY.vocabulary, (1, 6)), 9
    found = {}
    for t in ("float32", kept):
        graph = llama.build(1, tokens=chunk, capacity=capacity, size=TINY, kept=t)
        step, cache = (
            compile_model(graph, db=":memory:"),
            np.full(llama.cache_shape(1, capacity, TINY), np.nan),
        )
        cache = cache.astype(dtype_of(t).numpy)
        for at in range(0, 6, chunk):
            found[t], entry = step(words[:, at : at + chunk].copy(), np.array([at]), cache)
            assert entry.dtype == cache.dtype
            llama.remember(cache, entry, at)
    distance = np.abs(found[kept] - found["float32"]).max() / np.abs(found["float32"]).max()
    assert distance < {"float16": 1e-3, "bfloat16": 1e-2}[kept]


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


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_a_folder_of_transformers(kind, tmp_path):
    """In several files; both compute in float32 with the weights as they were stored."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    given = {**CONFIG, "pad_token_id": None}
    del given["model_type"]
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**given)).eval().to(getattr(torch, kind))
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    words = np.random.default_rng(1).integers(0, 50, (1, 5))
    with torch.no_grad():
        wanted = theirs.float()(torch.from_numpy(words)).logits.numpy()
    size, weights = llama.load(tmp_path)
    assert {a.dtype.name for a in weights.values()} == {kind}
    found = run(words, (4, 1), size, weights)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def stored(folder, change):
    """A folder of TINY's weights in bfloat16, in two files, changed."""
    shapes = shapes_of(llama.build, size=TINY)
    arrays = {n: np.ones(s, ml_dtypes.bfloat16) for n, s in shapes.items()}
    change(arrays)
    names = sorted(arrays)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, held in parts.items():
        save_file({n: arrays[n] for n in held}, folder / file)
    index = {"weight_map": {n: file for file, held in parts.items() for n in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(CONFIG))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda a: a.pop("norm.weight"), r"weights lack 'norm.weight' of shape \(32,\)"),
        (lambda a: a.update({"norm.weight": np.ones(3, np.float32)}), r"shape \(3,\), expected \(32,\)"),
    ],
)
def test_folders_whose_weights_do_not_fit(change, said, tmp_path):
    stored(tmp_path, change)
    size, weights = llama.load(tmp_path)
    with pytest.raises(InputError, match=said):
        llama.build(weights=weights, size=size)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("b.safetensors", None, "there is no weights file .*b.safetensors"),
        ("config.json", None, "config.json' cannot be read: No such file"),
        ("config.json", "{", "config.json' is not JSON"),
        ("config.json", '{"model_type": "llama"}', "config.json' lacks 'num_attention_heads'"),
        ("model.safetensors.index.json", "[]", "names no files of weights"),
    ],
)
def test_folders_that_cannot_be_read(name, text, said, tmp_path):
    stored(tmp_path, lambda arrays: None)
    (tmp_path / name).unlink() if text is None else (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=said):
        llama.load(tmp_path)


@pytest.mark.parametrize(("bits", "group"), [(4, 32), (8, 32), (8, 64)])
@pytest.mark.sample(1)
def test_packed_weights_say_what_they_stand_for(bits, group):
    """Weights that are rounded when the graph is built, or given in packed form, give the same as the floats
    of the packed weights."""
    size = LlamaSize(layers=1, hidden=64, heads=4, groups=2, inner=64, vocabulary=50)
    rng = np.random.default_rng(0)
    floats = {
        n: rng.standard_normal(s).astype(np.float32) for n, s in shapes_of(llama.build, size=size).items()
    }
    packed = {n: rounded_rows(a, bits, group, n) if a.ndim == 2 else a for n, a in floats.items()}
    words = rng.integers(0, 50, (2, 4))
    wanted = run(words, (3, 1), size, {n: np.asarray(a) for n, a in packed.items()})
    found = run(words, (3, 1), size, packed)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    told = llama.build(weights=floats, size=size, bits=bits, group=group)
    given = llama.build(weights={**packed, "embed_tokens.weight": floats["embed_tokens.weight"]}, size=size)
    assert told.key == given.key


@pytest.mark.parametrize(("bits", "worst"), [(4, 0.15), (8, 0.01)])
def test_rounded_rows_are_near(bits, worst):
    w = np.random.default_rng(0).standard_normal((7, 128)).astype(np.float32)
    w[3, 32:64] = 0
    packed = rounded_rows(w, bits, 32, "w")
    assert packed.shape == w.shape
    assert np.linalg.norm(np.asarray(packed) - w) < worst * np.linalg.norm(w)
    assert not np.asarray(packed)[3, 32:64].any()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"bits": 5}, "weights of 5 bits in groups of 32 are not known. Known: 4 and 8 bits; 32, 64 and 128"),
        ({"bits": 4, "group": 64}, "rows of 32, no multiple of its groups of 64"),
    ],
)
def test_packing_that_is_refused(how, said):
    with pytest.raises(InputError, match=said):
        llama.build(size=TINY, **how)
