"""Expressions in the C family, for `kernel.py`.

A vector expression is written lane by lane: `expr(e, 3)` is the text of lane 3. Where C defines no result,
the functions of helpers.py give the result of `ir/semantics.py`: integers wrap, division rounds down, MIN and
MAX give NaN if either operand is NaN, and 16-bit floats round after every operation.
"""

from __future__ import annotations

from autotensor.base.dtype import DType, float32, uint16, uint64
from autotensor.base.errors import CodegenError
from autotensor.codegen.c.dialect import Dialect
from autotensor.codegen.c.precedence import BITS, INFIX, Rank, rank_of
from autotensor.ir.bounds import Bounds
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
)
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.semantics import stopover
from autotensor.ir.visit import contains

SHUFFLE = "shuffle_xor"  # the value of another lane of a warp

Ranked = tuple[str, int]  # text, and how tightly its outermost operator binds


class LaneWriter:
    """Writes expressions. `helpers` collects the names of functions that must be defined."""

    def __init__(self, kernel: str, dialect: Dialect) -> None:
        self.kernel = kernel
        self.dialect = dialect
        self.names: dict[str, str] = {}
        # loads that are already in variables → these variables, lanes of each
        self.vectors: dict[Load, tuple[list[str], int]] = {}
        self.wide_lets: dict[str, int] = {}  # variables that are arrays of vectors, with their lanes
        self.bounds = Bounds({})  # bounds of the variables around
        self.helpers: set[str] = set()

    def helper(self, name: str) -> str:
        self.helpers.add(name)
        return name

    def expr(self, e: Expr, lane: int = 0, least: int = 0) -> str:
        """The text of lane `lane`, in parentheses if its rank is lower than `least`."""
        text, rank = self.ranked(e, lane)
        return f"({text})" if rank < least else text

    def offset(self, e: Expr, lane: int = 0) -> str:
        """An index as text that may be added to a pointer."""
        return self.expr(e, lane, Rank.SUM)

    def ranked(self, e: Expr, lane: int) -> Ranked:
        match e:
            case Var(name, dtype):
                return self.variable(self.names[name], dtype.lanes, lane), Rank.ATOM
            case Const():
                return self.const(e)
            case Ramp(base, step, _):
                return self.ranked(base + lane * step if lane else base, 0)
            case Broadcast(a, _):
                return self.ranked(a, 0)
            case Load():
                return self.load(e, lane)
            case Binary():
                return self.binary(e, lane)
            case Compare(op, a, b):
                rank = rank_of(op)
                return f"{self.expr(a, lane, rank + 1)} {op.value} {self.expr(b, lane, rank + 1)}", rank
            case Unary(Neg.NEG, a) if e.dtype.kind == "int" and _may_wrap(e):
                kind = self.dialect.values[str(DType("uint", max(32, e.dtype.bits)))]
                own = self.dialect.values[str(e.dtype.element)]
                return f"({own})(0 - ({kind}){self.expr(a, lane, Rank.UNARY + 1)})", Rank.UNARY
            case Unary(Neg.NEG, a):
                return self.wrapped(f"-{self.expr(a, lane, Rank.UNARY + 1)}", Rank.UNARY, e)
            case Unary(Neg.NOT, a) if e.dtype.is_bool:
                return f"!{self.expr(a, lane, Rank.UNARY)}", Rank.UNARY
            case Unary(_, a):
                return self.wrapped(f"~{self.expr(a, lane, Rank.UNARY)}", Rank.UNARY, e)
            case Select(cond, then, otherwise):
                sides = self.expr(then, lane, Rank.TERNARY + 1), self.expr(otherwise, lane, Rank.TERNARY + 1)
                return f"{self.expr(cond, lane, Rank.TERNARY + 1)} ? {sides[0]} : {sides[1]}", Rank.TERNARY
            case Cast():
                return self.cast(e, lane)
            case Call():
                return self.call(e, lane)
        raise CodegenError(
            f"kernel {self.kernel!r}: {type(e).__name__} has no spelling in {self.dialect.name}."
        )

    def variable(self, name: str, lanes: int, lane: int) -> str:
        width = self.wide_lets.get(name, 1)
        if lanes == 1:
            return name
        return (
            f"{name}[{lane}]" if width == 1 else self.dialect.lane(f"{name}[{lane // width}]", lane % width)
        )

    def place(self, buffer: Buffer, index: Expr, lane: int) -> str:
        """One element in memory."""
        return f"{self.names[buffer.name]}[{self.expr(index, lane)}]"

    def const(self, c: Const) -> Ranked:
        t, value = c.dtype, c.value
        if t.is_bool:
            return ("true" if value else "false"), Rank.ATOM
        if t.is_float:
            text = self.dialect.constant(float(value), t)
            return text, Rank.UNARY if text.startswith("-") else Rank.ATOM
        number = int(value)
        suffix = ("u" if t.kind == "uint" and t.bits >= 32 else "") + ("L" if t.bits == 64 else "")
        if t.kind == "int" and t.bits >= 32 and number == -(1 << (t.bits - 1)):
            return f"(-{-(number + 1)}{suffix} - 1)", Rank.ATOM
        return f"{number}{suffix}", Rank.UNARY if number < 0 else Rank.ATOM

    # -- memory ----------------------------------------------------------------------------------------------
    def load(self, e: Load, lane: int) -> Ranked:
        if e in self.vectors:
            names, step = self.vectors[e]
            return self.loaded(e.buffer, self.dialect.lane(names[lane // step], lane % step))
        (index,) = e.indices
        text, rank = self.loaded(e.buffer, self.place(e.buffer, index, lane))
        if e.mask is None:
            return text, rank
        zero = self.const(Const(_zero(e.dtype), e.dtype.element))[0]
        return f"{self.expr(e.mask, lane, Rank.TERNARY + 1)} ? {text} : {zero}", Rank.TERNARY

    def loaded(self, buffer: Buffer, text: str) -> Ranked:
        """A value from its representation in memory."""
        if buffer.scope in (Scope.LOCAL, Scope.REGISTER):
            return text, Rank.ATOM
        match str(buffer.dtype):
            case "float16":
                return f"{self.helper('at_h2f')}({text})", Rank.ATOM
            case "bfloat16":
                return f"{self.helper('at_bf2f')}({text})", Rank.ATOM
            case "bool":
                return f"{text} != 0", Rank.EQUAL
        return text, Rank.ATOM

    def stored(self, buffer: Buffer, text: str) -> str:
        """The representation of a value in memory."""
        if buffer.scope in (Scope.LOCAL, Scope.REGISTER):
            return text
        match str(buffer.dtype):
            case "float16":
                return f"{self.helper('at_f2h')}({text})"
            case "bfloat16":
                return f"{self.helper('at_f2bf')}({text})"
        return text

    def stored_lane(self, buffer: Buffer, value: Expr, lane: int) -> str:
        """The representation in memory of lane `lane` of a value. A value that is only copied is not
        converted."""
        private = (Scope.LOCAL, Scope.REGISTER)
        match value:
            case Load(source, (index,), None) if (
                source.dtype is buffer.dtype and buffer.scope not in private and source.scope not in private
            ):
                if value in self.vectors:
                    names, step = self.vectors[value]
                    return self.dialect.lane(names[lane // step], lane % step)
                return self.place(source, index, lane)
        return self.stored(buffer, self.expr(value, lane))

    # -- arithmetic ------------------------------------------------------------------------------------------
    def binary(self, e: Binary, lane: int) -> Ranked:
        op, t = e.op, e.dtype.element
        if op in (Op.MIN, Op.MAX):
            name = f"at_{op.value}_{t}" if t.is_int or t.is_float else ""
            if t.is_bool:
                return self._infix(*(("&&", Rank.AND) if op is Op.MIN else ("||", Rank.OR)), e, lane)
            if t.is_half:
                name = f"at_{op.value}_float32"  # no rounding: the result is one of the operands
            return f"{self.helper(name)}({self.expr(e.a, lane)}, {self.expr(e.b, lane)})", Rank.ATOM
        if op in (Op.FLOORDIV, Op.MOD):
            return self._floor(e, lane)
        if t.is_bool:
            match op:
                case Op.AND:
                    return self._infix("&&", Rank.AND, e, lane)
                case Op.OR:
                    return self._infix("||", Rank.OR, e, lane)
                case Op.XOR:
                    return self._infix("!=", Rank.EQUAL, e, lane)
        if op in (Op.SHL, Op.SHR) and not self.bounds.below(e.b, t.bits):
            function = self.helper(f"at_{op.name.lower()}_{t}")
            return f"{function}({self.expr(e.a, lane)}, {self.expr(e.b, lane)})", Rank.ATOM
        # C converts types that are narrower than int to int first
        if op in (Op.ADD, Op.SUB, Op.MUL, Op.SHL) and (t.kind == "int" or t == uint16) and _may_wrap(e):
            return self._unsigned(e, lane)
        text, rank = self._infix(op.value, INFIX[op], e, lane)
        return self.wrapped(text, rank, e)

    def _infix(self, sign: str, rank: Rank, e: Binary, lane: int) -> Ranked:
        # readers mistake the precedence of operators on bits, so their operands get parentheses
        left = rank if e.op not in BITS or e.dtype.is_bool else Rank.UNARY
        return f"{self.expr(e.a, lane, left)} {sign} {self.expr(e.b, lane, max(left, rank + 1))}", rank

    def _unsigned(self, e: Binary, lane: int) -> Ranked:
        """Integers wrap; signed overflow is undefined in C."""
        kind = self.dialect.values[str(DType("uint", max(32, e.dtype.bits)))]
        own = self.dialect.values[str(e.dtype.element)]
        a, b = (f"({kind}){self.expr(x, lane, Rank.UNARY + 1)}" for x in (e.a, e.b))
        return f"({own})({a} {e.op.value} {b})", Rank.UNARY

    def _floor(self, e: Binary, lane: int) -> Ranked:
        name = "floordiv" if e.op is Op.FLOORDIV else "floormod"
        if isinstance(e.b, Const) and e.b.value > 0 and self.bounds.at_least(e.a, 0):
            return self._infix("/" if e.op is Op.FLOORDIV else "%", Rank.PRODUCT, e, lane)
        function = self.helper(f"at_{name}_{e.dtype.element}")
        return f"{function}({self.expr(e.a, lane)}, {self.expr(e.b, lane)})", Rank.ATOM

    def wrapped(self, text: str, rank: int, e: Expr) -> Ranked:
        """The result of an operation as a value of its type: rounded, or cut to few bits."""
        t = e.dtype.element
        if t.is_half:
            return f"{self.round16(t)}({text})", Rank.ATOM
        if t.is_int and t.bits < 32:
            return f"({self.dialect.values[str(t)]})({text})", Rank.UNARY
        return text, rank

    def narrowed(self, text: str, target: DType) -> Ranked:
        """An integer of the type `stopover(target)`, converted to `target`, which has 32 or 64 bits."""
        if target.kind == "int" or target.bits == 64:
            return text, Rank.ATOM
        return f"({self.dialect.values[str(target)]}){text}", Rank.UNARY

    def round16(self, t: DType) -> str:
        return self.helper("at_round_bf16" if t.kind == "bfloat" else "at_round_f16")

    def cast(self, e: Cast, lane: int) -> Ranked:
        source, target = e.a.dtype.element, e.dtype.element
        if target.is_bool:
            return f"{self.expr(e.a, lane, Rank.EQUAL + 1)} != 0", Rank.EQUAL
        if target.is_half:
            inner = self.expr(e.a, lane)
            if source.bits >= 32 and source != float32:
                inner = f"{self.helper(f'at_odd_{source}')}({inner})"
            elif not source.is_float:
                inner = f"(float)({inner})"
            return f"{self.round16(target)}({inner})", Rank.ATOM
        if source.is_float and target.is_int:
            held = float32 if source.is_half else source
            via = "u64" if target == uint64 else str(stopover(target).bits)
            text = f"{self.helper(f'at_whole{via}_{held}')}({self.expr(e.a, lane)})"
            return self.wrapped(text, Rank.ATOM, e) if target.bits < 32 else self.narrowed(text, target)
        return f"({self.dialect.values[str(target)]}){self.expr(e.a, lane, Rank.UNARY + 1)}", Rank.UNARY

    def call(self, e: Call, lane: int) -> Ranked:
        if e.name == SHUFFLE:
            value, mask = e.args
            assert isinstance(mask, Const)
            return f"__shfl_xor_sync(0xffffffffu, {self.expr(value, lane)}, {int(mask.value)})", Rank.ATOM
        t = e.args[0].dtype.element
        wide = DType("float", 32) if t.is_half else t
        name = self.dialect.call(e.name, wide)
        if name in self.dialect.helpers:
            self.helper(name)
        text = f"{name}({', '.join(self.expr(a, lane) for a in e.args)})"
        if e.dtype.is_bool:
            return text, Rank.ATOM
        return self.wrapped(text, Rank.ATOM, e)


def _zero(t: DType) -> float | int | bool:
    return False if t.is_bool else 0.0 if t.is_float else 0


def _may_wrap(e: Expr) -> bool:
    """Whether an integer expression may overflow: index arithmetic was proved to stay small, values from
    memory may be anything."""
    return contains(e, Load) or contains(e, Cast)
