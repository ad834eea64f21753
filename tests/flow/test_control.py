"""Switch, merge, cond, while: which values are dead, which are computed, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

import autotensor.flow as tf
from autotensor.base.errors import GraphError


def scalar(name: str) -> tf.Node:
    return tf.placeholder(tf.float32, [], name=name)


def test_cond_takes_one_branch() -> None:
    x, y = scalar("x"), scalar("y")
    result = tf.cond(x < y, lambda: x + 10.0, lambda: y * y)
    sess = tf.Session()
    assert sess.run(result, {x: 1, y: 2}) == 11
    assert sess.run(result, {x: 3, y: 2}) == 4
    assert sess.run(result, {x: 1, y: 2}) == 11


def test_the_other_branch_needs_no_feeds() -> None:
    p, x, y = scalar("p"), scalar("x"), scalar("y")
    result = tf.cond(p > 0.0, lambda: x + 1.0, lambda: y + 2.0)
    with pytest.raises(GraphError, match="was not fed"):  # as in TensorFlow, data reaches its switch
        tf.Session().run(result, {p: 1, x: 1})


def test_assignments_happen_in_the_branch_taken_only() -> None:
    p = scalar("p")
    v = tf.Variable(tf.constant(1.0))

    def count() -> tf.Node:
        return tf.assign(v, v + 1.0)

    result = tf.cond(p > 0.0, count, lambda: v * 100.0)
    sess = tf.Session()
    sess.run(tf.initialize_all_variables())
    assert sess.run(result, {p: 1}) == 2
    assert sess.run(result, {p: -1}) == 200
    assert sess.run(v) == 2
    assert sess.run(tf.assign(v, 5.0)) == 5


def test_nested_cond() -> None:
    x = scalar("x")
    sign = tf.cond(
        x > 0.0,
        lambda: tf.cond(x > 10.0, lambda: tf.constant(2.0), lambda: x * 0.0 + 1.0),
        lambda: tf.cond(x < -10.0, lambda: tf.constant(-2.0), lambda: tf.constant(-1.0)),
    )
    sess = tf.Session()
    assert [float(sess.run(sign, {x: v})) for v in (20, 5, -5, -20)] == [2, 1, -1, -2]


def test_several_results_and_outer_nodes() -> None:
    x, y = scalar("x"), scalar("y")
    a, b = tf.cond(x < y, lambda: (x, y), lambda: (y, x))
    assert tf.Session().run([a, b], {x: 5, y: 2}) == [2, 5]


def test_branches_must_agree() -> None:
    x = scalar("x")
    with pytest.raises(GraphError, match="give 1 and 2 nodes"):
        tf.cond(x > 0.0, lambda: x, lambda: (x, x))
    with pytest.raises(GraphError, match=r"branches give float32\[\] and int32\[\]"):
        tf.cond(x > 0.0, lambda: x, lambda: tf.constant(1))


def test_merge_of_two_live_inputs() -> None:
    x = scalar("x")
    with pytest.raises(GraphError, match="more than one live input"):
        tf.Session().run(tf.merge([x + 1.0, x + 2.0]), {x: 1})


def test_fetching_what_is_dead() -> None:
    x = scalar("x")
    no, yes = tf.switch(x, x > 0.0)
    with pytest.raises(GraphError, match="branch that this run does not take"):
        tf.Session().run(no + 1.0, {x: 1})
    assert tf.Session().run(yes + 1.0, {x: 1}) == 2


def test_while_loop() -> None:
    n, x = tf.placeholder(tf.int32, [], name="n"), tf.placeholder(tf.float32, [2])
    i, power = tf.while_loop(lambda i, p: i < n, lambda i, p: (i + 1, p * x), [tf.constant(0), tf.ones([2])])
    sess = tf.Session()
    for turns in (0, 1, 5):
        assert sess.run(power, {n: turns, x: [2, 3]}).tolist() == [2.0**turns, 3.0**turns]
        assert sess.run(i, {n: turns, x: [2, 3]}) == turns
    programs = len(sess.programs)
    sess.run(power, {n: 7, x: [2, 3]})
    assert len(sess.programs) == programs, "a turn of the loop is compiled once"


def test_cond_in_a_loop_and_a_loop_in_cond() -> None:
    start = tf.placeholder(tf.int32, [])

    def collatz(n: tf.Node, steps: tf.Node) -> list[tf.Node]:
        half = tf.cast(tf.floor(tf.cast(n, "float32") * 0.5), "int32")
        odd = tf.not_equal(half * 2, n)
        return [tf.cond(odd, lambda: n * 3 + 1, lambda: half), steps + 1]

    _, steps = tf.while_loop(lambda n, s: n > 1, collatz, [start, tf.constant(0)])
    guarded = tf.cond(start > 0, lambda: steps, lambda: tf.constant(-1))
    sess = tf.Session()
    assert [int(sess.run(guarded, {start: n})) for n in (1, 6, 7)] == [0, 8, 16]

    inside = tf.cond(
        start > 0,
        lambda: tf.while_loop(lambda k: k < 10, lambda k: k + start, [tf.constant(0)]),
        lambda: start,
    )
    assert [int(sess.run(inside, {start: n})) for n in (3, 4, -5)] == [12, 12, -5]


def test_shapes_that_change_in_a_loop_must_be_announced() -> None:
    def grow(x: tf.Node) -> tf.Node:
        return tf.concat([x, x], axis=0)

    with pytest.raises(GraphError, match=r"loop variable .*gives shape \[2\].*shape_invariants"):
        tf.Session().run(tf.while_loop(lambda x: tf.reduce_sum(x) < 8.0, grow, [tf.ones([1])]))
    grown = tf.while_loop(lambda x: tf.reduce_sum(x) < 8.0, grow, [tf.ones([1])], shape_invariants=[[None]])
    assert tf.Session().run(grown).tolist() == [1] * 8


def test_nothing_is_assigned_in_a_loop() -> None:
    v = tf.Variable(tf.constant(0.0))
    loop = tf.while_loop(lambda x: x < 3.0, lambda x: tf.assign(v, x + 1.0), [tf.constant(0.0)])
    sess = tf.Session()
    sess.run(tf.initialize_all_variables())
    with pytest.raises(GraphError, match="is inside a loop, where assignments are not allowed"):
        sess.run(loop)


def test_variables_read_in_a_loop() -> None:
    v = tf.Variable(tf.constant(2.0))
    out = tf.while_loop(lambda x: x < 100.0, lambda x: x * v, [tf.constant(1.0)])
    sess = tf.Session()
    sess.run(tf.initialize_all_variables())
    assert sess.run(out) == 128
    np.testing.assert_array_equal(sess.run(v), 2)


def test_gradients_go_through_the_branch_taken() -> None:
    x = scalar("x")
    y = tf.cond(x > 0.0, lambda: x * x, lambda: x * -3.0)
    (slope,) = tf.gradients(y, [x])
    sess = tf.Session()
    assert [float(sess.run(slope, {x: v})) for v in (5, -5)] == [10, -3]


def test_gradients_go_through_a_loops_turns() -> None:
    x = scalar("x")
    y = tf.while_loop(lambda t: t < 100.0, lambda t: t * x, [tf.constant(1.0)])
    (slope,) = tf.gradients(y * x, [x])
    sess = tf.Session()
    assert sess.run(slope, {x: 3}) == 6 * 3**5  # x**5 * x
    assert sess.run(slope, {x: 200}) == 2 * 200  # one turn
    programs = len(sess.programs)
    assert sess.run(slope, {x: 2}) == 8 * 2**7
    assert len(sess.programs) == programs, "a turn's slope is compiled once"


def test_a_loop_that_makes_no_turn_passes_gradients_on() -> None:
    x, y = scalar("x"), scalar("y")
    out = tf.while_loop(lambda t: t < 0.0, lambda t: t * y, [x * x])
    assert tf.Session().run(tf.gradients(out, [x, y]), {x: 3, y: 5}) == [6, 0]


def test_loops_of_several_variables_one_of_them_a_count() -> None:
    """A recurrent network: h ← tanh(h W + x[i]), against turns that are written out."""
    rng = np.random.default_rng(0)
    w, x = tf.placeholder("float64", [3, 3]), tf.placeholder("float64", [4, 3])
    feeds = {w: rng.standard_normal((3, 3)), x: rng.standard_normal((4, 3))}

    def turn(h: tf.Node, i: int) -> tf.Node:
        return tf.tanh(tf.matmul(h, w) + tf.slice(x, [i, 0], [1, 3]))

    start = tf.zeros([1, 3], "float64")
    _, looped = tf.while_loop(
        lambda i, h: i < 4,
        lambda i, h: (i + 1, tf.tanh(tf.matmul(h, w) + tf.reshape(tf.gather(x, i), [1, 3]))),
        [tf.constant(0), start],
    )
    written = start
    for i in range(4):
        written = turn(written, i)
    sess = tf.Session()
    found, want = (sess.run(tf.gradients(tf.reduce_sum(h * h), [w, x]), feeds) for h in (looped, written))
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_gradients_through_loops_in_loops_branches_and_rows_of_loops() -> None:
    x = tf.placeholder("float64", [], name="x")

    def inner(t: tf.Node) -> tf.Node:
        grown = tf.while_loop(lambda s: s < 10.0, lambda s: s * x, [t])
        return tf.cond(grown > 50.0, lambda: grown * 0.5, lambda: grown + x)

    y = tf.while_loop(lambda t: t < 12.0, inner, [x * 0.5])
    z = tf.while_loop(lambda t: t > 3.0, lambda t: t / x, [y * x])
    loss = z * z + y
    (slope,) = tf.gradients(loss, [x])
    sess = tf.Session()
    for v in (2.2, 3.1, 7.9):
        ends = [sess.run(loss, {x: v + h}) for h in (1e-6, -1e-6)]
        np.testing.assert_allclose(sess.run(slope, {x: v}), (ends[0] - ends[1]) / 2e-6, rtol=1e-6)


def test_training_through_a_loop() -> None:
    w = tf.Variable(tf.constant(1.5))
    y = tf.while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t * w), [tf.constant(0), tf.constant(1.0)])[1]
    step = tf.train.GradientDescentOptimizer(0.002).minimize(tf.square(y - 8.0))
    sess = tf.Session()
    sess.run(tf.initialize_all_variables())
    for _ in range(30):
        sess.run(step)
    np.testing.assert_allclose(sess.run(w), 2.0, rtol=1e-4)


def test_a_gradient_through_a_loop_has_none_of_its_own() -> None:
    x = scalar("x")
    y = tf.while_loop(lambda t: t < 100.0, lambda t: t * x, [tf.constant(1.0)])
    (slope,) = tf.gradients(y * x, [x])
    with pytest.raises(
        GraphError,
        match=r"test_control.py:\d+: x reaches .* through the gradient of a while_loop \(.*:\d+\)",
    ):
        tf.gradients(slope, [x])
