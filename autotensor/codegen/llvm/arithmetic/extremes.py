"""Minima and maxima of floats: NaN if one of the two values is NaN, as in NumPy.

    max(a, b)             p = b > a ? b : a;                           b is NaN ? b : p
    max(max(a, b), c)     p = b > a ? b : a;  p = c > p ? c : p;  b or c is NaN ? NaN : p

`y > x ? y : x` is one instruction. It gives x if either is NaN, so only a NaN in y is lost. Two more
instructions, a test and a choice, restore this NaN. In a chain they serve two steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotensor.base.dtype import DType
from autotensor.codegen.llvm.function_writer import FunctionWriter, cond_type, ty
from autotensor.ir.expr import Op


@dataclass(frozen=True, slots=True)
class Step:
    """A minimum or maximum of two values, without the code that keeps NaN."""

    plain: str  # correct unless `lost` is NaN
    lost: str


class Extremes:
    """The minima and maxima of one function."""

    def __init__(self, writer: FunctionWriter) -> None:
        self._w = writer
        self._steps: dict[tuple[Op, str], Step] = {}  # the steps by the operands that hold their results

    def of(self, op: Op, t: DType, x: str, y: str) -> str:
        """The least or the greatest of two values; NaN where one of them is NaN."""
        w, cond = self._w, cond_type(t)
        x, y = w.copies.get(x, x), w.copies.get(y, y)
        first, second = self._steps.get((op, x)), self._steps.get((op, y))
        other = y
        if first is not None:
            x, other = first.plain, first.lost
        elif second is not None:
            y, other = second.plain, second.lost
        # without the freeze LLVM joins the choices, and no vmaxps is left
        plain = w.op(f"freeze {ty(t)} {self.beyond(op, t, y, x)}")
        nan = w.op(f"fcmp uno {ty(t)} {other}, {y}")
        if other is not y:  # choosing all ones takes one `or`
            return w.op(f"select {cond} {nan}, {ty(t)} {_all_ones(t)}, {ty(t)} {plain}")
        result = w.op(f"select {cond} {nan}, {ty(t)} {y}, {ty(t)} {plain}")
        self._steps[op, result] = Step(plain, y)
        return result

    def beyond(self, op: Op, t: DType, y: str, x: str) -> str:
        """y if it is beyond x, else x. This is the least or the greatest value if y is not NaN."""
        order = self._w.op(f"fcmp {'olt' if op is Op.MIN else 'ogt'} {ty(t)} {y}, {x}")
        return self._w.op(f"select {cond_type(t)} {order}, {ty(t)} {y}, {ty(t)} {x}")


def _all_ones(t: DType) -> str:
    """A NaN whose bits are all ones."""
    one = {16: "0xHFFFF", 32: "0xFFFFFFFFE0000000", 64: "0xFFFFFFFFFFFFFFFF"}[t.bits]
    return one if t.lanes == 1 else f"splat ({ty(t.element)} {one})"
