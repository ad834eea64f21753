"""Kernels in the C family: one renderer for all dialects (`Dialect`). Start reading at `render`.

    PrimFunc (FLAT, unified, with its launch)  +  CUDA or OPENCL  ──▶  source text of one kernel

Each statement becomes one statement, so that the source reads like the loop IR. Most dialects use vectors
only to access memory: a store of lanes loads its operands as vectors where they are contiguous (and, if the
dialect needs it, aligned), computes lane by lane, and stores a vector. A dialect that computes with vectors
computes all lanes at once where it can (vector_expr.py). Shared memory is declared at the top, private memory
where it is allocated. Compilers keep private memory in registers once loops are unrolled and indices
constant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import prod

from autotensor.base.errors import CodegenError
from autotensor.base.names import free_name
from autotensor.codegen.access import access_of
from autotensor.codegen.c.copy_width import width_of_copy
from autotensor.codegen.c.dialect import RESERVED, Dialect
from autotensor.codegen.c.helpers import USES
from autotensor.codegen.c.tensor_intrinsics import Fragments, Matrices, fragments, is_tensorized
from autotensor.codegen.c.vector_expr import VectorWriter, is_plain, vector_buffers, width_of
from autotensor.ir.expr import MATH, Const, Expr, Load, const
from autotensor.ir.func import Buffer, PrimFunc, Scope
from autotensor.ir.simplify import simplify
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
from autotensor.ir.visit import collect, free_vars, walk

STATIC_SHARED_BYTES = 48 << 10  # CUDA: a kernel with more shared memory must request it at the launch
INDENT = "    "
THREAD_NAMES = {f"{kind}Idx.{d}": f"{kind[0]}{d}" for kind in ("block", "thread") for d in "xyz"}


def render(func: PrimFunc, dialect: Dialect, symbol: str) -> tuple[str, frozenset[str]]:
    """The text of a kernel called `symbol`, and the names of the helper functions that it calls."""
    kernel = _Kernel(func, dialect)
    return kernel.text(symbol), frozenset(kernel.helpers)


def helpers_text(names: Iterable[str], dialect: Dialect) -> str:
    """Definitions of helper functions; a function stands after those that it calls."""
    wanted: dict[str, None] = {}
    for name in sorted(names):
        wanted.update(dict.fromkeys((*USES.get(name, ()), name)))
    return "".join(f"{dialect.helpers[n]}\n" for n in dialect.helpers if n in wanted)


def is_dynamic(func: PrimFunc) -> bool:
    """Whether shared memory is one array whose size the launch gives."""
    return func.launch is not None and func.launch.shared_bytes > STATIC_SHARED_BYTES


class _Kernel(VectorWriter):
    """Writes one kernel."""

    def __init__(self, func: PrimFunc, dialect: Dialect) -> None:
        super().__init__(func.name, dialect)
        self.func = func
        self.lines: list[str] = []
        self.depth = 1
        self.arrays = vector_buffers(func.body) if dialect.vectors else {}
        self.name_all(func)

    # -- names -----------------------------------------------------------------------------------------------
    def name_all(self, func: PrimFunc) -> None:
        """C names for everything, all different."""
        used = {*RESERVED, *self.dialect.reserved, *THREAD_NAMES.values()}
        used |= {name for f in MATH for name in (f, f"{f}f")}  # an array `acos` would hide the function
        for b in (*func.params, *(a.buffer for a in collect(func.body, Alloc))):
            self.names.setdefault(b.name, free_name(_identifier(b.name), used))
        for node in walk(func.body):
            if isinstance(node, For) and node.kind is ForKind.THREAD:
                self.names[node.var.name] = THREAD_NAMES[node.thread]
            elif isinstance(node, For | Let) and node.var.name not in self.names:
                short = node.var.name.rpartition(":")[2]
                self.names[node.var.name] = free_name(_identifier(short), used)
        self.used = used

    def fresh(self, hint: str) -> str:
        return free_name(hint, self.used)

    # -- the kernel ------------------------------------------------------------------------------------------
    def text(self, symbol: str) -> str:
        func, d = self.func, self.dialect
        written = {s.buffer for s in collect(func.body, Store)}
        params = ", ".join(
            f"{d.pointer(d.types[str(b.dtype)], b not in written)} {self.names[b.name]}" for b in func.params
        )
        threads = 1 if func.launch is None else prod(func.launch.block)
        self.shared_memory()
        self.statement(func.body)
        head = f"{d.kernel}{d.block_size(threads)} {symbol}({params}) {{"
        return "\n".join([head, *self.lines, "}"]) + "\n"

    def shared_memory(self) -> None:
        # a buffer is allocated twice if its stage is computed ahead of a loop
        allocs = collect(self.func.body, Alloc)
        shared = dict.fromkeys(a.buffer for a in allocs if a.buffer.scope is Scope.SHARED)
        d, at = self.dialect, 0
        dynamic = is_dynamic(self.func)
        if dynamic:
            self.put("extern __shared__ __align__(16) unsigned char shared_memory[];")
        for b in shared:
            kind, name = d.types[str(b.dtype)], self.names[b.name]
            if dynamic:
                self.put(f"{kind}* const {name} = ({kind}*)(shared_memory + {at});")
                at += -(-b.bytes // 16) * 16
            else:
                self.put(f"{d.shared} {kind} {name}[{max(1, b.size)}];")

    def put(self, line: str) -> None:
        self.lines.append(INDENT * self.depth + line)

    # -- statements ------------------------------------------------------------------------------------------
    def statement(self, s: Stmt, last: bool = True) -> None:
        """Writes a statement. last: nothing follows in this block, so declarations need no braces of their
        own."""
        match s:
            case Seq(stmts):
                for n, x in enumerate(stmts):
                    self.statement(x, last and n == len(stmts) - 1)
            case For():
                self.loop(s)
            case Store():
                self.store(s)
            case Alloc(buffer, body):
                self.scoped(() if buffer.scope is Scope.SHARED else (self.declared(buffer),), body, last)
            case Let():
                self.let(s, last)
            case If(cond, then, otherwise):
                self.put(f"if ({self.expr(cond)}) {{")
                self.block(then)
                if otherwise is not None:
                    self.put("} else {")
                    self.block(otherwise)
                self.put("}")
            case Barrier("shared"):
                self.put(self.dialect.barrier)
            case Evaluate(value):
                self.put(f"{self.expr(value)};")
            case Async(store) if self.dialect.copies:
                self.copy(store)
            case Commit() if self.dialect.copies:
                self.put(f"{self.helper('at_commit')}();")
            case Await(left) if self.dialect.copies:
                self.put(f"{self.helper('at_await')}<{left}>();")
            case _:
                raise CodegenError(
                    f"kernel {self.func.name!r}: {self.dialect.name} has no {type(s).__name__} as in "
                    f"`{str(s).strip().splitlines()[0]}`."
                )

    def block(self, s: Stmt) -> None:
        self.depth += 1
        self.statement(s)
        self.depth -= 1

    def scoped(self, lines: tuple[str, ...], body: Stmt, last: bool) -> None:
        braces = not last and bool(lines)
        if braces:
            self.put("{")
            self.depth += 1
        for line in lines:
            self.put(line)
        self.statement(body, last or braces)
        if braces:
            self.depth -= 1
            self.put("}")

    def declared(self, b: Buffer) -> str:
        """The declaration of private memory. Here too, 16-bit floats are kept as float, which holds the same
        values."""
        kind, size = self.dialect.values[str(b.dtype)], max(1, b.size)
        if b in self.arrays:
            kind, size = self.dialect.vector_type(kind, self.arrays[b]), size // self.arrays[b]
        return f"{kind} {self.names[b.name]}[{size}];"

    def let(self, s: Let, last: bool) -> None:
        name, dtype = self.names[s.var.name], s.var.type
        self.bounds = self.bounds.in_let(s.var, s.value)
        kind = self.dialect.values[str(dtype.element)]
        if dtype.lanes == 1:
            self.scoped((f"const {kind} {name} = {self.expr(s.value)};",), s.body, last)
            return
        width = width_of(dtype.lanes)
        if width > 1 and not dtype.is_bool and self.can_compute(s.value):
            whole = range(0, dtype.lanes, width)
            self.wide_lets[name] = width
            vectors = [f"{name}[{n // width}] = {self.vector(s.value, n, width)};" for n in whole]
            declared = f"{self.dialect.vector_type(kind, width)} {name}[{dtype.lanes // width}];"
            self.scoped((declared, *vectors), s.body, last)
            return
        lanes = [f"{name}[{n}] = {self.expr(s.value, n)};" for n in range(dtype.lanes)]
        self.scoped((f"{kind} {name}[{dtype.lanes}];", *lanes), s.body, last)

    def loop(self, s: For) -> None:
        name = self.names[s.var.name]
        self.bounds = self.bounds.in_loop(s.var, s.begin, s.extent)
        if s.kind is ForKind.THREAD:
            self.put(f"const int {name} = {self.dialect.threads[s.thread]};")
            self.statement(s.body)
            return
        if self.dialect.tensors and is_tensorized(s):
            self.tensor_instruction(fragments(s))
            return
        if s.kind is ForKind.UNROLLED:
            self.put("#pragma unroll")
        elif s.kind is not ForKind.SERIAL:
            raise CodegenError(f"kernel {self.func.name!r}: loop {s.var.name!r} is still {s.kind.value}.")
        kind = self.dialect.values[str(s.var.type)]
        begin = self.expr(s.begin)
        end = self.expr(s.extent) if _is_zero(s.begin) else self.expr(s.begin + s.extent)
        self.put(f"for ({kind} {name} = {begin}; {name} < {end}; ++{name}) {{")
        self.block(s.body)
        self.put("}")

    def tensor_instruction(self, f: Fragments) -> None:
        """One instruction of the warp, inside the loops over tiles. Each operand is fetched once, in the
        outermost loop possible. If an operand depends only on inner loops, it is fetched for all their turns
        before the loops."""
        rows = {n: (r, self.fresh(n)) for n, r in (("a", f.a_rows), ("b", f.b_rows)) if r is not None}
        if rows:
            self.put("{")
            self.depth += 1
        moved = {n: [x for x in f.outer if x.var in free_vars(r.at)] for n, (r, _) in rows.items()}
        for n in [n for n in rows if moved[n] != list(f.outer[: len(moved[n])])]:
            rows[n] = (rows[n][0], self.fetch_all(*rows[n], moved.pop(n)))
        for depth in range(len(f.outer) + 1):
            for n in [n for n, loops in moved.items() if len(loops) == depth]:
                self.fetch_rows(*rows[n])
            if depth < len(f.outer):
                self.unrolled(f.outer[depth])
        sums = [f"{self.names[f.accumulator.name]}[{self.expr(simplify(i))}]" for i in f.sums]
        first, second = (
            _each(rows[n]) if n in rows else [self.register(f.intrinsic.operand, x) for x in loads]
            for n, loads in (("a", f.a), ("b", f.b))
        )
        self.put(f"{self.helper(f.intrinsic.function)}({', '.join(sums)},")
        self.put(f"{INDENT}{', '.join(first)},")
        self.put(f"{INDENT}{', '.join(second)});")
        self.close(len(f.outer) + bool(rows))

    def fetch_all(self, rows: Matrices, name: str, loops: Sequence[For]) -> str:
        """Fetches an operand for all turns of loops. Returns the name of one turn's operand inside the
        loops."""
        kind = loops[0].var.type
        at: Expr = const(0, kind)
        turns: Expr = const(1, kind)
        for loop in loops:
            at, turns = at * loop.extent + loop.var, turns * loop.extent
        self.put(f"unsigned int {name}[{self.expr(simplify(turns))}][{rows.count}];")
        for loop in loops:
            self.unrolled(loop)
        of_turn = f"{name}[{self.expr(simplify(at))}]"
        self.fetch(rows, of_turn)
        self.close(len(loops))
        return of_turn

    def close(self, loops: int) -> None:
        for _ in range(loops):
            self.depth -= 1
            self.put("}")

    def unrolled(self, loop: For) -> None:
        name = self.names[loop.var.name]
        self.put("#pragma unroll")
        self.put(f"for (int {name} = 0; {name} < {self.expr(loop.extent)}; ++{name}) {{")
        self.bounds = self.bounds.in_loop(loop.var, loop.begin, loop.extent)
        self.depth += 1

    def fetch_rows(self, rows: Matrices, name: str) -> None:
        """Fetches an operand from shared memory, with all lanes of the warp together."""
        self.put(f"unsigned int {name}[{rows.count}];")
        self.fetch(rows, name)

    def fetch(self, rows: Matrices, name: str) -> None:
        at = self.offset(simplify(rows.at))
        self.put(f"{self.helper(rows.function)}({name}, {self.names[rows.buffer.name]} + {at});")

    def register(self, function: str, loads: tuple[Load, ...]) -> str:
        """The text of one register, packed from operands as memory holds them."""
        elements = [f"{self.names[x.buffer.name]}[{self.expr(simplify(x.indices[0]))}]" for x in loads]
        return f"{self.helper(function)}({', '.join(elements)})"

    # -- stores ----------------------------------------------------------------------------------------------
    def store(self, s: Store) -> None:
        (index,) = s.indices
        lanes = index.dtype.lanes
        if lanes == 1:
            self.one(s, 0)
            return
        if self.store_vectors(s):
            return
        before = len(self.lines)
        self.load_vectors(s)
        step = self.chunk(s)
        if step > 1:
            for first in range(0, lanes, step):
                values = [self.stored_lane(s.buffer, s.value, first + n) for n in range(step)]
                self.put(self.vector_store(s.buffer, index, first, values))
        elif self.may_meet(s):
            self.through_copies(s, lanes)
        else:
            for n in range(lanes):
                self.one(s, n)
        if self.vectors:
            self.lines[before:] = [
                INDENT * self.depth + "{",
                *(INDENT + line for line in self.lines[before:]),
                INDENT * self.depth + "}",
            ]
        self.vectors = {}

    def copy(self, s: Store) -> None:
        """An asynchronous store, in instructions of up to 16 bytes."""
        assert isinstance(s.value, Load)
        index, origin = s.indices[0], s.value.indices[0]
        width = width_of_copy(s.buffer, index, origin)
        to, source = self.names[s.buffer.name], self.names[s.value.buffer.name]
        function = f"at_copy{width * s.buffer.dtype.bytes}"
        tail = ""
        if s.value.mask is not None:
            function, tail = f"{function}_if", f", {self.expr(s.value.mask)}"
        for n in range(0, index.dtype.lanes, width):
            a, b = self.offset(index, n), self.offset(origin, n)
            self.put(f"{self.helper(function)}({to} + {a}, {source} + {b}{tail});")

    def store_vectors(self, s: Store) -> bool:
        """Writes the store with vector arithmetic, if the dialect has it and the lanes are contiguous.
        Returns whether it did."""
        (index,) = s.indices
        if not access_of(s).is_whole:
            return False
        width = self.arrays.get(s.buffer, width_of(index.dtype.lanes))
        if width == 1 or not self.can_compute(s.value) or self.may_meet(s) or not is_plain(s.buffer):
            return False
        for first in range(0, index.dtype.lanes, width):
            value = self.vector(s.value, first, width)
            if s.buffer in self.arrays:
                self.put(f"{self.element(s.buffer, index, first)} = {value};")
            else:
                name = self.names[s.buffer.name]
                self.put(f"vstore{width}({value}, 0, {name} + {self.offset(index, first)});")
        return True

    def one(self, s: Store, lane: int) -> None:
        place = self.place(s.buffer, s.indices[0], lane)
        text = f"{place} = {self.stored_lane(s.buffer, s.value, lane)};"
        self.put(text if s.mask is None else f"if ({self.expr(s.mask, lane)}) {text}")

    def through_copies(self, s: Store, lanes: int) -> None:
        """All lanes are computed before the first is stored: the store may change the elements that they
        read."""
        kind, name = self.dialect.values[str(s.buffer.dtype)], self.fresh("lanes")
        self.put(f"{kind} {name}[{lanes}];")
        guard = [None if s.mask is None else self.expr(s.mask, n) for n in range(lanes)]
        for n in range(lanes):
            when = "" if guard[n] is None else f"if ({guard[n]}) "
            self.put(f"{when}{name}[{n}] = {self.expr(s.value, n)};")
        for n in range(lanes):
            place = self.place(s.buffer, s.indices[0], n)
            when = "" if guard[n] is None else f"if ({guard[n]}) "
            self.put(f"{when}{place} = {self.stored(s.buffer, f'{name}[{n}]')};")

    def may_meet(self, s: Store) -> bool:
        """Whether a lane may read what another lane writes."""
        found = (n for n in walk(s.value) if isinstance(n, Load) and n.buffer is s.buffer)
        return any(load.indices[0] is not s.indices[0] for load in found)

    def load_vectors(self, s: Store) -> None:
        """Loads contiguous operands before the lanes are computed."""
        for load in collect(s.value, Load):
            (index,) = load.indices
            step = self.chunk(load)
            if step == 1 or any(isinstance(n, Load) for n in walk(index)):
                continue
            names = []
            for first in range(0, index.dtype.lanes, step):
                name = self.fresh("v")
                kind = self.dialect.vector_type(self.dialect.types[str(load.buffer.dtype)], step)
                self.put(f"const {kind} {name} = {self.vector_load(load.buffer, index, first, step)};")
                names.append(name)
            self.vectors[load] = (names, step)

    def chunk(self, n: Load | Store) -> int:
        """How many lanes one access may move; 1: they are accessed one by one."""
        if n.buffer.scope not in (Scope.GLOBAL, Scope.SHARED):
            return 1
        most = min(16, self.dialect.widest // n.buffer.dtype.bytes)
        return access_of(n).width(most, self.dialect.aligned)

    def vector_store(self, buffer: Buffer, index: Expr, first: int, values: list[str]) -> str:
        kind, at = self.dialect.types[str(buffer.dtype)], self.offset(index, first)
        return self.dialect.vector_store(kind, self.names[buffer.name], at, len(values), values)


def _each(operand: tuple[Matrices, str]) -> list[str]:
    """The registers of an operand that was fetched."""
    rows, name = operand
    return [f"{name}[{n}]" for n in range(rows.count)]


def _identifier(name: str) -> str:
    text = re.sub(r"\W+", "_", name).strip("_") or "v"
    return text if not text[0].isdigit() else f"v{text}"


def _is_zero(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0


__all__ = ["helpers_text", "is_dynamic", "render"]
