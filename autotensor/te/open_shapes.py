"""The facts that a call needs of a DAG whose extents are known at run time: `runtime/extents.py` reads it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from autotensor.base.errors import TensorError
from autotensor.ir.expr import Binary, Const, Expr, Op, Symbol
from autotensor.ir.func import Buffer
from autotensor.runtime.extents import Formula, solvable
from autotensor.te.dag import ComputeDAG

_SPELLING = {
    Op.ADD: "+",
    Op.SUB: "-",
    Op.MUL: "*",
    Op.FLOORDIV: "//",
    Op.MOD: "%",
    Op.MIN: "min",
    Op.MAX: "max",
}


def open_shapes(dag: ComputeDAG, buffers: Iterable[Buffer]) -> dict[str, Any]:
    """The symbols of a DAG with their ranges, and the shapes of these buffers over them, as JSON.

    Raises TensorError for a symbol that the shapes of the inputs do not tell.
    """
    symbols = dag.symbols()
    told = solvable([[formula(e) for e in b.extents] for b in dag.inputs if b.name not in dag.constants])
    for s in symbols:
        if s.name not in told:
            raise TensorError(
                f"no input has {s.name!r} as an extent, so that a call does not tell what it is.",
                fix="Give an input an axis of that extent (or of n*2, n + 1).",
            )
    return {
        "symbols": [[s.name, s.least, s.most] for s in symbols],
        "shapes": {b.name: [formula(e) for e in b.extents] for b in buffers if b.extents},
    }


def formula(extent: Expr) -> Formula:
    """An extent as nested lists of JSON."""
    match extent:
        case Symbol(name):
            return name
        case Const(value):
            return int(value)
        case Binary(op, a, b):
            return [_SPELLING[op], formula(a), formula(b)]
    raise AssertionError(f"{extent} is not an extent")  # te/symbols.py has checked it


__all__ = ["formula", "open_shapes"]
