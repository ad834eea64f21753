"""A convolutional network and attention: all styles give equal bits, and gradients agree with finite
differences."""

from __future__ import annotations

import numpy as np
import pytest

import autotensor as at
import autotensor.flow as tf
from autotensor import imperative as torch

DEVICE = "llvm -threads=1"
RNG = np.random.default_rng(1)
IMAGES = RNG.random((4, 1, 12, 12), dtype=np.float32)
LABELS = np.eye(3, dtype=np.float32)[[0, 1, 2, 1]]
FILTERS = (RNG.standard_normal((5, 1, 3, 3)) * 0.3).astype(np.float32)
WEIGHTS = (RNG.standard_normal((5 * 25, 3)) * 0.1).astype(np.float32)


def imperative(look: bool) -> tuple[list[float], np.ndarray]:
    filters, weights = torch.tensor(FILTERS, requires_grad=True), torch.tensor(WEIGHTS, requires_grad=True)
    opt = torch.optim.SGD([filters, weights], 0.2, momentum=0.9)
    losses = []
    for _ in range(3):
        maps = torch.max_pool2d(torch.relu(torch.conv2d(IMAGES, filters) * 1.3), 2)
        if look:
            assert maps.numpy().shape == (4, 5, 5, 5)
        loss = torch.cross_entropy(maps.flatten() @ weights, LABELS) + 0.01 * (maps * maps).mean()
        opt.zero_grad()
        loss.backward()
        if look:
            assert np.isfinite(filters.grad.numpy()).all()
        opt.step()
        losses.append(float(loss))
    return losses, filters.numpy()


def static() -> tuple[list[float], np.ndarray]:
    with tf.Graph().as_default():
        x, y = tf.placeholder(tf.float32, [None, 1, 12, 12]), tf.placeholder(tf.float32, [None, 3])
        filters, weights = tf.Variable(tf.constant(FILTERS)), tf.Variable(tf.constant(WEIGHTS))
        raw = tf.nn.relu(tf.nn.conv2d(x, filters) * 1.3)
        maps = tf.nn.max_pool(raw, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1])
        logits = tf.matmul(tf.nn.flatten_layer(maps), weights)
        loss = tf.losses.softmax(logits, y) + 0.01 * tf.reduce_mean(maps * maps)
        step = tf.train.MomentumOptimizer(0.2, 0.9).minimize(loss)
        sess = tf.Session(device=DEVICE)
        sess.run(tf.initialize_all_variables())
        feeds = {x: IMAGES, y: LABELS}
        return [float(sess.run([loss, step], feeds)[0]) for _ in range(3)], sess.run(filters)


def test_a_convolutional_network_in_both_styles() -> None:
    with torch.device(DEVICE):
        first, looked = imperative(look=False), imperative(look=True)
    for other in (looked, static()):
        assert other[0] == first[0]
        assert np.array_equal(other[1], first[1])
    assert first[0][-1] < first[0][0]


def attention(q, k, v):
    """Written with primitive operators only."""
    scores = torch.exp((q @ k.T) * 0.5)
    return (scores / scores.sum(axis=1, keepdims=True)) @ v


@pytest.mark.parametrize("which", [0, 1, 2])
def test_attention_from_primitives(which: int) -> None:
    arrays = [RNG.standard_normal((4, 3)) for _ in range(3)]
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    compiled = at.compile(attention)
    with torch.device(DEVICE):
        compiled(*tensors).sum().backward()
        d = np.zeros((4, 3))
        d[2, 1] = 1e-6
        sides = [
            float(attention(*(torch.tensor(a + s * d * (n == which)) for n, a in enumerate(arrays))).sum())
            for s in (1, -1)
        ]
    np.testing.assert_allclose(
        tensors[which].grad.numpy()[2, 1], (sides[0] - sides[1]) / 2e-6, rtol=1e-5, atol=1e-7
    )
