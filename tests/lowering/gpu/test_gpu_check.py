"""The proof that barriers suffice refuses no right kernel. test_gpu_faults.py has the faults that it must
find."""

from __future__ import annotations

import pytest
from gpu_cases import CASES
from gpu_traces import TARGET

from autotensor.base.dtype import int64
from autotensor.base.errors import LoweringError
from autotensor.base.target import parse
from autotensor.ir.expr import Const, Expr, Load, Var, const, maximum, minimum
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.node import Node
from autotensor.ir.rewrite import transform
from autotensor.ir.stmt import Alloc, Async, Await, Barrier, Commit, For, ForKind, Stmt, Store, seq
from autotensor.lowering.gpu.barrier_proof import check
from autotensor.lowering.gpu.index_values import held
from autotensor.lowering.pipeline import lower

K = Var("k")
T = Buffer("T", (8,), int64)
AHEAD = (
    "copied_ahead_through_a_copy",
    "copied_ahead_of_a_copy_ahead",
    "copied_ahead_of_parts_ahead",
    "gathered_from_a_box_ahead",
)
THREAD = Var("threadIdx.x")
A, C, S = Buffer("A", (4,), int64), Buffer("C", (4,), int64), Buffer("S", (4,), int64, Scope.SHARED)
FETCH = Async(Store(S, (THREAD,), Load(A, (THREAD,))))
WRITE = Store(S, (THREAD,), const(0, int64))


def read(at: Expr) -> Stmt:
    return Store(C, (THREAD,), Load(S, (at,)))


def by_four_threads(*stmts: Stmt) -> Stmt:
    body = Alloc(S, seq(*stmts))
    return For(THREAD, const(0), const(4), ForKind.THREAD, body, "threadIdx.x")


@pytest.mark.parametrize("before", [read(THREAD), WRITE])
def test_a_thread_has_done_what_stands_before_its_copy(before: Stmt) -> None:
    check(by_four_threads(before, FETCH))


@pytest.mark.parametrize(
    "stmts",
    [
        (FETCH, read(THREAD)),
        (FETCH, WRITE),
        (FETCH, Commit(), Await(1), read(THREAD)),
        (read((THREAD + 1) % 4), FETCH),
        (For(K, const(0), const(3), ForKind.SERIAL, seq(read(THREAD), FETCH)),),
        (For(K, const(0), const(3), ForKind.SERIAL, seq(read(THREAD), Barrier("shared"), FETCH)),),
    ],
    ids=["read", "written", "awaited too late", "another's", "read in the next turn", "turns that meet"],
)
def test_a_copy_on_its_way_is_not_touched(stmts: tuple[Stmt, ...]) -> None:
    with pytest.raises(LoweringError, match="check: two threads may meet in 'S' before a copy has arrived"):
        check(by_four_threads(*stmts))


@pytest.mark.parametrize("target", [TARGET, parse("cuda -arch=sm_80")], ids=lambda t: t.kind)
@pytest.mark.parametrize("name", AHEAD)
def test_what_is_right_is_let_through(name: str, target) -> None:
    lower(CASES[name]().state, target)


def test_one_turn_more_than_there_is_would_meet() -> None:
    """The box has two parts of three elements. A third part would lie in the next box, which other threads
    read."""
    (kernel,) = lower(CASES["copied_ahead_through_a_copy"]().state, TARGET).run

    def longer(n: Node) -> Node | None:
        if isinstance(n, For) and n.var.name.endswith("A.shared:C.local:i0.0"):
            return For(n.var, n.begin, n.extent + const(1), n.kind, n.body, n.thread)
        return None

    with pytest.raises(LoweringError, match=r"check: two threads may meet in 'A\.shared:C\.local' without"):
        check(transform(kernel.body, longer))


def test_indices_from_memory_have_all_values_that_they_may_have() -> None:
    inside = minimum(maximum(Load(T, (K,)), Const(0)), Const(16))
    index, ranges = held(K % 2 * 289 + inside * 17)
    (var,) = ranges
    assert ranges == {var: (0, 17)}
    assert index is K % 2 * 289 + var * 17


def test_indices_without_memory_stay_as_they_are() -> None:
    index = minimum(maximum(K, 0), 16) * 17
    assert held(index) == (index, {})
    bare = Load(T, (K,)) + 1  # an unknown number, about which nothing is proved
    assert held(bare) == (bare, {})
