"""Models in which one kernel is compiled from a wrong program, as a bug of the compiler would make it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from autotensor.api.models import ModelPlan, compile_tasks, default_traces
from autotensor.codegen import backend
from autotensor.graph.linking.link_groups import link
from autotensor.ir.expr import Binary, Const, Expr, Op
from autotensor.ir.func import Buffer, PrimFunc, Program, Role
from autotensor.ir.node import Node, map_children
from autotensor.ir.stmt import For, Store
from autotensor.ir.visit import walk
from autotensor.lowering.pipeline import lower
from autotensor.runtime.files.artifact import Artifact

Mutation = Callable[[Program], Program | None]  # None: there is nothing of that kind in the program


def model_with(plan: ModelPlan, task: int, mutation: Mutation) -> tuple[Artifact, int] | None:
    """The model with a wrong kernel for one of its tasks, and the number of the first step that runs it."""
    traces = default_traces(plan)
    known: dict[tuple[str, str], Artifact] = {}
    compile_tasks(plan, traces, known)
    chosen = {key: known[key, trace.hash] for key, trace in traces.items()}
    workload = plan.tasks[task].workload
    wrong = wrong_kernel(chosen[workload.key], plan, workload, traces[workload.key], mutation)
    if wrong is None:
        return None
    first = next(n for n, g in enumerate(plan.groups) if g.workload.key == workload.key)
    return link(plan.graph, plan.groups, chosen | {workload.key: wrong}, plan.target), first


def wrong_kernel(
    right: Artifact, plan: ModelPlan, workload: Any, trace: Any, mutation: Mutation
) -> Artifact | None:
    changed = mutation(lower(trace.replay(workload.dag), plan.target))
    if changed is None:
        return None
    made = backend.compile(changed, plan.target, name="planted")
    assert made.entry != right.entry
    return replace(right, entry=made.entry, prepare=made.prepare, objects=made.objects)


def _loops(f: PrimFunc) -> Iterator[For]:
    return (
        n for n in walk(f.body) if isinstance(n, For) and isinstance(n.extent, Const) and n.extent.value > 1
    )


def _swapped(root: Any, old: Node, new: Any) -> Any:
    return new if root is old else map_children(root, lambda child: _swapped(child, old, new))


def _with(program: Program, old: Node, new: Any) -> Program:
    return replace(program, run=tuple(replace(f, body=_swapped(f.body, old, new)) for f in program.run))


def _shorter(program: Program, loop: For | None) -> Program | None:
    if loop is None:
        return None
    extent = Const(loop.extent.value - 1, loop.extent.dtype)  # type: ignore[attr-defined]
    return _with(program, loop, For(loop.var, loop.begin, extent, loop.kind, loop.body, loop.thread))


def stale_tile(program: Program) -> Program | None:
    """The last iteration of the outermost loop around a result never runs: a tile keeps the old contents of
    memory."""
    results = _outputs(program)

    def writes(loop: For) -> bool:
        return any(isinstance(n, Store) and n.buffer in results for n in walk(loop.body))

    return _shorter(program, next((loop for f in program.run for loop in _loops(f) if writes(loop)), None))


def short_sum(program: Program) -> Program | None:
    """The last turn of an innermost loop never runs: a step of a sum is left out, or a tail."""
    inner = [loop for f in program.run for loop in _loops(f) if not any(_inside(loop))]
    return _shorter(program, inner[-1] if inner else None)


def _inside(loop: For) -> Iterator[bool]:
    return (True for n in walk(loop.body) if isinstance(n, For))


def _outputs(program: Program) -> set[Buffer]:
    return {b for b, role in program.args if role is Role.OUTPUT}


def _of_outputs(program: Program, change: Callable[[Expr], Expr | None]) -> Program | None:
    """Changes the value of the first store to an output for which this is possible."""
    for f in program.run:
        for node in walk(f.body):
            if isinstance(node, Store) and node.buffer in _outputs(program):
                value = change(node.value)
                if value is not None:
                    return _with(program, node, Store(node.buffer, node.indices, value, node.mask))
    return None


def wrong_constant(program: Program) -> Program | None:
    """Results are a thousandth too large."""
    return _of_outputs(program, lambda v: Binary(Op.MUL, v, _like(v, 1.001)) if v.dtype.is_float else None)


def _like(v: Expr, number: float) -> Expr:
    from autotensor.ir.expr import const

    return const(number, v.dtype)


def no_epilogue(program: Program) -> Program | None:
    """The last operation (a relu, an addition) is left out."""

    def first(v: Expr) -> Expr | None:
        return v.a if isinstance(v, Binary) and v.op in (Op.MAX, Op.ADD, Op.MUL) else None

    return _of_outputs(program, first)


def misprepared(program: Program) -> Program | None:
    """The last array that is prepared is a hundredth too large."""
    (*before, last) = program.prepare
    node = next((n for n in walk(last.body) if isinstance(n, Store) and n.value.dtype.is_float), None)
    if node is None:
        return None
    larger = Binary(Op.MUL, node.value, _like(node.value, 1.01))
    body = _swapped(last.body, node, Store(node.buffer, node.indices, larger, node.mask))
    return replace(program, prepare=(*before, replace(last, body=body)))


MUTATIONS = (stale_tile, short_sum, wrong_constant, no_epilogue)
