"""The built-in models: shapes, names, seeds, and trained weights that work."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor.base.errors import InputError
from autotensor.graph.evaluate import evaluate
from autotensor.graph.rules import optimize
from autotensor.models import MODELS, mlp, resnet, small_cnn


def test_the_registry():
    assert MODELS.names() == ("mlp", "resnet", "resnet18", "resnet34", "resnet50", "small_cnn")
    assert MODELS.get("resnet").build().name == "resnet50"
    with pytest.raises(InputError, match=r"model 'resnet5' is unknown. Did you mean 'resnet50'"):
        MODELS.get("resnet5")
    with pytest.raises(InputError, match=r"there is no resnet99. Known: resnet18, resnet34, resnet50"):
        resnet.build(99)


@pytest.mark.parametrize(
    ("depth", "trained", "gflops"), [(18, 11_689_512, 3.6), (34, 21_797_672, 7.3), (50, 25_557_032, 8.2)]
)
def test_resnets_have_the_known_size(depth, trained, gflops):
    """Parameter counts are those that torchvision documents."""
    shapes = resnet.shapes(depth)
    assert sum(np.prod(s) for n, s in shapes.items() if "running" not in n) == trained
    graph = resnet.build(depth)
    assert graph.flops() / 1e9 == pytest.approx(gflops, abs=0.1)
    assert graph.outputs[0].shape == (1, 1000)


def test_resnet_names_are_torchvisions():
    names = list(resnet.shapes(50))
    assert names[:5] == ["conv1.weight", "bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var"]
    for name in (
        "layer1.0.downsample.0.weight",
        "layer4.2.conv3.weight",
        "layer4.2.bn3.running_var",
        "fc.bias",
    ):
        assert name in names
    assert "layer1.1.downsample.0.weight" not in names
    assert "layer1.0.downsample.0.weight" not in resnet.shapes(18)
    assert resnet.shapes(50)["layer2.0.conv2.weight"] == (128, 128, 3, 3)


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
