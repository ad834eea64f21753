"""The names of operators. Their meanings are in `semantics.py`, the nodes that hold them in `expr.py`."""

from __future__ import annotations

import enum


class Op(enum.Enum):
    """Binary operators; both operands and the result have the same type."""

    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"  # floats only
    FLOORDIV = "//"  # integers; for floats, it is a Call
    MOD = "%"  # integers, with the sign of the divisor; for floats, it is a Call
    MIN = "min"
    MAX = "max"
    AND = "&"  # bools and integers
    OR = "|"
    XOR = "^"
    SHL = "<<"
    SHR = ">>"

    __hash__ = object.__hash__


class Cmp(enum.Enum):
    """Comparisons; the result is bool, with the operands' lanes."""

    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="

    __hash__ = object.__hash__


class Neg(enum.Enum):
    """Unary operators."""

    NEG = "-"
    NOT = "!"  # bools: logical; integers: all bits

    __hash__ = object.__hash__
