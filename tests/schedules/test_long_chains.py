"""Expressions that are nested deep, and long chains of stages: they work, or one sentence says what to do."""

from __future__ import annotations

import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.base.errors import ScheduleError, TensorError
from autotensor.base.target import parse
from autotensor.ir.expr import Var
from autotensor.ir.visit import MOST_NESTED, height
from autotensor.schedule import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload
from schedules.generate import default_trace

TARGET = parse("llvm -threads=2")


def nested(levels: int) -> list[te.Tensor]:
    """One expression with this number of levels."""
    x = te.placeholder((40,), name="x")

    def body(i: Var) -> te.Expr:
        value: te.Expr = x[i]  # two levels: the load and its index
        for n in range(levels - 2):
            value = (value + 1.0, te.maximum(value, 0.5), value * 0.5, te.sqrt(value))[n % 4]
        return value

    return [x, te.compute((40,), body, name="y")]


def chain(stages: int) -> list[te.Tensor]:
    """This number of stages, each with one multiplication and one addition."""
    x = y = te.placeholder((40,), name="x")
    for n in range(stages):
        y = te.compute((40,), lambda i, y=y: y[i] * 0.5 + 1.0, name=f"y{n}")
    return [x, y]


def expected(tensors: list[te.Tensor], a: np.ndarray) -> np.ndarray:
    from autotensor.te.reference import evaluate

    return evaluate(ComputeDAG.of(tensors), {"x": a})[tensors[-1].name]


def test_height() -> None:
    i = Var("i")
    assert [height(e) for e in (i, i + 1, (i + 1) * (i + 1), te.exp(te.const(1.0, "float32")))] == [
        1,
        2,
        3,
        2,
    ]


def test_the_deepest_expression_that_is_accepted() -> None:
    tensors = nested(MOST_NESTED)
    dag = ComputeDAG.of(tensors)
    assert height(dag.stages[0].bodies[0]) == MOST_NESTED
    a = np.linspace(0, 3, 40, dtype=np.float32)
    np.testing.assert_allclose(at.build(tensors, target=TARGET)(a), expected(tensors, a), rtol=1e-5)
    workload = Workload.of(dag)
    assert Workload.from_text(workload.text).dag == workload.dag
    assert "sqrt" in str(at.lower(at.create_schedule(tensors[-1]), tensors))


def test_a_deeper_one_is_refused() -> None:
    with pytest.raises(TensorError) as caught:
        nested(300)
    assert str(caught.value) == (
        "compute 'y': its expression is nested 300 deep; at most 128 fit. "
        "Give some of its parts computes of their own; schedules inline them where that pays."
    )


@pytest.mark.parametrize("stages", [50, 300])
def test_a_long_chain_is_cut_where_it_would_be_too_deep(stages: int) -> None:
    tensors = chain(stages)
    dag = ComputeDAG.of(tensors)
    state = default_trace(dag, TARGET).replay(dag)
    deepest = max(height(b) for s in state.live() for b in s.op.bodies)
    assert deepest <= MOST_NESTED
    assert len(state.live()) <= 2 + 3 * stages // MOST_NESTED  # the chain is not cut more often than needed
    a = np.linspace(-3, 3, 40, dtype=np.float32)
    np.testing.assert_allclose(at.build(tensors, target=TARGET)(a), expected(tensors, a), rtol=1e-6)


def test_inlining_by_hand_is_refused_where_it_would_be_too_deep() -> None:
    s = at.create_schedule(chain(80)[-1])
    for n in range(78, 17, -1):
        s[f"y{n}"].compute_inline()
    with pytest.raises(ScheduleError) as caught:
        s["y17"].compute_inline()
    assert str(caught.value) == (
        "compute_inline: stage 'y17' would make the expression of 'y79' 130 levels deep; at most 128 fit. "
        "Leave it at root, or attach it with compute_at."
    )
    assert Trace.from_json(s.trace.to_json()).replay(s.dag) == s.state
