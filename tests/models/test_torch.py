"""ResNets compared with torch, which reads the same weights independently."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from drawn_weights import drawn_weights

from autotensor.api.model_compiling import compile_model
from autotensor.graph.evaluate import evaluate
from autotensor.graph.rules import optimize
from autotensor.models import resnet, small_cnn
from autotensor.models.weights import load_weights, shapes_of

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
F = torch.nn.functional


class TorchResNet:
    """ResNet v1.5 as torchvision defines it, from a mapping of torchvision's names."""

    def __init__(self, depth, weights):
        self.depth = depth
        self.w = {n: torch.tensor(np.asarray(a)) for n, a in weights.items()}

    def conv(self, x, name, norm, stride=1):
        w = self.w[f"{name}.weight"]
        y = F.conv2d(x, w, stride=stride, padding=w.shape[-1] // 2)
        mean, var, gamma, beta = (
            self.w[f"{norm}.{p}"] for p in ("running_mean", "running_var", "weight", "bias")
        )
        return F.batch_norm(y, mean, var, gamma, beta, training=False, eps=1e-5)

    def block(self, x, at, stride):
        y = x
        strides = {1: (1, stride, 1)} if self.depth == 50 else {1: (stride, 1)}
        for n, s in enumerate(strides[1], start=1):
            y = self.conv(y, f"{at}.conv{n}", f"{at}.bn{n}", s)
            y = F.relu(y) if n < len(strides[1]) else y
        if f"{at}.downsample.0.weight" in self.w:
            x = self.conv(x, f"{at}.downsample.0", f"{at}.downsample.1", stride)
        return F.relu(y + x)

    def __call__(self, x):
        y = F.max_pool2d(F.relu(self.conv(x, "conv1", "bn1", 2)), 3, stride=2, padding=1)
        for layer, count in enumerate({18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}[self.depth], start=1):
            for n in range(count):
                y = self.block(y, f"layer{layer}.{n}", 2 if layer > 1 and n == 0 else 1)
        return F.linear(y.mean((2, 3)), self.w["fc.weight"], self.w["fc.bias"])


@pytest.mark.parametrize("depth", [18, 50])
def test_resnet_equals_torch(depth):
    weights = drawn_weights(shapes_of(resnet.build, depth), seed=1)
    graph = resnet.build(depth, weights=weights, image=64)
    x = resnet.inputs(np.random.default_rng(2), image=64)["x"]
    with torch.no_grad():
        expected = TorchResNet(depth, weights)(torch.tensor(x)).numpy()
    for form in (graph, optimize(graph)):
        (got,) = evaluate(form, x)
        assert np.abs(got - expected).max() <= 1e-4 * np.abs(expected).max()


def torch_small_cnn(images):
    """The logits that torch computes with the small network's trained weights."""
    w = {n: torch.tensor(a) for n, a in load_weights(small_cnn.DATA).items()}
    y = torch.tensor(images)
    for n, _ in enumerate(pairwise(small_cnn.CHANNELS), start=1):
        y = F.conv2d(y, w[f"conv{n}.weight"], padding=1)
        stats = (w[f"bn{n}.{p}"] for p in ("running_mean", "running_var", "weight", "bias"))
        y = F.relu(F.batch_norm(y, *stats, training=False, eps=1e-5))
        y = F.max_pool2d(y, 2) if n in small_cnn.POOLED else y
    return F.linear(y.flatten(1), w["fc.weight"], w["fc.bias"]).numpy()


def test_small_cnn_equals_torch():
    x = small_cnn.inputs(np.random.default_rng(0), batch=4)["x"]
    expected = torch_small_cnn(x)
    np.testing.assert_allclose(evaluate(small_cnn.build(batch=4), x)[0], expected, rtol=1e-4, atol=1e-4)


def double(model):
    """The same network in float64."""
    twin = TorchResNet(model.depth, {})
    twin.w = {n: t.double() for n, t in model.w.items()}
    return twin


@pytest.mark.parametrize("depth", [18, 50])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_compiled_resnet_equals_torch(depth, seed):
    """The compiled model with default schedules: within 1e-4 of torch, as close to float64 as torch is."""
    weights = drawn_weights(shapes_of(resnet.build, depth), seed=seed)
    x = resnet.inputs(np.random.default_rng(2))["x"]
    model = TorchResNet(depth, weights)
    with torch.no_grad():
        expected = model(torch.tensor(x)).numpy()
        exact = double(model)(torch.tensor(x).double()).numpy()
    got = compile_model(resnet.build(depth, weights=weights), db=":memory:")(x)
    largest = np.abs(exact).max()
    assert np.abs(got - expected).max() <= 1e-4 * largest
    assert np.abs(got - exact).max() <= 3 * np.abs(expected - exact).max()


def test_compiled_small_cnn_gives_torchs_class_on_every_held_out_digit():
    """The trained network on all 360 test images (scikit-learn's digits, the split of `small_cnn.split`)."""
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    _, test = small_cnn.split(len(digits.target))
    images = (digits.images[test] / 16.0).astype(np.float32)[:, None]
    expected = torch_small_cnn(images).argmax(1)
    compiled = compile_model(small_cnn.build(), db=":memory:")
    got = np.array([compiled(image[None]).argmax() for image in images])
    np.testing.assert_array_equal(got, expected)
    assert (got == digits.target[test]).mean() >= 0.97
