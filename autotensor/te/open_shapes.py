"""The facts about a DAG with run-time extents that a call needs; `runtime/extents.py` reads them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from autotensor.base.errors import TensorError
from autotensor.ir.expr import Binary, Const, Op, Symbol
from autotensor.ir.func import Buffer
from autotensor.runtime.extents import Formula, solvable
from autotensor.te.dag import ComputeDAG
from autotensor.te.symbols import Extent

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
    """As JSON, the symbols of a DAG with their ranges, and the buffers' shapes as formulas of the symbols."""
    return {
        "symbols": [[s.name, s.least, s.most] for s in dag.symbols()],
        "shapes": {b.name: [formula(e) for e in b.extents] for b in buffers if b.extents},
    }


def check_told(dag: ComputeDAG) -> ComputeDAG:
    """Returns the DAG.

    Raises TensorError for a symbol that the shapes of a call's inputs do not determine.
    """
    told = solvable([[formula(e) for e in b.extents] for b in dag.inputs if b.name not in dag.constants])
    for s in dag.symbols():
        if s.name not in told:
            raise TensorError(
                f"no input has {s.name!r} as an extent, so a call cannot determine it.",
                fix="Give an input an axis of that extent (or of n*2, n + 1).",
            )
    return dag


def formula(extent: Extent) -> Formula:
    """An extent as nested lists of JSON."""
    match extent:
        case int():
            return extent
        case Symbol(name):
            return name
        case Const(value):
            return int(value)
        case Binary(op, a, b):
            return [_SPELLING[op], formula(a), formula(b)]
    raise AssertionError(f"{extent} is not an extent")  # te/symbols.py has checked it


__all__ = ["check_told", "formula", "open_shapes"]
