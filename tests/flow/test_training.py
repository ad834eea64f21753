"""Optimisers, losses and layers against NumPy; tinyflow's programs."""

from __future__ import annotations

import numpy as np
import pytest

import autotensor.flow as tf
from autotensor.base.errors import GraphError
from autotensor.flow.datasets import get_mnist

RNG = np.random.default_rng(0)
DATA = RNG.standard_normal((12, 4)).astype(np.float32)
GOAL = RNG.standard_normal((12, 1)).astype(np.float32)


def trained(optimizer, steps: int) -> np.ndarray:
    x, y = tf.placeholder(tf.float32, [None, 4]), tf.placeholder(tf.float32, [None, 1])
    w = tf.Variable(tf.ones([4, 1]))
    step = optimizer.minimize(tf.losses.l2(tf.matmul(x, w), y))
    sess = tf.Session()
    sess.run(tf.initialize_all_variables())
    for _ in range(steps):
        sess.run(step, {x: DATA, y: GOAL})
    return sess.run(w)


def by_numpy(update, steps: int) -> np.ndarray:
    w, state = np.ones((4, 1)), [np.zeros((4, 1)), np.zeros((4, 1))]
    for n in range(steps):
        g = 2 / 12 * DATA.T.astype(np.float64) @ (DATA @ w - GOAL)
        w = update(w, g, state, n + 1)
    return w


def momentum(w, g, s, n):
    s[0] = 0.9 * s[0] + g
    return w - 0.1 * s[0]


def adagrad(w, g, s, n):
    s[0] = (s[0] if n > 1 else 0.1) + g * g
    return w - 0.1 * g / np.sqrt(s[0])


def adam(w, g, s, n):
    s[0], s[1] = 0.9 * s[0] + 0.1 * g, 0.999 * s[1] + 0.001 * g * g
    return w - 0.1 * (s[0] / (1 - 0.9**n)) / (np.sqrt(s[1] / (1 - 0.999**n)) + 1e-8)


@pytest.mark.parametrize(
    ("optimizer", "update"),
    [
        (tf.train.GradientDescentOptimizer(0.1), lambda w, g, s, n: w - 0.1 * g),
        (tf.train.MomentumOptimizer(0.1, 0.9), momentum),
        (tf.train.AdagradOptimizer(0.1), adagrad),
        (tf.train.AdamOptimizer(0.1), adam),
    ],
)
def test_optimizers(optimizer, update) -> None:
    np.testing.assert_allclose(trained(optimizer, 5), by_numpy(update, 5), rtol=1e-4, atol=1e-6)


def test_losses() -> None:
    a, b = DATA[:, :1], GOAL
    signs = np.sign(b)
    labels = np.eye(4, dtype=np.float32)[RNG.integers(0, 4, 12)]
    shares = np.exp(DATA) / np.exp(DATA).sum(1, keepdims=True)
    found = tf.Session().run(
        [
            tf.losses.l2(a, b),
            tf.losses.hinge(a, signs),
            tf.losses.softmax(DATA, labels),
            tf.losses.ranking(a, b),
            tf.nn.sparse_softmax_cross_entropy_with_logits(DATA, labels.argmax(1).astype(np.float32)),
            tf.nn.l2_loss(a),
        ]
    )
    each = -np.log(shares[labels == 1])
    expected = [
        np.mean((a - b) ** 2),
        np.mean(np.maximum(0, 1 - a * signs)),
        each.mean(),
        np.mean(np.maximum(0, 1 - (a - b))),
        each,
        (a**2).sum() / 2,
    ]
    for f, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-5)


@pytest.mark.parametrize("loss", [tf.losses.l2, tf.losses.hinge, tf.losses.softmax, tf.losses.ranking])
def test_losses_have_gradients(loss) -> None:
    x, y = tf.placeholder(tf.float64, [3, 4]), np.sign(DATA[3:6]).astype(np.float64)
    at = DATA[:3].astype(np.float64)
    value = loss(x, y)
    sess = tf.Session()
    slope = sess.run(tf.gradients(value, [x])[0], {x: at})
    d = np.zeros_like(at)
    d[1, 2] = 1e-6
    numeric = (sess.run(value, {x: at + d}) - sess.run(value, {x: at - d})) / 2e-6
    np.testing.assert_allclose(slope[1, 2], numeric, rtol=1e-5, atol=1e-8)


def test_a_gradient_stops() -> None:
    x = tf.placeholder(tf.float32, [2])
    y = tf.stop_gradient(x * x) * x
    assert tf.Session().run(tf.gradients(y, [x])[0], {x: [2, 3]}).tolist() == [4, 9]


def test_gradients_from_outside_and_clipped() -> None:
    """An external loss (reinforcement learning): adjoints are given; gradients may be changed."""
    w = tf.Variable(tf.ones([2]))
    y = w * 3.0
    given = tf.placeholder(tf.float32, [2])
    (g,) = tf.gradients(y, [w], grad_ys=[given])
    step = tf.train.GradientDescentOptimizer(1.0).apply_gradients([(tf.clip_by_value(g, -1.0, 1.0), w)])
    sess = tf.Session()
    sess.run(tf.initialize_all_variables())
    sess.run(step, {given: [0.1, 5.0]})
    np.testing.assert_allclose(sess.run(w), [0.7, 0.0], rtol=1e-6)


def test_two_optimizers_take_turns() -> None:
    """Two nets, as in adversarial training: each optimiser changes its own variables."""
    a, b = tf.Variable(tf.constant(1.0)), tf.Variable(tf.constant(1.0))
    loss = a * b
    down = tf.train.GradientDescentOptimizer(0.5).minimize(loss, [a])
    up = tf.train.GradientDescentOptimizer(0.5).minimize(0.0 - loss, [b])
    sess = tf.Session()
    sess.run(tf.initialize_all_variables())
    sess.run(down)
    assert sess.run([a, b]) == [0.5, 1]
    sess.run(up)
    assert sess.run([a, b]) == [0.5, 1.25]


def test_nothing_to_minimise() -> None:
    with pytest.raises(GraphError, match=r"test_training.py:\d+: .* no trainable variable"):
        tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.ones([2])))


def test_dropout_follows_the_seed() -> None:
    x = tf.ones([1000])
    y = tf.nn.dropout(x, 0.8)
    a = tf.Session(seed=3).run(y)
    assert np.array_equal(a, tf.Session(seed=3).run(y))
    assert set(np.unique(a)) == {np.float32(0), np.float32(1.25)}
    assert 0.7 < (a > 0).mean() < 0.9


def shaped(loss: tf.Node, shapes: dict) -> list[tf.Node]:
    found = tf.infer_variable_shapes(loss, feed_dict=shapes)
    return [tf.assign(v, tf.normal(shape, 0.05)) for v, _, shape in found]


def test_tinyflows_perceptron() -> None:
    """mnist_mlp_auto_shape_inference.py: placeholders and variables without shapes."""
    x, label = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    fc1 = tf.nn.linear(x, num_hidden=100, name="fc1", no_bias=False)
    fc2 = tf.nn.linear(tf.nn.relu(fc1), num_hidden=10, name="fc2")
    cross_entropy = tf.nn.mean_sparse_softmax_cross_entropy_with_logits(fc2, label)
    train_step = tf.train.GradientDescentOptimizer(0.5).minimize(cross_entropy)
    sess = tf.Session(config="gpu")
    known = {x: [100, 784], label: [100]}
    assert [(n, s) for _, n, s in tf.infer_variable_shapes(cross_entropy, feed_dict=known)] == [
        ("fc1_weight", (100, 784)),
        ("fc1_bias", (100,)),
        ("fc2_weight", (10, 100)),
    ]
    sess.run([tf.assign(v, tf.normal(v.shape, 0.05)) for v in tf.variables()])
    mnist = get_mnist(flatten=True, onehot=False)
    for _ in range(200):
        images, labels = mnist.train.next_batch(100)
        sess.run([cross_entropy, train_step], {x: images, label: labels})
    accuracy = tf.reduce_mean(tf.equal(tf.argmax(fc2, 1), label))
    assert sess.run(accuracy, {x: mnist.test.images, label: mnist.test.labels}) > 0.85


def test_tinyflows_lenet() -> None:
    """mnist_lenet.py: convolutions and pools, two steps."""
    x, label = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    conv1 = tf.nn.conv2d(x, num_filter=4, ksize=[1, 5, 5, 1], name="conv1", no_bias=False)
    pool1 = tf.nn.max_pool(tf.tanh(conv1), ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1])
    conv2 = tf.nn.conv2d(pool1, num_filter=6, ksize=[1, 5, 5, 1], name="conv2", no_bias=False)
    pool2 = tf.nn.max_pool(tf.tanh(conv2), ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1])
    fc1 = tf.nn.linear(tf.nn.flatten_layer(pool2), num_hidden=20, name="fc1")
    fc2 = tf.nn.linear(tf.tanh(fc1), num_hidden=10, name="fc2")
    loss = tf.nn.mean_sparse_softmax_cross_entropy_with_logits(fc2, label)
    step = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    sess = tf.Session(device="llvm -threads=1")
    sess.run(shaped(loss, {x: [10, 1, 28, 28], label: [10]}))
    assert [v.shape for v in tf.variables()][:4] == [(4, 1, 5, 5), (4,), (6, 4, 5, 5), (6,)]
    images, labels = get_mnist(flatten=False, onehot=False).train.next_batch(10)
    losses = [float(sess.run([loss, step], {x: images, label: labels})[0]) for _ in range(4)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(("extent", "window", "stride"), [(7, 3, 1), (7, 3, 2), (8, 2, 2), (5, 4, 3)])
def test_same_padding(extent: int, window: int, stride: int) -> None:
    x = tf.placeholder(tf.float32, [1, 1, extent, extent])
    y = tf.nn.conv2d(x, tf.ones([1, 1, window, window]), strides=[1, stride, stride, 1], padding="SAME")
    assert y.shape == (1, 1, -(-extent // stride), -(-extent // stride))
