"""Weights from files, and the messages if they do not fit."""

from __future__ import annotations

import numpy as np
import pytest
from drawn_weights import drawn_weights
from safetensors.numpy import save_file

from autotensor.base.errors import InputError
from autotensor.models import bert, gpt2, load_weights, mlp
from autotensor.models.transformer import Size
from autotensor.models.weights import shapes_of

SIZES = (5, 4, 3)


@pytest.fixture
def weights():
    return drawn_weights(shapes_of(mlp.build, sizes=SIZES), seed=3)


@pytest.mark.parametrize("ending", [".npz", ".safetensors"])
def test_files_give_what_was_written(tmp_path, weights, ending):
    path = tmp_path / f"w{ending}"
    np.savez(path, **weights) if ending == ".npz" else save_file(weights, path)
    read = load_weights(path)
    assert sorted(read) == sorted(weights)
    assert mlp.build(weights=read, sizes=SIZES).key == mlp.build(seed=3, sizes=SIZES).key


def test_other_float_types_are_converted(weights):
    wide = {n: w.astype(np.float64) for n, w in weights.items()}
    assert mlp.build(weights=wide, sizes=SIZES).key == mlp.build(weights=weights, sizes=SIZES).key


def test_a_missing_name(weights):
    weights["fc1.wieght"] = weights.pop("fc1.weight")
    with pytest.raises(
        InputError, match=r"mlp: weights lack 'fc1.weight' of shape \(4, 5\). Did you mean 'fc1.wieght'"
    ):
        mlp.build(weights=weights, sizes=SIZES)


def test_a_wrong_shape(weights):
    weights["fc2.bias"] = np.zeros(7, np.float32)
    with pytest.raises(InputError, match=r"mlp: weight 'fc2.bias' has shape \(7,\), expected \(3,\)"):
        mlp.build(weights=weights, sizes=SIZES)


def test_names_that_are_left_over(weights):
    weights |= {f"fc{n}.weight": np.zeros(1) for n in range(5, 10)} | {"bn.num_batches_tracked": np.zeros(())}
    with pytest.raises(
        InputError, match=r"'fc5.weight', 'fc6.weight', 'fc7.weight' and 2 more, which it has not"
    ):
        mlp.build(weights=weights, sizes=SIZES)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="there is no weights file"):
        load_weights(tmp_path / "none.npz")
    (tmp_path / "w.bin").write_bytes(b"x")
    with pytest.raises(InputError, match=r"has an unknown ending. Known: .safetensors, .npz"):
        load_weights(tmp_path / "w.bin")
    for ending in (".npz", ".safetensors"):
        (tmp_path / f"w{ending}").write_bytes(b"not one")
        with pytest.raises(InputError, match="cannot be read"):
            load_weights(tmp_path / f"w{ending}")


def test_pickles_are_not_executed(tmp_path):
    np.savez(tmp_path / "w.npz", a=np.array([{"x": 1}], dtype=object))
    with pytest.raises(InputError, match=r"cannot be read: it holds no plain arrays\."):
        load_weights(tmp_path / "w.npz")


TINY = Size(layers=1, hidden=8, heads=2, vocabulary=11, positions=6)


def test_checkpoints_of_bert_with_a_head():
    """transformers' BertForMaskedLM has a prefix, and weights that the model does not use."""
    plain = drawn_weights(shapes_of(bert.build, tokens=4, size=TINY), seed=1)
    file = {f"bert.{n}": a for n, a in plain.items()}
    file |= {n: np.zeros(3) for n in ("cls.predictions.bias", "bert.pooler.dense.weight")}
    assert (
        bert.build(weights=file, tokens=4, size=TINY).key
        == bert.build(weights=plain, tokens=4, size=TINY).key
    )
    file["cls_prediction.bias"] = np.zeros(3)
    with pytest.raises(InputError, match=r"bert_base: weights hold 'cls_prediction.bias', which it has not"):
        bert.build(weights=file, tokens=4, size=TINY)


def test_checkpoints_of_gpt2():
    """With and without the language model's head; the buffers of its causal mask are not weights."""
    plain = drawn_weights(shapes_of(gpt2.build, tokens=4, size=TINY), seed=1)
    buffers = {"h.0.attn.bias": np.tri(6)[None, None], "h.0.attn.masked_bias": np.float32(-1e4)}
    headed = {f"transformer.{n}": a for n, a in {**plain, **buffers}.items()}
    headed["lm_head.weight"] = plain["wte.weight"]
    keys = {gpt2.build(weights=w, tokens=4, size=TINY).key for w in (plain, {**plain, **buffers}, headed)}
    assert len(keys) == 1
    del plain["h.0.ln_1.weight"]
    with pytest.raises(InputError, match=r"gpt2: weights lack 'h.0.ln_1.weight'.*Names are transformers'"):
        gpt2.build(weights=plain, tokens=4, size=TINY)
