"""Types before a run, and errors that name the user's line."""

from __future__ import annotations

import numpy as np
import pytest

import autotensor.flow as tf
from autotensor.base.errors import GraphError

HERE = r"test_nodes.py:\d+"


@pytest.mark.parametrize(
    ("write", "known"),
    [
        (lambda x, y: tf.matmul(x, tf.zeros([784, 10])), "float32[?, 10]"),
        (lambda x, y: x * 2, "float32[?, 784]"),
        (lambda x, y: tf.reduce_sum(x, axis=0), "float32[784]"),
        (lambda x, y: tf.reduce_sum(x, axis=1), "float32[?]"),
        (lambda x, y: tf.reduce_mean(x), "float32[]"),
        (lambda x, y: tf.transpose(x), "float32[784, ?]"),
        (lambda x, y: tf.reshape(x, [-1, 28, 28]), "float32[?, 28, 28]"),
        (lambda x, y: tf.argmax(x, 1), "int64[?]"),
        (lambda x, y: tf.equal(tf.argmax(x, 1), tf.argmax(x, 1)), "bool[?]"),
        (lambda x, y: tf.concat([x, x], axis=1), "float32[?, 1568]"),
        (lambda x, y: tf.zeros([100, 784]) + x, "float32[100, 784]"),
        (lambda x, y: tf.cast(x, "int32"), "int32[?, 784]"),
        (lambda x, y: tf.one_hot(tf.argmax(x, 1), 5), "float32[?, 5]"),
        (lambda x, y: y + 1.0, "float32[any shape]"),
        (lambda x, y: tf.gradients(tf.reduce_sum(x), [x])[0], "float32[?, 784]"),
    ],
)
def test_what_is_known(write, known) -> None:
    x, y = tf.placeholder(tf.float32, [None, 784]), tf.placeholder(tf.float32)
    assert str(write(x, y).spec) == known


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 7])
def test_strided_images_stay_unknown(stride: int) -> None:
    """Sizes of images: no stride may make the two probes agree."""
    x = tf.placeholder(tf.float32, [8, 3, None, None])
    y = tf.nn.conv2d(x, tf.zeros([4, 3, 5, 5]), strides=[1, stride, stride, 1])
    assert str(y.spec) == "float32[8, 4, ?, ?]"


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            lambda: tf.matmul(tf.zeros([2, 3]), tf.zeros([4, 5])),
            rf"{HERE}: matmul\(float32\[2, 3\].*disagree on k",
        ),
        (
            lambda: tf.matmul(tf.placeholder(tf.float32, [None, 3]), tf.zeros([4, 5])),
            rf"{HERE}: matmul\(float32\[\?, 3\], float32\[4, 5\]\) cannot be: .*\(\?, 3\)",
        ),
        (lambda: tf.assign(tf.zeros([2]), 1.0), rf"{HERE}: assign needs a Variable"),
        (
            lambda: tf.assign(tf.Variable(tf.zeros([2])), tf.zeros([3])),
            rf"{HERE}: variable .*float32\[2\].*float32\[3\]",
        ),
        (
            lambda: tf.gradients(tf.argmax(tf.zeros([3])), [tf.zeros([3])]),
            rf"{HERE}: .* is not floating-point",
        ),
        (lambda: tf.placeholder(tf.float32, [-1]), rf"{HERE}: shape \[-1\]"),
        (lambda: tf.Variable(), rf"{HERE}: Variable needs an initial value"),
        (lambda: bool(tf.zeros([]) > 1.0), rf"greater.*{HERE}.*Python cannot branch.*flow.cond"),
        (lambda: list(tf.zeros([2])), rf"{HERE}.*cannot be iterated"),
        (
            lambda: tf.cond(tf.zeros([3]) > 0.0, lambda: 1.0, lambda: 2.0),
            rf"{HERE}: a predicate is one value",
        ),
        (
            lambda: tf.nn.dropout(tf.placeholder(tf.float32, [None]), 0.5),
            rf"{HERE}: dropout needs a known shape",
        ),
        (lambda: tf.group() + 1.0, rf"{HERE}: add reads group, which has no value"),
        (lambda: tf.constant(tf.zeros([1])), rf"{HERE}: .* is a node already"),
    ],
)
def test_mistakes_name_the_line(write, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        write()


def test_names_are_unique() -> None:
    assert [tf.zeros([1], name="a").name for _ in range(3)] == ["a", "a_1", "a_2"]


def test_numbers_take_the_type_beside_them() -> None:
    half, whole = tf.placeholder(tf.float64, [2]), tf.placeholder(tf.int32, [2])
    assert str((half * 2).spec) == "float64[2]"
    assert str((2 * whole).spec) == "int32[2]"
    assert str((whole * 0.5).spec) == "float32[2]"
    assert tf.Session().run(whole * 0.5, {whole: [1, 3]}).tolist() == [0.5, 1.5]


def test_arrays_on_the_left() -> None:
    x = tf.placeholder(tf.float32, [2])
    assert tf.Session().run(np.float32([1, 2]) * x, {x: [3, 4]}).tolist() == [3, 8]
