"""Our own pool: the threads of a team, sleeping threads, and where they are woken.

A worker's life is an exchange of states with its callers (pool.py). If a test acts as the worker, the pool is
memory without threads.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time

import numpy as np
import pytest
from runtime_kernels import TEAM_SUM
from scripts import run
from test_threads import Kernel

from autotensor.runtime.native import pool, threads
from autotensor.runtime.native.threads import Provider

FREE, ASLEEP, LATE = (pool.NUMBERS[name] for name in ("FREE", "ASLEEP", "LATE"))

# args: how many threads ran, and how many should have: the size of its team, from each region's first thread.
COUNT_TEAM = """
define void @count_team(ptr %ctx, ptr %args, i32 %tid, i32 %n) {
entry:
  %ran = load ptr, ptr %args
  %old = atomicrmw add ptr %ran, i64 1 monotonic
  %first = icmp eq i32 %tid, 0
  br i1 %first, label %tell, label %done
tell:
  %q1 = getelementptr ptr, ptr %args, i64 1
  %should = load ptr, ptr %q1
  %n64 = zext i32 %n to i64
  %old1 = atomicrmw add ptr %should, i64 %n64 monotonic
  br label %done
done:
  ret void
}
"""

# args: the core that each thread runs on; thread 1's stays as it was in a team of one.
CORES = """
declare i32 @sched_getcpu()
define void @cores(ptr %ctx, ptr %args, i32 %tid, i32 %n) {
  %p = load ptr, ptr %args
  %at = getelementptr i32, ptr %p, i32 %tid
  %cpu = call i32 @sched_getcpu()
  store i32 %cpu, ptr %at
  ret void
}
"""


# Thread 1 dawdles for 50 ms, in which it needs no core.
DAWDLE = """
declare i32 @usleep(i32)
define void @dawdle(ptr %ctx, ptr %args, i32 %tid, i32 %n) {
entry:
  %second = icmp eq i32 %tid, 1
  br i1 %second, label %sleep, label %done
sleep:
  %r = call i32 @usleep(i32 50000)
  br label %done
done:
  ret void
}
"""


class Worker(ctypes.Structure):
    """`WORKER` of pool.py, with the fields that the tests need."""

    _fields_ = (("state", ctypes.c_int32), ("other", ctypes.c_int8 * 92), ("company", ctypes.c_int64))


assert Worker.company.offset == pool.WORKER.offset["company"]


def without_threads(workers: int) -> Provider:
    """A pool whose workers are free and never answer."""
    memory = ctypes.create_string_buffer(pool.POOL.bytes + workers * pool.WORKER.bytes + 64)
    start = -(-ctypes.addressof(memory) // 64) * 64
    ctypes.c_int32.from_address(start).value = workers
    return threads._around("pool", "no threads", threads._table("pool_region", pool=start), keep=(memory,))


def states(provider: Provider) -> list[int]:
    at = provider.table.pool
    count = ctypes.c_int32.from_address(at).value
    first = at + pool.POOL.bytes
    return [ctypes.c_int32.from_address(first + k * pool.WORKER.bytes).value for k in range(count)]


def team(provider: Provider, nthreads: int) -> int:
    """The size of a region's team; checks that every member ran once."""
    out, lines = np.zeros(2, np.int32), np.zeros((nthreads, 16), np.int32)
    kernel = Kernel(TEAM_SUM, "team_sum", out, lines)
    threads.launch(kernel.fn, kernel.args, nthreads, provider=provider)
    got = int(out[1])
    assert out[0] == got * (got + 1) // 2
    return got


def until(true: object, *, within_s: float = 20.0) -> bool:
    """Whether a function returns true within a short time."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if true():  # type: ignore[operator]
            return True
        time.sleep(0.001)
    return False


def test_who_does_not_answer_is_not_waited_for_and_gets_no_other_offer() -> None:
    provider = without_threads(3)
    assert team(provider, 3) == 1
    assert states(provider) == [LATE, LATE, FREE]
    assert team(provider, 3) == 1
    assert states(provider) == [LATE, LATE, LATE]
    assert team(provider, 4) == 1


def test_a_worker_that_others_kept_from_running_is_waited_for_more_shortly() -> None:
    kernel = Kernel(TEAM_SUM, "team_sum", np.zeros(2, np.int32), np.zeros((2, 16), np.int32))

    def waited_ns(company: int) -> int:
        provider = without_threads(1)
        Worker.from_address(provider.table.pool + pool.POOL.bytes).company = company
        began = time.perf_counter_ns()
        threads.launch(kernel.fn, kernel.args, 2, provider=provider)
        return time.perf_counter_ns() - began

    trust, prompt = pool.NUMBERS["TRUST_NS"], pool.NUMBERS["PROMPT_NS"]
    assert min(waited_ns(0) for _ in range(20)) >= trust
    assert prompt <= min(waited_ns(time.monotonic_ns()) for _ in range(20)) < trust


def test_callers_at_once_share_the_cores_and_do_so_for_a_while() -> None:
    provider = without_threads(8)
    provider.table.cores = 4
    provider.table.busy = 4  # as if another caller were in a region of four threads
    before = time.monotonic_ns()
    team(provider, 4)
    assert states(provider).count(LATE) == 1  # two threads for each: one offer
    until = ctypes.c_int64.from_address(provider.table.pool + pool.POOL.offset["until"])
    assert until.value - before >= pool.NUMBERS["CROWD_NS"]
    provider.table.busy = 0
    until.value += 10**12  # so that no load of this machine can outlast it
    team(provider, 4)
    assert states(provider).count(LATE) == 2
    until.value = before
    team(provider, 4)
    assert states(provider).count(LATE) == 5


def test_one_caller_may_ask_for_more_threads_than_there_are_cores() -> None:
    provider = without_threads(8)
    provider.table.cores = 2
    team(provider, 6)
    assert states(provider).count(LATE) == 5


@pytest.mark.skipif(sys.platform != "linux", reason="naps of a thread are counted on Linux only")
def test_who_waits_long_for_its_team_leaves_the_core_to_others() -> None:
    out = run(
        """
        import sys, time; sys.path[:0] = ["tests/runtime", "tests/runtime/native"]
        from resource import RUSAGE_THREAD, getrusage
        from test_pool import *
        provider = threads.choose("pool")
        kernel = Kernel(DAWDLE, "dawdle", np.zeros(1, np.int32))
        def naps_often():  # not in a team of one, which a busy machine makes
            before = getrusage(RUSAGE_THREAD).ru_nvcsw
            threads.launch(kernel.fn, kernel.args, 2, provider=provider)
            return getrusage(RUSAGE_THREAD).ru_nvcsw - before > 5
        print(until(naps_often))
        """,
        OMP_NUM_THREADS="2",
    )
    assert out.stdout == "True\n"


def test_every_member_of_every_team_runs_once_though_many_answer_late() -> None:
    """Seven workers, four callers and others' threads on few cores; no worker is lost."""
    out = run(
        """
        import sys, threading, time; sys.path[:0] = ["tests/runtime", "tests/runtime/native"]
        from test_pool import *
        from autotensor.runtime.native import launcher
        launcher.NUMBERS |= {"PROMPT_NS": 300, "WAKING_NS": 20_000, "TRUST_NS": 300}
        launcher.NUMBERS |= {"PATIENCE_NS": 50_000, "CROWD_NS": 0}
        provider = threads.choose("pool")
        provider.table.cores = 64  # or callers would share them
        assert len(states(provider)) == 7
        began, late, totals, sizes = time.monotonic(), [], [], [0] * 4
        def enough():  # a busy machine needs more time to show a team and a late worker
            seconds = time.monotonic() - began
            return seconds > 60 or (seconds > 3 and any(late) and max(sizes) > 20)
        def call(caller):
            counts = np.zeros((2, 8), np.int64)
            kernel = Kernel(COUNT_TEAM, "count_team", *counts)
            while not enough():
                threads.launch(kernel.fn, kernel.args, 8, 20, provider)
                late.append(LATE in states(provider))
                sizes[caller] = int(counts[1, 0])
                time.sleep(0.0005 * (len(late) % 3))
            totals.append(counts[:, 0])
        callers = [threading.Thread(target=call, args=(k,)) for k in range(4)]
        for c in callers: c.start()
        for c in callers: c.join()
        assert any(late), "nobody was late: the test tests nothing"
        assert any(should > 20 for _, should in totals), "there were no teams"
        assert len(totals) == 4 and all(ran == should for ran, should in totals), totals
        assert until(lambda: set(states(provider)) <= {FREE, ASLEEP}), states(provider)
        print("all ran")
        """,
        OMP_NUM_THREADS="8",
    )
    assert out.stdout == "all ran\n"


@pytest.mark.parametrize(
    ("why", "change"),
    [
        ("it has waited", "launcher.NUMBERS['PATIENCE_NS'] = 1_000_000"),
        ("callers take all cores", "provider.table.busy = 100"),
        ("others had its core", "worker.company = time.monotonic_ns()"),
        ("others have its core", "launcher.NUMBERS['KEPT_NS'] = -1"),
    ],
)
def test_a_worker_without_work_sleeps(why: str, change: str) -> None:
    early, later = (change, "") if "NUMBERS" in change else ("", change)
    pause = "until(lambda: worker.state == ASLEEP)" if early else "time.sleep(0.1)"
    out = run(
        f"""
        import sys, time; sys.path[:0] = ["tests/runtime", "tests/runtime/native"]
        from test_pool import *
        from autotensor.runtime.native import launcher
        launcher.NUMBERS |= {{"PATIENCE_NS": 10**15, "KEPT_NS": 10**15}}
        launcher.NUMBERS |= {{"PROMPT_NS": 10**9, "WAKING_NS": 10**9, "TRUST_NS": 10**9}}  # on a busy core
        {early}
        provider = threads.choose("pool")
        provider.table.cores = 64  # else a team of two crowds a single one
        worker = Worker.from_address(provider.table.pool + pool.POOL.bytes)
        team(provider, 2)
        {pause}
        print(worker.state == ASLEEP, worker.company > 0)
        {later}
        print(until(lambda: worker.state == ASLEEP))
        provider.table.busy = 0
        print(until(lambda: team(provider, 2) == 2))
        """,
        OMP_NUM_THREADS="2",
    )
    assert out.stdout == f"{bool(early)} {'KEPT_NS' in early}\nTrue\nTrue\n"


def test_threads_whose_first_calls_come_at_once_have_one_pool() -> None:
    out = run(
        """
        import os, threading
        from autotensor.runtime.native import launcher
        from autotensor.runtime.native.threads import choose
        launcher.launcher()
        found, together = [], threading.Barrier(8)
        def first():
            together.wait()
            found.append(choose("pool"))
        callers = [threading.Thread(target=first) for _ in range(8)]
        for c in callers: c.start()
        for c in callers: c.join()
        print(len(found), len(set(map(id, found))))
        """,
        OMP_NUM_THREADS="33",
    )
    assert out.stdout == "8 1\n"


def test_what_workers_read_outlives_whatever_python_forgets() -> None:
    """Otherwise the end of the interpreter, which empties all modules, would free it while the workers use
    it."""
    out = run(
        """
        import gc, weakref
        from autotensor.runtime.native import threads
        provider = threads.choose("pool")
        shared = [weakref.ref(provider.keep[0]), weakref.ref(provider.table)]
        del provider
        vars(threads).clear()
        gc.collect()
        print(*(ref() is None for ref in shared))
        """
    )
    assert out.stdout == "False False\n"


@pytest.mark.skipif(sys.platform != "linux", reason="workers are bound on Linux only")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is no other core to be woken on")
def test_a_sleeper_is_woken_on_another_core_and_may_then_run_anywhere() -> None:
    out = run(
        """
        import os, sys, time; sys.path[:0] = ["tests/runtime", "tests/runtime/native"]
        from test_pool import *
        from autotensor.runtime.native import launcher
        launcher.NUMBERS |= {"PATIENCE_NS": 100_000, "WAKING_NS": 10**9, "TRUST_NS": 10**9}
        before = set(os.listdir("/proc/self/task"))
        provider = threads.choose("pool")
        (worker,) = set(os.listdir("/proc/self/task")) - before
        cores = np.zeros(2, np.int32)
        kernel = Kernel(CORES, "cores", cores)
        same = 0
        for _ in range(60):
            assert until(lambda: states(provider) == [ASLEEP])
            threads.launch(kernel.fn, kernel.args, 2, provider=provider)
            same += cores[0] == cores[1]
        assert os.sched_getaffinity(int(worker)) == os.sched_getaffinity(0)
        print(same)
        """,
        OMP_NUM_THREADS="2",
    )
    assert int(out.stdout) < 30  # 0 to 6 on a quiet machine; 45 to 60 when it is not bound
