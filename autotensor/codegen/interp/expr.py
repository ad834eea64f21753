"""Expressions as Python text, for the interpreter: values, checked accesses, values that are computed once.

    A[i, j] + 1          ──▶     (A_2[i_1, j_3] + 1)                            proved to be inside
                                 (A_2[at_4, at_5] if 0 <= … else _oob(…))       not proved

`source.py` describes how values are represented. It writes the statements around the expressions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from autotensor.base.dtype import DType
from autotensor.base.errors import CodegenError
from autotensor.codegen.interp.integer_ranges import Interval, Ranges, limits
from autotensor.codegen.interp.memory import Site
from autotensor.codegen.interp.operations import GLOBALS, OF_INTEGERS, convert, power, wrapper
from autotensor.ir.expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
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
from autotensor.ir.func import Buffer, PrimFunc
from autotensor.ir.node import children
from autotensor.ir.semantics import FUNCTIONS
from autotensor.ir.stmt import Stmt

SHUFFLE = "shuffle_xor"  # gives the value of the warp's lane (own lane xor mask)
HEIGHT_PER_EXPRESSION = 30  # CPython refuses more than 200 nested parentheses; one node may add five
_ZERO: dict[str, Any] = {"float": 0.0, "bfloat": 0.0, "int": 0, "uint": 0, "bool": False}
_INTEGER_ONLY = (Op.FLOORDIV, Op.MOD, Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR)
_NO_BOOL = (Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.FLOORDIV, Op.MOD, Op.SHL, Op.SHR)


class ExpressionWriter:
    """Writes the expressions of one kernel."""

    def __init__(self, func: PrimFunc, careful: bool, check: bool) -> None:
        self.func = func
        self.careful = careful
        self.check = check
        self.globals = dict(GLOBALS)
        self.pool: dict[Any, str] = {}
        self.lines: list[str] = []
        self.indent = 1
        self.count = 0
        self.vars: dict[Var, str] = {}  # in scope
        self.ranges = Ranges()
        self.mask = ""  # inside one side of a vector select, the mask of the lanes that are read
        self.scopes: list[dict[Expr, str]] = [{}]  # sub-expressions already computed, innermost last
        self.uses: dict[Expr, int] = {}
        self.hoisted: dict[tuple[Expr, bool], str] = {}
        self.heights: dict[Expr, int] = {}
        self.stmt: Stmt = func.body
        self.views: dict[tuple[Buffer, bool], str] = {}

    def put(self, line: str) -> None:
        self.lines.append(" " * self.indent + line)

    def fresh(self, hint: str) -> str:
        self.count += 1
        return "".join(c if c.isascii() and c.isalnum() else "_" for c in f"v_{hint}") + f"_{self.count}"

    def constant(self, key: Any, value: Any) -> str:
        """The global that holds a value."""
        name = self.pool.get(key)
        if name is None:
            name = self.pool[key] = f"_k{len(self.pool)}"
            self.globals[name] = value
        return name

    def site(self, verb: str, buffer: Buffer | None) -> str:
        names = {python: var.name for var, python in self.vars.items()}
        key = (verb, buffer, self.stmt, tuple(names))
        return self.constant(key, Site(self.func.name, verb, buffer, self.stmt, names))

    def begin(self, s: Stmt, *roots: Expr | None) -> None:
        """A new statement: nothing is computed yet."""
        self.stmt = s
        self.scopes = [{}]
        self.hoisted = {}
        self.uses = {}
        stack = [r for r in roots if r is not None]
        while stack:
            e = stack.pop()
            self.uses[e] = self.uses.get(e, 0) + 1
            if self.uses[e] == 1:
                stack.extend(c for c in children(e) if isinstance(c, Expr))

    def tuple_of(self, indices: Iterable[Expr]) -> str:
        return f"({''.join(self.expr(i) + ', ' for i in indices) or '0,'})"

    # -- expressions -----------------------------------------------------------------------------------------
    def expr(self, e: Expr) -> str:
        """Python text of the value, in parentheses where needed; to be called in the order of evaluation."""
        if isinstance(e, Var):
            name = self.vars.get(e)
            if name is None:
                raise CodegenError(
                    f"kernel {self.func.name!r} uses variable {e.name!r}, which is not bound there."
                )
            return name
        if isinstance(e, Const):
            return self.literal(e)
        for scope in reversed(self.scopes):
            if e in scope:
                return scope[e]
        height = self.height(e)
        source = self.apart(e) if height % HEIGHT_PER_EXPRESSION == 0 and height else self.build(e)
        if self.uses.get(e, 0) < 2:
            return source
        name = self.scopes[-1][e] = self.fresh("x")
        return f"({name} := {source})"

    def height(self, e: Expr) -> int:
        found = self.heights.get(e)
        if found is None:
            found = 1 + max((self.height(c) for c in children(e) if isinstance(c, Expr)), default=-1)
            self.heights[e] = found
        return found

    def apart(self, e: Expr) -> str:
        """A deep expression as a call of its own function, which is written before the statement."""
        key = (e, bool(self.mask))
        name = self.hoisted.get(key)
        if name is None:
            name = self.hoisted[key] = self.fresh("part")
            saved = self.scopes, self.mask
            self.scopes = [{}]
            self.mask = self.fresh("m") if self.mask else ""
            mask = self.mask
            source = self.build(e)
            self.scopes, self.mask = saved
            self.put(f"def {name}({mask}): return {source}")
        return f"{name}({self.mask})"

    def literal(self, e: Const) -> str:
        if e.type.is_int:
            return str(int(e.value)) if e.value >= 0 else f"({int(e.value)})"
        if e.type.is_bool:
            return str(bool(e.value))
        value = e.type.numpy.type(e.value)
        return self.constant((float(e.value).hex(), e.type), value)

    def dtype(self, t: DType) -> str:
        return self.constant(("type", t.element), t.numpy)

    def build(self, e: Expr) -> str:
        match e:
            case Binary(op, a, b):
                return self.binary(e, op, a, b)
            case Unary(Neg.NEG, a):
                return self.wrapped(e, f"(-{self.expr(a)})")
            case Unary(Neg.NOT, a):
                if a.dtype.is_float:
                    raise CodegenError(f"kernel {self.func.name!r}: '!' is not defined for {a.dtype}.")
                if a.dtype.is_bool and a.dtype.lanes == 1:
                    return f"(not {self.expr(a)})"
                return self.wrapped(e, f"(~{self.expr(a)})")
            case Compare(op, a, b):
                x = self.expr(a)
                return f"({x} {op.value} {self.expr(b)})"
            case Select():
                return self.select(e)
            case Cast(_, a):
                return self.cast(e, a)
            case Call("shuffle_xor", (value, Const(mask)), _):
                return f"(yield _Exchange({self.site('exchange', None)}, {self.expr(value)}, {int(mask)}))"
            case Call(name, args, _):
                if name not in FUNCTIONS:
                    raise CodegenError(
                        f"kernel {self.func.name!r} calls {name!r}, which the interpreter does not know."
                    )
                if name == "abs" and e.dtype.lanes == 1 and not e.dtype.is_float:
                    return self.wrapped(e, f"abs({self.expr(args[0])})")
                if name == "pow" and e.dtype.is_int:
                    values = ", ".join([self.expr(a) for a in args])
                    return f"{self.constant(('pow', e.dtype), power(e.dtype))}({values})"
                return f"_math_{name}({', '.join([self.expr(a) for a in args])})"
            case Dot(sums, a, b):
                parts = ", ".join(self.expr(x) for x in (sums, a, b))
                return f"_dot({parts}, {e.rows}, {e.group})"
            case Load():
                return self.load(e)
            case Ramp(base, stride, lanes):
                steps = np.arange(lanes).astype(base.dtype.numpy) * base.dtype.numpy.type(stride)
                return f"({self.expr(base)} + {self.constant(('ramp', stride, e.dtype), steps)})"
            case Broadcast(a, lanes):
                return f"_full({lanes}, {self.expr(a)}, {self.dtype(e.dtype)})"
            case _:
                raise CodegenError(
                    f"kernel {self.func.name!r}: the interpreter does not know {type(e).__name__}."
                )

    def binary(self, e: Binary, op: Op, a: Expr, b: Expr) -> str:
        t = e.dtype
        if (
            (op is Op.DIV and not t.is_float)
            or (op in _INTEGER_ONLY and t.is_float)
            or (op in _NO_BOOL and t.is_bool)
        ):
            raise CodegenError(f"kernel {self.func.name!r}: {op.value!r} is not defined for {t}.")
        x = self.expr(a)
        y = self.expr(b)
        if op in (Op.MIN, Op.MAX):
            if t.is_bool:
                return f"({x} {'&' if op is Op.MIN else '|'} {y})"
            return f"_{'v' if t.lanes > 1 else ''}{'minimum' if op is Op.MIN else 'maximum'}({x}, {y})"
        divides = op in (Op.FLOORDIV, Op.MOD) and (t.lanes > 1 or _spans(self.ranges.of(b), 0))
        if divides or op in (Op.SHL, Op.SHR):
            return f"{self.constant((op, t), OF_INTEGERS[op](t))}({x}, {y})"
        return self.wrapped(e, f"({x} {op.value} {y})")

    def wrapped(self, e: Expr, source: str) -> str:
        """The source, wrapped around to its integer type where the value might be outside it."""
        t = e.dtype
        if not t.is_int or t.lanes > 1:
            return source
        low, high = self.ranges.exact(e)
        least, most = limits(t)
        if least <= low and high <= most:
            return source
        return f"{self.constant(('wrap', t), wrapper(t))}({source})"

    def select(self, e: Select) -> str:
        cond = self.expr(e.cond)
        saved = self.mask
        sides = []
        if e.cond.dtype.lanes == 1:
            for side in (e.then, e.otherwise):
                self.scopes.append({})
                sides.append(self.expr(side))
                self.scopes.pop()
            return f"({sides[0]} if {cond} else {sides[1]})"
        for side in (e.then, e.otherwise):
            self.mask = self.fresh("m")
            self.scopes.append({})
            sides.append(f"lambda {self.mask}: {self.expr(side)}")
            self.scopes.pop()
        self.mask = saved
        return f"_vselect({cond}, {sides[0]}, {sides[1]}, {saved or 'None'})"

    def cast(self, e: Cast, a: Expr) -> str:
        old, new, x = a.dtype.element, e.dtype.element, self.expr(a)
        if old == new:
            return x
        if new.is_bool:
            return f"({x} != 0)"
        if e.dtype.lanes == 1 and new.is_int and not old.is_float:
            return self.wrapped(e, f"int({x})" if old.is_bool else x)
        if e.dtype.lanes == 1 and old.is_int:  # Python's ints have no limits
            x = f"{self.constant(('scalar', old), old.numpy.type)}({x})"
        if e.dtype.lanes == 1 and not new.is_half and (new.is_float or not old.is_float):
            return f"{self.constant(('scalar', new), new.numpy.type)}({x})"
        return f"{self.constant(('convert', e.dtype), convert(e.dtype))}({x})"

    def load(self, e: Load) -> str:
        buffer, indices, mask, lanes = e.buffer, e.indices, e.mask, e.dtype.lanes
        flat = is_flat(self.func, buffer, indices)
        if mask is None or mask.dtype.lanes > 1:
            return self.access(e, "None" if mask is None else self.expr(mask), flat)
        guard = self.expr(mask)
        self.scopes.append({})
        source = self.access(e, "None", flat)
        self.scopes.pop()
        zero = f"_zeros({lanes}, {self.dtype(e.dtype)})"
        if lanes == 1:
            zero = self.literal(Const(_ZERO[e.dtype.kind], e.dtype))
        return f"({source} if {guard} else {zero})"

    def access(self, e: Load, mask: str, flat: bool) -> str:
        """The text of a load where `mask` holds. `mask` is text, too."""
        buffer, indices, lanes = e.buffer, e.indices, e.dtype.lanes
        view = self.views[buffer, flat]
        if lanes > 1 and self.mask:
            mask = self.mask if mask == "None" else f"({mask} & {self.mask})"
        if self.careful:
            return f"{view}.load(_T, {mask}, {self.tuple_of(indices)}, {self.site('load', buffer)})"
        if lanes > 1:
            return f"_vload({view}, {mask}, {self.tuple_of(indices)}, {self.site('load', buffer)})"
        if self.proven(buffer, indices, flat):
            return self.element(view, [self.expr(i) for i in indices] or ["0"], e.dtype)
        at = [self.fresh("at") for _ in indices]
        shape = (buffer.span,) if flat else buffer.shape
        tests = " & ".join(
            f"(0 <= ({a} := {self.expr(i)}) < {n})" for a, i, n in zip(at, indices, shape, strict=True)
        )
        failed = f"_oob({self.site('load', buffer)}, ({', '.join(at)},), {shape})"
        return f"({self.element(view, at, e.dtype)} if {tests} else {failed})"

    @staticmethod
    def element(view: str, at: list[str], t: DType) -> str:
        if t.is_float:
            return f"{view}[{', '.join(at)}]"
        return f"{view}.item({', '.join(at)})"

    def proven(self, buffer: Buffer, indices: tuple[Expr, ...], flat: bool) -> bool:
        if not self.check:
            return True
        shape = (buffer.span,) if flat else buffer.shape
        spans = ((*self.ranges.of(i), n) for i, n in zip(indices, shape, strict=True))
        return all(low >= 0 and high < n for low, high, n in spans)


def _spans(x: Interval, value: int) -> bool:
    return x[0] <= value <= x[1]


def is_flat(func: PrimFunc, buffer: Any, indices: tuple[Expr, ...]) -> bool:
    """Whether the indices are a single position in memory and not one index per axis."""
    if not isinstance(buffer, Buffer):
        raise CodegenError(f"kernel {func.name!r} reads {buffer!r}, which is not a buffer of the loop IR.")
    if len(indices) == len(buffer.shape):
        if len(indices) == 1 and buffer.row_major() != (1,) and buffer.shape[0] > 1:
            raise CodegenError(
                f"kernel {func.name!r}: buffer {buffer.name!r} has one axis of stride {buffer.strides[0]}; "
                "its index may mean an element or a position."
            )
        return False
    if len(indices) == 1:
        return True
    raise CodegenError(
        f"kernel {func.name!r}: buffer {buffer.name!r} of shape {buffer.shape} has {len(indices)} indices."
    )
