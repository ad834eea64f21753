"""Heavy kernels: which loops are cut. With every cut, each iteration runs once."""

from __future__ import annotations

import ctypes
import random
import threading

import numpy as np
import pytest
from codegen_kernels import buffer, conv, gemm, loop, pack, program

from autotensor.base.dtype import float32
from autotensor.base.target import host, parse
from autotensor.codegen.backend import compile
from autotensor.codegen.llvm import parts
from autotensor.codegen.llvm.backend import module_text
from autotensor.codegen.llvm.parts import heavy
from autotensor.ir.expr import Load, Var, cast, const
from autotensor.ir.func import Program, Role, Scope
from autotensor.ir.statement_work import operations
from autotensor.ir.stmt import Alloc, For, ForKind, If, Stmt, Store, seq
from autotensor.runtime.arrays import aligned_empty
from autotensor.runtime.linking import loader
from autotensor.runtime.native import threads

Y, X, J, K = (Var(v) for v in "yxjk")
OUT, IN = buffer("out", 3, 5, 8), buffer("in", 16)


@pytest.fixture(autouse=True)
def every_region_is_heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small kernels are cut as large ones are."""
    monkeypatch.setattr(parts, "HEAVY_OPERATIONS", 1)


def parallel(extent: int, body: Stmt) -> For:
    return loop(Y, extent, body, ForKind.PARALLEL)


def row(at: object = None) -> Stmt:
    """out[y, x, j] = its flat index, for all j."""
    index = (Y * 5 + X) * 8 + J
    return loop(J, 8, Store(OUT, (index if at is None else at,), cast(float32, index)))  # type: ignore[arg-type]


def last(x: int, begin: int = 0) -> Stmt:
    """A tail: what iteration `x` of the inner loop would write, from column `begin` on."""
    index = (Y * 5 + x) * 8 + J
    return loop(J, 8 - begin, Store(OUT, (index,), cast(float32, index)), begin=begin)


def uneven() -> Program:
    """3 × 5 rows, the last of the three only 3 long, its third row short and after the loop."""
    body = If(Y < 2, loop(X, 5, row()), seq(loop(X, 2, row()), last(2, begin=3)))
    return program(parallel(3, body), (OUT, Role.OUTPUT))


class TestWhatIsCut:
    def test_the_loop_inside_the_parallel_one(self) -> None:
        found = heavy(parallel(3, loop(X, 5, row())))
        assert found is not None
        assert (found.extent, found.cuts, found.most_parts, found.most_threads) == (3, 5, 15, 7)
        assert [i.loop.var for i in found.inner.values()] == [X]

    def test_the_longer_of_both_sides_of_a_condition(self) -> None:
        found = heavy(uneven().run[0].body)
        assert found is not None
        assert (found.cuts, [i.extent for i in found.inner.values()]) == (5, [5, 2])

    @pytest.mark.parametrize("p", [gemm(12, 64, 3, 6, 2, lanes=8), conv(8, 12, 3, 64, 6, 2)])
    def test_tiles_of_products_and_convolutions(self, p: Program) -> None:
        """Row tiles within a panel of columns, blocks of channels within a row of pixels."""
        found = heavy(p.run[0].body)
        assert found is not None
        assert found.cuts == 2

    @pytest.mark.parametrize(
        "body",
        [
            loop(X, 5, row((Y * 5) * 8 + J)),  # each x writes the same
            loop(X, 5, row((Y * 5 + X) * 7 + J)),  # the last of one is the first of the next
            loop(X, 5, row(((Y * 5 + X) // 2) * 8 + J)),  # not a sum
            loop(X, 5, Store(OUT, (Y,), Load(OUT, (Y,)) + const(1.0, float32))),  # a reduction
            seq(loop(X, 4, row()), last(3)),  # the tail writes what the loop has written
            seq(loop(X, 4, row()), loop(X, 2, row(), begin=3)),
            seq(loop(X, 4, row()), Store(IN, (Y,), Load(OUT, (Y * 40,)))),  # and reads it
            seq(last(0), loop(X, 4, row(), begin=1)),  # the loop is not the first
            If(Y < 2, loop(X, 5, row())),  # a side without a loop
            loop(X, Y + 1, row()),  # an extent that is not constant
            If(Load(OUT, (Y * 40,)) < 0, loop(X, 5, row()), loop(X, 4, row())),  # parts may differ
        ],
    )
    def test_only_independent_iterations(self, body: Stmt) -> None:
        found = heavy(parallel(4, body))
        assert found is not None
        assert (found.cuts, found.inner) == (1, {})

    def test_what_is_cut_writes_apart(self) -> None:
        """Random indices, against all addresses written out; about a third of them can be cut."""
        rng, cut = random.Random(0), 0
        for _ in range(400):
            n, m, stride, step = (
                rng.choice(c) for c in ((2, 3, 4), (1, 2, 3, 5), (1, 2, 8, 16), (1, 4, 8, 64))
            )
            out = buffer("o", 8, rng.choice((2, 8)), rng.choice((8, 32)))
            constants = [rng.choice((0, 1, 8, 64, 66)) for _ in range(rng.choice((1, 2)))]
            begin, tail, tail_step = rng.choice((0, 1)), rng.choice((None, 0, 3)), rng.choice((step, 2))
            one = const(1.0, float32)
            body = seq(*(Store(out, (X * stride + J * step + c,), one) for c in constants))
            after = None if tail is None else n + begin + tail
            rest = None if after is None else Store(out, (J * tail_step + after * stride,), one)
            written = [
                {x * stride + j * step + c for j in range(m) for c in constants}
                for x in range(begin, begin + n)
            ]
            if after is not None:
                written.append({j * tail_step + after * stride for j in range(m)})
            parts = loop(X, n, loop(J, m, body), begin=begin)
            found = heavy(parallel(8, parts if rest is None else seq(parts, loop(J, m, rest))))
            assert found is not None
            if found.cuts > 1:
                cut += 1
                assert sum(map(len, written)) == len(set().union(*written)), found
        assert cut > 100

    def test_a_tail_whose_loops_are_longer_than_those_before_it(self) -> None:
        """Both loops use the same variable; the range of the longer loop is used."""
        short = loop(X, 4, loop(J, 4, Store(OUT, ((Y * 5 + X) * 4 + J,), const(1.0, float32))))
        for extent, cuts in ((4, 4), (5, 1)):
            tail = loop(J, extent, Store(OUT, ((Y * 5 + 4) * 4 + J,), const(1.0, float32)))
            found = heavy(parallel(4, seq(short, tail)))
            assert found is not None
            assert found.cuts == cuts

    def test_not_into_a_buffer_from_outside(self) -> None:
        t = buffer("t", 40, scope=Scope.LOCAL)
        fill = loop(X, 5, loop(J, 8, Store(t, (X * 8 + J,), const(1.0, float32))))
        found = heavy(parallel(4, Alloc(t, fill)))
        assert found is not None
        assert found.cuts == 1

    def test_light_kernels_and_short_loops_are_left_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert heavy(parallel(1, Store(OUT, (Y,), const(1.0, float32)))) is None
        assert heavy(loop(X, 5, row())) is None
        body = parallel(3, loop(X, 5, row()))
        monkeypatch.setattr(parts, "HEAVY_OPERATIONS", operations(body) // 2)
        assert heavy(body) is not None
        monkeypatch.setattr(parts, "HEAVY_OPERATIONS", operations(body) // 2 + 1)
        assert heavy(body) is None
        assert ".shared" not in module_text(uneven(), host())[0]


class Loaded:
    """A compiled program with one output."""

    def __init__(self, p: Program, *inputs: np.ndarray) -> None:
        self.code = loader.load(compile(p, host(), name="test"))
        self.inputs = inputs

    def run(self, out: np.ndarray, nthreads: int, provider: threads.Provider | None = None) -> None:
        slots = (ctypes.c_void_p * 8)(*(a.ctypes.data for a in (*self.inputs, out)))
        threads.launch(self.code.entry, ctypes.addressof(slots), nthreads, 1, provider)

    def run_part(self, out: np.ndarray, part: int, parts: int) -> None:
        """The work of thread `part` of a team without shared work."""
        entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)
        slots = (ctypes.c_void_p * 8)(*(a.ctypes.data for a in (*self.inputs, out)))
        context = (ctypes.c_void_p * 32)()
        entry(self.code.entry)(ctypes.addressof(context), ctypes.addressof(slots), part, parts)


class TestRuns:
    @pytest.mark.parametrize("parts", [1, 2, 3, 4, 7, 15, 40])
    def test_every_cut_does_each_iteration_once(self, parts: int) -> None:
        loaded = Loaded(uneven())
        written = np.zeros((3, 5, 8), int)
        for part in range(parts):
            got = np.full((3, 5, 8), np.nan, np.float32)
            loaded.run_part(got, part, parts)
            written += ~np.isnan(got)
            assert (np.isnan(got) | (got == np.arange(120).reshape(3, 5, 8))).all()
        want = np.ones((3, 5, 8), int)
        want[2, 3:] = want[2, 2, :3] = 0
        assert (written == want).all()

    @pytest.mark.parametrize("name", threads.PROVIDERS)
    @pytest.mark.parametrize("nthreads", [1, 2, 3, 16])
    def test_shared_regions_give_the_bits_of_static_ones(self, name: str, nthreads: int) -> None:
        if name not in threads.available():
            pytest.skip(f"{name} is not available in this process")
        rng = np.random.default_rng(0)
        a, b = rng.random((24, 19), np.float32), rng.random((19, 256), np.float32)
        packed = aligned_empty((8, 19, 32), "float32")
        packed[:] = pack(b, 32)
        loaded = Loaded(gemm(24, 256, 19, 6, 2), a, packed)
        want, got = np.zeros((24, 256), np.float32), np.zeros((24, 256), np.float32)
        loaded.run_part(want, 0, 1)
        for _ in range(50):
            got[:] = np.nan
            loaded.run(got, nthreads, threads.choose(name))
            assert (got == want).all()

    def test_several_callers_share_apart(self) -> None:
        loaded = Loaded(uneven())
        want = np.full((3, 5, 8), -1, np.float32)
        loaded.run_part(want, 0, 1)
        bad = []

        def call() -> None:
            for _ in range(200):
                got = np.full((3, 5, 8), -1, np.float32)
                loaded.run(got, 3)
                if not (got == want).all():
                    bad.append(got)

        callers = [threading.Thread(target=call) for _ in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(60)
        assert not any(c.is_alive() for c in callers)
        assert not bad

    def test_other_processors(self) -> None:
        artifact = compile(uneven(), parse("llvm -mcpu=neoverse-n1"), name="arm")
        assert artifact.objects[0][:4] == b"\x7fELF"
        assert ".shared(" in artifact.texts["llvm"]
