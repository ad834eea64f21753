"""Checks of plans value by value: planted faults, and the rule compared with a count of elements."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import random_dags

from autotensor.api import models
from autotensor.api.models import ModelPlan, default_traces, link_model, plan_model
from autotensor.base.errors import GraphError
from autotensor.graph import in_place_values
from autotensor.graph.build import input, ops
from autotensor.graph.in_place_values import reads_in_place
from autotensor.graph.ir import Graph
from autotensor.graph.linking import link_groups
from autotensor.graph.linking.aliasing import Place
from autotensor.te import reference
from autotensor.te.dag import ComputeDAG, StageOp


def step_of(update, readers=()) -> ModelPlan:
    w, x = input((9, 9), name="w"), input((4, 9), name="x")
    outputs = {"new": update(w), **{f"y{n}": r(x, w) for n, r in enumerate(readers)}}
    graph = Graph((w, x) if readers else (w,), tuple(outputs.values()), "step", tuple(outputs))
    return plan_model(graph, "llvm -threads=1", updates={"new": "w"})


def linked(plan: ModelPlan) -> None:
    link_model(plan, default_traces(plan))


def test_sound_plans_pass() -> None:
    linked(step_of(lambda w: w - w * 0.1, [lambda x, w: ops.dense(x, w)]))
    linked(step_of(lambda w: ops.transpose(w) + 1.0))


def test_a_planted_fault_a_transposed_read_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_place_values, "_may_overwrite", lambda *_: True)
    with pytest.raises(
        GraphError, match=r"writes t\w+ at w\+0 over a0 at w\+0, of which it reads other elements"
    ):
        linked(step_of(lambda w: ops.transpose(w) + 1.0))


def test_a_planted_fault_the_writer_before_another_reader() -> None:
    plan = step_of(lambda w: w - w * 0.1, [lambda x, w: ops.dense(x, w)])
    assert len(plan.groups) == 2
    with pytest.raises(
        GraphError, match=r"kernel 'dense.*' reads a\d at w\+0, where another value lies by then"
    ):
        linked(replace(plan, groups=plan.groups[::-1]))


def test_a_planted_fault_a_kernel_that_was_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "overlapping_arguments", lambda *_: {})
    with pytest.raises(GraphError, match=r"over a0 at w\+0; it is compiled for arrays that share nothing"):
        linked(step_of(lambda w: w - w * 0.1))


def test_a_planted_fault_two_values_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = input((8, 9), name="x"), input((9, 9), name="w")
    hidden = ops.softmax(ops.dense(x, w))
    plan = plan_model(Graph((x, w), (ops.softmax(ops.dense(hidden, w)) + hidden,), "net"), "llvm -threads=1")
    linked(plan)

    def squeezed(*args, **kwargs):
        made = original(*args, **kwargs)
        return replace(made, offsets=(0,) * len(made.offsets))

    original = link_groups.plan_memory
    monkeypatch.setattr(link_groups, "plan_memory", squeezed)
    with pytest.raises(GraphError, match=r"where another value lies by then|over"):
        linked(plan)


def test_places() -> None:
    assert Place("a", 0, 64).meets(Place("a", 63, 1))
    assert not Place("a", 0, 64).meets(Place("a", 64, 1))
    assert not Place("a", 0, 64).meets(Place("b", 0, 64))
    assert not Place("a", 8, 0).meets(Place("a", 0, 64))


def touched(dag: ComputeDAG, stage: StageOp, name: str) -> dict[int, set[int]] | None:
    """The elements of an input that each element of a stage reads, by counting; None if there are too
    many."""
    from_stage: dict[str, dict[int, set[int]]] = {}
    for s in dag.stages:
        found: dict[int, set[int]] = {}
        if s.points() > 3000:
            return None
        shape = s.buffers[0].shape
        for point in np.ndindex(*(a.extent for a in s.all_axes)):
            values = {a.var: n for a, n in zip(s.all_axes, point, strict=True)}
            own = int(np.ravel_multi_index(point[: len(shape)], shape)) if shape else 0
            into = found.setdefault(own, set())
            for load in s.loads():
                b = load.buffer
                at = [constant(i, values) for i in load.indices]
                if any(a is None for a in at):
                    return None
                clipped = tuple(min(max(a, 0), n - 1) for a, n in zip(at, b.shape, strict=True))
                element = int(np.ravel_multi_index(clipped, b.shape)) if b.shape else 0
                if b.name == name:
                    into.add(element)
                elif b.name in from_stage:
                    into |= from_stage[b.name].get(element, set())
        from_stage |= {b.name: found for b in s.buffers}
        if s is stage:
            return found
    return None


def constant(index, values) -> int | None:
    """An index at one iteration; None if it comes from memory."""
    from autotensor.ir.expr import Const, const
    from autotensor.ir.rewrite import substitute
    from autotensor.ir.simplify import simplify

    found = simplify(substitute(index, {v: const(n, v.dtype) for v, n in values.items()}))
    return int(found.value) if isinstance(found, Const) else None


def test_the_rule_against_counting() -> None:
    """If the rule allows it, every element of the input is read only for the result's element in the same
    place."""
    said, counted = 0, 0
    for seed in range(60):
        dag = random_dags.random_dag(random.Random(seed), most=2)
        for out in dag.outputs:
            stage = dag.producer(out)
            for x in dag.inputs:
                if x.shape != out.shape or not reads_in_place(dag, x.name, out.name):
                    continue
                said += 1
                found = touched(dag, stage, x.name)
                if found is not None:
                    counted += 1
                    assert all(elements <= {at} for at, elements in found.items()), (seed, x.name, out.name)
    assert said >= 5
    assert counted >= 5


def test_the_rule_says_no() -> None:
    """Stages that read a neighbouring element, the transposed element, and a row for a sum."""
    from autotensor import te

    A = te.placeholder((6, 6), name="A")
    k = te.reduce_axis(6, "k")
    for body in (
        lambda i, j: te.select(j > 0, A[i, j - 1], A[i, j]),
        lambda i, j: A[j, i] + A[i, j],
        lambda i, j: te.sum(A[i, k], axis=k),
        lambda i, j: A[i, 0] * A[i, j],
    ):
        dag = ComputeDAG.of([A, te.compute((6, 6), body, name="B")])
        assert not reads_in_place(dag, "A", "B")
        assert reference.evaluate(dag, {"A": np.ones((6, 6), np.float32)})["B"].shape == (6, 6)
