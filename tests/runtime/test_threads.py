"""One contract for all providers of threads; the barrier; forks."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest
from runtime_kernels import BARRIER_STRESS, COUNT, TEAM_SUM, compiled

from autotensor.base.errors import InputError
from autotensor.runtime import native, threads
from autotensor.runtime.threads import Provider

ROOT = Path(__file__).parents[2]

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


with contextlib.suppress(OSError):
    ctypes.CDLL("libgomp.so.1")  # so that "openmp-loaded" finds one


class Kernel:
    """A loaded function and its argument array over NumPy arrays."""

    def __init__(self, ir: str, name: str, *arrays: np.ndarray) -> None:
        code = compiled(ir)  # initialises LLVM
        machine = llvm.Target.from_default_triple().create_target_machine(opt=1, codemodel="jitdefault")
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self.engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self.engine.finalize_object()
        self.fn = self.engine.get_function_address(name)
        self.arrays = arrays
        self.pointers = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
        self.args = ctypes.addressof(self.pointers)


@pytest.fixture(params=threads.PROVIDERS)
def provider(request: pytest.FixtureRequest) -> Provider:
    if request.param == "openmp-loaded":  # a test before this one may have looked when none was loaded
        threads._providers.pop("openmp-loaded", None)
    if request.param not in threads.available():
        pytest.skip(f"{request.param} is not available in this process")
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
            caller.join(60)
        assert not any(c.is_alive() for c in callers)
        assert all(k.arrays[0][0] == 0 and k.arrays[1][0, 0] == 5 for k in kernels)

    def test_fork_join_runs_another_region(self, provider: Provider) -> None:
        calls = np.zeros(1, np.int64)
        kernel = Kernel(FORK_JOIN, "outer", calls)
        threads.launch(kernel.fn, kernel.args, 1, 7, provider)
        assert calls[0] == 7


def test_pool_takes_more_workers_when_more_threads_are_asked_for() -> None:
    """The team of a pool is bounded by its workers; in a process told so, there are seven."""
    out = run(
        """
        import sys; sys.path.insert(0, "tests/runtime")
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


def test_names_of_providers_are_checked() -> None:
    with pytest.raises(InputError, match=r"thread provider 'tbb' is unknown\. Known: openmp-loaded, "):
        threads.choose("tbb")


def test_a_loaded_openmp_runtime_comes_first() -> None:
    out = run(
        """
        import ctypes
        from autotensor.runtime import threads
        found = threads.xgboost_openmp() or ["libgomp.so.1"]
        ctypes.CDLL(found[0])
        print(threads.current().name, threads.current().detail == threads.loaded_openmp()[0])
        """
    )
    assert out.stdout in ("openmp-loaded True\n", "pool False\n")


def test_a_forked_child_runs_serially_and_says_so_once() -> None:
    out = run(
        """
        import os, sys; sys.path.insert(0, "tests/runtime")
        from test_threads import *
        out, lines = np.zeros(2, np.int32), np.zeros((2, 16), np.int32)
        kernel = Kernel(TEAM_SUM, "team_sum", out, lines)
        before = threads.current()
        threads.launch(kernel.fn, kernel.args, 2)
        child = os.fork()
        if child == 0:
            for _ in range(3):
                threads.launch(kernel.fn, kernel.args, 2)
                threads.launch(kernel.fn, kernel.args, 2, provider=before)
            os._exit(int(out[1]))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    assert out.stdout == "1\n"
    assert out.stderr.count("this process was forked") == 1


def test_process_ends_at_once_with_workers_parked() -> None:
    run("from autotensor.runtime import threads; threads.choose('pool')")


def test_offsets_told_to_code_generators_are_those_of_the_launcher() -> None:
    module = llvm.parse_assembly(native.launcher_ir("x86_64"))
    # LLVM gives the type another name when this process has parsed the launcher before.
    context = next(t for t in module.struct_types if t.name.startswith("ctx"))
    layout = llvm.create_target_data("e-m:e-i64:64-n8:16:32:64")
    found = [layout.get_element_offset(context, field) for field in (0, 1, 7, 9, 11)]
    told = [native.BARRIER_OFFSET, native.FORK_JOIN_OFFSET, native.COUNTER_OFFSET, native.GENERATION_OFFSET]
    assert found == [*told, 192]
    assert layout.get_abi_size(context) == native.CONTEXT_BYTES


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64"])
def test_launcher_is_valid_for_other_processors(machine: str) -> None:
    llvm.parse_assembly(native.launcher_ir(machine)).verify()


def run(script: str, **env: str) -> subprocess.CompletedProcess[str]:
    lines = script.splitlines()
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore::DeprecationWarning",
            "-c",
            "\n".join(line[indent:] for line in lines),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
    )
