"""Programs in float64: by hand, against NumPy in float64, and through the compiler."""

from __future__ import annotations

import numpy as np
import pytest
from comparison import check
from hypothesis import given
from strategies import case_of, dags

from autotensor import te
from autotensor.compiler import te_text
from autotensor.ir.expr import Load
from autotensor.ir.visit import walk
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate, random_inputs
from autotensor.te.wider_floats import widen
from autotensor.te.workload import Workload, dag_from_json, dag_to_json


def test_a_product_by_hand() -> None:
    a, b, k = te.placeholder((4, 9), name="a"), te.placeholder((9, 3), name="b"), te.reduce_axis(9, name="k")
    c = te.compute((4, 3), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    d = te.compute((4, 3), lambda i, j: te.maximum(c[i, j] * 0.1, 0.0), name="d")
    wide = widen(ComputeDAG.of([a, b, d]))
    assert te_text(wide) == (
        "c[i: 4, j: 3] = sum(float64(a[i][k]) * float64(b[k][j]), axis=[k: 9])\n"
        "d[i: 4, j: 3] = max(c[i][j] * 0.10000000149011612, 0)"
    )
    assert [str(b.dtype) for b in wide.inputs] == ["float32", "float32"]
    assert [str(b.dtype) for b in wide.outputs] == ["float64"]


def test_roundings_in_between_are_gone_and_integers_stay() -> None:
    x = te.placeholder((5,), name="x")
    low = te.compute((5,), lambda i: x[i].astype("float16").astype("float32"), name="low")
    n = te.compute((5,), lambda i: te.round(low[i]).astype("int32"), name="n")
    dag = ComputeDAG.of([x, low, n])
    wide = widen(dag)
    assert [str(b.dtype) for b in wide.outputs] == ["float64", "int32"]
    values = {"x": np.array([0.1, 1.7, -2.2, 3.0, 1e-9], np.float32)}
    assert evaluate(wide, values)["low"].tolist() == values["x"].astype(np.float64).tolist()
    assert evaluate(wide, values)["n"].tolist() == [0, 2, -2, 3, 0]


def test_a_float64_program_is_its_own() -> None:
    x = te.placeholder((5,), "float64", name="x")
    dag = ComputeDAG.of(te.compute((5,), lambda i: te.exp(x[i]) + 0.5, name="y"))
    assert widen(dag).stages == dag.stages


def same_as_numpy(dag: ComputeDAG) -> None:
    """The same bits as NumPy's in float64, after a conversion of the inputs."""
    wide = widen(dag)
    inputs = random_inputs(dag, 0)
    found, wanted = evaluate(wide, inputs), evaluate(dag, inputs, accumulate=np.float64)
    for b in wide.outputs:
        assert found[b.name].dtype == b.dtype.numpy
        np.testing.assert_array_equal(found[b.name], wanted[b.name])


def no_float_is_narrow(dag: ComputeDAG) -> None:
    wide = widen(dag)
    inputs = {b.name for b in dag.inputs}
    for stage in wide.stages:
        for body in stage.bodies:
            for node in walk(body):
                dtype = getattr(node, "dtype", None)
                own = isinstance(node, Load) and node.buffer.name in inputs
                assert own or dtype is None or not dtype.is_float or dtype.bits == 64 or node in wide.inputs


@given(dags())
def test_any_computation(dag: ComputeDAG) -> None:
    same_as_numpy(dag)
    no_float_is_narrow(dag)


@pytest.mark.parametrize("seed", range(60))
def test_known_seeds(seed: int) -> None:
    dag, _ = case_of(seed, steps=0)
    same_as_numpy(dag)
    wide = widen(Workload.of(dag).dag)
    assert dag_from_json(dag_to_json(wide)) == wide  # it reaches a worker process whole


@pytest.mark.parametrize("seed", range(12))
def test_compiled(seed: int) -> None:
    """The loops of the float64 program mean the same in the interpreter and as native code."""
    check(widen(case_of(seed, steps=0)[0]), Trace(), seed=seed)
