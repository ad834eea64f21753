"""Turns a DAG with run-time extents into an ordinary DAG, for one choice of the extents.

B[i: n] = A[i] + 1, n = te.var(…)        ──fixed(dag, {n: 7})──▶        B[i: 7] = A[i] + 1
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from autotensor.ir.expr import Expr, Load, Symbol, Var, const
from autotensor.ir.func import Buffer
from autotensor.ir.node import Node
from autotensor.ir.rewrite import substitute, transform
from autotensor.te.dag import ComputeDAG
from autotensor.te.stage import IterDef, StageOp
from autotensor.te.symbols import number

Values = Mapping[Symbol, int]


def fixed(dag: ComputeDAG, values: Values) -> ComputeDAG:
    """The DAG with a number for every symbol; a DAG without symbols is returned as it is. Names stay."""
    if not values:
        return dag
    numbers: dict[Var, Expr] = {s: const(n, s.type) for s, n in values.items()}

    def buffer(b: Buffer) -> Buffer:
        return Buffer(b.name, tuple(number(e, values) for e in b.extents), b.dtype) if b.extents else b

    def axis(a: IterDef) -> IterDef:
        return a if a.runtime is None else IterDef(a.name, number(a.runtime, values), a.kind)

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


__all__ = ["Values", "corners", "fixed"]
