"""Sample inputs fit their functions; seconds are summed by workload."""

from __future__ import annotations

import numpy as np

import autotensor as at
from autotensor.runtime.files.artifact import ArgSpec
from autotensor.runtime.kernel_times import by_workload
from autotensor.runtime.sample_arrays import sample_inputs

ARGS = (
    ArgSpec("x", "input", (40, 3), "float32"),
    ArgSpec("which", "input", (50,), "int64"),
    ArgSpec("w", "constant", (5,), "float16"),
    ArgSpec("y", "output", (40,), "float32"),
    ArgSpec("made", "prepared", (4,), "float32"),
)


def test_what_a_caller_gives() -> None:
    x, which, w = sample_inputs(ARGS, lambda name: None, seed=3)
    assert [(a.shape, a.dtype.name) for a in (x, which, w)] == [
        ((40, 3), "float32"), ((50,), "int64"), ((5,), "float16"),
    ]  # fmt: skip
    assert set(which) == {0, 1}
    again = sample_inputs(ARGS, lambda name: None, seed=3)
    assert all(np.array_equal(a, b) for a, b in zip((x, which, w), again, strict=True))


def test_indices_stay_inside() -> None:
    _, which, _ = sample_inputs(ARGS, {"which": (3, 9)}.get)
    assert set(which) == {3}


def test_a_table_of_one_row_can_be_timed() -> None:
    ids = at.input((20,), "int64", name="ids")
    f = at.compile_model(at.ops.take(np.ones((1, 3), np.float32), ids))
    (found,) = sample_inputs(f.args, f.artifact.index_range)
    assert not found.any()
    assert f(found).shape == (20, 3)


def test_seconds_by_workload() -> None:
    assert by_workload([("a", 1.0), ("b", 2.0), ("a", 0.5)]) == {"a": 1.5, "b": 2.0}
