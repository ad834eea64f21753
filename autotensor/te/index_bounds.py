"""Whether a computation reads outside its tensors, found before anything is compiled.

    C[i] = A[i + 1]      i = 63 reads A[64], its shape is (64,)      ──▶ TensorError

Bodies are evaluated at the ends and in the middle of every axis, on tensors that have only a shape. Indices
nearly always grow or fall along their axes, so they leave the tensor first at an end. Every read that is
reported would really happen. Indices and guards that depend on data are trusted, because their values are
known only when the program runs (`indices.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autotensor.base.errors import TensorError
from autotensor.ir.expr import Expr, Select, const
from autotensor.ir.func import Buffer
from autotensor.te.dag import ComputeDAG, StageOp
from autotensor.te.fixed_extents import corners, fixed
from autotensor.te.indices import reads_memory
from autotensor.te.reference import Types, Values

Array = np.ndarray[Any, Any]

# if five points on each axis would be more than this, only the ends of the axes are evaluated
POINTS = 100_000


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
    axes = stage.all_axes
    few = 5 ** len(axes) > POINTS
    grid = {}
    for n, a in enumerate(axes):
        middle = () if few else (1, a.extent // 2, a.extent - 2)
        places = sorted({0, a.extent - 1, *(p for p in middle if 0 <= p < a.extent)})
        shape = [-1 if m == n else 1 for m in range(len(axes))]
        grid[a.var] = np.asarray(places, dtype=np.int64).reshape(shape)
    values = _Places(stage, grid, shapes, Types(None))
    values.steps = steps
    for body in stage.bodies:
        values.value(body, None)


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
