"""Vector expressions in dialects that compute with vectors (OpenCL C), for `kernel.py`.

    t1[0:16] = t1[0:16] + x16(a) * B[j:j+16]     ──▶     t1[0] = t1[0] + (float16)(a) * vload16(0, B + j);

`vector(e, first, n)` is the text of lanes first … first + n - 1. An expression without a vector spelling is
assembled from its lanes. If every access to a private buffer is a whole vector, the buffer is declared as an
array of vectors.
"""

from __future__ import annotations

from collections.abc import Iterable

from autotensor.codegen.access import access_of
from autotensor.codegen.c.expr import LaneWriter, Ranked
from autotensor.codegen.c.precedence import ARITHMETIC, Rank, rank_of
from autotensor.ir.expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Neg,
    Op,
    Ramp,
    Select,
    Unary,
    Var,
    const,
)
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.stmt import Stmt, Store
from autotensor.ir.visit import walk

WIDTHS = (16, 8, 4, 2)
_CIRCULAR = ("sin", "cos", "tan")
_SCALAR_ONLY = ("isnan", "isinf", "fmod", "floordiv", "floormod")


def _by_lane(name: str, e: Expr) -> bool:
    """Whether a function is called for each lane.

    PoCL's functions of vectors (3.0) are wrong in lanes next to lanes with unusual arguments: pow of doubles
    (3**127 = 0), sin, cos and tan next to huge arguments (sin(-1e-45) = -0.008).
    """
    return name in (*_SCALAR_ONLY, *_CIRCULAR) or (name == "pow" and e.dtype.bits == 64)


def width_of(lanes: int) -> int:
    """The lanes of each vector when `lanes` lanes are computed in vectors; 1 if no vector type fits."""
    return next((w for w in WIDTHS if lanes % w == 0), 1)


def vector_buffers(body: Stmt) -> dict[Buffer, int]:
    """Private buffers that may be arrays of vectors, with their lanes."""
    found: dict[Buffer, int] = {}
    for n in walk(body):
        if isinstance(n, Load | Store) and n.buffer.scope in (Scope.LOCAL, Scope.REGISTER):
            found[n.buffer] = min(found.get(n.buffer, 16), access_of(n).width(16))
    return {b: w for b, w in found.items() if w > 1 and b.size % w == 0 and is_plain(b)}


def is_plain(b: Buffer) -> bool:
    """Whether memory holds values in the type in which they are computed."""
    return not b.dtype.is_bool and not b.dtype.is_half


class VectorWriter(LaneWriter):
    """Writes vectors. `arrays` are the private buffers that are arrays of vectors."""

    arrays: dict[Buffer, int]

    def place(self, buffer: Buffer, index: Expr, lane: int) -> str:
        """One element in memory."""
        if buffer in self.arrays:
            return self.lane_of_array(buffer, index, lane)
        return super().place(buffer, index, lane)

    def can_compute(self, e: Expr) -> bool:
        """Whether an expression's values have vector types: no bools, no 16-bit floats."""
        return self.dialect.vectors and all(
            not isinstance(n, Expr) or n.dtype.lanes == 1 or not n.dtype.is_half for n in walk(e)
        )

    def kind(self, e: Expr, n: int) -> str:
        return self.dialect.vector_type(self.dialect.values[str(e.dtype.element)], n)

    def vector(self, e: Expr, first: int, n: int, least: int = 0) -> str:
        text, rank = self.vector_ranked(e, first, n)
        return f"({text})" if rank < least else text

    def vector_ranked(self, e: Expr, first: int, n: int) -> Ranked:
        match e:
            case Broadcast(a, _):
                return f"({self.kind(e, n)})({self.expr(a)})", Rank.UNARY
            case Ramp(base, step, _):
                offsets = ", ".join(str((first + k) * step) for k in range(n))
                kind = self.kind(e, n)
                return f"({kind})({self.expr(base)}) + ({kind})({offsets})", Rank.SUM
            case Load():
                found = self.vector_load_of(e, first, n)
                if found is not None:
                    return found
            case Var(name) if self.wide_lets.get(self.names[name]) == n:
                return f"{self.names[e.name]}[{first // n}]", Rank.ATOM
            case Binary(op, a, b) if op in ARITHMETIC and (e.dtype.is_float or op is not Op.DIV):
                rank = ARITHMETIC[op]
                return (
                    f"{self.vector(a, first, n, rank)} {op.value} {self.vector(b, first, n, rank + 1)}",
                    rank,
                )
            case Binary(Op.MIN | Op.MAX, a, b) if not e.dtype.is_bool:
                name = e.op.value
                if e.dtype.is_float:
                    name = self.helper(f"at_{e.op.value}_{e.dtype.element}x{n}")
                return f"{name}({self.vector(a, first, n)}, {self.vector(b, first, n)})", Rank.ATOM
            case Unary(Neg.NEG, a):
                return f"-{self.vector(a, first, n, Rank.UNARY + 1)}", Rank.UNARY
            case Call(name, args, _) if e.dtype.is_float and not _by_lane(name, e):
                called = self.dialect.call(name, e.dtype.element)
                if called in self.dialect.helpers:
                    called = self.helper(f"{called}x{n}")
                return f"{called}({', '.join(self.vector(a, first, n) for a in args)})", Rank.ATOM
            case Select(cond, then, otherwise):
                found = self.select(e, cond, then, otherwise, first, n)
                if found is not None:
                    return found
            case Cast(_, a) if (
                not e.dtype.is_bool and not a.dtype.is_bool and e.dtype.is_float >= a.dtype.is_float
            ):
                return f"convert_{self.kind(e, n)}({self.vector(a, first, n)})", Rank.ATOM
        lanes = ", ".join(self.expr(e, first + k) for k in range(n))
        return f"({self.kind(e, n)})({lanes})", Rank.UNARY

    def select(self, e: Select, cond: Expr, then: Expr, otherwise: Expr, first: int, n: int) -> Ranked | None:
        """Both sides are computed; a condition of vectors is a mask of integers as wide as the values."""
        sides = self.vector(then, first, n), self.vector(otherwise, first, n)
        if cond.dtype.lanes == 1 or isinstance(cond, Broadcast):
            inner = cond.a if isinstance(cond, Broadcast) else cond
            return f"{self.expr(inner, 0, Rank.TERNARY + 1)} ? ({sides[0]}) : ({sides[1]})", Rank.TERNARY
        mask = self.mask(cond, first, n)
        if mask is None:
            return None
        text, bits = mask
        if bits != e.dtype.bits:
            kind = {8: "char", 16: "short", 32: "int", 64: "long"}[e.dtype.bits]
            text = f"convert_{kind}{n}({text})"
        return f"select({sides[1]}, {sides[0]}, {text})", Rank.ATOM

    def mask(self, cond: Expr, first: int, n: int) -> tuple[str, int] | None:
        """A condition as a vector of integers, and their bits; None if it has no such form."""
        match cond:
            case Compare(op, a, b):
                rank = rank_of(op)
                sides = self.vector(a, first, n, rank + 1), self.vector(b, first, n, rank + 1)
                return f"({sides[0]} {op.value} {sides[1]})", a.dtype.bits
            case Binary(Op.AND | Op.OR, a, b) if cond.dtype.is_bool:
                p, q = self.mask(a, first, n), self.mask(b, first, n)
                if p is None or q is None or p[1] != q[1]:
                    return None
                return f"({p[0]} {'&' if cond.op is Op.AND else '|'} {q[0]})", p[1]
        return None

    def vector_load_of(self, e: Load, first: int, n: int) -> Ranked | None:
        """A load of neighbouring elements; None for other loads, whose vector is assembled from lanes."""
        (index,) = e.indices
        if not access_of(e).is_whole or not is_plain(e.buffer):
            return None
        if e.buffer in self.arrays:
            return (self.element(e.buffer, index, first), Rank.ATOM) if self.arrays[e.buffer] == n else None
        return self.vector_load(e.buffer, index, first, n), Rank.ATOM

    def vector_load(self, buffer: Buffer, index: Expr, first: int, n: int) -> str:
        """Elements side by side in memory: lanes first … first + n - 1 of an index."""
        kind = self.dialect.types[str(buffer.dtype)]
        return self.dialect.vector_load(kind, self.names[buffer.name], self.offset(index, first), n)

    def element(self, buffer: Buffer, index: Expr, lane: int) -> str:
        """The vector of an array of vectors that begins with a lane."""
        assert isinstance(index, Ramp)
        at = index.base + lane if lane else index.base
        return f"{self.names[buffer.name]}[{self.expr(divided(at, self.arrays[buffer]))}]"

    def lane_of_array(self, buffer: Buffer, index: Expr, lane: int) -> str:
        inside = lane % self.arrays[buffer]
        return self.dialect.lane(self.element(buffer, index, lane - inside), inside)


def divided(e: Expr, n: int) -> Expr:
    """The expression, a multiple of n, divided by n."""
    match e:
        case Const(value):
            return const(int(value) // n, e.dtype)
        case Binary(Op.MUL, a, Const(value)) if int(value) % n == 0:
            factor = int(value) // n
            return a if factor == 1 else a * factor
        case Binary(Op.MUL, a, b):
            return divided(a, n) * b
        case Binary(Op.ADD | Op.SUB, a, b):
            return Binary(e.op, divided(a, n), divided(b, n))
        case _:
            return e // n


def vector_helpers(function: str, floats: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Helpers on vectors. Their names are those of the scalar helpers, followed by x and the number of
    lanes."""
    out: dict[str, str] = {}
    for t, kind in floats:
        for n in WIDTHS:
            v = f"{kind}{n}"
            for name, sign in (("min", "<="), ("max", ">=")):
                out[f"at_{name}_{t}x{n}"] = (
                    f"{function} {v} at_{name}_{t}x{n}({v} a, {v} b) "
                    f"{{ return select(b, a, (a {sign} b) | (a != a)); }}"
                )
            out[f"at_sigmoid_{t}x{n}"] = (
                f"{function} {v} at_sigmoid_{t}x{n}({v} x) {{ return ({v})(1) / (({v})(1) + exp(-x)); }}"
            )
            out[f"at_rounded_{t}x{n}"] = rounded_helper(function, t, kind, n)
    return out


def rounded_helper(function: str, t: str, kind: str, n: int = 1) -> str:
    """A function that returns its argument, of OpenCL's type `kind` in n lanes, and prevents its fusion into
    a multiply-add.

    FP_CONTRACT concerns a single expression, and a call is another one. But with -cl-mad-enable a compiler
    may join product and sum after inlining. So the bits pass through an integer operation that changes
    nothing, because there are fewer than 256 dimensions.
    """
    lanes, bits = str(n) if n > 1 else "", "uint" if t == "float32" else "ulong"
    name = f"at_rounded_{t}" + (f"x{n}" if n > 1 else "")
    return (
        f"{function} {kind}{lanes} {name}({kind}{lanes} x) "
        f"{{ return as_{kind}{lanes}(as_{bits}{lanes}(x) | ({bits}{lanes})(get_work_dim() >> 8)); }}"
    )
