"""One contract for all providers of threads; the barrier. Forked processes are in test_fork_locks.py."""

from __future__ import annotations

import contextlib
import ctypes
import threading

import llvmlite.binding as llvm
import numpy as np
import pytest
from runtime_kernels import BARRIER_STRESS, COUNT, TEAM_SUM, compiled
from scripts import run

from autotensor.base.errors import InputError
from autotensor.runtime.linking.linker import link
from autotensor.runtime.native import launcher, threads, work_sharing
from autotensor.runtime.native.threads import Provider

FORK_JOIN = """
define void @inner(ptr %ctx, ptr %args, i32 %tid, i32 %n) {
  %p = load ptr, ptr %args
  %old = atomicrmw add ptr %p, i64 1 monotonic
  ret void
}
define void @outer(ptr %ctx, ptr %args, i32 %tid, i32 %n) {
  %q = getelementptr i8, ptr %ctx, i64 8
  %fork_join = load ptr, ptr %q
  call void %fork_join(ptr %ctx, ptr @inner, ptr %args, i32 1)
  ret void
}
"""

# args: counts [REGIONS, 64] and how many parts were taken by others than their owners. Part k of region r, of
# 64 - r parts, adds 1 to counts[r, k]. Threads meet after every third region only, and thread 0 dawdles, so
# that the others have something to take. Nothing happens in a team that does not share.
SHARE_STRESS = """
define void @share_stress(ptr %ctx, ptr %args, i32 %tid, i32 %n) {
entry:
  %counts = load ptr, ptr %args
  %q1 = getelementptr ptr, ptr %args, i64 1
  %stolen = load ptr, ptr %q1
  %plines = getelementptr i8, ptr %ctx, i64 56
  %lines = load ptr, ptr %plines
  %static = icmp eq ptr %lines, null
  br i1 %static, label %exit, label %begin
begin:
  %ptake = getelementptr i8, ptr %ctx, i64 48
  %take = load ptr, ptr %ptake
  %barrier = load ptr, ptr %ctx
  br label %region
region:
  %r = phi i32 [0, %begin], [%r1, %met]
  %wanted = sub i32 64, %r
  %parts = call i32 @llvm.smax.i32(i32 %wanted, i32 %n)
  br label %next
next:
  %k = call i32 %take(ptr %ctx, i32 %tid, i32 %n, i32 %parts)
  %some = icmp sge i32 %k, 0
  br i1 %some, label %run, label %after
run:
  %row = mul i32 %r, 64
  %at = add i32 %row, %k
  %p = getelementptr i32, ptr %counts, i32 %at
  %old = atomicrmw add ptr %p, i32 1 monotonic
  %own0 = mul i32 %k, %n
  %owner = udiv i32 %own0, %parts
  %theirs = icmp ne i32 %owner, %tid
  %one = zext i1 %theirs to i32
  %old1 = atomicrmw add ptr %stolen, i32 %one monotonic
  %first = icmp eq i32 %tid, 0
  %turns = select i1 %first, i32 300, i32 1
  br label %dawdle
dawdle:
  %d = phi i32 [0, %run], [%d1, %dawdle]
  %d1 = add i32 %d, 1
  store volatile i32 %d1, ptr %mine
  %again = icmp slt i32 %d1, %turns
  br i1 %again, label %dawdle, label %next
after:
  %third = urem i32 %r, 3
  %meets = icmp eq i32 %third, 2
  br i1 %meets, label %meet, label %met
meet:
  call void %barrier(ptr %ctx, i32 %tid, i32 %n)
  br label %met
met:
  %r1 = add i32 %r, 1
  %more = icmp slt i32 %r1, REGIONS
  br i1 %more, label %region, label %exit
exit:
  ret void
}
declare i32 @llvm.smax.i32(i32, i32)
""".replace("entry:\n", "entry:\n  %mine = alloca i32\n")


with contextlib.suppress(OSError):
    ctypes.CDLL("libgomp.so.1")  # so that "openmp-loaded" finds one


class Kernel:
    """A loaded function and its argument array over NumPy arrays."""

    def __init__(self, ir: str, name: str, *arrays: np.ndarray) -> None:
        self.code = link(name, (compiled(ir),), (name,))
        self.fn = self.code.addresses[name]
        self.arrays = arrays
        self.pointers = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
        self.args = ctypes.addressof(self.pointers)


@pytest.fixture(params=threads.PROVIDERS)
def provider(request: pytest.FixtureRequest) -> Provider:
    if request.param == "openmp-loaded":  # a test before this one may have looked when none was loaded
        threads._providers.pop("openmp-loaded", None)
    if request.param.startswith("openmp") and request.param not in threads.available():
        pytest.skip(f"no {request.param} on this machine; our own pool and serial are tested everywhere")
    return threads.choose(request.param)


class TestProviders:
    @pytest.mark.parametrize("nthreads", [1, 2, 3, 5])
    def test_every_member_of_the_team_runs_once(self, provider: Provider, nthreads: int) -> None:
        out, lines = np.zeros(2, np.int32), np.zeros((nthreads, 16), np.int32)
        kernel = Kernel(TEAM_SUM, "team_sum", out, lines)
        threads.launch(kernel.fn, kernel.args, nthreads, provider=provider)
        got = int(out[1])
        assert 1 <= got <= nthreads
        assert out[0] == got * (got + 1) // 2
        if provider.name.startswith("openmp"):
            assert got == nthreads

    def test_count_runs_so_many_regions(self, provider: Provider) -> None:
        calls = np.zeros(1, np.int64)
        kernel = Kernel(COUNT, "count", calls)
        threads.launch(kernel.fn, kernel.args, 1, 500, provider)
        assert calls[0] == 500
        threads.launch(kernel.fn, kernel.args, 2, 500, provider)
        assert 1000 <= calls[0] <= 1500
        threads.launch(kernel.fn, kernel.args, 2, 0, provider)
        assert 1000 <= calls[0] <= 1500

    @pytest.mark.parametrize("nthreads", [2, 4])
    def test_barrier_holds_all_back(self, provider: Provider, nthreads: int) -> None:
        ir = BARRIER_STRESS.replace("TURNS", "2000" if nthreads == 2 else "200")
        bad, lines = np.zeros(1, np.int32), np.zeros((nthreads, 16), np.int32)
        kernel = Kernel(ir, "barrier_stress", bad, lines)
        threads.launch(kernel.fn, kernel.args, nthreads, 3, provider)
        assert bad[0] == 0

    def test_eight_callers_at_once(self, provider: Provider) -> None:
        ir = BARRIER_STRESS.replace("TURNS", "5")
        kernels = [
            Kernel(ir, "barrier_stress", np.zeros(1, np.int32), np.zeros((3, 16), np.int32)) for _ in range(8)
        ]

        def call(kernel: Kernel) -> None:
            for _ in range(50):
                threads.launch(kernel.fn, kernel.args, 3, 1, provider)

        callers = [threading.Thread(target=call, args=(k,)) for k in kernels]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(240)
        assert not any(c.is_alive() for c in callers)
        assert all(k.arrays[0][0] == 0 and k.arrays[1][0, 0] == 5 for k in kernels)

    @pytest.mark.parametrize("nthreads", [2, 3, 16])
    def test_every_part_of_a_shared_region_is_taken_once(self, provider: Provider, nthreads: int) -> None:
        """Also with several callers at once, and if threads are in different regions."""
        regions, launches = 20, 20
        want = np.array([[launches * (k < max(64 - r, nthreads)) for k in range(64)] for r in range(regions)])
        kernels = [
            Kernel(SHARE_STRESS.replace("REGIONS", str(regions)), "share_stress", counts, stolen)
            for counts, stolen in (
                (np.zeros((regions, 64), np.int32), np.zeros(1, np.int32)) for _ in range(3)
            )
        ]

        def call(kernel: Kernel) -> None:
            for count in (1, launches - 1):
                threads.launch(kernel.fn, kernel.args, nthreads, count, provider)

        callers = [threading.Thread(target=call, args=(k,)) for k in kernels]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(240)
        assert not any(c.is_alive() for c in callers)
        assert all((k.arrays[0] == want).all() for k in kernels)
        if provider.name.startswith("openmp"):
            assert all(k.arrays[1][0] > 0 for k in kernels)  # thread 0 is slow: some of its parts were taken

    def test_a_team_of_one_or_of_very_many_shares_nothing(self, provider: Provider) -> None:
        counts, stolen = np.zeros((1, 64), np.int32), np.zeros(1, np.int32)
        kernel = Kernel(SHARE_STRESS.replace("REGIONS", "1"), "share_stress", counts, stolen)
        for nthreads in (1, work_sharing.MOST_THREADS + 1):
            threads.launch(kernel.fn, kernel.args, nthreads, 1, provider)
        assert (counts == 0).all()

    def test_fork_join_runs_another_region(self, provider: Provider) -> None:
        calls = np.zeros(1, np.int64)
        kernel = Kernel(FORK_JOIN, "outer", calls)
        threads.launch(kernel.fn, kernel.args, 1, 7, provider)
        assert calls[0] == 7


def test_pool_takes_more_workers_when_more_threads_are_asked_for() -> None:
    """A team has at most as many threads as the pool has workers; a process with this setting has seven."""
    out = run(
        """
        import sys; sys.path[:0] = ["tests/runtime", "tests/runtime/native"]
        from test_threads import *
        pool = threads.choose("pool")
        for _ in range(200):
            TestProviders().test_every_member_of_the_team_runs_once(pool, 8)
        TestProviders().test_barrier_holds_all_back(pool, 4)
        print(pool)
        """,
        OMP_NUM_THREADS="8",
    )
    assert out.stdout == "pool (7 workers)\n"


def test_a_pool_that_fell_asleep_is_woken() -> None:
    """Its workers wait some milliseconds for the next region, then sleep."""
    out = run(
        """
        import sys, time; sys.path[:0] = ["tests/runtime", "tests/runtime/native"]
        from test_threads import *
        pool = threads.choose("pool")
        for pause_s in (0.0, 0.002, 0.2, 0.0, 0.2):
            time.sleep(pause_s)
            TestProviders().test_every_member_of_the_team_runs_once(pool, 2)
            TestProviders().test_barrier_holds_all_back(pool, 2)
        print("awake")
        """
    )
    assert out.stdout == "awake\n"


def test_names_of_providers_are_checked() -> None:
    with pytest.raises(InputError, match=r"thread provider 'tbb' is unknown\. Known: openmp-loaded, "):
        threads.choose("tbb")


def test_a_loaded_openmp_runtime_comes_first(libgomp: str) -> None:
    out = run(
        f"""
        import ctypes
        from autotensor.runtime.native import threads
        ctypes.CDLL({libgomp!r})
        print(threads.current().name, threads.current().detail == {libgomp!r})
        """,
        AUTOTENSOR_PROVIDER="",
    )
    assert out.stdout == "openmp-loaded True\n"


def test_that_of_the_cost_model_does_not() -> None:
    out = run(
        """
        import ctypes
        from autotensor.runtime.native import threads
        ctypes.CDLL(threads.xgboost_openmp()[0])
        print(threads.loaded_openmp(), threads.current().name)
        """,
        AUTOTENSOR_PROVIDER="",
    )
    assert out.stdout == "[] pool\n"


def test_without_a_loaded_openmp_runtime_our_own_pool_comes_first() -> None:
    out = run(
        """
        from autotensor.runtime.native import threads
        assert not threads.loaded_openmp()
        print(threads.current().name)
        """,
        AUTOTENSOR_PROVIDER="",
    )
    assert out.stdout == "pool\n"


def test_modules_opened_after_an_openmp_runtime_was_loaded_use_it(libgomp: str) -> None:
    """As if torch is imported late: its threads and those of the pool would compete for the cores."""
    out = run(
        f"""
        import ctypes, sys; sys.path[:0] = ["tests/runtime", "tests/runtime/native"]
        from runtime_kernels import add_artifact
        from autotensor.runtime.native import threads
        from autotensor.runtime.module import Module
        first = threads.current().name
        Module(add_artifact())
        second = threads.current().name
        ctypes.CDLL({libgomp!r})
        print(first, second, threads.current().name)
        Module(add_artifact())
        print(threads.current().name)
        """,
        AUTOTENSOR_PROVIDER="",
    )
    assert out.stdout == "pool pool pool\nopenmp-loaded\n"


def test_process_ends_at_once_with_workers_parked() -> None:
    run("from autotensor.runtime.native import threads; threads.choose('pool')")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64"])
@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_launcher_is_valid_for_other_processors(machine: str, system: str) -> None:
    llvm.parse_assembly(launcher.launcher_ir(machine, system)).verify()
