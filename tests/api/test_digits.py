"""Training on scikit-learn's digits: the accuracy on unseen digits, and the same curve as torch's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import autotensor as at
from autotensor.api.training import TrainingStep
from autotensor.autodiff.optimizers import SGD, Adam
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode
from autotensor.models.small_cnn import split

datasets = pytest.importorskip("sklearn.datasets")
Array = np.ndarray[Any, Any]
BATCH = 64
pytestmark = pytest.mark.usefixtures("own_log")


@pytest.fixture(scope="module")
def digits() -> tuple[Array, Array, Array, Array]:
    """Images in [0, 1] and labels, to train on and to test on."""
    data = datasets.load_digits()
    images, labels = (data.images / 16).astype(np.float32), data.target
    train, test = split()
    return images[train], labels[train], images[test], labels[test]


def batches(images: Array, labels: Array, epochs: int) -> Iterator[tuple[Array, Array]]:
    """Shuffled batches, labels as rows of the identity."""
    rng = np.random.default_rng(0)
    for _ in range(epochs):
        order = rng.permutation(len(images))
        for n in range(0, len(order) - BATCH + 1, BATCH):
            at_ = order[n : n + BATCH]
            yield images[at_], np.eye(10, dtype=np.float32)[labels[at_]]


def cross_entropy(logits: GraphNode, target: GraphNode) -> GraphNode:
    return ops.mean(ops.sum(ops.log_softmax(logits) * target, axis=1)) * -1.0  # type: ignore[no-any-return]


def accuracy(step: TrainingStep, logits: GraphNode, images: Array, labels: Array) -> float:
    model = at.compile_model(step.trained(logits)[0], db=":memory:")
    model.threads = 1
    whole = len(images) // BATCH * BATCH
    found = [model(images[n : n + BATCH]).argmax(1) for n in range(0, whole, BATCH)]
    return float((np.concatenate(found) == labels[:whole]).mean())


def logistic() -> tuple[GraphNode, GraphNode, dict[str, Array]]:
    x, t = at.input((BATCH, 64), name="x"), at.input((BATCH, 10), name="t")
    start = {"w": np.zeros((10, 64), np.float32), "b": np.zeros(10, np.float32)}
    logits = ops.dense(x, *(at.parameter(a, n) for n, a in start.items()))
    return logits, cross_entropy(logits, t), start


def network() -> tuple[GraphNode, GraphNode, dict[str, Array]]:
    """Two convolutions, each with a pool, and a dense layer."""
    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> Array:
        return (rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32)

    start = {"w1": drawn(16, 1, 3, 3), "b1": np.zeros(16, np.float32), "w2": drawn(32, 16, 3, 3)}
    start |= {"b2": np.zeros(32, np.float32), "w3": drawn(10, 128), "b3": np.zeros(10, np.float32)}
    p = {n: at.parameter(a, n) for n, a in start.items()}
    x, t = at.input((BATCH, 1, 8, 8), name="x"), at.input((BATCH, 10), name="t")
    h = ops.max_pool2d(ops.relu(ops.conv2d(x, p["w1"], p["b1"], padding=1)), kernel=2)
    h = ops.max_pool2d(ops.relu(ops.conv2d(h, p["w2"], p["b2"], padding=1)), kernel=2)
    logits = ops.dense(ops.flatten(h), p["w3"], p["b3"])
    return logits, cross_entropy(logits, t), start


def test_logistic_regression(digits: tuple[Array, ...]) -> None:
    images, labels, unseen, answers = digits
    logits, loss, _ = logistic()
    step = at.training_step(loss, optimizer=SGD(0.5))
    step.module.threads = 1
    for x, t in batches(images.reshape(-1, 64), labels, 40):
        step(x, t)
    assert accuracy(step, logits, unseen.reshape(-1, 64), answers) >= 0.95


def test_a_small_cnn(digits: tuple[Array, ...]) -> None:
    images, labels, unseen, answers = digits
    logits, loss, _ = network()
    step = at.training_step(loss, optimizer=Adam(3e-3))
    step.module.threads = 1
    for x, t in batches(images[:, None], labels, 25):
        step(x, t)
    assert accuracy(step, logits, unseen[:, None], answers) >= 0.98


# -- torch ---------------------------------------------------------------------------------------------------


def curve(step: TrainingStep, images: Array, labels: Array, epochs: int) -> list[float]:
    step.module.threads = 1
    return [step(x, t) for x, t in batches(images, labels, epochs)]


def torch_curve(forward: Any, start: dict[str, Array], optimizer: Any, data: Iterator[Any]) -> list[float]:
    import torch

    torch.set_num_threads(1)
    p = {n: torch.tensor(a, requires_grad=True) for n, a in start.items()}
    chosen = optimizer(list(p.values()))
    losses = []
    for x, t in data:
        chosen.zero_grad()
        loss = -(torch.log_softmax(forward(p, torch.from_numpy(x)), 1) * torch.from_numpy(t)).sum(1).mean()
        loss.backward()
        chosen.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.torch
def test_logistic_regression_follows_torch(digits: tuple[Array, ...]) -> None:
    torch = pytest.importorskip("torch")
    images, labels = digits[0].reshape(-1, 64), digits[1]
    _, loss, start = logistic()
    ours = curve(at.training_step(loss, optimizer=SGD(0.5)), images, labels, 10)
    theirs = torch_curve(
        lambda p, x: torch.nn.functional.linear(x, p["w"], p["b"]),
        start,
        lambda p: torch.optim.SGD(p, 0.5),
        batches(images, labels, 10),
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-3)


@pytest.mark.torch
def test_the_cnn_follows_torch(digits: tuple[Array, ...]) -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional

    def forward(p: Any, x: Any) -> Any:
        h = functional.max_pool2d(torch.relu(functional.conv2d(x, p["w1"], p["b1"], padding=1)), 2)
        h = functional.max_pool2d(torch.relu(functional.conv2d(h, p["w2"], p["b2"], padding=1)), 2)
        return functional.linear(h.flatten(1), p["w3"], p["b3"])

    images, labels = digits[0][:, None], digits[1]
    _, loss, start = network()
    ours = curve(at.training_step(loss, optimizer=SGD(0.02)), images, labels, 5)
    theirs = torch_curve(forward, start, lambda p: torch.optim.SGD(p, 0.02), batches(images, labels, 5))
    np.testing.assert_allclose(ours, theirs, atol=1e-3)
