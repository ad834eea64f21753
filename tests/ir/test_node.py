"""Interning: one object for equal fields, in any thread, as long as a reference to it exists."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from autotensor.base.dtype import bool_, float32, int32, int64
from autotensor.ir import node
from autotensor.ir.expr import Binary, Broadcast, Const, Load, Neg, Op, Ramp, Select, Unary, Var, const
from autotensor.ir.func import Buffer
from autotensor.ir.node import children, map_children
from autotensor.ir.stmt import For, ForKind, Store
from autotensor.ir.visit import free_vars

X, Y = Var("x"), Var("y")


def test_equal_fields_are_one_object() -> None:
    assert Binary(Op.ADD, X, Y) is Binary(Op.ADD, X, Y)
    assert Binary(Op.ADD, X, Y) is not Binary(Op.ADD, Y, X)
    assert Var("x") is X
    assert Var("x", int32) is not X


def test_numbers_that_are_equal_and_not_the_same() -> None:
    assert Const(0.0, float32) is not Const(-0.0, float32)
    assert Const(float("nan"), float32) is Const(float("nan"), float32)
    assert Const(1) is not Const(True, bool_)
    assert Const(1, int64) is not Const(1, int32)


def test_defaults_and_names() -> None:
    b = Buffer("A", (4,), float32)
    assert Load(b, (X,)) is Load(b, (X,), None) is Load(buffer=b, indices=(X,), mask=None)
    with pytest.raises(TypeError):
        Binary(Op.ADD, X)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Binary(Op.ADD, X, Y, X)  # type: ignore[call-arg]


def test_nodes_are_frozen_and_slotted() -> None:
    with pytest.raises(AttributeError, match="Binary is frozen"):
        Binary(Op.ADD, X, Y).a = Y  # type: ignore[misc]
    with pytest.raises(AttributeError):
        (X + Y).colour = 1  # type: ignore[attr-defined]


def test_copies_and_pickles_are_the_node_itself() -> None:
    e = Select(X < Y, Load(Buffer("A", (4,), float32), (X * 2 + 1,)), const(0.5, float32))
    assert pickle.loads(pickle.dumps(e)) is e
    assert copy.deepcopy(e) is e
    assert copy.copy(e) is e


def test_match_by_position() -> None:
    match Binary(Op.MUL, X, Const(3)):
        case Binary(Op.MUL, Var("x"), Const(value)):
            assert value == 3
        case _:
            pytest.fail("did not match")


def test_children_and_map_children() -> None:
    b = Buffer("A", (4,), float32)
    load = Load(b, (X, Y), X < Y)
    assert children(load) == [b, X, Y, X < Y]
    assert children(Ramp(X, 1, 4)) == [X]
    assert children(Const(1)) == []
    assert map_children(load, lambda n: n) is load
    assert map_children(load, lambda n: Y if n is X else n) is Load(b, (Y, Y), X < Y)
    loop = For(X, const(0), const(4), ForKind.SERIAL, Store(b, (X,), Broadcast(const(0.0, float32), 1)))
    assert children(loop) == [X, loop.begin, loop.extent, loop.body]
    assert map_children(loop, lambda n: Y if n is X else n).var is Y


def test_a_node_lives_as_long_as_its_root() -> None:
    root = Unary(Neg.NEG, X + 987654321)
    watch, child = weakref.ref(root), weakref.ref(X + 987654321)
    assert child() is root.a
    del root
    gc.collect()
    assert watch() is None


def test_dead_nodes_leave_the_table() -> None:
    table: dict[object, weakref.ref[object]] = {}
    insert = node._inserter(table)
    for n in range(3 * node.FIRST_SWEEP):
        insert(n, Dummy())
    assert len(table) <= node.FIRST_SWEEP + 1
    kept = [insert(("kept", n), Dummy()) for n in range(2 * node.FIRST_SWEEP)]
    assert all(table["kept", n]() is d for n, d in enumerate(kept))


class Dummy:
    """Something that can be referred to weakly."""


@pytest.fixture
def busy_collector() -> Iterator[None]:
    """Collects garbage all the time, and lets other threads run while it does."""
    before = gc.get_threshold()
    yielding = lambda *_: time.sleep(0)  # noqa: E731
    gc.callbacks.append(yielding)
    gc.set_threshold(50, 5, 5)
    yield
    gc.callbacks.remove(yielding)
    gc.set_threshold(*before)


@pytest.mark.usefixtures("busy_collector")
def test_threads_get_the_same_objects() -> None:
    """Four threads build and drop the same sums at once."""
    start = threading.Barrier(4)
    results: list[list[object]] = []

    def work() -> None:
        start.wait()
        mine: list[object] = []
        for n in range(6000):
            mine.append(Binary(Op.ADD, Var(f"thread{n % 700}"), Const(n % 5100)))
            if n % 500 == 0:
                mine = mine[-100:]
        results.append(mine)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 4
    assert all(len({id(column[k]) for column in results}) == 1 for k in range(len(results[0])))


def test_free_variables_are_remembered() -> None:
    e = (X + 1) * Y - X
    assert free_vars(e) == {X, Y}
    assert free_vars(e) is free_vars(e)
    assert free_vars(const(3)) == frozenset()
    assert free_vars(X) == {X}


def test_types_are_one_object_each() -> None:
    assert float32.with_lanes(8).element is float32
    assert pickle.loads(pickle.dumps(float32.with_lanes(8))) is float32.with_lanes(8)
    assert copy.deepcopy(int32) is int32
