"""Faults planted in GPU lowering are found: by the proof of the barriers, or by the interpreter's threads.

Each fault replaces one function by a wrong one, or changes a finished kernel. For barriers and stores in
shared memory, the proof and the interpreter must each find the fault without the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from comparison import Different, agree, expected, interpreted
from gpu_cases import CASES
from gpu_comparison import check_gpu
from gpu_traces import TARGET

from autotensor.base.errors import LoweringError
from autotensor.codegen.interp.interpreter import IllegalProgram
from autotensor.ir.expr import Const, Load, const
from autotensor.ir.func import Buffer, PrimFunc, Program, Scope
from autotensor.ir.node import Node, map_children
from autotensor.ir.rewrite import transform
from autotensor.ir.stmt import NOTHING, Alloc, Barrier, For, If, Stmt, Store
from autotensor.ir.visit import collect
from autotensor.lowering.gpu import unify
from autotensor.lowering.gpu.barrier_proof import check
from autotensor.lowering.nest import nest, stage_loops
from autotensor.lowering.pipeline import lower
from autotensor.schedule import extents
from autotensor.te.reference import random_inputs

AHEAD = ("copied_ahead_through_a_copy", "gathered_from_a_box_ahead")
SHARED_CASES = ("matmul", "double_buffered", "virtual_threads", "row_sums", "softmax", "convolution", *AHEAD)


def finished(name: str) -> Program:
    return lower(CASES[name]().state, TARGET)


def with_body(program: Program, change: Callable[[Stmt], Stmt]) -> Program:
    def changed(f: PrimFunc) -> PrimFunc:
        return replace(f, body=change(f.body))

    return replace(program, run=tuple(changed(f) for f in program.run))


def run(name: str, program: Program) -> None:
    """Raises IllegalProgram or Different unless the program is right."""
    dag = CASES[name]().dag
    inputs = random_inputs(dag, 0, "integer")
    agree(dag, inputs, expected(dag, inputs), interpreted(dag, program, inputs, 1))


class Nth:
    """Changes the n-th barrier that is met."""

    def __init__(self, n: int) -> None:
        self.n = n

    def drop(self, s: Stmt) -> Stmt:
        if isinstance(s, Barrier):
            self.n -= 1
            return NOTHING if self.n == -1 else s
        return map_children(s, lambda c: self.drop(c) if isinstance(c, Stmt) else c)


def barriers_in(body: Stmt) -> int:
    counter = Nth(10**6)
    counter.drop(body)
    return 10**6 - counter.n


@pytest.mark.parametrize("name", SHARED_CASES)
def test_every_barrier_is_missed(name: str) -> None:
    """If any one barrier is removed, the proof fails in every case in which the interpreter fails. Few
    barriers are superfluous: the last steps of a tree of sums concern only one thread."""
    program = finished(name)
    total = sum(barriers_in(kernel.body) for kernel in program.run)
    assert total
    for n in range(total):
        without = with_body(program, Nth(n).drop)
        assert is_refused(without) >= is_wrong(name, without), n
    assert sum(is_refused(with_body(program, Nth(n).drop)) for n in range(total)) > total // 2


def is_refused(program: Program) -> bool:
    try:
        for kernel in program.run:
            check(kernel.body)
    except LoweringError as e:
        return e.what.startswith("check: two threads may meet in")
    return False


def is_wrong(name: str, program: Program) -> bool:
    try:
        run(name, program)
    except (IllegalProgram, Different):
        return True
    return False


def in_shared(buffer: Buffer) -> bool:
    return buffer.scope is Scope.SHARED


def test_a_barrier_under_a_condition_of_the_thread() -> None:
    def part(s: Stmt) -> Stmt:
        def visit(n: Node) -> Node | None:
            return If(thread < 2, n) if isinstance(n, Barrier) else None

        thread = next(loop.var for loop in collect(s, For) if loop.thread == "threadIdx.x")
        return transform(s, visit)

    bad = with_body(finished("row_sums"), part)
    with pytest.raises(LoweringError, match="check: a barrier stands under a condition that depends on"):
        check(bad.run[0].body)
    with pytest.raises(IllegalProgram, match=r"divergent barrier|race"):
        run("row_sums", bad)


def test_shared_memory_that_is_private() -> None:
    """Swapped scope: every thread has a copy of its own."""

    def private(s: Stmt) -> Stmt:
        def local(b: Buffer) -> Buffer:
            return Buffer(b.name, b.shape, b.dtype, Scope.LOCAL, b.strides) if in_shared(b) else b

        def visit(n: Node) -> Node | None:
            match n:
                case Load(b, i, m) if in_shared(b):
                    return Load(local(b), i, m)
                case Store(b, i, v, m) if in_shared(b):
                    return Store(local(b), i, v, m)
                case Alloc(b, body) if in_shared(b):
                    return Alloc(local(b), body)
            return None

        return transform(s, visit)

    with pytest.raises((IllegalProgram, Different)):
        run("matmul", with_body(finished("matmul"), private))


def test_an_element_beside_the_right_one() -> None:
    """The first store to shared memory goes one element further."""

    def shifted(s: Stmt) -> Stmt:
        first = next(x for x in collect(s, Store) if in_shared(x.buffer))
        moved = Store(first.buffer, (first.indices[0] + 1,), first.value, first.mask)
        return transform(s, lambda n: moved if n is first else None)

    with pytest.raises((IllegalProgram, Different)):
        run("softmax", with_body(finished("softmax"), shifted))


FAULTS: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {}


def fault(case: str) -> Callable[[Callable[[pytest.MonkeyPatch], None]], None]:
    def add(fn: Callable[[pytest.MonkeyPatch], None]) -> None:
        FAULTS[fn.__name__] = (case, fn)

    return add


@fault("elementwise")
def missing_predicate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(nest, "guard", lambda conditions, body: body)


@fault("row_sums")
def wrong_extent(patch: pytest.MonkeyPatch) -> None:
    """Loops bound to threads run over one thread less."""
    original = nest._Nest._wrap

    def short(self: nest._Nest, loops: object, leaf: object, body: Stmt) -> Stmt:
        loop = original(self, loops, leaf, body)  # type: ignore[arg-type]
        if isinstance(loop, For) and loop.thread == "threadIdx.x" and isinstance(loop.extent, Const):
            return For(
                loop.var, loop.begin, const(int(loop.extent.value) - 1), loop.kind, loop.body, loop.thread
            )
        return loop

    patch.setattr(nest._Nest, "_wrap", short)


@fault("matmul")
def box_of_one_thread(patch: pytest.MonkeyPatch) -> None:
    """A copy in shared memory holds what one thread reads, not the block."""
    patch.setattr(extents, "in_block", lambda thread: False)


@fault("softmax")
def stored_by_all_threads(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(unify._Unifier, "covered", lambda self, s, inside: self.wide)


@fault("matmul_with_tails")
def condition_of_short_loops_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stage_loops, "domain_guards", lambda *args: [])


@fault("row_sums")
def half_of_the_tree(patch: pytest.MonkeyPatch) -> None:
    """Joining partial results stops one step too early."""
    from autotensor.lowering.nest.reduction.by_threads import Across

    original = Across.join

    def short(self: Across, name: str) -> Stmt:
        whole = original(self, name)
        return type(whole)(whole.stmts[:-1])  # type: ignore[attr-defined, call-arg]

    patch.setattr(Across, "join", short)


@fault("virtual_threads")
def virtual_threads_share_registers(patch: pytest.MonkeyPatch) -> None:
    from autotensor.lowering.gpu import vthread

    patch.setattr(vthread, "_own_buffers", lambda body, var: set())


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case, plant = FAULTS[name]
    s = CASES[case]()
    check_gpu(s.dag, s.trace)
    with monkeypatch.context() as patch:
        plant(patch)
        with pytest.raises(Different):
            check_gpu(s.dag, s.trace)
