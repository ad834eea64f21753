"""The same program in all styles gives the same bits, whichever intermediate values are read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autotensor as at
import autotensor.flow as tf
from autotensor import imperative as torch

RNG = np.random.default_rng(0)
X = RNG.standard_normal((17, 33)).astype(np.float32)
Y = np.eye(5, dtype=np.float32)[RNG.integers(0, 5, 17)]
START = (
    (RNG.standard_normal((33, 19)) * 0.2).astype(np.float32),
    (RNG.standard_normal((19, 5)) * 0.3).astype(np.float32),
)
STEPS = 6
DEVICE = "llvm -threads=1"  # small programs, and a busy machine need not wait for a second core
Curve = tuple[list[float], list[np.ndarray]]
OPTIMIZERS = {
    "sgd": (lambda p: torch.optim.SGD(p, 0.3), lambda: tf.train.GradientDescentOptimizer(0.3)),
    "momentum": (lambda p: torch.optim.SGD(p, 0.3, 0.9), lambda: tf.train.MomentumOptimizer(0.3, 0.9)),
    "adam": (lambda p: torch.optim.Adam(p, 0.02), lambda: tf.train.AdamOptimizer(0.02)),
}


def loss_of(x, y, w, v):
    hidden = torch.relu(x @ w) * 1.7 + 0.3
    return torch.cross_entropy(hidden @ v, y), hidden


def imperative(make: Callable, look: bool) -> Curve:
    w, v = (torch.tensor(a, requires_grad=True) for a in START)
    opt = make([w, v])
    losses = []
    for _ in range(STEPS):
        loss, hidden = loss_of(torch.tensor(X), torch.tensor(Y), w, v)
        if look:
            assert str(hidden)
            assert hidden.mean() > -100
        opt.zero_grad()
        loss.backward()
        if look:
            assert str(w.grad)
        opt.step()
        losses.append(float(loss) if look else loss)
    return [float(x) for x in losses], [w.numpy(), v.numpy()]


def compiled(make: Callable) -> Curve:
    w, v = (torch.tensor(a, requires_grad=True) for a in START)
    opt = make([w, v])

    @at.compile
    def step(x, y):
        loss, _ = loss_of(x, y, w, v)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return [float(step(X, Y)) for _ in range(STEPS)], [w.numpy(), v.numpy()]


def static(make: Callable, apart: bool) -> Curve:
    with tf.Graph().as_default():
        x, y = tf.placeholder(tf.float32, [None, 33]), tf.placeholder(tf.float32, [None, 5])
        w, v = (tf.Variable(tf.constant(a)) for a in START)
        hidden = tf.nn.relu(tf.matmul(x, w)) * 1.7 + 0.3
        loss = tf.losses.softmax(tf.matmul(hidden, v), y)
        step = make().minimize(loss)
        sess = tf.Session(device=DEVICE)
        sess.run(tf.initialize_all_variables())
        losses = []
        for _ in range(STEPS):
            if apart:
                losses.append(float(sess.run(loss, {x: X, y: Y})))
                sess.run([hidden, step], {x: X, y: Y})
            else:
                losses.append(float(sess.run([loss, step], {x: X, y: Y})[0]))
        return losses, sess.run([w, v])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_all_styles_agree_to_the_bit(name: str) -> None:
    lazy, graph = OPTIMIZERS[name]
    with torch.device(DEVICE):
        first = imperative(lazy, look=False)
        others = [imperative(lazy, look=True), compiled(lazy), static(graph, False), static(graph, True)]
    for other in others:
        assert other[0] == first[0]
        assert all(np.array_equal(a, b) for a, b in zip(first[1], other[1], strict=True))
    assert first[0][-1] < first[0][0]
