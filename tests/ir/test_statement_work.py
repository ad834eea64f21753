"""Counting the operations of statements."""

from __future__ import annotations

from autotensor.base.dtype import float32
from autotensor.ir.expr import Broadcast, Load, Ramp, Var, const
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.statement_work import operations
from autotensor.ir.stmt import NOTHING, Alloc, For, ForKind, If, Let, Stmt, Store, seq

I, K = Var("i"), Var("k")  # noqa: E741
A, C = Buffer("A", (4096,), float32), Buffer("C", (4096,), float32)
ACC = Buffer("acc", (8,), float32, Scope.REGISTER)


def loop(extent: object, body: Stmt) -> For:
    return For(I, const(0), const(extent) if isinstance(extent, int) else extent, ForKind.SERIAL, body)  # type: ignore[arg-type]


def test_a_sum_and_a_store_for_each_iteration() -> None:
    one = Store(C, (I * 3 + 1,), Load(A, (I * 5,)) + const(1.0, float32))
    assert operations(one) == 2
    assert operations(loop(10, one)) == 20
    assert operations(seq(loop(10, one), one)) == 22
    assert operations(NOTHING) == 0


def test_lanes_count_and_registers_are_free() -> None:
    lanes = Ramp(const(0), 1, 8)
    step = Store(ACC, (lanes,), Load(ACC, (lanes,)) + Broadcast(Load(A, (I,)), 8) * Load(C, (lanes,)))
    assert operations(Alloc(ACC, loop(100, step))) == 1600


def test_a_value_used_twice_is_computed_once() -> None:
    square = Load(A, (I,)) * Load(A, (I,))
    assert operations(Store(C, (I,), square + square)) == 3
    t = Var("t", float32)
    assert operations(Let(t, square, Store(C, (I,), t + t))) == 3


def test_a_condition_counts_its_heavier_side_and_an_unknown_extent_once() -> None:
    one = Store(C, (I,), const(0.0, float32))
    assert operations(If(I < 3, one)) == 1
    assert operations(If(I < 3, one, loop(7, one))) == 7
    assert operations(loop(K, one)) == 1
