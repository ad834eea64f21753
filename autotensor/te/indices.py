"""For inputs that hold indices: the range of values that stay inside the indexed tensor.

    y[i, j] = x[select(k[i] < 0, k[i] + 7, k[i]), j]      x: [7, 3]      ──▶ {"k": (-7, 6)}

A range is found if a value is used as it is, with a constant added, or counted from the end when it is
negative. Every element of the input must also be read, whatever other data say. A value outside the range
is then the caller's mistake, and is reported before anything runs. `clamped` keeps all other indices from
memory inside their tensor; lowering puts it into the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autotensor.ir.bounds import Interval, interval
from autotensor.ir.expr import (
    Binary,
    Cast,
    Cmp,
    Compare,
    Const,
    Expr,
    Load,
    Op,
    Select,
    Var,
    const,
    maximum,
    minimum,
)
from autotensor.ir.intervals import dtype_interval
from autotensor.ir.node import Node, children
from autotensor.ir.visit import contains
from autotensor.te.dag import ComputeDAG, StageOp

Range = tuple[int, int]  # least and largest


def index_ranges(dag: ComputeDAG) -> dict[str, Range]:
    """The inputs whose elements are all indices, each with the least and largest value that stays inside."""
    inputs = {b.name for b in dag.inputs if b.dtype.is_int}
    found: dict[str, Range] = {}
    for stage in dag.stages if inputs else ():
        for load in _always_read(stage.bodies):
            for index, extent in zip(load.indices, load.buffer.dims, strict=True):
                if not isinstance(extent, Const):
                    continue  # the extent is known only at run time; `clamped` keeps the index inside
                allowed = _allowed(index, 0, int(extent.value) - 1)
                if allowed is None or not _reads_all(allowed[0], stage):
                    continue
                source, low, high = allowed
                name = source.buffer.name
                if name in inputs and low <= high:
                    before = found.get(name, (low, high))
                    found[name] = max(low, before[0]), min(high, before[1])
    return found


def clamped(index: Expr, extent: Expr) -> Expr:
    """The index, limited to 0 … extent - 1 if it comes from memory and may lie outside."""
    least = interval(extent).lo or 0
    if not reads_memory(index) or interval(index).within(Interval(0, least - 1)):
        return index
    return minimum(maximum(index, const(0)), extent - 1)


def reads_memory(e: Expr) -> bool:
    """Whether an index comes from memory."""
    return contains(e, Load)


def _always_read(bodies: Sequence[Expr]) -> Iterator[Load]:
    """Loads that happen whatever the data say. Each part of the bodies is visited once."""
    seen: set[Node] = set()
    stack: list[Node] = list(bodies)
    while stack:
        node = stack.pop()
        if node in seen or (isinstance(node, Load) and node.mask is not None):
            continue
        seen.add(node)
        if isinstance(node, Load):
            yield node
        stack += [node.cond] if isinstance(node, Select) else children(node)


def _allowed(index: Expr, low: int, high: int) -> tuple[Load, int, int] | None:
    """The load from which an index is computed, and its values for which the index is in low … high."""
    match index:
        case Load():
            return index, low, high
        case Cast(t, a) if t.is_int and a.dtype.is_int and interval(a).within(dtype_interval(t)):
            return _allowed(a, low, high)
        case Binary(Op.ADD, a, Const(c)):
            return _allowed(a, low - int(c), high - int(c))
        case Binary(Op.SUB, a, Const(c)):
            return _allowed(a, low + int(c), high + int(c))
        case Select(Compare(Cmp.LT, k, Const(0)), then, otherwise):
            tested = _allowed(k, 0, 0)
            below, above = _allowed(then, low, high), _allowed(otherwise, low, high)
            if tested is None or below is None or above is None:
                return None
            same = tested == (below[0], 0, 0) and below[0] is above[0]
            joined = below[1] <= 0 and below[2] >= -1 and above[1] <= 0  # no gap between the two ranges at 0
            return (below[0], below[1], above[2]) if same and joined else None
    return None


def _reads_all(load: Load, stage: StageOp) -> bool:
    """Whether the stage's loops read every element of the buffer: each dimension has an axis of its own."""
    extents = {a.var: a.extent for a in stage.all_axes}
    variables = [i for i in load.indices if isinstance(i, Var)]
    return (
        load.mask is None
        and len(set(variables)) == len(variables)
        and all(
            n == 1 or (isinstance(i, Var) and extents.get(i) == n)
            for i, n in zip(load.indices, load.buffer.shape, strict=True)
        )
    )


__all__ = ["clamped", "index_ranges", "reads_memory"]
