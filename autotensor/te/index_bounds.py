"""Whether a computation reads outside its tensors, found before anything is compiled.

    C[i] = A[i + 1]      i = 63 reads A[64], its shape is (64,)      ──▶ TensorError

For most reads, intervals of the indices, under the conditions around the read, prove that it stays inside.
For the others, bodies are evaluated on tensors that have only a shape, so every read that is reported would
really happen. The axes on which these reads depend take all their values; the other axes take a few. If there
are too many values, every axis takes only its ends and its middle: indices nearly always grow or fall along
their axes, so they leave the tensor first at an end. Indices and guards that depend on data are trusted,
because their values are known only when the program runs (`indices.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from autotensor.base.errors import TensorError
from autotensor.ir.bounds import Bounds, Interval, bounds
from autotensor.ir.expr import Expr, Load, Select, Var, const
from autotensor.ir.func import Buffer
from autotensor.ir.node import Node, children
from autotensor.ir.visit import free_vars
from autotensor.te.dag import ComputeDAG, StageOp
from autotensor.te.fixed_extents import corners, fixed
from autotensor.te.indices import reads_memory
from autotensor.te.reference import Types, Values

Array = np.ndarray[Any, Any]

Conditions = tuple[Expr, ...]

POINTS = 100_000  # bodies are evaluated at so many points in one piece
PIECES = 16  # if all values of the axes need more pieces, few values are taken
VISITS = 10_000  # parts of a body under different conditions for which proofs are tried


def check_reads(dag: ComputeDAG) -> None:
    """Raises TensorError for a read outside its tensor, or for a stage with nothing to compute.

    Extents that are known at run time only are taken at the ends of their ranges.
    """
    for values in corners(dag):
        try:
            _check_fixed(fixed(dag, values))
        except TensorError as e:
            if not values:
                raise
            where = ", ".join(f"{s.name} = {n}" for s, n in values.items())
            raise TensorError(f"with {where}: {e.what}", fix=e.fix) from e


def _check_fixed(dag: ComputeDAG) -> None:
    shapes = {
        b.name: np.broadcast_to(np.zeros((), b.dtype.numpy), b.shape)
        for b in (*dag.inputs, *(b for s in dag.stages for b in s.buffers), *(b for b, _ in dag.carried))
    }
    steps = frozenset(before.name for before, _ in dag.carried)
    with np.errstate(all="ignore"):
        for stage in dag.stages:
            empty = next((a for a in stage.all_axes if a.extent == 0), None)
            if empty is not None:
                raise TensorError(
                    f"stage {stage.name!r}: axis {empty.name!r} has extent 0, so there is "
                    "nothing to compute.",
                    fix="Do not compile empty tensors.",
                )
            _check(stage, shapes, steps)


def _check(stage: StageOp, shapes: Mapping[str, Array], steps: frozenset[str]) -> None:
    """steps: the buffers from which scans read earlier steps. Which steps they read has been checked."""
    doubtful = _doubtful(stage, steps)
    if doubtful is None:
        return
    axes = stage.all_axes
    few = 5 ** len(axes) > POINTS
    places: list[Sequence[int]] = [
        sorted({p for p in (0, *(() if few else (1, n // 2, n - 2)), n - 1) if 0 <= p < n})
        for n in (a.extent for a in axes)
    ]
    every: list[Sequence[int]] = [
        range(a.extent) if a.var in doubtful else p for a, p in zip(axes, places, strict=True)
    ]
    if prod(map(len, every)) > POINTS * PIECES:
        every = places
    for piece in _pieces(every):
        grid = {
            a.var: np.asarray(p, np.int64).reshape([-1 if m == n else 1 for m in range(len(axes))])
            for n, (a, p) in enumerate(zip(axes, piece, strict=True))
        }
        values = _Places(stage, grid, shapes, Types(None))
        values.steps = steps
        for body in stage.bodies:
            values.value(body, None)


def _pieces(places: list[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
    """The points of a grid, in grids of at most POINTS points. The longest axes are halved."""
    if prod(map(len, places)) <= POINTS:
        yield places
        return
    longest = max(range(len(places)), key=lambda n: len(places[n]))
    half = len(places[longest]) // 2
    for part in (places[longest][:half], places[longest][half:]):
        yield from _pieces([*places[:longest], part, *places[longest + 1 :]])


def _doubtful(stage: StageOp, steps: frozenset[str]) -> set[Var] | None:
    """The axes of reads that are not proved to be inside their tensors; None: all reads are proved."""
    known = bounds({a.var: Interval(0, a.extent - 1) for a in stage.all_axes})
    found: set[Var] | None = None
    seen: set[tuple[Node, Bounds]] = set()
    stack: list[tuple[Node, Bounds, Conditions]] = [(body, known, ()) for body in stage.bodies]
    while stack:
        node, here, conditions = stack.pop()
        if (node, here) in seen:
            continue
        seen.add((node, here))
        if len(seen) > VISITS:
            return {a.var for a in stage.all_axes}
        if isinstance(node, Load) and not _is_inside(node, here, steps):
            found = (found or set()).union(*map(free_vars, (*node.indices, *conditions)))
        if isinstance(node, Select):
            stack.append((node.cond, here, conditions))
            if not reads_memory(node.cond):
                inner = (*conditions, node.cond)
                stack.append((node.then, here.assuming(node.cond), inner))
                stack.append((node.otherwise, here.assuming(node.cond, False), inner))
        else:
            stack += [(c, here, conditions) for c in children(node)]
    return found


def _is_inside(load: Load, here: Bounds, steps: frozenset[str]) -> bool:
    """Whether the indices are proved to be inside the tensor, or are trusted."""
    first = 1 if load.buffer.name in steps else 0
    return all(
        reads_memory(i) or here.below(i, n)
        for i, n in list(zip(load.indices, load.buffer.shape, strict=True))[first:]
    )


class _Places(Values):
    """Values that are evaluated only for the indices of their loads."""

    steps: frozenset[str] = frozenset()

    def _value(self, e: Expr, mask: Any) -> Any:
        if isinstance(e, Select) and reads_memory(e.cond):
            self.value(e.cond, mask)
            nowhere = np.zeros((), np.bool_)
            return np.where(nowhere, self.value(e.then, nowhere), self.value(e.otherwise, nowhere))
        return super()._value(e, mask)

    def load(self, buffer: Buffer, indices: tuple[Expr, ...], own: Expr | None, mask: Any) -> Any:
        told = [i for i in indices if reads_memory(i)]
        for i in told:
            self.value(i, mask)  # it may read outside itself
        if told:
            indices = tuple(const(0) if reads_memory(i) else i for i in indices)
        if buffer.name in self.steps:
            indices = (const(0), *indices[1:])
        return super().load(buffer, indices, own, mask)


__all__ = ["check_reads"]
