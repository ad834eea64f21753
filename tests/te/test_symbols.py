"""Run-time extents: the forms that te accepts and refuses, and their form in a workload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.base.errors import TensorError
from autotensor.te.dag import ComputeDAG
from autotensor.te.fixed_extents import corners, fixed
from autotensor.te.workload import Workload

n = te.var("n", range=(1, 40))
m = te.var("m", range=(8, 64), multiple_of=8)


def sums(rows: Any, columns: Any, name: str = "x") -> ComputeDAG:
    x = te.placeholder((rows, columns), name=name)
    k = te.reduce_axis(columns, name="k")
    return ComputeDAG.of([x, te.compute((rows,), lambda i: te.sum(x[i, k], axis=k), name="y")])


def test_an_axis_has_the_greatest_extent_and_what_it_is_at_run_time() -> None:
    stage = sums(n + 2, m).stages[0]
    assert [(a.extent, str(a.runtime)) for a in stage.all_axes] == [(42, "n + 2"), (64, "m_8 * 8")]
    assert stage.buffers[0].shape == (42,)


def test_workloads_keep_symbols_and_forget_their_names() -> None:
    workload = Workload.of(sums(n, m))
    again = Workload.from_text(workload.text)
    assert again.text == workload.text
    assert again.dag == workload.dag
    other = te.var("rows", range=(1, 40))
    assert Workload.of(sums(other, m, name="z")) == workload
    assert Workload.of(sums(te.var("n", range=(1, 41)), m)) != workload
    assert Workload.of(sums(40, 64)) != workload


def test_a_dag_for_one_choice_is_a_dag_of_numbers() -> None:
    dag = sums(n, m)
    first, second = dag.symbols()
    assert fixed(dag, {first: 7, second: 2}) == sums(7, 16)
    assert len(list(corners(dag))) == 6
    assert list(corners(sums(3, 4))) == [{}]


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: te.var("n"), 'te.var("n") has no range'),
        (lambda: te.var("n", range=(0, 4)), "range (0, 4) must go up from 1 or more"),
        (lambda: te.var("n", range=(9, 4)), "range (9, 4) must go up"),
        (lambda: te.var("n", range=(4, 16), multiple_of=8), "between multiples of 8"),
        (lambda: te.var("n", range=(1, 2.5)), "must be whole numbers"),
        (lambda: te.placeholder((n - 1,), name="A"), "placeholder 'A': extent n - 1 may be 0"),
        (lambda: te.placeholder((te.exp(n * 1.0),), name="A"), "is not made of numbers and te.var by"),
        (lambda: te.placeholder((n, 3), name="W", constant=True), None),
    ],
)
def test_refusals(write: Callable[[], Any], message: str | None) -> None:
    if message is None:  # of a constant only when something is computed from it
        w = write()
        message = "constant 'W' has extents that are known at run time only"
        with pytest.raises(TensorError) as caught:
            ComputeDAG.of([w, te.compute((n, 3), lambda i, j: w[i, j] * 2.0, name="y")])
    else:
        with pytest.raises(TensorError) as caught:
            write()
    assert message in str(caught.value)


def test_reads_are_checked_at_the_ends_of_ranges() -> None:
    a, b = te.placeholder((n,), name="A"), te.placeholder((m,), name="B")
    with pytest.raises(TensorError, match=r"with n = 40, m/8 = 1: stage 'C': index 0 of 'B' becomes"):
        at.build([a, b, te.compute((n,), lambda i: a[i] + b[i], name="C")])


def test_an_input_must_tell_the_symbol() -> None:
    with pytest.raises(TensorError, match="no input has 'n' as an extent"):
        at.build([te.compute((n,), lambda i: te.cast("float32", i), name="C")])


def test_a_gpu_takes_numbers() -> None:
    a = te.placeholder((n,), name="A")
    with pytest.raises(at.AutotensorError, match="takes shapes that are numbers; 'n' is known at run time"):
        at.build([a, te.compute((n,), lambda i: a[i] + 1.0, name="C")], target="opencl")


def test_a_product_of_extents_may_have_a_factor_of_one_value() -> None:
    n, m = te.var("n", range=(4, 36), multiple_of=4), te.var("m", range=(2, 2), multiple_of=2)
    X, Y = te.placeholder((n,), name="X"), te.placeholder((m,), name="Y")
    C = te.compute((n * m,), lambda i: X[i // 2] + Y[i % 2], name="C")
    x, y = np.arange(8, dtype=np.float32), np.array([0.25, 0.5], np.float32)
    want = (x[:, None] + y).ravel()
    for f in (at.build([X, Y, C]), at.build(te.create_schedule(C), [X, Y, C])):
        np.testing.assert_array_equal(f(x, y), want)
