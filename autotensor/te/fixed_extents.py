"""Turns a DAG with run-time extents into an ordinary DAG, for one choice of the extents.

B[i: n] = A[i] + 1, n = te.var(…)        ──fixed(dag, {n: 7})──▶        B[i: 7] = A[i] + 1

`narrowed` keeps the symbols and lowers their greatest values: schedules see no other extents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from autotensor.ir.bounds import interval
from autotensor.ir.expr import Expr, Load, Symbol, Var, const
from autotensor.ir.func import Buffer
from autotensor.ir.node import Node
from autotensor.ir.rewrite import substitute, transform
from autotensor.ir.simplify import simplify
from autotensor.te.dag import ComputeDAG, buffer_of_shape
from autotensor.te.stage import IterDef, StageOp
from autotensor.te.symbols import Extent, at_run_time, greatest

Values = Mapping[Symbol, int]


def fixed(dag: ComputeDAG, values: Values) -> ComputeDAG:
    """The DAG with a number for every symbol; a DAG without symbols is returned as it is. Names stay."""
    return _replaced(dag, {s: const(n, s.type) for s, n in values.items()})


def narrowed(dag: ComputeDAG, most: Values) -> ComputeDAG:
    """The DAG with other greatest values of its symbols. Names stay."""
    return _replaced(dag, {s: Symbol(s.name, s.type, min(s.least, n), n) for s, n in most.items()})


def _replaced(dag: ComputeDAG, numbers: dict[Var, Expr]) -> ComputeDAG:
    """The DAG with expressions in place of its symbols."""
    if not numbers:
        return dag

    def extent(e: Expr) -> Extent:
        found = simplify(substitute(e, numbers))
        value = interval(found).value
        return found if value is None else value

    def buffer(b: Buffer) -> Buffer:
        return buffer_of_shape(b.name, tuple(map(extent, b.extents)), b.dtype) if b.extents else b

    def axis(a: IterDef) -> IterDef:
        if a.runtime is None:
            return a
        size = extent(a.runtime)
        return IterDef(a.name, greatest(size), a.kind, at_run_time(size))

    def load(node: Node) -> Node | None:
        return Load(buffer(node.buffer), node.indices, node.mask) if isinstance(node, Load) else None

    def stage(s: StageOp) -> StageOp:
        return replace(
            s,
            axes=tuple(map(axis, s.axes)),
            reduce_axes=tuple(map(axis, s.reduce_axes)),
            bodies=tuple(transform(substitute(b, numbers), load) for b in s.bodies),
            buffers=tuple(map(buffer, s.buffers)),
        )

    return replace(
        dag,
        inputs=tuple(map(buffer, dag.inputs)),
        stages=tuple(map(stage, dag.stages)),
        outputs=tuple(map(buffer, dag.outputs)),
        carried=tuple((buffer(before), buffer(after)) for before, after in dag.carried),
        tensors={key: buffer(b) for key, b in dag.tensors.items()},
    )


def corners(dag: ComputeDAG) -> Iterator[Values]:
    """Choices of the symbols: all at their least, all at their greatest, each at its least while the others
    are at their greatest, and the other way round. A DAG without symbols has one empty choice."""
    symbols = dag.symbols()
    least = {s: s.least for s in symbols}
    most = {s: s.most for s in symbols}
    seen: list[Values] = [most]
    seen += [least] if least != most else []
    if len(symbols) > 1:
        seen += [{**base, s: other[s]} for s in symbols for base, other in ((most, least), (least, most))]
    yield from seen


__all__ = ["Values", "corners", "fixed", "narrowed"]
