"""Faults planted in features that only CUDA has: asynchronous copies, exchanges within a warp, swizzled
memory.

No card is needed: the interpreter runs the kernels as they are lowered for one. The proof in the lowering and
the interpreter must each find the fault without the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from comparison import Different, agree, expected, interpreted
from gpu_cases import CASES
from gpu_comparison import check_gpu

from autotensor import te
from autotensor.base.errors import LoweringError
from autotensor.base.target import parse
from autotensor.codegen.interp.interpreter import IllegalProgram
from autotensor.ir.expr import Call, Expr, Load, const
from autotensor.ir.func import Program, Scope
from autotensor.ir.node import Node, map_children
from autotensor.ir.rewrite import transform
from autotensor.ir.stmt import NOTHING, Await, Barrier, Commit, For, If, Seq, Stmt, Store, seq
from autotensor.ir.visit import collect
from autotensor.lowering.gpu import swizzle
from autotensor.lowering.gpu.barrier_proof import check
from autotensor.lowering.nest.reduction.by_shuffles import SHUFFLE
from autotensor.lowering.pipeline import PIPELINE, lower
from autotensor.schedule.schedule import create_schedule
from autotensor.te.reference import random_inputs

CUDA = parse("cuda -arch=sm_80")
COPIED = ("copied_ahead", "copied_ahead_with_tails", "double_buffered")
Change = Callable[[Stmt], Stmt]


def broken(name: str, change: Change) -> Program:
    program = lower(CASES[name]().state, CUDA)
    bad = replace(program, run=tuple(replace(f, body=change(f.body)) for f in program.run))
    assert bad != program
    return bad


def is_refused(program: Program) -> str:
    """The message of the proof; "" if it accepts the kernel."""
    try:
        for f in program.run:
            check(f.body)
    except LoweringError as e:
        return e.what
    return ""


def is_wrong(name: str, program: Program) -> str:
    """The message of the interpreter."""
    dag = CASES[name]().dag
    inputs = random_inputs(dag, 0, "integer")
    try:
        agree(dag, inputs, expected(dag, inputs), interpreted(dag, program, inputs, 1))
    except (IllegalProgram, Different) as e:
        return str(e)
    return ""


def everywhere(change: Callable[[Node], Node | None]) -> Change:
    return lambda body: transform(body, change)


def no_wait(n: Node) -> Node | None:
    return NOTHING if isinstance(n, Await) else None


def one_group_more(n: Node) -> Node | None:
    return Await(n.left + 1) if isinstance(n, Await) else None


def no_commit(n: Node) -> Node | None:
    return NOTHING if isinstance(n, Commit) else None


def wait_behind_the_barrier(n: Node) -> Node | None:
    """Each thread waits for its own copies only after the barrier."""
    match n:
        case Seq((Await() as wait, Barrier() as met, *rest)):
            return seq(met, wait, *rest)
    return None


@pytest.mark.parametrize("fault", [no_wait, one_group_more, no_commit, wait_behind_the_barrier])
@pytest.mark.parametrize("name", COPIED)
def test_copies_that_have_not_arrived(name: str, fault: Callable[[Node], Node | None]) -> None:
    bad = broken(name, everywhere(fault))
    assert is_refused(bad).startswith("check: two threads may meet in"), "the proof"
    said = is_wrong(name, bad)
    assert "copy is on its way" in said or "race" in said, "the interpreter"


@pytest.mark.parametrize("name", COPIED)
def test_every_barrier_around_copies_is_missed(name: str) -> None:
    program = lower(CASES[name]().state, CUDA)
    total = sum(1 for _ in barriers_of(program.run[0].body))
    assert total
    for n in range(total):
        bad = broken(name, without(Barrier, n))
        assert bool(is_refused(bad)) >= bool(is_wrong(name, bad)), n
    assert any(is_wrong(name, broken(name, without(Barrier, n))) for n in range(total))


def barriers_of(s: Stmt) -> list[Barrier]:
    found: list[Barrier] = []

    def visit(x: Stmt) -> Stmt:
        if isinstance(x, Barrier):
            found.append(x)
        return map_children(x, lambda c: visit(c) if isinstance(c, Stmt) else c)

    visit(s)
    return found


def without(kind: type[Stmt], n: int) -> Change:
    """The n-th statement of a kind left out."""
    left = [n]

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, kind):
            left[0] -= 1
            return NOTHING if left[0] == -1 else s
        return map_children(s, lambda c: visit(c) if isinstance(c, Stmt) else c)

    return visit


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("name", ["copied_ahead_of_a_copy_ahead", "copied_ahead_of_parts_ahead"])
def test_a_wait_left_out_in_a_chain_of_copies(name: str, number: int) -> None:
    """The third wait belongs to the outer loop. Its last iterations leave out the waits of its copies' own
    copies."""
    bad = broken(name, without(Await, number))
    assert "before a copy has arrived" in is_refused(bad)
    assert "copy is on its way" in is_wrong(name, bad)


def test_the_first_message_says_what_to_do() -> None:
    said = is_wrong("copied_ahead", broken("copied_ahead", everywhere(no_wait)))
    assert "is read while thread" in said
    assert "Await the copies, and put a barrier behind it." in said
    assert "before a copy has arrived" in is_refused(broken("copied_ahead", everywhere(no_wait)))


# -- exchanges -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["warp_sums", "block_sums", "rows_of_threads", "arg_max_of_a_warp"])
def test_an_exchange_that_not_all_lanes_make(name: str) -> None:
    def half(body: Stmt) -> Stmt:
        thread = next(loop.var for loop in collect(body, For) if loop.thread == "threadIdx.x")
        return transform(body, lambda n: If(thread % 2 < 1, n) if is_exchange(n) else None)

    bad = broken(name, half)
    assert is_refused(bad).startswith("check: lanes exchange values in")
    assert "divergent exchange" in is_wrong(name, bad)


def is_exchange(n: Node) -> bool:
    return isinstance(n, Store) and isinstance(n.value, Call) and n.value.name == SHUFFLE


@pytest.mark.parametrize("name", ["warp_sums", "block_sums"])
def test_an_exchange_with_the_wrong_lane(name: str) -> None:
    def other(n: Node) -> Node | None:
        match n:
            case Call("shuffle_xor", (value, mask), t) if mask is const(1):
                return Call("shuffle_xor", (value, const(2)), t)
        return None

    assert is_wrong(name, broken(name, everywhere(other)))


def test_an_exchange_with_a_lane_that_is_not_there() -> None:
    """Six rows of eight threads are one and a half warps: their parts are joined in shared memory."""
    a = te.placeholder((6, 50), name="A")
    k = te.reduce_axis(50, name="k")
    b = te.compute((6,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = create_schedule(b)
    ko, ki = s[b].split("k", factor=8)
    s[b].reorder("i", ki, ko)
    s[b].bind("i", "threadIdx.y")
    s[b].bind(ki, "threadIdx.x")
    program = check_gpu(s.dag, s.trace, target=CUDA)
    assert not any(is_exchange(n) for n in collect(program.run[0].body, Store))


def test_one_step_of_the_warps_forgotten() -> None:
    """Only the first warp's sums are stored."""

    def lost(n: Node) -> Node | None:
        match n:
            case Store(buffer, _, Load()) if buffer.scope is Scope.SHARED and buffer.name.endswith(".across"):
                return Store(buffer, (const(0, n.indices[0].dtype),), n.value, n.mask)
        return None

    assert is_wrong("block_sums", broken("block_sums", everywhere(lost)))


# -- swizzle -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("side", [Store, Load])
def test_a_swizzle_on_one_side_only(side: type) -> None:
    s = CASES["swizzled_rows"]()
    check_gpu(s.dag, s.trace, target=CUDA)
    original = swizzle.swizzle

    def one_sided(body: Stmt) -> Stmt:
        plain: dict[Expr, Expr] = {}
        for n in collect(body, side):
            if n.buffer.swizzle:
                plain[swizzle.place(n.indices[0], n.buffer.swizzle)] = n.indices[0]

        def back(n: Node) -> Node | None:
            if isinstance(n, side) and n.indices[0] in plain:
                extra = (n.value, n.mask) if isinstance(n, Store) else (n.mask,)
                return side(n.buffer, (plain[n.indices[0]],), *extra)
            return None

        return transform(original(body), back)

    passes = tuple(replace(p, run=one_sided) if p.name == "swizzle" else p for p in PIPELINE)
    bad = lower(s.state, CUDA, passes=passes)
    assert bad != lower(s.state, CUDA)
    assert is_wrong("swizzled_rows", bad)
