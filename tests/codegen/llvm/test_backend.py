"""Statements, threads, entries, plans, register tiles, foreign targets and the messages of the CPU
backend."""

from __future__ import annotations

import ctypes
import resource
from dataclasses import replace

import llvmlite.binding as llvm
import numpy as np
import pytest
from codegen_kernels import LANES, buffer, conv, gemm, loop, pack, pack_filters, program, run

from autotensor.base.dtype import float32, int64
from autotensor.base.errors import CodegenError, TargetError
from autotensor.base.target import host, parse
from autotensor.codegen.backend import compile
from autotensor.codegen.llvm.assembly import asm_facts
from autotensor.codegen.llvm.backend import Call, compile_kernels, emit_plan, module_text
from autotensor.codegen.llvm.build import assemble, machine
from autotensor.codegen.peak import measure_peak
from autotensor.ir.expr import Binary, Load, Op, Ramp, Symbol, Var, cast, const, select
from autotensor.ir.func import PrimFunc, Program, Role, Scope
from autotensor.ir.stmt import Alloc, Barrier, Evaluate, For, ForKind, If, Let, Store, seq
from autotensor.runtime.arrays import aligned_empty
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.files.object_cache import ObjectCache
from autotensor.runtime.linking import loader
from autotensor.runtime.native import threads

I, J, K = Var("i"), Var("j"), Var("k")  # noqa: E741


def index(e):
    return cast(float32, e)


class TestStatements:
    def test_loops_with_begin_and_extents_that_depend_on_others(self) -> None:
        y = buffer("y", 10, 10)
        body = loop(
            I, 8, loop(J, I - 2, Store(y, (I * 10 + J,), index(I * 10 + J)), begin=const(8) - I), begin=1
        )
        got = np.zeros((10, 10), np.float32)
        want = got.copy()
        run(program(body, (y, Role.OUTPUT)), got)
        for i in range(1, 9):
            for j in range(8 - i, 8 - i + i - 2):
                want[i, j] = 10 * i + j
        assert (got == want).all()

    def test_what_holds_in_a_loop_does_not_hold_in_the_tail_behind_it(self) -> None:
        y, count, n = buffer("y", 20), buffer("count", 1, dtype=int64), Symbol("n", int64, 1, 20)
        left = n // 8 - 1 - I  # not negative in the first loop; both loops have the same variable
        body = seq(
            loop(I, n // 8, Store(y, (I,), index(left // 3))),
            loop(I, n - n // 8, Store(y, (I,), index(left // 3)), begin=n // 8),
        )
        got = np.zeros(20, np.float32)
        whole = Let(n, Load(count, (const(0),)), body)
        run(program(whole, (count, Role.INPUT), (y, Role.OUTPUT)), np.array([20]), got)
        assert got.tolist() == [(20 // 8 - 1 - i) // 3 for i in range(20)]

    @pytest.mark.parametrize("extent", [0, 1, 2])
    def test_short_loops(self, extent: int) -> None:
        y = buffer("y", 8)
        for kind in (ForKind.SERIAL, ForKind.UNROLLED, ForKind.PARALLEL):
            got = np.zeros(8, np.float32)
            run(program(loop(I, extent, Store(y, (I,), index(I + 1)), kind, begin=3), (y, Role.OUTPUT)), got)
            assert got.tolist() == [4.0 + k - 3 if 3 <= k < 3 + extent else 0.0 for k in range(8)]

    def test_if_else_and_let(self) -> None:
        y, x = buffer("y", 16), buffer("x", 16)
        t, u = Var("t"), Var("u", float32)
        inner = Let(u, Load(x, (t,)), Store(y, (I,), u * u))
        other = If(I.equal(3), Store(y, (I,), const(-3.0, float32)), Store(y, (I,), const(-1.0, float32)))
        body = loop(I, 16, Let(t, I * 2, If(t < 16, seq(If(I.equal(3), other), inner), other)))
        a, got = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
        run(program(body, (x, Role.INPUT), (y, Role.OUTPUT)), a, got)
        assert got.tolist() == [(2.0 * k) ** 2 for k in range(8)] + [-1.0] * 8

    def test_one_name_may_have_a_value_in_each_branch(self) -> None:
        y, count, n, t = buffer("y", 16), buffer("count", 1, dtype=int64), Symbol("n", int64, 1, 9), Var("t")
        use = If(t < n // 2, Store(y, (I,), index(t)), Store(y, (I,), index(-t)))
        body = loop(I, 16, If(n > 4, Let(t, I % 5, use), Let(t, I % n, use)))
        whole = Let(n, Load(count, (const(0),)), body)
        for value in (3, 9):
            got = np.zeros(16, np.float32)
            run(program(whole, (count, Role.INPUT), (y, Role.OUTPUT)), np.array([value]), got)
            ts = [k % (5 if value > 4 else value) for k in range(16)]
            assert got.tolist() == [t if t < value // 2 else -t for t in ts]

    def test_a_let_of_a_load_keeps_its_value_when_memory_changes(self) -> None:
        x, t = buffer("x", 2), Var("t", float32)
        first, second = Load(x, (const(0),)), Load(x, (const(1),))
        swap = Let(t, first, seq(Store(x, (const(0),), second), Store(x, (const(1),), t)))
        got = np.array([1, 2], np.float32)
        run(program(swap, (x, Role.OUTPUT)), got)
        assert got.tolist() == [2, 1]

    def test_values_of_one_branch_are_not_used_in_another(self) -> None:
        x, y = buffer("x", 4), buffer("y", 4)
        value = Load(x, (I,)) * const(3.0, float32) + const(1.0, float32)
        body = loop(
            I, 4, seq(If(I < 2, Store(y, (I,), value)), If(I > 2, Store(y, (I,), value)), Evaluate(value))
        )
        a, got = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
        run(program(body, (x, Role.INPUT), (y, Role.OUTPUT)), a, got)
        assert got.tolist() == [1, 4, 0, 10]

    def test_one_variable_in_loops_of_different_depth(self) -> None:
        y = buffer("y", 4, 4)
        shallow = loop(J, 4, Store(y, (J,), index(J * 7)))
        deep = loop(I, 3, loop(J, 4, Store(y, ((I + 1) * 4 + J,), index(J * 7 + I))))
        got = np.zeros((4, 4), np.float32)
        run(program(seq(shallow, deep, shallow), (y, Role.OUTPUT)), got)
        assert (got == [[7 * j + max(0, i - 1) for j in range(4)] for i in range(4)]).all()

    def test_reduction_in_memory(self) -> None:
        x, y = buffer("x", 8, 50), buffer("y", 8)
        at = (I,)
        body = seq(
            Store(y, at, const(0.0, float32)), loop(K, 50, Store(y, at, Load(y, at) + Load(x, (I * 50 + K,))))
        )
        a, got = np.random.default_rng(0).random((8, 50), np.float32), np.zeros(8, np.float32)
        run(program(loop(I, 8, body, ForKind.PARALLEL), (x, Role.INPUT), (y, Role.OUTPUT)), a, got)
        np.testing.assert_allclose(got, a.sum(1), rtol=1e-5)


class TestThreads:
    @pytest.mark.parametrize("count", [1, 2, 3, 16])
    @pytest.mark.parametrize("extent", [1, 7, 48])
    def test_every_iteration_runs_once(self, count: int, extent: int) -> None:
        y = buffer("y", 64)
        step = Store(y, (I,), Load(y, (I,)) + const(1.0, float32))
        got = np.zeros(64, np.float32)
        run(program(loop(I, extent, step, ForKind.PARALLEL, begin=5), (y, Role.OUTPUT)), got, threads=count)
        assert got.tolist() == [float(5 <= k < 5 + extent) for k in range(64)]

    @pytest.mark.parametrize("count", [1, 2, 3, 16])
    def test_without_a_parallel_loop_thread_0_works_alone(self, count: int) -> None:
        y = buffer("y", 8)
        got = np.zeros(8, np.float32)
        step = loop(I, 8, Store(y, (I,), Load(y, (I,)) + const(1.0, float32)))
        run(program(step, (y, Role.OUTPUT)), got, threads=count)
        assert (got == 1).all()


def two_kernels() -> Program:
    """prepare: p = 2c; run: t = x + p, y = reversed t (threads must wait for t), z = -x (they need not)."""
    n = 1000
    x, c, p, t, y, z = (buffer(name, n) for name in "xcptyz")
    prepare = PrimFunc(
        "double", (c, p), loop(I, n, Store(p, (I,), Load(c, (I,)) * const(2.0, float32)), ForKind.PARALLEL)
    )
    add = PrimFunc(
        "add", (x, p, t), loop(I, n, Store(t, (I,), Load(x, (I,)) + Load(p, (I,))), ForKind.PARALLEL)
    )
    negate = PrimFunc("negate", (x, z), loop(I, n, Store(z, (I,), -Load(x, (I,))), ForKind.PARALLEL))
    flip = PrimFunc(
        "flip", (t, y), loop(I, n, Store(y, (I,), Load(t, (const(n - 1) - I,))), ForKind.PARALLEL)
    )
    args = (
        (x, Role.INPUT),
        (c, Role.CONSTANT),
        (p, Role.PREPARED),
        (t, Role.WORKSPACE),
        (y, Role.OUTPUT),
        (z, Role.OUTPUT),
    )
    return Program(args, (prepare,), (add, negate, flip), {"te": "…"})


class TestEntries:
    def test_program_with_both_parts_in_a_real_team(self) -> None:
        artifact = compile(two_kernels(), host(), name="pair")
        assert [a.role for a in artifact.args] == [
            "input",
            "constant",
            "prepared",
            "workspace",
            "output",
            "output",
        ]
        assert set(artifact.texts) == {"te", "llvm"}
        assert artifact.entry_constants() == ()
        assert "avx2" in artifact.needs or "avx2" not in host().features
        loaded = loader.load(artifact)
        x, c = np.random.default_rng(0).random((2, 1000), np.float32)
        rest = [aligned_empty((1000,), "float32") for _ in range(4)]
        slots = (ctypes.c_void_p * 6)(*(a.ctypes.data for a in (x, c, *rest)))
        for team in (1, 2, 3):
            for a in rest:
                a[:] = np.nan
            threads.launch(loaded.prepare, ctypes.addressof(slots), team)
            threads.launch(loaded.entry, ctypes.addressof(slots), team)
            _, _, y, z = rest
            assert (y == (x + 2 * c)[::-1]).all()
            assert (z == -x).all()

    def test_threads_meet_only_between_dependent_kernels(self) -> None:
        text, _ = module_text(two_kernels(), host())
        entry = text[text.index("define void @ENTRY.run") :]
        entry = entry[: entry.index("\n}")]
        calls = [line.split("@")[1].split("(")[0] for line in entry.splitlines() if "call" in line]
        assert calls == ["run.0.add", "run.1.negate", "meet", "run.2.flip"]

    def test_symbols_are_named_by_content(self) -> None:
        a, b = (compile_kernels(gemm(32, 32, k, 2, 2), host(), "mm") for k in (8, 16))
        again = compile_kernels(gemm(32, 32, 8, 2, 2), host(), "mm")
        assert a.run == again.run
        assert a.object == again.object
        assert a.run != b.run
        assert a.run is not None
        assert a.run.startswith("mm_run_")
        assert a.prepare is None

    def test_a_plan_runs_entries_at_offsets(self) -> None:
        n = 64
        x, y = buffer("x", n), buffer("y", n)
        args = ((x, Role.INPUT), (y, Role.OUTPUT))
        double = Store(y, (I,), Load(x, (I,)) * const(2.0, float32))
        turn = Store(y, (I,), Load(x, (const(n - 1) - I,)))
        twice, flip = (program(loop(I, n, body, ForKind.PARALLEL), *args) for body in (double, turn))
        first, second = compile_kernels(twice, host(), "twice"), compile_kernels(flip, host(), "flip")
        # args: input, arena (two arrays of n floats), output
        calls = [
            Call(str(first.run), ((0, 0), (1, 0))),
            Call(str(second.run), ((0, 0), (1, 4 * n)), barrier=False),
            Call(str(first.run), ((1, 4 * n), (2, 0))),
        ]
        plan = emit_plan("model", calls, 3, host())
        loaded = loader.load(Artifact("m", host(), "model", None, (), (plan, first.object, second.object)))
        a, arena, out = np.arange(n, dtype=np.float32), np.zeros((2, n), np.float32), np.zeros(n, np.float32)
        slots = (ctypes.c_void_p * 3)(*(v.ctypes.data for v in (a, arena, out)))
        threads.launch(loaded.entry, ctypes.addressof(slots), 2)
        assert (arena == [2 * a, a[::-1]]).all()
        assert (out == 2 * a[::-1]).all()

    def test_a_plan_refuses_arguments_that_do_not_exist(self) -> None:
        with pytest.raises(
            CodegenError, match="plan 'm': f wants byte 0 of argument 2; there are 2 arguments"
        ):
            emit_plan("m", [Call("f", ((2, 0),))], 2, host())

    def test_objects_come_from_the_cache(self, tmp_path) -> None:
        cache = ObjectCache(tmp_path / "objects", 1 << 20)
        a, b = (compile_kernels(gemm(32, 32, 8, 2, 2), host(), "mm", cache=cache) for _ in range(2))
        assert a.object == b.object
        assert (cache.counts.hits, cache.counts.misses) == (1, 1)


def facts(p: Program):
    asm = compile(p, host(), name="tile", asm=True).texts["asm"]
    return asm_facts(asm)


wide = pytest.mark.skipif(host().vector_bytes < 64, reason="tiles for 32 registers of 64 bytes")


class TestRegisterTiles:
    @wide
    @pytest.mark.parametrize(("rows", "columns"), [(14, 2), (6, 4), (10, 2), (8, 3), (1, 1)])
    def test_gemm_stays_in_registers(self, rows: int, columns: int) -> None:
        m, n, k = rows * 3, columns * LANES * 2, 37
        p = gemm(m, n, k, rows, columns)
        rng = np.random.default_rng(0)
        a, b = rng.random((m, k), np.float32), rng.random((k, n), np.float32)
        c = np.full((m, n), np.nan, np.float32)
        run(p, a, pack(b, columns * LANES), c, threads=2)
        np.testing.assert_allclose(c, a @ b, rtol=1e-5)
        found = facts(p)
        assert (found.spills, found.carried) == (0, 0)
        assert found.fma == rows * columns
        assert found.loads == rows + columns or found.loads <= rows * columns + rows

    @wide
    @pytest.mark.parametrize(("rows", "columns"), [(14, 2), (7, 2), (14, 1)])
    def test_convolution_stays_in_registers(self, rows: int, columns: int) -> None:
        h, w, ci, co = 3, 14, 20, 64
        rng = np.random.default_rng(0)
        x, f = rng.random((h + 2, w + 2, ci), np.float32), rng.random((3, 3, ci, co), np.float32)
        want = sum(np.tensordot(x[i : i + h, j : j + w], f[i, j], 1) for i in range(3) for j in range(3))
        y = np.full((h, w, co), np.nan, np.float32)
        p = conv(h, w, ci, co, rows, columns)
        run(p, x, pack_filters(f, columns * LANES), y)
        np.testing.assert_allclose(y, want, rtol=1e-5)
        found = facts(p)
        assert (found.spills, found.fma) == (0, rows * columns)

    @wide
    def test_too_large_a_tile_is_seen_to_spill(self) -> None:
        found = facts(gemm(32, 64, 64, 16, 4))
        assert found.spills > found.carried > 2

    def test_tiles_for_narrow_vectors(self) -> None:
        target = parse("llvm -mattr=+avx2,+fma,+avx,+sse4.2") if "+avx2" in host().features else host()
        p = gemm(12, 32, 19, 6, 2, lanes=8)
        rng = np.random.default_rng(0)
        a, b = rng.random((12, 19), np.float32), rng.random((19, 32), np.float32)
        c = np.zeros((12, 32), np.float32)
        run(p, a, pack(b, 16), c, target=target)
        np.testing.assert_allclose(c, a @ b, rtol=1e-5)
        assert asm_facts(compile(p, target, name="t", asm=True).texts["asm"]).spills == 0


def code_of(data: bytes) -> dict[str, bytes]:
    """The sections of an object that hold code and constants, by name."""
    sections = llvm.ObjectFileRef.from_data(data).sections()
    kept = {str(s.name()): bytes(s.data()) for s in sections if s.size()}
    return {n: held for n, held in kept.items() if ".rela" not in n and ("text" in n or "rodata" in n)}


class TestListing:
    @pytest.mark.parametrize("rows", [1, 6, 16])
    def test_the_object_is_the_same_with_and_without(self, rows: int) -> None:
        p = gemm(rows * 3, 64, 37, rows, 2)
        plain, listed = (compile_kernels(p, host(), "same", asm=asm) for asm in (False, True))
        assert "asm" not in plain.texts
        assert listed.run is not None
        assert f"{listed.run}:" in listed.texts["asm"]
        assert code_of(listed.object) == code_of(plain.object) != {}

    def test_quotes_and_backslashes_of_a_listing(self) -> None:
        names = r'.globl "a\\b c"' + "\n" + r'"a\\b c": .ascii "x\"y\n"' + "\n"
        tm = machine("", "", "")
        assert b'x"y\n' in assemble(names, tm)


class TestForeignTargets:
    def test_aarch64_objects(self) -> None:
        target = parse("llvm -mcpu=neoverse-n1")
        artifact = compile(gemm(12, 16, 8, 6, 2, lanes=4), target, name="arm", asm=True)
        assert artifact.objects[0][:4] == b"\x7fELF"
        assert artifact.objects[0][18] == 183  # EM_AARCH64
        found = asm_facts(artifact.texts["asm"])
        assert (found.spills, found.fma) == (0, 12)

    def test_an_unknown_triple_is_refused(self) -> None:
        with pytest.raises(TargetError, match="LLVM has no code generator for 'nonsense'"):
            parse("llvm -mtriple=nonsense")
        with pytest.raises(CodegenError, match="LLVM has no code generator for 'nonsense'"):
            compile(gemm(4, 16, 4, 1, 1), replace(host(), triple="nonsense"), name="x")

    def test_an_unknown_processor_is_refused_before_llvm_ends_the_process(self) -> None:
        target = replace(host(), arch="foo")
        with pytest.raises(TargetError, match="LLVM has no processor 'foo' for "):
            compile(gemm(4, 16, 4, 1, 1), target, name="x")

    def test_a_plain_x86_64_needs_no_features(self) -> None:
        target = parse("llvm -mcpu=x86-64")
        artifact = compile(gemm(4, 16, 4, 1, 1), target, name="x")
        assert artifact.needs == ()
        if host().triple.startswith("x86_64"):
            a, b, c = np.ones((4, 4), np.float32), np.ones((4, 16), np.float32), np.zeros((4, 16), np.float32)
            run(gemm(4, 16, 4, 1, 1), a, pack(b, 16), c, target=target)
            assert (c == 4).all()
        assert set(compile(gemm(4, 16, 4, 1, 1), parse("llvm -mcpu=x86-64-v3"), name="x").needs) >= {
            "avx2",
            "fma",
        }


Y = buffer("y", 8)
STORE = Store(Y, (I,), const(1.0, float32))
STRAY = buffer("stray", 8)


ONE = const(1.0, float32)
FOUR = Ramp(const(0), 1, 4) < const(3, int64.with_lanes(4))
FAILURES = {
    "parallel loop 'i' is inside another loop, a condition or a sequence. A CPU kernel has at most one": loop(
        J, 2, loop(I, 8, STORE, ForKind.PARALLEL)
    ),
    "the CPU backend cannot compile the thread loop 'i'.": For(
        I, const(0), const(8), ForKind.THREAD, STORE, "x"
    ),
    "the CPU backend cannot compile the vectorized loop 'i'.": loop(I, 8, STORE, ForKind.VECTORIZED),
    "unrolled loop 'i' has no constant extent.": loop(J, 8, loop(I, J, STORE, ForKind.UNROLLED)),
    "nothing binds variable 'i' here.": STORE,
    "buffer 'stray' is neither a parameter nor allocated here.": Store(STRAY, (const(0),), ONE),
    "access to 'y' has 2 indices; lowering must flatten it to one.": Store(Y, (const(0), const(1)), ONE),
    "int64 is stored into 'y', which takes float32.": Store(Y, (const(0),), const(1, int64)),
    "there is a barrier inside. On the CPU threads meet between kernels only": Barrier(),
    "the CPU backend cannot allocate 's' in shared scope.": Alloc(buffer("s", 8, scope=Scope.SHARED), STORE),
    "'%' is not defined for float32.": Store(Y, (const(0),), Binary(Op.MOD, ONE, ONE)),
    "a load of float32 from 'y' has a mask of 4 lanes.": Store(Y, (const(0),), Load(Y, (const(0),), FOUR)),
    "a store of float32 to 'y' has a mask of 4 lanes.": Store(Y, (const(0),), ONE, FOUR),
    "a condition has 4 lanes; it must be a mask.": If(FOUR, STORE),
}


@pytest.mark.parametrize("message", FAILURES)
def test_messages(message: str) -> None:
    with pytest.raises(CodegenError) as error:
        module_text(program(FAILURES[message], (Y, Role.OUTPUT)), host())
    assert str(error.value).startswith(f"kernel 'k': {message}")


def test_an_empty_program_and_an_unknown_kind_are_refused() -> None:
    with pytest.raises(CodegenError, match="program 'e' has no kernel to run"):
        compile(Program(((Y, Role.OUTPUT),), (), ()), host(), name="e")
    with pytest.raises(CodegenError, match=r"no backend compiles for 'quantum'. There are: .*llvm"):
        compile(two_kernels(), replace(host(), kind="quantum"), name="q")


def test_selects_evaluate_both_sides_safely() -> None:
    x, y = buffer("x", 8), buffer("y", 8)
    value = select(I < 4, Load(x, (I,), I < 4), const(9.0, float32))
    got = np.zeros(8, np.float32)
    run(
        program(loop(I, 8, Store(y, (I,), value)), (x, Role.INPUT), (y, Role.OUTPUT)),
        np.arange(8, dtype=np.float32),
        got,
    )
    assert got.tolist() == [0, 1, 2, 3, 9, 9, 9, 9]


def test_measured_peaks_are_plausible() -> None:
    """Only the order of magnitude: tests share the machine, and two threads wait for each other."""
    assert measure_peak(1, seconds=0.02) > 1e9
    assert measure_peak(2, seconds=0.02) > 1e7


def test_compiling_does_not_leak() -> None:
    p = gemm(32, 32, 8, 2, 2)
    used = []
    for count in (50, 150):
        for _ in range(count):
            compile_kernels(p, host())
        used.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert used[1] - used[0] < 20_000  # KiB
