"""Turns computations with numbers as extents into computations with run-time extents.

    C[i: 6, j: 5] = A[i, k] * B[k, j]        ──opened──▶        C[i: n0, j: 5] = …,  A: [n0, 4]

Axes and dimensions that are connected by plain indices get one symbol. An axis in any other index keeps its
number, so that the computation is defined for every value of its symbols.
"""

from __future__ import annotations

import random
from dataclasses import replace

from autotensor.base.dtype import int64
from autotensor.ir.expr import Expr, Load, Symbol, Var, const
from autotensor.ir.func import Buffer
from autotensor.ir.node import Node
from autotensor.ir.rewrite import transform
from autotensor.ir.visit import free_vars
from autotensor.te.dag import ComputeDAG
from autotensor.te.stage import IterDef, StageOp

Place = tuple[str, int | str]  # a buffer's dimension, or an axis of a stage


def opened(dag: ComputeDAG, rng: random.Random) -> ComputeDAG:
    """The DAG with symbols, each from 1 to the old number or a few more; the DAG itself if no extent can be a
    symbol."""
    tied = _tied(dag)
    extents = _extents(dag)
    inputs = {(b.name, n) for b in dag.inputs if b.name not in dag.constants for n in range(len(b.shape))}
    symbols: dict[Place, Expr] = {}
    for number, group in enumerate(tied):
        extent = {extents[p] for p in group}
        if len(extent) == 1 and group & inputs and rng.random() < 0.7:
            symbol = Symbol(f"n{number}", int64, 1, max(extent) + rng.choice((0, 1, 7, 30)))
            symbols.update(dict.fromkeys(group, symbol))
    return _with(dag, symbols) if symbols and not dag.carried else dag


def _extents(dag: ComputeDAG) -> dict[Place, int]:
    buffers = {*dag.inputs, *(b for s in dag.stages for b in s.buffers)}
    found: dict[Place, int] = {(b.name, n): e for b in buffers for n, e in enumerate(b.shape)}
    found.update({(f"{s.name}.", a.name): a.extent for s in dag.stages for a in s.all_axes})
    return found


def _tied(dag: ComputeDAG) -> list[set[Place]]:
    """Groups of places that have one extent, without those that must keep their numbers."""
    group: dict[Place, set[Place]] = {p: {p} for p in _extents(dag)}
    fixed: set[Place] = {p for p in group if p[0] in dag.constants}

    def tie(a: Place, b: Place) -> None:
        joined = group[a] | group[b]
        group.update(dict.fromkeys(joined, joined))

    for s in dag.stages:
        own = {a.var: (f"{s.name}.", a.name) for a in s.all_axes}
        for n, a in enumerate(s.axes):
            for b in s.buffers:
                tie((b.name, n), (f"{s.name}.", a.name))
        for load in s.loads():
            for n, index in enumerate(load.indices):
                if isinstance(index, Var):
                    tie((load.buffer.name, n), own[index])
                else:
                    fixed |= {(load.buffer.name, n), *(own[v] for v in free_vars(index) if v in own)}
    groups = {id(g): g for g in group.values()}
    return [g for g in sorted(groups.values(), key=lambda g: sorted(map(str, g))) if not g & fixed]


def _with(dag: ComputeDAG, symbols: dict[Place, Expr]) -> ComputeDAG:
    def most(e: Expr) -> int:
        return e.most if isinstance(e, Symbol) else int(e.value)  # type: ignore[attr-defined]

    def buffer(b: Buffer) -> Buffer:
        dims = tuple(symbols.get((b.name, n), const(e)) for n, e in enumerate(b.shape))
        is_open = any(isinstance(d, Symbol) for d in dims)
        return Buffer(b.name, tuple(map(most, dims)), b.dtype, extents=dims) if is_open else b

    def axis(s: StageOp, a: IterDef) -> IterDef:
        symbol = symbols.get((f"{s.name}.", a.name))
        return a if symbol is None else IterDef(a.name, most(symbol), a.kind, symbol)

    def load(node: Node) -> Node | None:
        return Load(buffer(node.buffer), node.indices, node.mask) if isinstance(node, Load) else None

    def stage(s: StageOp) -> StageOp:
        return replace(
            s,
            axes=tuple(axis(s, a) for a in s.axes),
            reduce_axes=tuple(axis(s, a) for a in s.reduce_axes),
            bodies=tuple(transform(b, load) for b in s.bodies),
            buffers=tuple(map(buffer, s.buffers)),
        )

    return replace(
        dag,
        inputs=tuple(map(buffer, dag.inputs)),
        stages=tuple(map(stage, dag.stages)),
        outputs=tuple(map(buffer, dag.outputs)),
        tensors={},
    )
