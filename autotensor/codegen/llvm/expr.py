"""Expressions as LLVM instructions: arithmetic, casts and calls (memory is in memory.py).

Every expression without loads is written once, at the head of the outermost scope in which its variables
exist. So loop invariants are already outside their loops when LLVM gets the text. Expressions with loads are
written where they are used. Later uses share their value until a store to one of their buffers.

Choices:
* `x*y + z` becomes `llvm.fmuladd`, which is one fused instruction where the CPU has it.
* min and max return NaN when either side is NaN: this is one vminps/vmaxps if a side is a constant, else see
  `arithmetic/extremes.py`.
* where LLVM leaves a result undefined (division by zero, shifts too far, floats that no integer holds), code
  is added that gives the result of `ir/semantics.py` (`arithmetic/`). Constant divisors and amounts need no
  such code.
* bfloat16 computes in float32 and rounds after every operation.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import inf
from typing import Any

from autotensor.base.dtype import DType, float32, int32, int64
from autotensor.base.errors import CodegenError
from autotensor.codegen import register_sums
from autotensor.codegen.dot_instructions import takes_tiles
from autotensor.codegen.llvm import dots
from autotensor.codegen.llvm.arithmetic import casts, integers, intrinsics, rounded_integers
from autotensor.codegen.llvm.arithmetic.extremes import Extremes
from autotensor.codegen.llvm.function_writer import FunctionWriter, literal, suffix, ty
from autotensor.codegen.llvm.tiles import TileRegisters
from autotensor.ir.bounds import Bounds, is_data
from autotensor.ir.expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Cmp,
    Compare,
    Const,
    Dot,
    Expr,
    Load,
    Neg,
    Op,
    Ramp,
    Select,
    Unary,
    Var,
)
from autotensor.ir.func import Scope
from autotensor.ir.intervals import Interval
from autotensor.ir.node import children
from autotensor.ir.visit import contains, free_vars

_FLOAT_OPS = {Op.ADD: "fadd", Op.SUB: "fsub", Op.MUL: "fmul", Op.DIV: "fdiv"}
_INT_OPS = {
    Op.ADD: "add",
    Op.SUB: "sub",
    Op.MUL: "mul",
    Op.AND: "and",
    Op.OR: "or",
    Op.XOR: "xor",
}
_IN_32_BITS = Interval(-(1 << 31), (1 << 31) - 1)
_BOOL_OPS = {**dict.fromkeys((Op.ADD, Op.OR, Op.MAX), "or"), **dict.fromkeys((Op.MUL, Op.AND, Op.MIN), "and")}
_FLOAT_CMP = {Cmp.EQ: "oeq", Cmp.NE: "une", Cmp.LT: "olt", Cmp.LE: "ole", Cmp.GT: "ogt", Cmp.GE: "oge"}
_INT_CMP = {Cmp.EQ: "eq", Cmp.NE: "ne", Cmp.LT: "lt", Cmp.LE: "le", Cmp.GT: "gt", Cmp.GE: "ge"}


_NOTHING: frozenset[Any] = frozenset()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a buffer is: its pointer, the scope in which the pointer exists, its alignment in bytes."""

    pointer: str
    level: int
    align: int


# a pointer, whether all steps to it stay inside its buffer, and a number that divides its offset in elements
Start = tuple[str, bool, int]


class ValueWriter(FunctionWriter):
    """A writer of expressions. `Kernel` adds statements, memory.py loads and stores."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name  # the kernel's name, for messages
        # expression without loads → the outermost scope in which it can be computed
        self.levels: dict[Expr, int] = {}
        # buffer → remembered expressions that load it
        self.readers: defaultdict[Any, list[Any]] = defaultdict(list)
        self.bounds = Bounds({})  # bounds of the variables around
        self.places: dict[Any, Place] = {}
        self.tiles = TileRegisters()
        self.starts: dict[Any, Start] = {}  # starts of addresses, by innermost scope, buffer and terms
        self.extremes = Extremes(self)
        self._reads: dict[Expr, frozenset[Any]] = {}
        self._loads: dict[Expr, tuple[Load, ...]] = {}

    def error(self, what: str, fix: str = "") -> CodegenError:
        return CodegenError(f"kernel {self.name!r}: {what}", fix=fix)

    def place(self, buffer: Any) -> Place:
        place = self.places.get(buffer)
        if place is None:
            raise self.error(f"buffer {buffer.name!r} is neither a parameter nor allocated here.")
        return place

    # -- where things are computed -----------------------------------------------------------------------
    def reads(self, e: Expr) -> frozenset[Any]:
        """The buffers that `e` loads."""
        if not contains(e, Load):
            return _NOTHING
        found = self._reads.get(e)
        if found is None:
            found = frozenset((e.buffer,)) if isinstance(e, Load) else _NOTHING
            for c in children(e):
                if isinstance(c, Expr):
                    more = self.reads(c)
                    found = more if not found else found if more <= found else found | more
            self._reads[e] = found
        return found

    def loads(self, e: Expr) -> tuple[Load, ...]:
        """The distinct loads in `e`. They are remembered for every part of `e`, because an unrolled tile uses
        each operand in a whole row or column of sums."""
        if not contains(e, Load):
            return ()
        found = self._loads.get(e)
        if found is None:
            below = [load for c in children(e) if isinstance(c, Expr) for load in self.loads(c)]
            found = tuple(dict.fromkeys([e, *below] if isinstance(e, Load) else below))
            self._loads[e] = found
        return found

    def level(self, e: Expr) -> int:
        """The outermost scope in which `e` can be computed; for an expression with loads, the innermost
        scope."""
        if self.reads(e):
            return self.depth
        found = self.levels.get(e)
        if found is None:
            if isinstance(e, Var):
                raise self.error(f"nothing binds variable {e.name!r} here.")
            found = max((self.level(c) for c in children(e) if isinstance(c, Expr)), default=0)
            self.levels[e] = found
            self.scopes[found].keys.append(e)
        return found

    def bind(self, var: Var, value: str) -> None:
        """`var` is `value` in the innermost scope."""
        self.remember(var, value, self.depth)
        self.levels[var] = self.depth

    def forget_uses(self, var: Var) -> None:
        """Forgets what was computed outside of the statement that gave `var` its value: copies of a loop
        may give it others."""
        for scope in self.scopes:
            for key in scope.keys:
                parts = key if isinstance(key, tuple) else (key,)
                if any(isinstance(part, Expr) and var in free_vars(part) for part in parts):
                    self.known.pop(key, None)
                    self.levels.pop(key, None)

    def close(self) -> None:
        for key in self.scopes.pop().keys:
            self.known.pop(key, None)
            self.levels.pop(key, None)

    def forget(self, buffer: Any) -> None:
        """Forgets values loaded from `buffer`, which may have changed."""
        for e in self.readers.pop(buffer, ()):
            self.known.pop(e, None)

    def value(self, e: Expr) -> str:
        """The operand that holds `e`."""
        found = self.known.get(e)
        if found is not None:
            return found
        if isinstance(e, Const):
            return literal(e.value, e.dtype)
        reads = self.reads(e)
        level = self.depth if reads else self.level(e)
        saved = self.cur if reads else self.at_head(level)
        result = self._emit(e)
        self.cur = saved
        for buffer in reads:
            self.readers[buffer].append(e)
        return self.remember(e, result, level)

    # -- one case per node -------------------------------------------------------------------------------
    def load(self, e: Load) -> str:
        raise NotImplementedError

    def fetch_next(self, e: Expr) -> None:
        raise NotImplementedError

    def _emit(self, e: Expr) -> str:
        match e:
            case Load():
                return self.load(e)
            case Binary(op, a, b):
                return self._binary(op, a, b)
            case Broadcast(a, _):
                return self.splat(self.value(a), e.dtype)
            case Unary(Neg.NEG, a):
                return self._in_float32(a.dtype, [self.value(a)], self._negate) or self._negate(
                    a.dtype, self.value(a)
                )
            case Unary(Neg.NOT, a):
                return self.op(
                    f"xor {ty(a.dtype)} {self.value(a)}, {literal(-1 if a.dtype.is_int else True, a.dtype)}"
                )
            case Compare(op, Ramp(a, step, lanes), Broadcast(b, _)) if _is_tail(a, step, lanes, b):
                return self._compare_steps(op, self.value(a), step, lanes, self.value(b))
            case Compare(op, a, b):
                return self._compare(op, a.dtype, self.value(a), self.value(b))
            case Select(cond, a, b):
                t = ty(e.dtype)
                if cond.dtype.lanes == 1 and is_data(cond) and self.fills_register(e.dtype):
                    c, kind = self._in_lanes(cond, e.dtype.lanes), cond.dtype.with_lanes(e.dtype.lanes)
                    match a:
                        case Binary(Op.ADD, z, Binary(Op.MUL, x, y)) if (
                            z is b and z.dtype.is_float and self._joins_all()
                        ):
                            return self._joined(f"{ty(kind)} {c}", x, y, z)
                else:
                    c, kind = self.value(cond), cond.dtype
                return self.op(f"select {ty(kind)} {c}, {t} {self.value(a)}, {t} {self.value(b)}")
            case Cast(_, a):
                return rounded_integers.rounded(self, e) or self.cast(*self._narrowest(a, e.type), e.dtype)
            case Call(name, args, _):
                return self._call(name, args[0].dtype, [self.value(a) for a in args])
            case Dot() if takes_tiles(e.instruction):
                raise self.error("a dot of tiles must be stored where its sums are.")
            case Dot(sums, a, b):
                if b not in self.known:
                    self.fetch_next(b)
                return dots.emit(self, e, self.value(sums), self.value(a), self.value(b))
            case Ramp(base, stride, lanes):
                steps = ", ".join(f"{ty(base.dtype)} {k * stride}" for k in range(lanes))
                return self.op(f"add {ty(e.dtype)} {self.splat(self.value(base), e.dtype)}, <{steps}>")
        raise self.error(f"the CPU backend cannot compile a {type(e).__name__}.")

    def _binary(self, op: Op, a: Expr, b: Expr) -> str:
        t = a.dtype
        if t.is_bool and op in _BOOL_OPS:
            return self.op(f"{_BOOL_OPS[op]} {ty(t)} {self.value(a)}, {self.value(b)}")
        if t.is_float:
            fused = self._fused(op, a, b) if t.kind == "float" else None
            return fused or self._float_binary(op, t, a, b)
        if op in _INT_OPS:
            if (
                op in (Op.ADD, Op.SUB)
                and (apart := register_sums.sum_apart(self.reads, op, a, b)) is not None
            ):
                op, (a, b) = Op.ADD, apart
            x, y = self.value(a), self.value(b)
            if op is Op.ADD and _are_halves(a, b):
                return integers.sum_of_halves(self, t, x, y)
            return self.op(f"{_INT_OPS[op]} {ty(t)} {x}, {y}")
        if op in (Op.SHL, Op.SHR):
            return integers.shift(self, op, t, self.value(a), self.value(b), self.bounds.below(b, t.bits))
        if op in (Op.MIN, Op.MAX):
            name = f"llvm.{'u' if t.kind == 'uint' else 's'}{op.value}.{suffix(t)}"
            return self.call(name, t, (t, self.value(a)), (t, self.value(b)))
        if op in (Op.FLOORDIV, Op.MOD):
            return self._divide(op, a, b)
        raise self.error(f"{op.value!r} is not defined for {t}.")

    def _fused(self, op: Op, a: Expr, b: Expr) -> str | None:
        """`x*y + z`, `x*y - z`, `z - x*y` in one operation."""
        if op not in (Op.ADD, Op.SUB):
            return None
        t = a.dtype
        match a, b:
            case Binary(Op.MUL, x, y), z:
                first, last = self.value(x), self.value(z)
                if op is Op.SUB:
                    last = self._negate(t, last)
            case z, Binary(Op.MUL, x, y):
                first, last = self.value(x), self.value(z)
                if op is Op.SUB:
                    first = self._negate(t, first)
            case _:
                return None
        return self.call(f"llvm.fmuladd.{suffix(t)}", t, (t, first), (t, self.value(y)), (t, last))

    def _float_binary(self, op: Op, t: DType, a: Expr, b: Expr) -> str:
        x, y = self.value(a), self.value(b)
        if t.kind == "bfloat":
            wide = float32.with_lanes(t.lanes)
            x, y = self.cast(x, t, wide), self.cast(y, t, wide)
            return self.cast(self._float_op(op, wide, a, b, x, y), wide, t)
        return self._float_op(op, t, a, b, x, y)

    def _float_op(self, op: Op, t: DType, a: Expr, b: Expr, x: str, y: str) -> str:
        if op in _FLOAT_OPS:
            return self.op(f"{_FLOAT_OPS[op]} {ty(t)} {x}, {y}")
        if op not in (Op.MIN, Op.MAX):
            raise self.error(f"{op.value!r} is not defined for {t}.")
        if _is_number(a):
            a, b, x, y = b, a, y, x
        # x is the initial value of a reduction
        if self.copies.get(x) == literal(-inf if op is Op.MAX else inf, t):
            return y
        return self.extremes.beyond(op, t, y, x) if _is_number(b) else self.extremes.of(op, t, x, y)

    def _divide(self, op: Op, a: Expr, b: Expr) -> str:
        """Floor division and modulo."""
        x, y = self.value(a), self.value(b)
        divisor, positive = self.bounds.of(b).value, self.bounds.at_least(b, 1)
        if positive and divisor is not None and divisor & (divisor - 1) == 0:
            return integers.divide_by_power_of_two(self, op, a.dtype, x, divisor)
        natural = positive and self.bounds.at_least(a, 0)
        return integers.divide(self, op, a.dtype, x, y, positive, natural)

    def _compare(self, op: Cmp, t: DType, x: str, y: str) -> str:
        if t.kind == "bfloat":
            wide = float32.with_lanes(t.lanes)
            return self._compare(op, wide, self.cast(x, t, wide), self.cast(y, t, wide))
        if t.is_float:
            return self.op(f"fcmp {_FLOAT_CMP[op]} {ty(t)} {x}, {y}")
        signed = "" if op in (Cmp.EQ, Cmp.NE) else "s" if t.kind == "int" else "u"
        return self.op(f"icmp {signed}{_INT_CMP[op]} {ty(t)} {x}, {y}")

    def _compare_steps(self, op: Cmp, base: str, step: int, lanes: int, end: str) -> str:
        """Compares `base + k * step` with an end, of 64 bits, as `k * step` with `end - base`, of 32 bits. A
        vector has only half as many lanes of 64 bits, and AVX2 takes a dozen instructions to make one mask of
        two such vectors. `end - base` is clamped to just beyond the lanes on both sides: farther away, no
        comparison changes."""
        left = self.op(f"sub i64 {end}, {base}")
        for name, limit in (("smax", -1), ("smin", lanes * step)):
            left = self.call(f"llvm.{name}.i64", int64, (int64, left), (int64, str(limit)))
        t = int32.with_lanes(lanes)
        steps = ", ".join(f"i32 {k * step}" for k in range(lanes))
        return self._compare(op, t, f"<{steps}>", self.splat(self.op(f"trunc i64 {left} to i32"), t))

    def _narrowest(self, e: Expr, to: DType) -> tuple[str, DType]:
        """The value that is converted, and its type: lanes of 64 bits that become floats are narrowed to 32
        bits, if their values fit. LLVM then computes them in 32 bits. Without AVX-512, lanes of 64 bits are
        converted one by one (a distance transform is 4 x as fast; Zen 1, 2026-12)."""
        value, t = self.value(e), e.dtype
        if not to.is_float or t.element != int64 or t.lanes == 1 or not self.bounds.of(e).within(_IN_32_BITS):
            return value, t
        narrow = int32.with_lanes(t.lanes)
        return self.cast(value, t, narrow), narrow

    def _in_lanes(self, cond: Expr, lanes: int) -> str:
        """A condition that is the same for all lanes, computed in each of them.

        x86 has no instruction that chooses between vectors by one bit: LLVM makes a branch of it. If data
        decide, the processor cannot predict that branch. So LLVM must not see that all lanes agree.
        """
        wide = Broadcast(cond, lanes)
        found = self.known.get(wide)
        if found is None:
            found = self.remember(wide, self._asked_in_lanes(cond, lanes), self.depth)
            for buffer in self.reads(cond):
                self.readers[buffer].append(wide)
        return found

    def _asked_in_lanes(self, cond: Expr, lanes: int) -> str:
        t = cond.dtype.with_lanes(lanes)
        match cond:
            case Binary(op, a, b) if op in _BOOL_OPS:
                return self.op(
                    f"{_BOOL_OPS[op]} {ty(t)} {self._in_lanes(a, lanes)}, {self._in_lanes(b, lanes)}"
                )
            case Compare(op, a, b) if a.dtype.bits == 32:
                wide = a.dtype.with_lanes(lanes)
                x, y = self.splat(self.value(a), wide), self.splat(self.value(b), wide)
                return self._compare(op, wide, self._hidden(wide, x), y)
            case Compare() | Load() | Unary():
                wide = int32.with_lanes(lanes)
                x = self.splat(self.op(f"zext i1 {self.value(cond)} to i32"), wide)
                return self.op(f"icmp ne {ty(wide)} {self._hidden(wide, x)}, {literal(0, wide)}")
        return self.splat(self.value(cond), t)

    def _joins_all(self) -> bool:
        """Whether instructions cannot be masked, so that a choice between vectors is a separate operation."""
        return self.registers == "x"

    def _joined(self, mask: str, x: Expr, y: Expr, z: Expr) -> str:
        """`x*y + z` where the mask has ones, `z` elsewhere: in the other lanes -0 * 0 is added, which changes
        nothing. Replacing lanes by 0 costs an AND, and ANDs run on other ports than FMAs and choices. `x` is
        the same for a row of a tile."""
        word = ty(z.dtype)
        taken = [
            self.op(f"select {mask}, {word} {self.value(v)}, {word} {literal(other, v.dtype)}")
            for v, other in ((x, -0.0), (y, 0.0))
        ]
        values = [(z.dtype, v) for v in (*taken, self.value(z))]
        return self.call(f"llvm.fmuladd.{suffix(z.dtype)}", z.dtype, *values)

    def _hidden(self, t: DType, value: str) -> str:
        """The same vector, with its value hidden from LLVM's optimiser."""
        return self.op(f'call {ty(t)} asm "", "={self.registers},0"({ty(t)} {value})')

    def _negate(self, t: DType, x: str) -> str:
        return self.op(f"fneg {ty(t)} {x}" if t.is_float else f"sub {ty(t)} {literal(0, t)}, {x}")

    def _call(self, name: str, t: DType, args: list[str]) -> str:
        result = self._in_float32(
            t, args, lambda wide, *xs: intrinsics.emit(self, name, wide, list(xs)), name
        )
        return result or intrinsics.emit(self, name, t, args)

    def _in_float32(self, t: DType, args: list[str], fn: Any, name: str = "") -> str | None:
        """`fn` in float32 when `t` is a 16-bit float (float16 negates natively), else None."""
        if t.kind != "bfloat" and not (name and t.kind == "float" and t.bits == 16):
            return None
        wide = float32.with_lanes(t.lanes)
        result: str = fn(wide, *(self.cast(x, t, wide) for x in args))
        return result if name in ("isnan", "isinf") else self.cast(result, wide, t)

    def cast(self, x: str, old: DType, new: DType) -> str:
        """`x` of type `old` as type `new`, correctly rounded."""
        return casts.cast(self, x, old, new)

    def index(self, e: Expr) -> str:
        """An integer expression as int64 operand."""
        return self.cast(self.value(e), e.dtype, int64.with_lanes(e.dtype.lanes))


def _are_halves(a: Expr, b: Expr) -> bool:
    """Whether two parts of one private buffer are added, as in a sum of a vector's lanes."""
    if not (isinstance(a, Load) and isinstance(b, Load) and a.buffer is b.buffer):
        return False
    return a.buffer.scope in (Scope.LOCAL, Scope.REGISTER)


def _is_tail(base: Expr, step: int, lanes: int, end: Expr) -> bool:
    """Whether a comparison says which lanes are left in a loop's last vector. Its operands come from loop
    variables only, so that their differences fit 64 bits, and the lanes' offsets must fit 32 bits."""
    in_32_bits = 0 < step * lanes < 1 << 31
    return base.dtype == int64 and in_32_bits and not is_data(base) and not is_data(end)


def _is_number(e: Expr) -> bool:
    """A value that cannot be NaN."""
    if isinstance(e, Broadcast):
        e = e.a
    if isinstance(e, Const):
        return bool(e.value == e.value)
    return isinstance(e, Cast) and not e.a.dtype.is_float
