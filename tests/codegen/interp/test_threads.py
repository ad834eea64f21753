"""GPU semantics in the interpreter: blocks, shared memory, barriers, races."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from interp_tools import IN, OUT, VK, buffer, kernel, loop, run, thread

from autotensor.base.dtype import float32
from autotensor.base.errors import CodegenError
from autotensor.codegen.interp.interpreter import IllegalProgram, run_func
from autotensor.ir.expr import Binary, Call, Load, Op, Var, const
from autotensor.ir.func import Launch, Scope
from autotensor.ir.stmt import NOTHING, Alloc, Async, Await, Barrier, Commit, If, Stmt, Store, seq


class TestThreads:
    X, Y = buffer("x", 4, 8), buffer("y", 4, 8)
    S = buffer("s", 8, scope=Scope.SHARED)
    B, T, U = Var("blockIdx.x"), Var("t"), Var("u")

    def reverse(self, barrier: Stmt | None, extent: int = 8) -> Stmt:
        """Each block reverses a row through shared memory; an element has one writer and another reader."""
        fetch = thread(self.T, extent, Store(self.S, (self.T,), Load(self.X, (self.B, self.T))))
        give = thread(self.U, 8, Store(self.Y, (self.B, self.U), Load(self.S, (const(7) - self.U,))))
        return thread(self.B, 4, Alloc(self.S, seq(fetch, barrier, give)), "blockIdx.x")

    def run(self, body: Stmt, **options: Any) -> Any:
        x = np.arange(32, dtype="f").reshape(4, 8)
        return run(body, (self.X, IN), (self.Y, OUT), x=x, **options), x

    def test_shared_memory(self) -> None:
        got, x = self.run(self.reverse(Barrier("shared")), strict=True)
        assert (got == x[:, ::-1]).all()

    def test_run_func_runs_the_grid(self) -> None:
        x, y = np.arange(32, dtype="f").reshape(4, 8), np.zeros((4, 8), "f")
        run_func(kernel(self.reverse(Barrier("shared")), self.X, self.Y), {"x": x, "y": y})
        assert (y == x[:, ::-1]).all()

    def test_a_missing_barrier_is_a_race(self) -> None:
        with pytest.raises(IllegalProgram) as caught:
            self.run(self.reverse(None))
        # Threads run one after another here: thread 3 has read s[4] before thread 4 writes it.
        assert "race on s[4]: thread 4 of block 0 writes what thread 3 of block 0 read" in str(caught.value)
        assert "Put a barrier between them." in str(caught.value)

    def test_reading_what_another_thread_wrote(self) -> None:
        one = thread(self.T, 1, Store(self.S, (const(0),), const(1, float32)))
        read = thread(self.U, 8, Store(self.Y, (const(0), self.U), Load(self.S, (const(0),))))
        with pytest.raises(IllegalProgram, match="thread 1 of block 0 reads what thread 0 of block 0 wrote"):
            self.run(Alloc(self.S, seq(one, read)))
        got, _ = self.run(Alloc(self.S, seq(one, Barrier("shared"), read)))
        assert (got[0] == 1).all()

    def test_threads_beyond_a_loops_extent_idle(self) -> None:
        got, x = self.run(self.reverse(Barrier("shared"), extent=4))
        assert (got[:, 4:] == x[:, 3::-1]).all()
        assert np.isnan(got[:, :4]).all()

    def test_a_divergent_barrier(self) -> None:
        body = thread(self.T, 8, If(self.T < 4, Barrier("shared")))
        with pytest.raises(
            IllegalProgram,
            match=r"divergent barrier: thread 0 of block 0 waits at a barrier, thread 4 has ended",
        ):
            self.run(body)
        other = Barrier("threads")
        body = thread(self.T, 8, If(self.T < 4, Barrier("shared"), other))
        with pytest.raises(IllegalProgram, match="thread 4 waits at another one"):
            self.run(body)

    def test_blocks_never_meet(self) -> None:
        body = thread(self.B, 4, Store(self.Y, (const(0), const(0)), const(1, float32)), "blockIdx.x")
        with pytest.raises(IllegalProgram, match=r"race on y.*block 1 writes what thread 0 of block 0 wrote"):
            self.run(body)

    def test_threads_that_repeat_one_anothers_store(self) -> None:
        """A thread axis that a store does not use: every thread along it stores the same element."""
        body = thread(
            self.T, 8, thread(self.U, 2, Store(self.Y, (const(0), self.T), const(1, float32)), "threadIdx.y")
        )
        with pytest.raises(IllegalProgram, match="race on y"):
            self.run(body)

    def test_local_memory_is_private(self) -> None:
        acc = buffer("acc", 1, scope=Scope.LOCAL)
        o = (const(0),)
        add = loop(VK, 8, Store(acc, o, Load(acc, o) + Load(self.X, (self.T, VK))))
        body = thread(
            self.T,
            4,
            Alloc(
                acc,
                seq(Store(acc, o, const(0, float32)), add, Store(self.Y, (self.T, const(0)), Load(acc, o))),
            ),
        )
        got, x = self.run(body)
        assert (got[:, 0] == x.sum(1)).all()

    def test_tree_reduction_with_a_barrier_in_a_loop(self) -> None:
        step = Var("step")
        width = Binary(Op.SHR, const(4), step)
        join = If(
            width > self.U,
            Store(self.S, (self.U,), Load(self.S, (self.U,)) + Load(self.S, (self.U + width,))),
        )
        levels = loop(step, 3, seq(thread(self.U, 8, join), Barrier("shared")))
        fetch = thread(self.T, 8, Store(self.S, (self.T,), Load(self.X, (self.B, self.T))))
        give = thread(VK, 1, Store(self.Y, (self.B, const(0)), Load(self.S, (const(0),))))
        body = thread(self.B, 4, Alloc(self.S, seq(fetch, Barrier("shared"), levels, give)), "blockIdx.x")
        got, x = self.run(body)
        assert (got[:, 0] == x.sum(1)).all()

    def test_the_launch_gives_the_extents(self) -> None:
        body = thread(self.T, 4, Store(self.Y, (const(0), self.T), const(1, float32)))
        y = np.zeros((4, 8), "f")
        run_func(kernel(body, self.Y, launch=Launch((1, 1, 1), (8, 1, 1))), {"y": y})
        assert y[0].tolist() == [1, 1, 1, 1, 0, 0, 0, 0]
        with pytest.raises(CodegenError, match=r"loop over threadIdx.x has 4 iterations; the launch has 2"):
            run_func(kernel(body, self.Y, launch=Launch((1, 1, 1), (2, 1, 1))), {"y": y})


class TestCopies:
    """A block turns a row round: what is copied may be read after a wait and a barrier, and not before."""

    X, Y = buffer("x", 8), buffer("y", 8)
    S = buffer("s", 8, scope=Scope.SHARED)
    T, U = Var("t"), Var("u")

    def run(self, *between: Stmt, lookback: int = 7, before: Stmt = NOTHING) -> Any:
        fetch = thread(self.T, 8, Async(Store(self.S, (self.T,), Load(self.X, (self.T,)))))
        index = const(7) - self.U if lookback else self.U
        give = thread(self.U, 8, Store(self.Y, (self.U,), Load(self.S, (index,))))
        x = np.arange(8, dtype="f")
        return run(Alloc(self.S, seq(before, fetch, *between, give)), (self.X, IN), (self.Y, OUT), x=x)

    def test_what_was_awaited_is_there(self) -> None:
        got = self.run(Commit(), Await(0), Barrier("shared"))
        assert got.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]

    def test_a_thread_may_read_its_own_without_a_barrier(self) -> None:
        assert self.run(Commit(), Await(0), lookback=0).tolist() == list(range(8))

    @pytest.mark.parametrize(
        "between",
        [
            (Barrier("shared"),),
            (Commit(), Barrier("shared")),
            (Await(0), Barrier("shared")),  # never committed
            (Commit(), Await(1), Barrier("shared")),
            (Commit(), Commit(), Await(2), Barrier("shared")),
        ],
    )
    def test_what_was_not_awaited_is_nobodys(self, between: tuple[Stmt, ...]) -> None:
        with pytest.raises(IllegalProgram, match=r"element 7 of 's' is read while thread 7's copy is on its"):
            self.run(*between)

    def test_waiting_is_no_barrier(self) -> None:
        with pytest.raises(IllegalProgram, match=r"copy is on its way|race on s"):
            self.run(Commit(), Barrier("shared"), Await(0))

    def test_groups_arrive_in_order(self) -> None:
        assert self.run(Commit(), Commit(), Await(1), Barrier("shared")).tolist()[0] == 7

    def test_writing_where_a_copy_goes(self) -> None:
        clear = thread(Var("v"), 8, Store(self.S, (Var("v"),), const(0, float32)))
        with pytest.raises(IllegalProgram, match="element 0 of 's' is written while thread 0's copy"):
            self.run(clear, Commit(), Await(0))


class TestExchange:
    X, Y = buffer("x", 64), buffer("y", 64)
    P = buffer("p", 1, scope=Scope.LOCAL)
    T = Var("t")

    def run(self, mask: int, threads: int = 64, around: Any = None) -> Any:
        at = (const(0),)
        give = Store(self.P, at, Call("shuffle_xor", (Load(self.X, (self.T,)), const(mask)), float32))
        body = seq(give if around is None else around(give), Store(self.Y, (self.T,), Load(self.P, at)))
        x = np.arange(64, dtype="f")
        return run(thread(self.T, threads, Alloc(self.P, body)), (self.X, IN), (self.Y, OUT), x=x)

    @pytest.mark.parametrize("mask", [1, 2, 16, 31])
    def test_lanes_of_each_warp(self, mask: int) -> None:
        assert self.run(mask).tolist() == [t ^ mask for t in range(64)]

    def test_a_warp_may_do_without_the_other(self) -> None:
        got = self.run(1, around=lambda s: If(self.T < 32, s, Store(self.P, (const(0),), const(5, float32))))
        assert got.tolist() == [*(t ^ 1 for t in range(32)), *[5.0] * 32]

    def test_half_a_warp_may_not(self) -> None:
        with pytest.raises(
            IllegalProgram, match=r"divergent exchange: thread 0 of block 0 exchanges values .* thread 16 has"
        ):
            self.run(1, around=lambda s: If(self.T < 16, s))

    def test_a_lane_that_waits_at_a_barrier(self) -> None:
        with pytest.raises(IllegalProgram, match=r"divergent exchange.* thread 16 waits at a barrier"):
            self.run(1, around=lambda s: If(self.T < 16, s, Barrier("shared")))

    def test_a_lane_that_is_not_there(self) -> None:
        with pytest.raises(IllegalProgram, match="lane 20 is asked for its value, and there is none"):
            self.run(16, threads=20)
