"""PrimFunc → Python source, which the interpreter runs.

    for i in 0..16:                         for i_1 in range(0, 16):
      C[i] = C[i] + A[i]           ──▶          C_2[i_1] = (C_2[i_1] + A_3[i_1])

Values: scalar integers are Python ints kept within their type (wrapped only where an interval cannot prove
it), bools are Python bools, scalar floats are NumPy scalars, vectors are NumPy arrays. Each index is compared
with the shape unless an interval proves it. With `careful`, every access goes through a `Tracked` buffer
instead. Repeated sub-expressions of one statement are computed once. Kernels with barriers become generators
that yield at them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotensor.base.dtype import DType
from autotensor.base.errors import CodegenError
from autotensor.codegen import interp_memory as memory
from autotensor.codegen.interp_memory import FILENAME, Site
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
from autotensor.ir.func import Buffer, PrimFunc, Scope
from autotensor.ir.mathlib import FUNCTIONS
from autotensor.ir.node import children
from autotensor.ir.stmt import Alloc, Barrier, Evaluate, For, ForKind, If, Let, Seq, Stmt, Store
from autotensor.ir.visit import any_node, walk

LOOPS_PER_FUNCTION = 15  # CPython refuses more than 20 nested blocks
HEIGHT_PER_EXPRESSION = 30  # CPython refuses more than 200 nested parentheses; one node may bring five
Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel as a Python function of one `Thread`."""

    function: Callable[[Any], Any]
    source: str
    is_generator: bool
    axes: dict[str, int]  # GPU thread axes and their extents; empty for CPU kernels


def compile_func(func: PrimFunc, careful: bool, check: bool = True) -> Compiled:
    """Python code of a kernel. `careful`: note every access; `check`: compare indices with shapes."""
    return _Writer(func, careful, check).compiled()


def thread_axes(func: PrimFunc) -> dict[str, int]:
    """Thread axes of a GPU kernel with their extents: those of the launch, or the largest loop over each."""
    loops = [n for n in walk(func.body) if isinstance(n, For) and n.kind is ForKind.THREAD]
    if not loops:
        return {}
    axes: dict[str, int] = {}
    for loop in loops:
        if not isinstance(loop.extent, Const):
            raise CodegenError(f"kernel {func.name!r}: thread loop {loop.var.name!r} has no constant extent.")
        axes[loop.thread] = max(axes.get(loop.thread, 1), int(loop.extent.value))
    if func.launch is not None:
        given = {f"blockIdx.{d}": n for d, n in zip("xyz", func.launch.grid, strict=True)}
        given |= {f"threadIdx.{d}": n for d, n in zip("xyz", func.launch.block, strict=True)}
        for name, extent in axes.items():
            if extent > given.get(name, extent):
                raise CodegenError(
                    f"kernel {func.name!r}: the loop over {name} has {extent} iterations; "
                    f"the launch has {given[name]}."
                )
        axes |= given
    return axes


def limits(t: DType) -> Interval:
    """Least and greatest value of an integer type."""
    if t.is_bool:
        return 0, 1
    return (-(1 << (t.bits - 1)), (1 << (t.bits - 1)) - 1) if t.kind == "int" else (0, (1 << t.bits) - 1)


def _wrapper(t: DType) -> Callable[[int], int]:
    low, high = limits(t)
    mask = (1 << t.bits) - 1
    return (lambda x: ((x - low) & mask) + low) if low else (lambda x: x & high)


def _floordiv(a: Any, b: Any) -> Any:
    """Floor division; x // 0 is 0."""
    return (a // b if b else 0) if not isinstance(b, np.ndarray) else np.floor_divide(a, b)


def _mod(a: Any, b: Any) -> Any:
    """Modulo with the sign of the divisor; x % 0 is 0."""
    return (a % b if b else 0) if not isinstance(b, np.ndarray) else np.remainder(a, b)


def _shl(a: Any, b: Any) -> Any:
    return (a << b if 0 <= b < 64 else 0) if not isinstance(b, np.ndarray) else np.left_shift(a, b)


def _shr(a: Any, b: Any) -> Any:
    return (a >> b if b >= 0 else 0) if not isinstance(b, np.ndarray) else np.right_shift(a, b)


def _minimum(a: Any, b: Any) -> Any:
    """NaN if either is."""
    return a if a <= b or a != a else b


def _maximum(a: Any, b: Any) -> Any:
    return a if a >= b or a != a else b


_GLOBALS: dict[str, Any] = {
    "_floordiv": _floordiv,
    "_mod": _mod,
    "_shl": _shl,
    "_shr": _shr,
    "_minimum": _minimum,
    "_maximum": _maximum,
    "_vminimum": np.minimum,
    "_vmaximum": np.maximum,
    "_vload": memory.vload,
    "_vstore": memory.vstore,
    "_vselect": memory.vselect,
    "_nd": memory.nd_view,
    "_flat": memory.flat_view,
    "_Tracked": memory.Tracked,
    "_oob": memory.out_of_bounds,
    "_full": np.full,
    "_zeros": np.zeros,
    **{f"_math_{name}": fn for name, fn in FUNCTIONS.items()},
}


class _Writer:
    """Writes one kernel. `scopes` hold sub-expressions already computed, innermost last."""

    def __init__(self, func: PrimFunc, careful: bool, check: bool) -> None:
        self.func = func
        self.careful = careful
        self.check = check
        self.axes = thread_axes(func)
        self.globals = dict(_GLOBALS)
        self.pool: dict[Any, str] = {}
        self.lines: list[str] = []
        self.indent = 1
        self.loops = 0  # nested in the current Python function
        self.in_parallel = False
        self.count = 0
        self.vars: dict[Var, str] = {}  # in scope
        self.ranges: dict[Var, Interval] = {}
        self.mask = ""  # lanes wanted, inside a side of a vector select
        self.scopes: list[dict[Expr, str]] = [{}]
        self.uses: dict[Expr, int] = {}
        self.hoisted: dict[tuple[Expr, bool], str] = {}
        self.heights: dict[Expr, int] = {}
        self.known: dict[Expr, Interval] = {}
        self.stmt: Stmt = func.body
        self.views: dict[tuple[Buffer, bool], str] = {}
        self.barriers: dict[Stmt, bool] = {}

    # -- the function ----------------------------------------------------------------------------------------
    def compiled(self) -> Compiled:
        used = _accesses(self.func)
        for buffer, flat in used:
            self.views[buffer, flat] = self.fresh(buffer.name)
        generator = self.has_barrier(self.func.body)
        self.put("_tid = _T.tid; _nt = _T.nthreads")
        for b in self.func.params:
            self.bind_views(b.name, f"_T.memory[{b.name!r}]")
        self.known_buffers({b.name for b in self.func.params})
        self.statement(self.func.body)
        source = "\n".join(["def kernel(_T):", *self.lines, ""])
        exec(compile(source, f"{FILENAME}{self.func.name}>", "exec"), self.globals)
        return Compiled(self.globals["kernel"], source, generator, self.axes)

    def known_buffers(self, params: set[str]) -> None:
        allocated = {n.buffer.name for n in walk(self.func.body) if isinstance(n, Alloc)}
        for buffer, _ in self.views:
            if buffer.name not in params | allocated:
                raise CodegenError(
                    f"kernel {self.func.name!r} uses buffer {buffer.name!r}, "
                    "which is neither a parameter nor allocated here."
                )

    def has_barrier(self, s: Stmt) -> bool:
        found = self.barriers.get(s)
        if found is None:
            found = self.barriers[s] = any_node(s, lambda n: isinstance(n, Barrier))
        return found

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

    def bind_views(self, name: str, source: str) -> None:
        for (buffer, flat), local in self.views.items():
            if buffer.name == name:
                record = self.constant(("buffer", buffer), buffer)
                if self.careful:
                    self.put(f"{local} = _Tracked({source}, {record}, {flat})")
                else:
                    self.put(f"{local} = {'_flat' if flat else '_nd'}({source}, {record})")

    def site(self, verb: str, buffer: Buffer | None) -> str:
        names = {python: var.name for var, python in self.vars.items()}
        key = (verb, buffer, self.stmt, tuple(names))
        return self.constant(key, Site(self.func.name, verb, buffer, self.stmt, names))

    # -- statements ------------------------------------------------------------------------------------------
    def block(self, s: Stmt) -> None:
        """The statement, one level deeper."""
        self.indent += 1
        before = len(self.lines)
        self.statement(s)
        if len(self.lines) == before:
            self.put("pass")
        self.indent -= 1

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

    def statement(self, s: Stmt) -> None:
        match s:
            case Seq(stmts):
                for part in stmts:
                    self.statement(part)
            case For():
                if self.loops >= LOOPS_PER_FUNCTION:
                    self.in_function(s)
                else:
                    self.loop(s)
            case Store():
                self.store(s)
            case Alloc(buffer, body):
                self.alloc(s, buffer)
                self.statement(body)
            case If(cond, then, otherwise):
                if cond.dtype.lanes != 1:
                    raise CodegenError(
                        f"kernel {self.func.name!r}: a condition has {cond.dtype.lanes} lanes."
                    )
                self.begin(s, cond)
                self.put(f"if {self.expr(cond)}:")
                self.block(then)
                if otherwise is not None:
                    self.put("else:")
                    self.block(otherwise)
            case Let(var, value, body):
                self.begin(s, value)
                source = self.expr(value)
                self.put(f"{self.bind(var, self.interval(value))} = {source}")
                self.statement(body)
                self.vars.pop(var)
            case Barrier():
                self.stmt = s
                self.put(f"yield {self.site('barrier', None)}")
            case Evaluate(value):
                self.begin(s, value)
                self.put(self.expr(value))
            case _:
                raise CodegenError(
                    f"kernel {self.func.name!r}: the interpreter does not know {type(s).__name__}."
                )

    def in_function(self, s: Stmt) -> None:
        name = self.fresh("nest")
        self.put(f"def {name}():")
        saved, self.loops = self.loops, 0
        self.block(s)
        self.loops = saved
        self.put(f"{'yield from ' if self.has_barrier(s) else ''}{name}()")

    def bind(self, var: Var, interval: Interval) -> str:
        if var in self.vars:
            raise CodegenError(f"kernel {self.func.name!r} binds variable {var.name!r} inside its own scope.")
        if self.ranges.get(var, interval) != interval:
            self.known.clear()  # bound again elsewhere: what was derived from the old range is void
        self.ranges[var] = interval
        name = self.vars[var] = self.fresh(var.name)
        return name

    def loop(self, s: For) -> None:
        self.begin(s, s.begin, s.extent)
        begin, extent = self.expr(s.begin), self.expr(s.extent)
        (low, high), count = self.interval(s.begin), self.interval(s.extent)
        var = self.bind(s.var, (low, max(low, high + count[1] - 1)))
        if s.kind is ForKind.THREAD and s.thread in self.axes:
            at = f"_T.at[{s.thread!r}]"
            self.put(f"{var} = {begin} + {at}")
            if count != (self.axes[s.thread],) * 2:
                self.put(f"if {at} < {extent}:")
                self.block(s.body)
            else:
                self.statement(s.body)
            self.vars.pop(s.var)
            return
        parallel = s.kind is ForKind.PARALLEL and not self.in_parallel and not self.axes
        if parallel:
            first, size = self.fresh("first"), self.fresh("size")
            self.put(f"{first} = {begin}; {size} = {extent}")
            self.put(
                f"for {var} in range({first} + {size} * _tid // _nt, {first} + {size} * (_tid + 1) // _nt):"
            )
        else:
            end = str(low + count[0]) if low == high and count[0] == count[1] else f"{begin} + {extent}"
            self.put(f"for {var} in range({begin}, {end}):")
        self.in_parallel |= parallel
        self.loops += 1
        self.block(s.body)
        self.vars.pop(s.var)
        self.loops -= 1
        self.in_parallel &= not parallel

    def alloc(self, s: Alloc, buffer: Buffer) -> None:
        self.stmt = s
        common = buffer.scope is Scope.SHARED or (buffer.scope is Scope.GLOBAL and not self.in_parallel)
        record = self.constant(("buffer", buffer), buffer)
        name = self.fresh("memory")
        self.put(f"{name} = _T.alloc({self.count}, {record}, {common})")
        self.bind_views(buffer.name, name)

    def store(self, s: Store) -> None:
        buffer, indices, value, mask = s.buffer, s.indices, s.value, s.mask
        flat = _is_flat(self.func, buffer, indices)
        lanes = max((i.dtype.lanes for i in indices), default=1)
        if value.dtype != buffer.dtype.with_lanes(lanes):
            raise CodegenError(
                f"kernel {self.func.name!r} stores a {value.dtype} into {buffer.name!r}, "
                f"which holds {buffer.dtype}"
                f"{f' ({lanes} lanes)' if lanes > 1 else ''}, in `{str(s).strip()}`."
            )
        self.begin(s, *indices, value, mask)
        level = self.indent
        if not self.in_parallel and not self.axes and buffer.scope is Scope.GLOBAL:
            self.put("if _tid == 0:")
            self.indent += 1
        m = "None" if mask is None else self.expr(mask)
        if mask is not None and mask.dtype.lanes == 1:
            self.put(f"if {m}:")
            self.indent += 1
            m = "None"
        view = self.views[buffer, flat]
        source = self.expr(value)
        if self.careful:
            self.put(
                f"{view}.store(_T, {m}, {source}, {self.tuple_of(indices)}, {self.site('store', buffer)})"
            )
        elif lanes > 1:
            self.put(
                f"_vstore({view}, {m}, {source}, {self.tuple_of(indices)}, {self.site('store', buffer)})"
            )
        elif self.proven(buffer, indices, flat):  # Python, too, computes the value before the indices
            self.put(f"{view}[{', '.join(self.expr(i) for i in indices) or '0'}] = {source}")
        else:
            v, at = self.fresh("value"), [self.fresh("at") for _ in indices]
            self.put(f"{v} = {source}")
            for name, i in zip(at, indices, strict=True):
                self.put(f"{name} = {self.expr(i)}")
            shape = (memory.storage(buffer),) if flat else buffer.shape
            tests = " and ".join(f"0 <= {a} < {n}" for a, n in zip(at, shape, strict=True))
            self.put(f"if not ({tests}): _oob({self.site('store', buffer)}, ({', '.join(at)},), {shape})")
            self.put(f"{view}[{', '.join(at)}] = {v}")
        self.indent = level

    def tuple_of(self, indices: Iterable[Expr]) -> str:
        return f"({''.join(self.expr(i) + ', ' for i in indices) or '0,'})"

    # -- expressions -----------------------------------------------------------------------------------------
    def expr(self, e: Expr) -> str:
        """Python text of the value, in parentheses where needed; asked for in the order of evaluation."""
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
        """A deep expression as a call of a function of its own, written before the statement."""
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
            case Call(name, args, _):
                if name not in FUNCTIONS:
                    raise CodegenError(
                        f"kernel {self.func.name!r} calls {name!r}, which the interpreter does not know."
                    )
                if name == "abs" and e.dtype.lanes == 1 and not e.dtype.is_float:
                    return self.wrapped(e, f"abs({self.expr(args[0])})")
                return f"_math_{name}({', '.join([self.expr(a) for a in args])})"
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
        if op in (Op.FLOORDIV, Op.MOD) and (t.lanes > 1 or _spans(self.interval(b), 0)):
            return self.wrapped(e, f"{'_floordiv' if op is Op.FLOORDIV else '_mod'}({x}, {y})")
        if op in (Op.SHL, Op.SHR):
            return self.wrapped(e, f"_{op.name.lower()}({x}, {y})")
        return self.wrapped(e, f"({x} {op.value} {y})")

    def wrapped(self, e: Expr, source: str) -> str:
        """The source, brought back into its integer type where it might leave it."""
        t = e.dtype
        if not t.is_int or t.lanes > 1:
            return source
        low, high = self.exact(e)
        least, most = limits(t)
        if least <= low and high <= most:
            return source
        return f"{self.constant(('wrap', t), _wrapper(t))}({source})"

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
        if e.dtype.lanes > 1:
            return f"({x} != 0)" if new.is_bool else f"{x}.astype({self.dtype(new)})"
        if new.is_bool:
            return f"({x} != 0)"
        if new.is_int:
            if old.is_float:
                return f"int({x}.astype({self.dtype(new)}))"
            return self.wrapped(e, f"int({x})" if old.is_bool else x)
        scalar = self.constant(("scalar", new), new.numpy.type)
        if old.is_int:  # through float64 only where that is exact
            low, high = self.interval(a)
            if low < -(1 << 53) or high > 1 << 53:
                return f"{self.constant(('scalar', old), old.numpy.type)}({x}).astype({self.dtype(new)})"
        return f"{x}.astype({self.dtype(new)})" if old.is_float else f"{scalar}({x})"

    def load(self, e: Load) -> str:
        buffer, indices, mask, lanes = e.buffer, e.indices, e.mask, e.dtype.lanes
        flat = _is_flat(self.func, buffer, indices)
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
        """The load itself, where `mask` (text, already asked for) holds."""
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
        shape = (memory.storage(buffer),) if flat else buffer.shape
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

    # -- intervals of scalar integers ------------------------------------------------------------------------
    def proven(self, buffer: Buffer, indices: tuple[Expr, ...], flat: bool) -> bool:
        if not self.check:
            return True
        shape = (memory.storage(buffer),) if flat else buffer.shape
        return all(
            self.interval(i)[0] >= 0 and self.interval(i)[1] < n for i, n in zip(indices, shape, strict=True)
        )

    def interval(self, e: Expr) -> Interval:
        """Bounds of the value as stored: within its type."""
        if not (e.dtype.is_int or e.dtype.is_bool):
            return limits(_INT64)
        low, high = self.exact(e)
        least, most = limits(e.dtype)
        return (low, high) if least <= low and high <= most else (least, most)

    def exact(self, e: Expr) -> Interval:
        """Bounds of the value before it is wrapped."""
        found = self.known.get(e)
        if found is None:
            found = self.known[e] = self._exact(e)
        return found

    def _exact(self, e: Expr) -> Interval:
        match e:
            case Const(value):
                return int(value), int(value)
            case Var():
                return self.ranges.get(e, limits(e.dtype))
            case Binary(op, a, b) if e.dtype.is_int:
                return _combine(op, self.interval(a), self.interval(b), limits(e.dtype))
            case Unary(Neg.NEG, a):
                low, high = self.interval(a)
                return -high, -low
            case Unary(Neg.NOT, a) if a.dtype.is_int:
                low, high = self.interval(a)
                return ~high, ~low
            case Select(_, a, b):
                x, y = self.interval(a), self.interval(b)
                return min(x[0], y[0]), max(x[1], y[1])
            case Cast(_, a) if a.dtype.is_int or a.dtype.is_bool:
                return self.interval(a)
            case Call("abs", (a,)):
                low, high = self.interval(a)
                return 0, max(-low, high)
            case Ramp(base, stride, lanes):
                low, high = self.interval(base)
                return low + min(0, stride * (lanes - 1)), high + max(0, stride * (lanes - 1))
            case Broadcast(a):
                return self.interval(a)
            case _:
                return limits(e.dtype)


_INT64 = DType("int", 64)
_ZERO: dict[str, Any] = {"float": 0.0, "bfloat": 0.0, "int": 0, "uint": 0, "bool": False}
_INTEGER_ONLY = (Op.FLOORDIV, Op.MOD, Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR)
_NO_BOOL = (Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.FLOORDIV, Op.MOD, Op.SHL, Op.SHR)


def _spans(x: Interval, value: int) -> bool:
    return x[0] <= value <= x[1]


def _combine(op: Op, x: Interval, y: Interval, default: Interval) -> Interval:
    match op:
        case Op.ADD:
            return x[0] + y[0], x[1] + y[1]
        case Op.SUB:
            return x[0] - y[1], x[1] - y[0]
        case Op.MUL:
            corners = [a * b for a in x for b in y]
            return min(corners), max(corners)
        case Op.FLOORDIV if y[0] > 0:
            corners = [a // b for a in x for b in y]
            return min(corners), max(corners)
        case Op.FLOORDIV:  # the least number divided by -1 leaves the type
            most = max(abs(x[0]), abs(x[1]))
            return -most, most
        case Op.MOD if y[0] > 0:
            return x if x[0] >= 0 and x[1] < y[0] else (0, y[1] - 1)
        case Op.MIN:
            return min(x[0], y[0]), min(x[1], y[1])
        case Op.MAX:
            return max(x[0], y[0]), max(x[1], y[1])
        case Op.SHL:
            return default[0] - 1, default[1] + 1  # may leave the type
        case Op.SHR if y[0] >= 0:
            return min(x[0], 0), max(x[1], 0)
        case Op.AND if x[0] >= 0 and y[0] >= 0:
            return 0, min(x[1], y[1])
        case _:
            return default


def _is_flat(func: PrimFunc, buffer: Any, indices: tuple[Expr, ...]) -> bool:
    """Whether the index is a position in memory rather than one index per axis."""
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


def _accesses(func: PrimFunc) -> list[tuple[Buffer, bool]]:
    """Buffers accessed, each with whether flat."""
    found: dict[tuple[Buffer, bool], None] = {}
    for node in walk(func.body):
        if isinstance(node, (Load, Store)):
            found[node.buffer, _is_flat(func, node.buffer, node.indices)] = None
    return list(found)
