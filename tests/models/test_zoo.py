"""The built-in models: shapes, names, seeds, and trained weights that work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from reduced import REDUCED, TINY

from autotensor.base.errors import InputError
from autotensor.graph.evaluate import evaluate
from autotensor.graph.rules import optimize
from autotensor.models import MODELS, bert, dcgan, gpt2, mlp, mobilenet, resnet, resnet3d, small_cnn, vgg
from autotensor.models.weights import shapes_of


def test_the_registry():
    assert MODELS.names() == (
        *(
            "alexnet",
            "bert_base",
            "bilstm",
            "dcgan",
            "dit",
            "gcn",
            "gnmt",
            "googlenet",
            "gpt2",
            "gpt2_decode",
        ),
        *(
            "gru",
            "llama_4bit",
            "llama_8bit",
            "lstm",
            "mlp",
            "mobilenet_v1",
            "mobilenet_v2",
            "moe",
            "ncf",
            "overfeat",
            "r3d_18",
        ),
        *(
            "resnet",
            "resnet101",
            "resnet152",
            "resnet18",
            "resnet34",
            "resnet50",
            "small_cnn",
            "unet",
            "vgg16",
            "vgg19",
        ),
    )
    assert MODELS.get("resnet").build().name == "resnet50"
    with pytest.raises(InputError, match=r"model 'resnet5' is unknown. Did you mean 'resnet50'"):
        MODELS.get("resnet5")
    with pytest.raises(
        InputError, match=r"there is no resnet99. Known: resnet18, resnet34, resnet50, resnet101"
    ):
        resnet.build(99)


@pytest.mark.parametrize(
    ("depth", "trained", "gflops"), [(18, 11_689_512, 3.6), (34, 21_797_672, 7.3), (50, 25_557_032, 8.2)]
)
def test_resnets_have_the_known_size(depth, trained, gflops):
    """Parameter counts are those that torchvision documents."""
    shapes = shapes_of(resnet.build, depth)
    assert sum(np.prod(s) for n, s in shapes.items() if "running" not in n) == trained
    graph = resnet.build(depth)
    assert graph.flops() / 1e9 == pytest.approx(gflops, abs=0.1)
    assert graph.outputs[0].shape == (1, 1000)


@pytest.mark.parametrize(
    ("module", "trained"),
    [
        (mobilenet, 3_504_872),
        (vgg, 138_357_544),
        (resnet3d, 33_371_472),
        (dcgan, 3_576_704),
        (bert, 108_891_648),
        (gpt2, 124_439_808),
    ],
    ids=["mobilenet_v2", "vgg16", "r3d_18", "dcgan", "bert_base", "gpt2"],
)
def test_other_models_have_the_known_size(module, trained):
    """Parameter counts are those that torchvision and transformers document (BERT without its pooler)."""
    assert sum(np.prod(s) for n, s in shapes_of(module.build).items() if "running" not in n) == trained


@pytest.mark.parametrize(
    ("module", "gflops"), [(mobilenet, 0.62), (dcgan, 0.21)], ids=["mobilenet_v2", "dcgan"]
)
def test_other_models_have_the_known_work(module, gflops):
    assert optimize(module.build()).flops() / 1e9 == pytest.approx(gflops, rel=0.02)


@pytest.mark.parametrize("name", ["vgg16", "mobilenet_v2", "r3d_18", "dcgan", "bert_base", "gpt2"])
def test_rules_keep_the_meaning_of_reduced_models(name):
    graph, arrays = REDUCED[name]()
    after = optimize(graph)
    expected, got = evaluate(graph, **arrays)[0], evaluate(after, **arrays)[0]
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    assert after.count("batch_norm") == after.count("slice") == 0
    edges = {"dcgan": 1, "bert_base": 0, "gpt2": 0}  # layouts change where the model begins or ends
    assert after.count("transpose") == edges.get(name, 1)


def test_sizes_that_do_not_fit():
    with pytest.raises(InputError, match=r"vgg16: image=100 must be a multiple of 32"):
        vgg.build(image=100)
    with pytest.raises(InputError, match=r"bert_base: hidden=64 must be a multiple of heads=5"):
        bert.build(size=replace(TINY, heads=5))
    with pytest.raises(InputError, match=r"gpt2: tokens=41 must be 1 … 40, its positions"):
        gpt2.build(tokens=41, size=TINY)
    with pytest.raises(InputError, match=r"token numbers are int64 or int32, not 'float32'"):
        bert.build(tokens=8, size=TINY, ids="float32")


def test_resnet_names_are_torchvisions():
    names = list(shapes_of(resnet.build, 50))
    assert names[:5] == ["conv1.weight", "bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var"]
    for name in (
        "layer1.0.downsample.0.weight",
        "layer4.2.conv3.weight",
        "layer4.2.bn3.running_var",
        "fc.bias",
    ):
        assert name in names
    assert "layer1.1.downsample.0.weight" not in names
    assert "layer1.0.downsample.0.weight" not in shapes_of(resnet.build, 18)
    assert shapes_of(resnet.build, 50)["layer2.0.conv2.weight"] == (128, 128, 3, 3)


def test_seeds_decide_weights():
    a, b, c = (mlp.build(seed=s) for s in (1, 1, 2))
    assert a.key == b.key
    assert a.key != c.key


@pytest.mark.parametrize("name", ["mlp", "small_cnn"])
def test_rules_keep_the_meaning(name):
    model = MODELS.get(name)
    graph, arrays = model.build(batch=3), model.inputs(np.random.default_rng(0), batch=3)
    expected, got = evaluate(graph, **arrays)[0], evaluate(optimize(graph), **arrays)[0]
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    assert optimize(graph).count("transpose") == 0


@pytest.mark.parametrize("name", ["mlp", "small_cnn"])
def test_networks_can_be_wider(name):
    model = MODELS.get(name)
    plain, same, wide = (model.build(batch=4, **size) for size in ({}, {"widen": 1}, {"widen": 10}))
    assert plain.key == same.key
    assert wide.outputs[0].shape == plain.outputs[0].shape
    assert 30 < wide.flops() / plain.flops() < 100  # input and output stay as they are
    (x,) = model.inputs(np.random.default_rng(0), batch=4).values()
    assert evaluate(wide, x)[0].shape == (4, 10)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "dcgan", "mlp", "small_cnn"])
def test_the_work_grows_with_the_batch(name):
    """Inputs for it are sampled, too."""
    model = MODELS.get(name)
    one, three = model.build(batch=1), model.build(batch=3)
    assert three.flops() == pytest.approx(3 * one.flops(), rel=0.01)  # a norm's scales are computed once
    arrays = model.inputs(np.random.default_rng(0), batch=3)
    assert [arrays[n.name].shape for n in three.inputs] == [n.shape for n in three.inputs]


def test_rules_keep_the_meaning_of_a_resnet():
    graph = resnet.build(18, image=32)
    arrays = resnet.inputs(np.random.default_rng(0), image=32)
    expected, got = evaluate(graph, **arrays)[0], evaluate(optimize(graph), **arrays)[0]
    assert 0.1 < np.abs(expected).max() < 1e3
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    assert optimize(graph).count("batch_norm") == 0
    assert optimize(graph).count("transpose") == 1


def test_the_trained_network_reads_digits():
    datasets = pytest.importorskip("sklearn.datasets")
    digits = datasets.load_digits()
    _, test = small_cnn.split(len(digits.target))
    x = (digits.images[test] / 16).astype(np.float32)[:, None]
    (logits,) = evaluate(small_cnn.build(batch=len(test)), x)
    assert (logits.argmax(1) == digits.target[test]).mean() >= 0.97


def test_the_split_is_a_split():
    train, test = small_cnn.split()
    assert (len(train), len(test)) == (1437, 360)
    assert sorted([*train, *test]) == list(range(1797))
