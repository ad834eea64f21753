"""Runs: values that are computed, programs that are kept, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

import autotensor.flow as tf
from autotensor.base.errors import ArgumentError, GraphError, TargetError


def test_shapes_are_specialised_once_each() -> None:
    x = tf.placeholder(tf.float32, [None, 3])
    y = tf.reduce_sum(tf.exp(x), axis=1)
    sess = tf.Session()
    for n in (1, 2, 5, 2, 1, 5):
        array = np.random.default_rng(n).random((n, 3), dtype=np.float32)
        np.testing.assert_allclose(sess.run(y, {x: array}), np.exp(array).sum(1), rtol=1e-6)
    assert len(sess.programs) == 3


def test_only_what_is_fetched_is_needed() -> None:
    x, unused = tf.placeholder(tf.float32, [2], name="x"), tf.placeholder(tf.float32, [2], name="unused")
    y, z = x + 1.0, unused * x
    sess = tf.Session()
    assert sess.run(y, {x: [1, 2]}).tolist() == [2, 3]
    assert sess.graph(y, {x: [1, 2]}).count() == 1
    with pytest.raises(GraphError, match=r"unused \(.*test_session.py:\d+\) is needed and was not fed"):
        sess.run(z, {x: [1, 2]})


def test_any_node_may_be_fed() -> None:
    x = tf.placeholder(tf.float32, [2])
    y = tf.exp(x)
    assert tf.Session().run(y + 1.0, {y: [1, 2]}).tolist() == [2, 3]


def test_fetches_keep_their_structure() -> None:
    x = tf.constant([1.0, 2.0])
    found = tf.Session().run({"a": x, "b": [x + 1.0, (x * 2.0, tf.no_op())]})
    assert found["a"].tolist() == [1, 2]
    assert found["b"][0].tolist() == [2, 3]
    assert isinstance(found["b"][1], tuple)
    assert found["b"][1][1] is None


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        (lambda x: {x: np.zeros((2, 4))}, r"x \(.*test_session.py:\d+\) is float32\[\?, 3\]; .*\[2, 4\]"),
        (lambda x: {x: np.zeros(3)}, r"\[3\] was fed"),
        (lambda x: {"x": np.zeros((2, 3))}, "str is not a node"),
    ],
)
def test_feeds_that_do_not_fit(feed, message: str) -> None:
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    with pytest.raises(ArgumentError, match=message):
        tf.Session().run(x + 1.0, feed(x))


def test_what_does_not_fit_when_fed_names_the_line() -> None:
    x, y = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [None])
    z = x + y
    with pytest.raises(GraphError, match=r"test_session.py:\d+: add: .*do not broadcast"):
        tf.Session().run(z, {x: [1, 2], y: [1, 2, 3]})


def test_a_variable_needs_a_value() -> None:
    v = tf.Variable(tf.zeros([2]), name="v")
    with pytest.raises(GraphError, match=r"v \(.*\) has no value yet. Run flow.initialize_all_variables"):
        tf.Session().run(v + 1.0)


def test_results_are_the_callers_own() -> None:
    v = tf.Variable(tf.constant([1.0, 2.0]))
    sess = tf.Session()
    sess.run(tf.initialize_all_variables())
    for fetch in (v, tf.assign(v, v * 1.0), tf.constant([1.0, 2.0])):
        sess.run(fetch)[:] = 9
        assert sess.run(v).tolist() == [1, 2]


def test_random_numbers_follow_the_seed() -> None:
    x = tf.random_normal([4])
    a, b = tf.Session(seed=1), tf.Session(seed=1)
    first = a.run(x)
    assert np.array_equal(first, b.run(x))
    assert not np.array_equal(first, a.run(x))
    assert not np.array_equal(first, tf.Session(seed=2).run(x))


@pytest.mark.parametrize(
    "device", ["cpu", "/cpu:0", "/device:CPU:0", "gpu", "reference", "llvm -threads=1", None]
)
def test_devices(device: str | None) -> None:
    x = tf.constant([[1.0, 2.0]])
    sess = tf.Session(device=device)
    assert sess.run(tf.matmul(x, x, transpose_b=True)).tolist() == [[5]]


def test_unknown_device() -> None:
    with pytest.raises(TargetError, match="unknown"):
        tf.Session(device="abacus")


def test_with_a_session_nodes_evaluate_themselves() -> None:
    x = tf.constant(2.0)
    with pytest.raises(GraphError, match="no session"):
        x.eval()
    with tf.Session():
        assert (x * 3.0).eval() == 6


def test_programs_are_shared_by_structure() -> None:
    """Two fetches of equal structure are one program, though their nodes differ."""
    x = tf.placeholder(tf.float32, [3])
    sess = tf.Session()
    sess.run(tf.exp(x) + 1.0, {x: [1, 2, 3]})
    sess.run(tf.exp(x) + 1.0, {x: [1, 2, 3]})
    assert len(sess.programs) == 1
