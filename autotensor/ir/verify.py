"""Checks between passes: whether IR is legal at its level, and whether accesses stay in their buffers.

    LOOP    one index per dimension; loops of any kind
    FLAT    one flat index per access
    FINAL   the code generators' input: vectors instead of VECTORIZED loops, no UNROLLED loops, REGISTER
            buffers indexed by constants, at most one PARALLEL loop and no loop around it (also called DEVICE)

`verify` raises LoweringError, which names the pass and shows the statement with its neighbours.
`check_bounds` lists the accesses that it cannot prove to be in range. It takes the loops, conditions, masks
and selects around an access into account.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from autotensor.base.dtype import DType, bool_, int64
from autotensor.base.errors import LoweringError
from autotensor.ir.bounds import Bounds, Interval
from autotensor.ir.expr import Const, Dot, Expr, Load, Ramp, Reduce, Select, Var
from autotensor.ir.func import Buffer, PrimFunc, Scope
from autotensor.ir.lane_offsets import in_lane
from autotensor.ir.laws.vector_laws import LANE
from autotensor.ir.node import Node, children
from autotensor.ir.printer import neighbourhood
from autotensor.ir.simplify import Simplifier
from autotensor.ir.stmt import Alloc, Async, Evaluate, For, ForKind, If, Let, Seq, Stmt, Store


class Level(enum.IntEnum):
    """The properties that a function has; each level keeps those of the levels before."""

    LOOP = 1
    FLAT = 2
    FINAL = 3
    DEVICE = 3


def verify(func: PrimFunc, level: Level, made_by: str = "verify") -> None:
    """Raises LoweringError if `func`, which the pass `made_by` has made, is not legal at `level`."""
    names = [b.name for b in func.params]
    check = _Verifier(func, level, made_by)
    for b in func.params:
        if names.count(b.name) > 1:
            check.fail(func.body, f"two parameters are called {b.name!r}")
        if b.scope is not Scope.GLOBAL:
            check.fail(func.body, f"parameter {b.name!r} has scope {b.scope.value}, not global")
    check.stmt(func.body, _Context({}, frozenset(func.params)))
    parallel = check.parallel
    if level >= Level.FINAL and len(parallel) > 1:
        check.fail(parallel[1], f"there are {len(parallel)} parallel loops; a kernel has at most one")


@dataclass(frozen=True, slots=True)
class _Context:
    """The names that are visible at a statement."""

    types: Mapping[str, DType]  # variables in scope
    buffers: frozenset[Buffer]
    in_loop: bool = False


class _Verifier:
    """One walk over a function; expressions that were checked in the same context are skipped."""

    def __init__(self, func: PrimFunc, level: Level, made_by: str) -> None:
        self.func, self.level, self.made_by = func, level, made_by
        self.parallel: list[For] = []
        self.all_types: dict[str, DType] = {}

    def fail(self, stmt: Stmt, problem: str, fix: str = "") -> NoReturn:
        func = self.func
        first = str(stmt).split("\n", 1)[0]
        raise LoweringError(
            f"{self.made_by}: {problem}, in `{first}` of kernel {func.name!r}.",
            fix=fix,
            context=lambda: neighbourhood(func, stmt),
        )

    # -- statements ------------------------------------------------------------------------------------------
    def stmt(self, s: Stmt, ctx: _Context) -> None:
        match s:
            case For(var, begin, extent, _, body):
                self._loop(s, ctx)
                self.exprs(s, ctx, begin, extent)
                self.stmt(body, replace(self._bind(s, var, ctx), in_loop=True))
            case Let(var, value, body):
                if var.type != value.dtype:
                    self.fail(s, f"variable {var.name!r} is {var.type}, its value {value.dtype}")
                self.exprs(s, ctx, value)
                self.stmt(body, self._bind(s, var, ctx))
            case Seq(stmts):
                for x in stmts:
                    self.stmt(x, ctx)
            case If(cond, then, otherwise):
                if cond.dtype != bool_:
                    self.fail(s, f"the condition is {cond.dtype}, not bool")
                self.exprs(s, ctx, cond)
                self.stmt(then, ctx)
                if otherwise is not None:
                    self.stmt(otherwise, ctx)
            case Alloc(buffer, body):
                if any(b.name == buffer.name for b in ctx.buffers):
                    self.fail(s, f"there is already a buffer {buffer.name!r}")
                self.stmt(body, replace(ctx, buffers=ctx.buffers | {buffer}))
            case Store(buffer, indices, value, mask):
                lanes = self._access(s, buffer, indices, mask, ctx)
                if value.dtype != buffer.dtype.with_lanes(lanes):
                    self.fail(s, f"a {value.dtype} is stored where {buffer.dtype.with_lanes(lanes)} belongs")
                self.exprs(s, ctx, *indices, value, *(() if mask is None else (mask,)))
            case Evaluate(value):
                self.exprs(s, ctx, value)
            case Async(store):
                self.stmt(store, ctx)

    def _loop(self, s: For, ctx: _Context) -> None:
        name = s.var.name
        if s.begin.dtype != s.var.type or s.extent.dtype != s.var.type or not s.var.type.is_int:
            self.fail(
                s, f"loop {name!r} is {s.var.type}, begins at {s.begin.dtype} and has extent {s.extent.dtype}"
            )
        if s.kind in (ForKind.VECTORIZED, ForKind.UNROLLED):
            if not isinstance(s.extent, Const):
                self.fail(s, f"{s.kind.value} loop {name!r} has no constant extent")
            if self.level >= Level.FINAL:
                self.fail(s, f"loop {name!r} is still {s.kind.value}")
        if s.kind is ForKind.THREAD and not s.thread:
            self.fail(s, f"loop {name!r} is bound to no thread axis")
        if s.kind is ForKind.PARALLEL:
            self.parallel.append(s)
            if self.level >= Level.FINAL and ctx.in_loop:
                self.fail(s, f"parallel loop {name!r} is not outermost")

    def _bind(self, s: Stmt, var: Var, ctx: _Context) -> _Context:
        if var.name in ctx.types:
            self.fail(s, f"variable {var.name!r} is defined inside its own scope")
        if self.all_types.setdefault(var.name, var.type) != var.type:
            self.fail(s, f"variable {var.name!r} is {self.all_types[var.name]} elsewhere and {var.type} here")
        return replace(ctx, types={**ctx.types, var.name: var.type})

    # -- expressions -----------------------------------------------------------------------------------------
    def exprs(self, s: Stmt, ctx: _Context, *roots: Expr) -> None:
        seen: set[Node] = set()
        stack: list[Node] = list(roots)
        while stack:
            e = stack.pop()
            if e in seen:
                continue
            seen.add(e)
            match e:
                case Var(name, dtype):
                    if ctx.types.get(name) != dtype:
                        self.fail(s, f"variable {name!r} ({dtype}) is not defined here")
                case Load(buffer, indices, mask):
                    self._access(s, buffer, indices, mask, ctx)
                case Reduce():
                    self.fail(s, "a reduction is left; it should have become loops")
                case Dot(sums, a, b) if not _same_kind(sums.dtype, a.dtype, b.dtype):
                    self.fail(s, f"a dot adds products of {a.dtype} and {b.dtype} to {sums.dtype}")
                case Select(cond) if not cond.dtype.is_bool or cond.dtype.lanes not in (1, e.dtype.lanes):
                    self.fail(s, f"a select of {e.dtype} has a condition of type {cond.dtype}")
            stack.extend(children(e))

    def _access(
        self, s: Stmt, buffer: Any, indices: tuple[Expr, ...], mask: Expr | None, ctx: _Context
    ) -> int:
        """Checks one load or store, and returns the number of its lanes."""
        if not isinstance(buffer, Buffer):
            self.fail(s, f"{buffer} is not a buffer of the loop IR")
        if buffer not in ctx.buffers:
            self.fail(s, f"buffer {buffer.name!r} is neither a parameter nor allocated around this statement")
        expected = len(buffer.shape) if self.level is Level.LOOP else 1
        if len(indices) != expected:
            self.fail(s, f"{buffer.name!r} has {len(indices)} indices and should have {expected}")
        lanes = max((i.dtype.lanes for i in indices), default=1)
        for i in indices:
            if not i.dtype.is_int:
                self.fail(s, f"an index of {buffer.name!r} is {i.dtype}, not an integer")
            if i.dtype.lanes not in (1, lanes):
                self.fail(s, f"indices of {buffer.name!r} have different numbers of lanes")
        if mask is not None and (not mask.dtype.is_bool or mask.dtype.lanes not in (1, lanes)):
            self.fail(s, f"the mask of {buffer.name!r} is {mask.dtype}, with {lanes} lanes")
        if self.level >= Level.FINAL and buffer.scope is Scope.REGISTER:
            for i in indices:
                if not isinstance(i.base if isinstance(i, Ramp) else i, Const):
                    self.fail(
                        s,
                        f"register buffer {buffer.name!r} has the index {i}, which is not constant",
                        "Unroll its loop.",
                    )
        return lanes


def _same_kind(sums: DType, a: DType, b: DType) -> bool:
    """Whether sums can hold products: all integers or all floats, with operands no wider than the sums."""
    narrow = max(a.element.bits, b.element.bits) <= sums.element.bits
    kinds = {t.is_float for t in (sums, a, b)}
    return narrow and len(kinds) == 1 and not any(t.is_bool for t in (sums, a, b))


# -- bounds --------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Access:
    """A load or store whose index at position `axis` may leave 0 .. extent-1, as far as can be proved."""

    stmt: Stmt
    buffer: Buffer
    index: Expr
    axis: int
    values: Interval
    extent: int

    def same_place(self, other: Access) -> bool:
        """Whether both are the same index of the same access (found with different knowledge)."""
        return self.stmt is other.stmt and self.index is other.index and self.axis == other.axis

    def __str__(self) -> str:
        text = str(self.stmt).split("\n", 1)[0]
        return (
            f"{self.buffer.name}: index {self.index} takes {self.values}, extent {self.extent}, in `{text}`"
        )


def check_bounds(func: PrimFunc) -> list[Access]:
    """The accesses of `func` that are not provably in range.

    The variables of Lets are replaced by their values. If this does not suffice, they are also kept as
    variables: sometimes `f//3*3 + f%3` is clearer as `f`, and sometimes a mask says something about `f%3`.
    """
    found = list(_accesses(func.body, Simplifier(Bounds({})), expand=True))
    if found:
        again = set(_accesses(func.body, Simplifier(Bounds({})), expand=False))
        found = [a for a in found if any(a.same_place(b) for b in again)]
    return found


def _accesses(st: Stmt, s: Simplifier, expand: bool) -> Iterator[Access]:
    match st:
        case For():
            yield from _reads(st, (st.begin, st.extent), s)
            scope = s.loop_scope(st)
            if scope is not None:
                yield from _accesses(st.body, scope, expand)
        case Let(var, value, body):
            yield from _reads(st, (value,), s)
            yield from _accesses(body, s.replacing(var, s.expr(value)) if expand else s.let_scope(st), expand)
        case If(cond, then, otherwise):
            yield from _reads(st, (cond,), s)
            simple = s.expr(cond)
            yield from _accesses(then, s.where(simple), expand)
            if otherwise is not None:
                yield from _accesses(otherwise, s.where(simple, False), expand)
        case Seq(stmts):
            for x in stmts:
                yield from _accesses(x, s, expand)
        case Alloc(_, body):
            yield from _accesses(body, s, expand)
        case Evaluate(value):
            yield from _reads(st, (value,), s)
        case Store(buffer, indices, value, mask):
            yield from _reads(st, (*indices, value, *(() if mask is None else (mask,))), s)
            yield from _outside(st, buffer, indices, mask, s)


def _reads(st: Stmt, roots: tuple[Node, ...], s: Simplifier) -> Iterator[Access]:
    """The loads below the roots; a select protects the loads in its sides."""
    stack = list(roots)
    seen: set[Node] = set()
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        match e:
            case Select(cond, then, otherwise) if cond.dtype.lanes == 1:
                simple = s.expr(cond)
                stack.append(cond)
                yield from _reads(st, (then,), s.where(simple))
                yield from _reads(st, (otherwise,), s.where(simple, False))
                continue
            case Load(buffer, indices, mask):
                yield from _outside(st, buffer, indices, mask, s)
        stack.extend(children(e))


def _outside(
    st: Stmt, buffer: Buffer, indices: tuple[Expr, ...], mask: Expr | None, s: Simplifier
) -> Iterator[Access]:
    lanes = max((i.dtype.lanes for i in indices), default=1)
    lane = Var(LANE, int64)
    inner = s if lanes == 1 else s.inside(lane, Interval(0, lanes - 1))
    if mask is not None:
        one = in_lane(mask, lane)
        inner = inner if one is None else inner.where(inner.expr(one))
    flat = len(indices) == 1 and len(buffer.shape) != 1
    shape = (buffer.span,) if flat else buffer.shape
    for axis, (index, extent) in enumerate(zip(indices, shape, strict=True)):
        one = in_lane(index, lane)
        values = inner.bounds.of(inner.expr(index if one is None else one))
        if not values.within(Interval(0, extent - 1)):
            yield Access(st, buffer, index, axis, values, extent)
