"""Statements and whole kernels: PrimFunc → the text of one LLVM function.

    define internal void @k(ptr noalias %p0, …, i32 %tid, i32 %nthreads, ptr noalias %ws)

Loops are written rotated: the test is at the end, with a guard in front unless the extent is a positive
constant. LLVM's loop passes expect this form. The PARALLEL loop runs the share of thread `tid`, or part `tid`
of `nthreads` parts (parts.py); a kernel without a PARALLEL loop runs in thread 0 only. The first
`STACK_BYTES` of LOCAL buffers are on the stack, the others in the thread's workspace `ws`. REGISTER buffers
are stack slots with constant addresses, which LLVM's SROA turns into values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from autotensor.codegen.llvm import memory, panels, tiles
from autotensor.codegen.llvm.expr import Place, ValueWriter
from autotensor.codegen.llvm.memory import ALIGNMENT, allocated_bytes
from autotensor.codegen.llvm.parts import Heavy, Inner, heavy, parallel_loop
from autotensor.codegen.llvm.tiles import tile_registers
from autotensor.codegen.shared_vectors import shared_vectors
from autotensor.ir.affine import Affine
from autotensor.ir.expr import Binary, Const, Dot, Expr, Load, Op, Var, const
from autotensor.ir.func import Buffer, PrimFunc, Scope
from autotensor.ir.node import children
from autotensor.ir.rewrite import substitute
from autotensor.ir.stmt import NOTHING, Alloc, Barrier, Evaluate, For, ForKind, If, Let, Seq, Stmt, Store
from autotensor.ir.visit import collect

STACK_BYTES = 32 << 10  # a quarter of the smallest default thread stack, musl's 128 KiB


@dataclass(frozen=True, slots=True)
class KernelText:
    """One kernel as text, and the declarations and memory that it needs."""

    name: str
    params: tuple[Buffer, ...]
    text: str
    declared: dict[str, str]  # external functions and constants: name → declaration
    per_thread_bytes: int
    reads: frozenset[Any]
    writes: frozenset[Any]
    heavy: Heavy | None = None


def kernel_text(
    func: PrimFunc,
    name: str,
    aligned: Collection[Any] = (),
    *,
    ldexp: bool = False,
    permutes_bytes: bool = False,
    registers: str = "",
    mask_lanes: int = 0,
    slow_masks: bool = False,
    overlapping: Collection[Any] = (),
) -> KernelText:
    """The LLVM function of one kernel.

    aligned: parameters whose address is a multiple of 64. ldexp: the machine scales by powers of two in one
    instruction; without it the text is correct, too. permutes_bytes: the machine has `byte_tables.FEATURE`.
    registers: LLVM's constraint for vector registers, on targets where LLVM would turn a choice between
    vectors into a branch; "" elsewhere. mask_lanes: lanes of one register of masks, 0 without such registers.
    slow_masks: a masked load takes longer than a few narrower loads. overlapping: parameters that may share
    memory, like a result and the input whose elements it replaces.
    """
    kernel = Kernel(func, aligned, overlapping)
    kernel.has_ldexp = ldexp
    kernel.permutes_bytes = permutes_bytes
    kernel.registers = registers
    kernel.mask_lanes = mask_lanes
    kernel.slow_masks = slow_masks
    params = [kernel.parameter(b) for b in func.params]
    params += ["i32 noundef %tid", "i32 noundef %nthreads", "ptr noalias %ws"]
    kernel.function()
    text = f"define internal void @{name}({', '.join(params)}) #0 {{\n{kernel.text()}\n}}\n"
    return KernelText(
        name,
        func.params,
        text,
        kernel.declared,
        kernel.workspace_top,
        kernel.loaded,
        kernel.stores_in(func.body),
        kernel.heavy,
    )


@dataclass(frozen=True, slots=True)
class Part:
    """One call's part of a parallel loop whose inner loop is cut, too: the cuts first … end - 1. Cuts are
    counted over all iterations of the parallel loop."""

    first: str  # an operand, like `end`
    end: str
    around: Var  # the variable of the parallel loop
    cuts: int  # cuts of each iteration of the parallel loop
    inner: Mapping[Stmt, Inner]


@dataclass(frozen=True, slots=True)
class Around:
    """A loop around the statement that is being written."""

    var: Var
    first: Var  # has the first value of `var`
    extent: int  # 0 if it is not a constant


class Kernel(ValueWriter):
    """Writes one kernel."""

    def __init__(self, func: PrimFunc, aligned: Collection[Any], overlapping: Collection[Any] = ()) -> None:
        super().__init__(func.name)
        self.func = func
        self.overlapping = overlapping
        self.stack: list[Any] = []  # allocas, in the entry block
        self.stack_bytes = 0
        self.workspace = 0  # bytes of `ws` in use at this point
        self.workspace_top = 0
        self._stores: dict[Stmt, frozenset[Any]] = {}
        self.heavy = heavy(func.body)
        # the part of the parallel loop that is being written, if its inner loop is cut, too
        self.part: Part | None = None
        self.around: list[Around] = []  # the loops around, outermost first
        self.values_of: dict[Var, str] = {}  # the latest value of each `Let`
        self.tiles = tile_registers(func.name, collect(func.body, Dot))
        for k, buffer in enumerate(func.params):
            align = ALIGNMENT if buffer in aligned else buffer.dtype.bytes
            self.places[buffer] = Place(f"%p{k}", 0, align)

    @property
    def loaded(self) -> frozenset[Any]:
        """Parameters that some emitted load reads."""
        found = frozenset[Any]().union(*self._reads.values())
        return found & frozenset(self.func.params)

    def parameter(self, buffer: Buffer) -> str:
        # With noalias, a write to bytes that another pointer reads is undefined, even element by element.
        marks = [] if buffer in self.overlapping else ["noalias"]
        if buffer.bytes > 0 and not buffer.strides and not buffer.extents:
            marks += ["nonnull", f"dereferenceable({buffer.bytes})"]
        if buffer not in self.stores_in(self.func.body):
            marks.append("readonly")
        place = self.places[buffer]
        return " ".join(["ptr", *marks, f"align {place.align} {place.pointer}"])

    def stores_in(self, s: Stmt) -> frozenset[Any]:
        """The buffers that a statement may change."""
        if isinstance(s, Store):
            return frozenset((s.buffer,))
        found = self._stores.get(s)
        if found is None:
            found = frozenset[Any]().union(*(self.stores_in(c) for c in children(s) if isinstance(c, Stmt)))
            self._stores[s] = found
        return found

    # -- the function ------------------------------------------------------------------------------------
    def function(self) -> None:
        self.start("entry")
        self.cur.append(self.stack)
        self.open()
        if self.tiles.shapes:
            tiles.configure(self)
        if parallel_loop(self.func.body) is not None:
            self.stmt(self.func.body, top=True)
        else:
            self.do(f"br i1 {self.op('icmp eq i32 %tid, 0')}, label %only, label %done")
            self.start("only")
            self.stmt(self.func.body)
            self.do("br label %done")
            self.start("done")
        if self.tiles.shapes:
            tiles.release(self)
        self.do("ret void")
        self.close()

    def load(self, e: Load) -> str:
        return memory.load(self, e)

    def fetch_next(self, e: Expr) -> None:
        panels.fetch_next(self, e)

    def address(self, buffer: Buffer, index: Affine) -> str:
        return memory.address(self, buffer, index)[0]

    def stmt(self, s: Stmt, top: bool = False) -> None:
        """`top`: no loop or condition is around `s`, so that a parallel loop may come."""
        if self.part is not None and s in self.part.inner:
            self._cut(self.part.inner[s], self.part)
            return
        match s:
            case Store():
                memory.store(self, s)
            case Seq(stmts):
                groups = shared_vectors(stmts, self.loads, mixes=self.registers == "v")
                for part in stmts:
                    for shared in groups.get(part, ()):
                        memory.load_shared(self, shared)
                    self.stmt(part, top=top and len(stmts) == 1)
            case For():
                self._for(s, top)
            case Alloc(buffer, body):
                self._alloc(buffer, body, top)
            case Let(var, value, body):
                self._let(var, value, body, top)
            case If(cond, then, otherwise):
                self._if(cond, then, otherwise)
            case Evaluate(value):
                self.value(value)
            case Barrier():
                raise self.error(
                    "there is a barrier inside.",
                    fix="On the CPU threads meet between kernels only: split it into two kernels.",
                )
            case _:
                raise self.error(f"the CPU backend cannot compile a {type(s).__name__}.")

    # -- loops -------------------------------------------------------------------------------------------
    def _for(self, s: For, top: bool) -> None:
        match s.kind:
            case ForKind.SERIAL:
                self._serial(s)
            case ForKind.UNROLLED:
                for k in range(self._constant_extent(s)):
                    begin = s.begin
                    at = (
                        const(int(begin.value) + k)
                        if isinstance(begin, Const)
                        else Binary(Op.ADD, begin, const(k))
                    )
                    self.stmt(substitute(s.body, {s.var: at}))
            case ForKind.PARALLEL:
                if not top:
                    raise self.error(
                        f"parallel loop {s.var.name!r} is inside another loop, a condition or a sequence.",
                        fix="A CPU kernel has at most one parallel loop, and it is the outermost one.",
                    )
                self._parallel(s)
            case _:
                raise self.error(f"the CPU backend cannot compile the {s.kind.value} loop {s.var.name!r}.")

    def _constant_extent(self, s: For) -> int:
        if not isinstance(s.extent, Const):
            raise self.error(f"unrolled loop {s.var.name!r} has no constant extent.")
        return int(s.extent.value)

    def _serial(self, s: For) -> None:
        if isinstance(s.extent, Const):
            count = int(s.extent.value)
            if count == 1:
                self.stmt(substitute(s.body, {s.var: s.begin}))
            elif count > 1:
                begin = self.index(s.begin)
                if isinstance(s.begin, Const):
                    self._loop(s, begin, str(int(s.begin.value) + count), sure=True)
                else:
                    self._loop(s, begin, self.op(f"add nsw i64 {begin}, {count}"), sure=True)
            return
        begin, extent = self.index(s.begin), self.index(s.extent)
        self._loop(s, begin, self.op(f"add nsw i64 {begin}, {extent}"), sure=False)

    def _parallel(self, s: For) -> None:
        """Thread t of n runs [extent*t/n, extent*(t+1)/n): contiguous, and equal to within one.

        In a heavy kernel this range counts cuts of inner loops, not iterations.
        """
        cuts = 1 if self.heavy is None else self.heavy.cuts
        begin, extent = self.index(s.begin), self.index(s.extent)
        tid, threads = self.op("zext i32 %tid to i64"), self.op("zext i32 %nthreads to i64")
        after = self.op(f"add nuw nsw i64 {tid}, 1")
        units = extent if cuts == 1 else self.op(f"mul nsw i64 {extent}, {cuts}")
        ends = []
        for share in (tid, after):
            scaled = self.op(f"mul nsw i64 {units}, {share}")
            ends.append(self.op(f"sdiv i64 {scaled}, {threads}"))
        first, end = ends
        if self.heavy is not None and cuts > 1:
            before = self.op(f"mul nsw i64 {begin}, {cuts}")
            bounds = [self.op(f"add nsw i64 {before}, {e}") for e in ends]
            self.part = Part(bounds[0], bounds[1], s.var, cuts, self.heavy.inner)
            first = self.op(f"sdiv i64 {first}, {cuts}")
            end = self.op(f"sdiv i64 {self.op(f'add nsw i64 {end}, {cuts - 1}')}, {cuts}")
        first, end = (self.op(f"add nsw i64 {begin}, {e}") for e in (first, end))
        self._loop(s, first, end, sure=False)
        self.part = None

    def _cut(self, inner: Inner, part: Part) -> None:
        """Writes this part of an inner loop. The part with the last cut also runs the loop's tail.

        This iteration of the parallel loop has the cuts around*cuts … around*cuts + cuts - 1.
        """
        own = self.op(f"mul nsw i64 {self.index(part.around)}, {part.cuts}")
        bounds = []
        for end in (part.first, part.end):
            past = self.op(f"sub nsw i64 {end}, {own}")
            some = self.op(f"select i1 {self.op(f'icmp slt i64 {past}, 0')}, i64 0, i64 {past}")
            over = self.op(f"icmp sgt i64 {some}, {part.cuts}")
            cut = self.op(f"select i1 {over}, i64 {part.cuts}, i64 {some}")
            scaled = self.op(f"mul nsw i64 {cut}, {inner.extent}")
            bounds.append(self.op(f"add nsw i64 {inner.begin}, {self.op(f'sdiv i64 {scaled}, {part.cuts}')}"))
        self._loop(inner.loop, bounds[0], bounds[1], sure=False)
        if inner.tail is not NOTHING:
            last = self.op(f"add nsw i64 {own}, {part.cuts}")
            self._branches(self.op(f"icmp sge i64 {part.end}, {last}"), inner.tail, None)

    def _loop(self, s: For, begin: str, end: str, sure: bool) -> None:
        """The loop over [begin, end). `sure`: it runs at least once."""
        body, after = self.label("loop"), self.label("after")
        if sure:
            self.do(f"br label %{body}")
        else:
            self.do(f"br i1 {self.op(f'icmp slt i64 {begin}, {end}')}, label %{body}, label %{after}")
        before = self.block
        self.start(body)
        phi: list[Any] = []
        self.cur.append(phi)
        self.open()
        for buffer in self.stores_in(s.body):
            self.forget(buffer)
        self.count += 1
        index = f"%i{self.count}"
        self.bind(s.var, index)
        extent = int(s.extent.value) if isinstance(s.extent, Const) else 0
        self.around.append(Around(s.var, Var(f"{s.var.name}.first"), extent))
        self.bind(self.around[-1].first, begin)
        around, self.bounds = self.bounds, self.bounds.in_loop(s.var, s.begin, s.extent)
        self.stmt(s.body)
        self.around.pop()
        self.bounds = around  # the tail after the loop may have the same variable
        following = self.op(f"add nsw i64 {index}, 1")
        again = self.op(f"icmp slt i64 {following}, {end}")
        phi.append(f"  {index} = phi i64 [ {begin}, %{before} ], [ {following}, %{self.block} ]")
        self.close()
        self.do(f"br i1 {again}, label %{body}, label %{after}")
        self.start(after)

    # -- conditions, variables, buffers ------------------------------------------------------------------
    def _if(self, cond: Expr, then: Stmt, otherwise: Stmt | None) -> None:
        if cond.dtype.lanes != 1:
            raise self.error(f"a condition has {cond.dtype.lanes} lanes; it must be a mask.")
        self._branches(self.value(cond), then, otherwise)

    def _branches(self, cond: str, then: Stmt, otherwise: Stmt | None) -> None:
        yes, after = self.label("then"), self.label("endif")
        no = after if otherwise is None else self.label("else")
        self.do(f"br i1 {cond}, label %{yes}, label %{no}")
        for label, body in ((yes, then), (no, otherwise)):
            if body is not None:
                self.start(label)
                self.open()
                self.stmt(body)
                self.close()
                self.do(f"br label %{after}")
        self.start(after)

    def _let(self, var: Var, value: Expr, body: Stmt, top: bool) -> None:
        operand, level = self.value(value), self.level(value)
        if self.values_of.setdefault(var, operand) != operand:
            self.forget_uses(var)
            self.values_of[var] = operand
        self.open()
        self.bind(var, operand)
        if not self.reads(value):
            self.levels[var] = level
        around, self.bounds = self.bounds, self.bounds.in_let(var, value)
        self.stmt(body, top)
        self.bounds = around
        self.close()

    def _alloc(self, buffer: Buffer, body: Stmt, top: bool) -> None:
        if buffer.scope not in (Scope.LOCAL, Scope.REGISTER):
            raise self.error(
                f"the CPU backend cannot allocate {buffer.name!r} in {buffer.scope.value} scope."
            )
        size = allocated_bytes(buffer)
        in_workspace = buffer.scope is Scope.LOCAL and self.stack_bytes + size > STACK_BYTES
        saved = self.workspace
        pointer = self.label("%a")
        if in_workspace:
            self.stack.append(f"  {pointer} = getelementptr inbounds i8, ptr %ws, i64 {self.workspace}")
            self.workspace += size
            self.workspace_top = max(self.workspace_top, self.workspace)
        else:
            self.stack.append(f"  {pointer} = alloca [{size} x i8], align {ALIGNMENT}")
            self.stack_bytes += size if buffer.scope is Scope.LOCAL else 0
        self.forget(buffer)
        self.places[buffer] = Place(pointer, 0, ALIGNMENT)
        self.stmt(body, top)
        self.forget(buffer)
        del self.places[buffer]
        self.workspace = saved
