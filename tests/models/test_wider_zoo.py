"""The models that `test_zoo.py` lacks: sizes as in the papers; rules and compiling keep their results."""

from __future__ import annotations

import numpy as np
import pytest
from drawn_weights import drawn_weights
from reduced import TINY
from zoo_reduced import SHAPES, WIDER

from autotensor.api.model_compiling import compile_model
from autotensor.base.errors import InputError
from autotensor.graph.evaluate import evaluate
from autotensor.graph.rules import optimize
from autotensor.models import (
    MODELS,
    alexnet,
    dit,
    gcn,
    googlenet,
    gpt2,
    gpt2_decode,
    language_model,
    moe,
    resnet,
    unet,
    vgg,
    weights,
)
from autotensor.models.weights import shapes_of

PARAMETERS = {  # torchvision's documentation; the papers, their authors' code or well-known ports elsewhere
    "alexnet": 61_100_840,
    "overfeat": 145_920_872,
    "vgg19": 143_667_240,
    "googlenet": 6_624_904,  # 13.0 M with both auxiliary heads
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "mobilenet_v1": 4_231_976,
    "unet": 31_037_698,
    "gpt2_decode": 124_439_808,
    "llama_4bit": 348_701_696,
    "dit": 32_963_360,
    "ncf": 31_832_577,
    "gcn": 23_063,
    "lstm": 19_780_400,
}
SLOW = (
    "alexnet",
    "bert_base",
    "gnmt",
    "gpt2",
    "gpt2_decode",
    "llama_4bit",
    "llama_8bit",
    "overfeat",
    "resnet101",
    "resnet152",
    "vgg16",
    "vgg19",
)


@pytest.mark.parametrize("name", PARAMETERS)
def test_known_sizes(name):
    assert MODELS.get(name).parameters == PARAMETERS[name]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in MODELS if n != "resnet"]
)
@pytest.mark.sample(6)
def test_the_list_says_what_is_there(name, monkeypatch):
    """Work, parameters and inputs of the full models. Weights are one number each: only counted."""
    monkeypatch.setattr(weights, "draw", lambda n, shape, seed: np.full(shape, len(n) + seed, np.float32))
    model = MODELS.get(name)
    graph = model.build()
    assert graph.flops() / 1e9 == pytest.approx(model.gflop, rel=0.006)
    arrays = model.inputs(np.random.default_rng(0))
    assert [(n.name, n.shape, n.dtype.numpy) for n in graph.inputs] == [
        (n, a.shape, a.dtype) for n, a in arrays.items()
    ]


@pytest.mark.parametrize("name", WIDER)
@pytest.mark.sample(5)
def test_rules_keep_the_meaning(name):
    graph, arrays = WIDER[name]()
    expected, got = evaluate(graph, **arrays), evaluate(optimize(graph), **arrays)
    for g, e in zip(got, expected, strict=True):
        assert np.abs(e).max() > 0.01
        assert e.std() > 1e-3
        np.testing.assert_allclose(g, e, rtol=1e-4, atol=1e-4 * np.abs(e).max())


@pytest.mark.parametrize(
    "name",
    [
        n if n in ("lstm", "gcn", "moe") else pytest.param(n, marks=pytest.mark.slow)
        for n in WIDER
    ],
)  # fmt: skip
def test_compiled_models_equal_their_references(name):
    graph, arrays = WIDER[name]()
    got = compile_model(graph, db=":memory:")(**arrays)
    for g, e in zip(got if isinstance(got, tuple) else (got,), evaluate(graph, **arrays), strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-4, atol=1e-4 * np.abs(e).max())


@pytest.mark.parametrize("name", ["alexnet", "mobilenet_v1", "unet", "lstm", "dit", "ncf"])
def test_inputs_follow_the_batch(name):
    model = MODELS.get(name)
    arrays = model.inputs(np.random.default_rng(0), batch=3)
    assert {a.shape[0] for a in arrays.values()} == {3}


def test_weights_are_held_to_their_shapes():
    given = drawn_weights(SHAPES["unet"](), 1)
    assert unet.build(image=32, width=8, weights=given).key != unet.build(image=32, width=8).key
    with pytest.raises(InputError, match=r"googlenet: weights hold .*down1.maxpool_conv.1.double_conv"):
        googlenet.build(weights={**drawn_weights(shapes_of(googlenet.build), 0), **given}, image=64)
    aux = {"aux1.conv.conv.weight": np.zeros(3), "inception3a.branch1.bn.num_batches_tracked": np.zeros(())}
    googlenet.build(weights={**drawn_weights(shapes_of(googlenet.build), 0), **aux}, image=64)


def test_sizes_that_do_not_fit():
    with pytest.raises(InputError, match=r"there is no vgg11. Known: vgg16, vgg19"):
        vgg.build(depth=11)
    with pytest.raises(InputError, match=r"there is no resnet99. Known: .*resnet101, resnet152"):
        resnet.build(99)
    with pytest.raises(InputError, match=r"unet: image=40 must be a multiple of 16"):
        unet.build(image=40)
    with pytest.raises(
        InputError, match=r"alexnet: image=40 is too small; nothing is left of it at features.10"
    ):
        alexnet.build(image=40)
    with pytest.raises(InputError, match=r"there is no language model of 'rnn'. Known: lstm, gru"):
        language_model.build("rnn")
    with pytest.raises(InputError, match=r"dit: hidden=30 must be a multiple of heads=4"):
        dit.DitSize(hidden=30, heads=4)


# -- a cache that grows ----------------------------------------------------------------------------------


def test_decoding_word_by_word_is_what_prefill_says():
    words = np.random.default_rng(0).integers(0, TINY.vocabulary, (2, 6))
    (expected,) = evaluate(gpt2.build(2, tokens=6, size=TINY), words)
    step = compile_model(gpt2_decode.build(2, capacity=8, size=TINY), db=":memory:")
    cache = np.full(gpt2_decode.cache_shape(2, 8, TINY), np.nan, np.float32)  # empty places are not looked at
    for n in range(6):
        logits, entry = step(words[:, n : n + 1].copy(), np.array([n]), cache)
        np.testing.assert_allclose(logits[:, 0], expected[:, n], rtol=1e-4, atol=1e-4)
        gpt2_decode.remember(cache, entry, n)
    with pytest.raises(InputError, match=r"positions 8 … 8 are outside the cache, which holds 8"):
        gpt2_decode.remember(cache, entry, 8)


# -- graphs, experts -------------------------------------------------------------------------------------


def test_lists_of_neighbours():
    neighbours, strengths = gcn.lists_of(np.array([[0, 1], [1, 2]]), nodes=4, degree=3)
    np.testing.assert_array_equal(neighbours, [[0, 1, 0], [1, 0, 2], [2, 1, 0], [3, 0, 0]])
    s = 1 / np.sqrt(6)
    np.testing.assert_allclose(strengths, [[0.5, s, 0], [1 / 3, s, s], [0.5, s, 0], [1, 0, 0]], rtol=1e-6)
    with pytest.raises(InputError, match=r"node 1 has 2 neighbours; degree=2 leaves room for 1"):
        gcn.lists_of(np.array([[0, 1], [1, 2]]), nodes=4, degree=2)
    with pytest.raises(InputError, match=r"an edge names a node outside 0 … 3"):
        gcn.lists_of(np.array([[0, 4]]), nodes=4, degree=2)


def test_experts_that_are_full_leave_tokens_out():
    x = moe.inputs(np.random.default_rng(0), tokens=12, hidden=16)["x"]
    full, load = evaluate(moe.build(tokens=12, hidden=16, capacity=12), x)
    tight, same = evaluate(moe.build(tokens=12, hidden=16, capacity=2), x)
    assert load.sum() == 24
    np.testing.assert_array_equal(load, same)
    assert load.max() > 2
    changed = np.abs(full - tight).max(1) > 1e-5
    assert 0 < changed.sum() <= np.maximum(load - 2, 0).sum()
