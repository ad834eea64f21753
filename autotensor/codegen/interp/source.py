"""PrimFunc → Python source, which the interpreter runs.

    for i in 0..16:                         for i_1 in range(0, 16):
      C[i] = C[i] + A[i]           ──▶          C_2[i_1] = (C_2[i_1] + A_3[i_1])

Values: scalar integers are Python ints kept within their type (wrapped only where an interval cannot prove
it), bools are Python bools, scalar floats are NumPy scalars, vectors are NumPy arrays. Each index is compared
with the shape unless an interval proves it. With `careful`, every access goes through a `Tracked` buffer,
which makes all checks. Repeated sub-expressions of one statement are computed once. Kernels with barriers
become generators that yield at them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autotensor.base.errors import CodegenError
from autotensor.codegen.interp.expr import SHUFFLE, ExpressionWriter, is_flat
from autotensor.codegen.interp.integer_ranges import Interval
from autotensor.codegen.interp.memory import FILENAME
from autotensor.ir.expr import Call, Const, Load, Var
from autotensor.ir.func import Buffer, PrimFunc, Scope
from autotensor.ir.stmt import (
    Alloc,
    Async,
    Await,
    Barrier,
    Commit,
    Evaluate,
    For,
    ForKind,
    If,
    Let,
    Seq,
    Stmt,
    Store,
)
from autotensor.ir.visit import any_node, walk

LOOPS_PER_FUNCTION = 15  # CPython refuses more than 20 nested loops


@dataclass(frozen=True, slots=True)
class PythonKernel:
    """A kernel as a Python function of one `Thread`."""

    function: Callable[[Any], Any]
    source: str
    is_generator: bool
    axes: dict[str, int]  # GPU thread axes and their extents; empty for CPU kernels


def compile_func(func: PrimFunc, careful: bool, check: bool = True) -> PythonKernel:
    """Python code of a kernel. `careful`: record every access; `check`: compare indices with shapes."""
    return _Writer(func, careful, check).compiled()


def thread_axes(func: PrimFunc) -> dict[str, int]:
    """Thread axes of a GPU kernel with their extents, from the launch, or from the largest loop over each
    axis."""
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


class _Writer(ExpressionWriter):
    """Writes one kernel."""

    def __init__(self, func: PrimFunc, careful: bool, check: bool) -> None:
        super().__init__(func, careful, check)
        self.axes = thread_axes(func)
        self.loops = 0  # nested in the current Python function
        self.in_parallel = False
        self.barriers: dict[Stmt, bool] = {}

    # -- the function ----------------------------------------------------------------------------------------
    def compiled(self) -> PythonKernel:
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
        return PythonKernel(self.globals["kernel"], source, generator, self.axes)

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
            found = self.barriers[s] = any_node(s, _meets)
        return found

    def bind_views(self, name: str, source: str) -> None:
        for (buffer, flat), local in self.views.items():
            if buffer.name == name:
                record = self.constant(("buffer", buffer), buffer)
                if self.careful:
                    self.put(f"{local} = _Tracked({source}, {record}, {flat})")
                else:
                    self.put(f"{local} = {'_flat' if flat else '_nd'}({source}, {record})")

    # -- statements ------------------------------------------------------------------------------------------
    def block(self, s: Stmt) -> None:
        """The statement, one level deeper."""
        self.indent += 1
        before = len(self.lines)
        self.statement(s)
        if len(self.lines) == before:
            self.put("pass")
        self.indent -= 1

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
                self.put(f"{self.bind(var, self.ranges.of(value))} = {source}")
                self.statement(body)
                self.vars.pop(var)
            case Barrier():
                self.stmt = s
                self.put(f"yield {self.site('barrier', None)}")
            case Evaluate(value):
                self.begin(s, value)
                self.put(self.expr(value))
            case Async(store):
                self.store(store, "copy")
            case Commit():
                self.put("_T.commit()")
            case Await(left):
                self.put(f"_T.await_copies({left})")
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
        self.ranges.bind(var, interval)
        name = self.vars[var] = self.fresh(var.name)
        return name

    def loop(self, s: For) -> None:
        self.begin(s, s.begin, s.extent)
        begin, extent = self.expr(s.begin), self.expr(s.extent)
        (low, high), count = self.ranges.of(s.begin), self.ranges.of(s.extent)
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

    def store(self, s: Store, verb: str = "store") -> None:
        """verb: `copy` for an asynchronous store; it has a meaning only if accesses are recorded."""
        buffer, indices, value, mask = s.buffer, s.indices, s.value, s.mask
        flat = is_flat(self.func, buffer, indices)
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
            self.put(f"{view}.{verb}(_T, {m}, {source}, {self.tuple_of(indices)}, {self.site(verb, buffer)})")
        elif lanes > 1:
            self.put(
                f"_vstore({view}, {m}, {source}, {self.tuple_of(indices)}, {self.site('store', buffer)})"
            )
        # in an assignment, Python too computes the value before the indices
        elif self.proven(buffer, indices, flat):
            self.put(f"{view}[{', '.join(self.expr(i) for i in indices) or '0'}] = {source}")
        else:
            v, at = self.fresh("value"), [self.fresh("at") for _ in indices]
            self.put(f"{v} = {source}")
            for name, i in zip(at, indices, strict=True):
                self.put(f"{name} = {self.expr(i)}")
            shape = (buffer.span,) if flat else buffer.shape
            tests = " and ".join(f"0 <= {a} < {n}" for a, n in zip(at, shape, strict=True))
            self.put(f"if not ({tests}): _oob({self.site('store', buffer)}, ({', '.join(at)},), {shape})")
            self.put(f"{view}[{', '.join(at)}] = {v}")
        self.indent = level


def _meets(n: object) -> bool:
    """Whether threads wait for other threads at this node."""
    return isinstance(n, Barrier) or (isinstance(n, Call) and n.name == SHUFFLE)


def _accesses(func: PrimFunc) -> list[tuple[Buffer, bool]]:
    """The buffers that a kernel accesses, each with whether it is accessed by a flat index."""
    found: dict[tuple[Buffer, bool], None] = {}
    for node in walk(func.body):
        if isinstance(node, (Load, Store)):
            found[node.buffer, is_flat(func, node.buffer, node.indices)] = None
    return list(found)
