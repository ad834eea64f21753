"""Dots in LLVM IR: how instructions are spelled, and how an operand that all columns share is broadcast.

A row's group of elements (usually 4 bytes) is one word for LLVM. A broadcasting load puts this word into
every lane of a vector.
"""

from __future__ import annotations

from autotensor.base.dtype import DType
from autotensor.codegen.dot_instructions import DOTS, Spelling
from autotensor.codegen.llvm.function_writer import FunctionWriter, ty
from autotensor.ir.expr import Dot


def emit(w: FunctionWriter, e: Dot, sums: str, a: str, b: str) -> str:
    """The register that holds the dot of these operands."""
    if e.a.dtype.lanes < e.b.dtype.lanes:
        a = _for_every_column(w, e.a.dtype, a, e.columns)
    return DOTS.get(e.instruction).write(w, e, sums, a, b)


def call(name: str, part: str, swapped: bool = False) -> Spelling:
    """A spelling: one call of an LLVM function that takes sums and operands, as vectors of `part`, and
    returns new sums.

    swapped: the function takes the right operand first.
    """

    def write(w: FunctionWriter, e: Dot, sums: str, a: str, b: str) -> str:
        operands = as_parts(w, e, part, a, b)
        return called(w, name, ty(e.dtype), (ty(e.dtype), sums), *(operands[::-1] if swapped else operands))

    return write


def call_and_add(name: str, part: str) -> Spelling:
    """A spelling: one call of an LLVM function that returns sums of products, and an addition of integers."""

    def write(w: FunctionWriter, e: Dot, sums: str, a: str, b: str) -> str:
        t = ty(e.dtype)
        return w.op(f"add {t} {sums}, {called(w, name, t, *as_parts(w, e, part, a, b))}")

    return write


def call_on_tiles(name: str) -> Spelling:
    """A spelling: the name of the LLVM function that `tiles.py` calls with indices of registers."""

    def write(w: FunctionWriter, e: Dot, sums: str, a: str, b: str) -> str:
        return name

    return write


def called(w: FunctionWriter, name: str, result: str, *args: tuple[str, str]) -> str:
    """Declares an LLVM function and calls it; arguments are (type, operand)."""
    w.declared.setdefault(name, f"declare {result} @{name}({', '.join(t for t, _ in args)})")
    return w.op(f"call {result} @{name}({', '.join(f'{t} {x}' for t, x in args)})")


def as_parts(w: FunctionWriter, e: Dot, part: str, a: str, b: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """Both operands with their types, as vectors of `part`. The left operand must be as wide as the right
    one."""
    t = e.b.dtype
    own, wanted = (f"<{t.lanes} x i{t.element.bits}>", f"<{t.lanes} x {part}>")
    if own == wanted:
        return (wanted, a), (wanted, b)
    return tuple((wanted, w.op(f"bitcast {own} {x} to {wanted}")) for x in (a, b))  # type: ignore[return-value]


def _for_every_column(w: FunctionWriter, t: DType, group: str, columns: int) -> str:
    """A group of elements, repeated for each column."""
    bits = t.lanes * t.element.bits
    word = w.op(f"bitcast {ty(t)} {group} to i{bits}")
    every = w.splat(word, DType("uint", bits, columns))
    return w.op(f"bitcast <{columns} x i{bits}> {every} to {ty(t.with_lanes(t.lanes * columns))}")
