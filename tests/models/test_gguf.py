"""GGUF files of decoders, made by the gguf package: packed weights, the order of rows, refused files."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor.base.errors import InputError
from autotensor.graph.evaluate import evaluate
from autotensor.models import llama
from autotensor.models.llama import LlamaSize
from autotensor.models.packed_rows import PackedRows
from autotensor.models.weights import shapes_of

gguf = pytest.importorskip("gguf")

SIZE = LlamaSize(layers=2, hidden=64, heads=4, groups=2, inner=96, vocabulary=50, eps=2.0**-17, theta=500.0)
NAMES = {
    **{"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"},
    **{"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"},
    **{f"self_attn.{a}_proj": f"attn_{b}" for a, b in zip("qkvo", ("q", "k", "v", "output"), strict=True)},
    **{f"mlp.{n}_proj": f"ffn_{n}" for n in ("gate", "up", "down")},
}


def theirs(name):
    """llama.cpp's name of a weight."""
    part, ending = name.rsplit(".", 1)
    if part.startswith("layers."):
        _, n, part = part.split(".", 2)
        return f"blk.{n}.{NAMES[part]}.{ending}"
    return f"{NAMES[part]}.{ending}"


def in_pairs(a, heads):
    """Rows of queries and keys as convert_hf_to_gguf.py writes them (`permute`)."""
    return a.reshape(heads, 2, a.shape[0] // heads // 2, *a.shape[1:]).swapaxes(1, 2).reshape(a.shape)


def written(path, weights, kind, size=SIZE, arch="llama", fields=()):
    """A file of these weights, with matrices in this type. Returns the file's values in float32, by our
    names."""
    w = gguf.GGUFWriter(path, arch)
    w.add_block_count(size.layers)
    w.add_embedding_length(size.hidden)
    w.add_head_count(size.heads)
    w.add_head_count_kv(size.groups)
    w.add_feed_forward_length(size.inner)
    w.add_layer_norm_rms_eps(size.eps)
    w.add_rope_freq_base(size.theta)
    for name, value in dict(fields).items():
        w.add_string(name, value) if isinstance(value, str) else w.add_uint32(name, value)
    kept = {}
    for name, a in weights.items():
        a = a.astype(np.float32)
        if a.ndim == 2:
            kept[name] = gguf.quants.dequantize(gguf.quants.quantize(a, kind), kind)
            heads = {"q": size.heads, "k": size.groups}.get(name[-13]) if "_proj" in name else None
            turned = in_pairs(a, heads) if heads and arch == "llama" and "self_attn" in name else a
            w.add_tensor(theirs(name), gguf.quants.quantize(turned, kind), raw_dtype=kind)
        else:
            kept[name] = a
            w.add_tensor(theirs(name), a)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return kept


def drawn(size=SIZE):
    rng = np.random.default_rng(0)
    shapes = shapes_of(llama.build, size=size)
    return {
        n: 1 + rng.standard_normal(s) * (0.3 if len(s) == 2 else 0.1) - (len(s) == 2)
        for n, s in shapes.items()
    }


def logits(weights, size, **how):
    graph = llama.build(1, weights, tokens=5, capacity=8, size=size, **how)
    given = llama.inputs(np.random.default_rng(1), 1, 5, 8, size)
    return evaluate(graph, **{**given, "position": np.array([2])})[0]


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "F16", "BF16", "Q5_0"])
def test_a_file_says_what_its_weights_say(kind, tmp_path):
    path = tmp_path / "x.gguf"
    kept = written(path, drawn(), gguf.GGMLQuantizationType[kind])
    size, weights = llama.load(path)
    assert size == SIZE
    packed = {n for n, a in weights.items() if isinstance(a, PackedRows)}
    assert packed == ({n for n, a in kept.items() if a.ndim == 2} if kind in ("Q8_0", "Q4_0") else set())
    for name, a in kept.items():
        np.testing.assert_array_equal(np.asarray(weights[name]), a, err_msg=name)
    wanted = logits(kept, SIZE)
    np.testing.assert_allclose(logits(weights, size), wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize(("rounded", "error"), [(16, 1e-3), (8, 5e-2)])
def test_rounded_activations_say_nearly_the_same(rounded, error, tmp_path):
    written(tmp_path / "x.gguf", drawn(), gguf.GGMLQuantizationType.Q4_0)
    size, weights = llama.load(tmp_path / "x.gguf")
    wanted = logits(weights, size)
    off = logits(weights, size, rounded=rounded) - wanted
    assert 0 < np.linalg.norm(off) < error * np.linalg.norm(wanted)


def test_tied_words_and_biases(tmp_path):
    size = LlamaSize(2, 64, 4, 2, 96, 50, tied=True, biases=True)
    kept = written(tmp_path / "x.gguf", drawn(size), gguf.GGMLQuantizationType.Q8_0, size, "qwen2")
    found, weights = llama.load(tmp_path / "x.gguf")
    assert (found.tied, found.biases) == (True, True)
    wanted = logits(kept, size)
    np.testing.assert_allclose(logits(weights, found), wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"arch": "gemma"}, "holds a model of architecture 'gemma'. Known: llama, qwen2"),
        ({"fields": {"llama.rope.scaling.type": "yarn"}}, "scaled rotary embeddings"),
        ({"fields": {"llama.rope.dimension_count": 8}}, "rope.dimension_count is 8, hidden / heads is 16"),
    ],
)
def test_files_that_are_refused(change, said, tmp_path):
    path = tmp_path / "x.gguf"
    written(path, drawn(), gguf.GGMLQuantizationType.F16, **change)
    with pytest.raises(InputError, match=said):
        llama.load(path)


def test_a_file_without_words(tmp_path):
    path = tmp_path / "x.gguf"
    written(
        path, {n: a for n, a in drawn().items() if n != "embed_tokens.weight"}, gguf.GGMLQuantizationType.F16
    )
    size, weights = llama.load(path)
    with pytest.raises(InputError, match=r"weights lack 'embed_tokens\.weight'"):
        llama.build(weights=weights, size=size)


@pytest.mark.parametrize("length", [0, 3, 100, 5000])
def test_files_that_end_early(length, tmp_path):
    path = tmp_path / "x.gguf"
    written(path, drawn(), gguf.GGMLQuantizationType.Q4_0)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(InputError, match=r"x\.gguf' cannot be read as GGUF"):
        llama.load(path)


def test_no_file(tmp_path):
    with pytest.raises(InputError, match=r"there is no file '.*x.gguf'"):
        llama.load(tmp_path / "x.gguf")
