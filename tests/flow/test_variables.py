"""Variables, the order of assignments, files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import autotensor.flow as tf
from autotensor.base.errors import GraphError, InputError
from autotensor.runtime.files import checkpoint


def started() -> tf.Session:
    sess = tf.Session()
    sess.run(tf.initialize_all_variables())
    return sess


def test_variables_last_from_run_to_run() -> None:
    v = tf.Variable(tf.constant(1.0))
    double = tf.assign(v, v * 2.0)
    sess = started()
    assert [float(sess.run(double)) for _ in range(3)] == [2, 4, 8]
    assert sess.run(v) == 8


def test_reading_comes_before_assigning_unless_it_is_ordered() -> None:
    v = tf.Variable(tf.constant(1.0))
    step = tf.assign_add(v, 10.0)
    before = v * 1.0
    with tf.control_dependencies([step]):
        after = v * 1.0
    sess = started()
    assert sess.run([before, step, after]) == [1, 11, 11]
    assert sess.run([after, before]) == [21, 11]
    assert sess.run(before) == 21


def test_assignments_in_order() -> None:
    v = tf.Variable(tf.constant(1.0))
    first = tf.assign(v, v + 1.0)
    with tf.control_dependencies([first]):
        second = tf.assign(v, v * 10.0)
    sess = started()
    assert sess.run(second) == 20
    assert sess.run(v) == 20


def test_assignments_in_no_order_are_refused() -> None:
    v = tf.Variable(tf.constant(1.0), name="v")
    both = tf.group(tf.assign(v, 2.0), tf.assign(v, 3.0))
    sess = started()
    with pytest.raises(
        GraphError,
        match=r"v is assigned at .*test_variables.py:.* and .*:\d+, in an order that .*.*control_dep",
    ):
        sess.run(both)
    assert sess.run(v) == 1


def test_a_run_that_fails_changes_nothing(tmp_path: Path) -> None:
    v = tf.Variable(tf.constant(1.0))
    sess = started()
    step = tf.assign(v, v + 1.0)
    with pytest.raises(InputError, match="there is no directory"):
        sess.run([step, tf.save(tmp_path / "absent" / "v.safetensors")])
    assert sess.run(v) == 1


def test_save_and_restore_as_nodes(tmp_path: Path) -> None:
    v, w = tf.Variable(tf.constant([1.0, 2.0]), name="v"), tf.Variable(tf.constant(3), name="w")
    save, load = tf.save(tmp_path / "s"), tf.restore(tmp_path / "s")
    step = tf.assign(v, v * 2.0)
    with tf.control_dependencies([step]):
        after = tf.save(tmp_path / "after", [v])
    sess = started()
    sess.run(save)
    sess.run(after)
    assert checkpoint.load(tmp_path / "after")[0]["v"].tolist() == [2, 4]
    sess.run(load)
    assert sess.run([v, w])[0].tolist() == [1, 2]
    assert sess.run(w) == 3


def test_restoring_what_does_not_fit(tmp_path: Path) -> None:
    v = tf.Variable(tf.zeros([2]), name="v")
    checkpoint.save(tmp_path / "other", {"u": np.zeros(2, np.float32)})
    checkpoint.save(tmp_path / "longer", {"v": np.zeros(3, np.float32)})
    (tmp_path / "junk").write_bytes(b"no checkpoint at all")
    sess = started()
    for name, message in (
        ("other", "holds no variable 'v'; it has u"),
        ("longer", r"holds 'v' as float32\[3\]; the variable is float32\[2\]"),
        ("junk", "is not a checkpoint, or is damaged"),
        ("absent", "cannot be read"),
    ):
        with pytest.raises(Exception, match=message):
            sess.restore(tmp_path / name)
        assert sess.run(v).tolist() == [0, 0]


@pytest.mark.parametrize("optimizer", [tf.train.GradientDescentOptimizer(0.1), tf.train.AdamOptimizer(0.1)])
def test_same_numbers_after_restoring_at_any_step(optimizer, tmp_path: Path) -> None:
    """The state of optimiser and random numbers is in the file too."""
    x = tf.random_normal([8, 3])
    w = tf.Variable(tf.ones([3, 1]))
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - 1.0))
    step = optimizer.minimize(loss)
    sess = started()
    losses = []
    for n in range(6):
        sess.save(tmp_path / f"{n}")
        losses.append(sess.run([loss, step])[0])
    for n in range(6):
        again = tf.Session(seed=99)
        again.restore(tmp_path / f"{n}")
        assert np.array_equal([again.run([loss, step])[0] for _ in range(6 - n)], losses[n:])
        assert np.array_equal(again.run(w), sess.run(w))


WRITER = """
import sys, numpy as np
from autotensor.runtime.files import checkpoint
n = 0
while True:
    n += 1
    checkpoint.save(sys.argv[1], {"a": np.full(1 << 20, n, np.float32)}, {"n": str(n)})
    print(n, flush=True)
"""


def test_killed_while_saving_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    seen = set()
    for delay in (0.0, 0.004, 0.011):
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(delay)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        arrays, facts = checkpoint.load(path)
        assert (arrays["a"] == int(facts["n"])).all()
        seen.add(facts["n"])
    assert seen


def test_files_of_others(tmp_path: Path) -> None:
    """safetensors itself reads what we write."""
    from safetensors.numpy import load_file

    checkpoint.save(tmp_path / "a", {"x": np.arange(6).reshape(2, 3), "s": np.float32(2)}, {"k": "é"})
    assert load_file(tmp_path / "a")["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert checkpoint.load(tmp_path / "a")[1] == {"k": "é"}
