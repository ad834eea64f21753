"""The interpreter: a matmul, statements, memory, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from interp_tools import IN, OUT, VI, VJ, VK, buffer, kernel, loop, run

from autotensor.base.dtype import float32, int32
from autotensor.base.errors import ArgumentError, CodegenError
from autotensor.codegen.interp.interpreter import IllegalProgram, run_func, run_program, source_of
from autotensor.ir.expr import Binary, Broadcast, Call, Cast, Load, Op, Ramp, Select, Var, const
from autotensor.ir.func import Buffer, PrimFunc, Program, Role, Scope
from autotensor.ir.stmt import Alloc, Barrier, Evaluate, For, ForKind, If, Let, Stmt, Store, seq


class TestMatmul:
    A, B, C = buffer("A", 5, 7), buffer("B", 7, 3), buffer("C", 5, 3)

    def body(self, outer: ForKind = ForKind.PARALLEL) -> Stmt:
        update = Store(
            self.C, (VI, VJ), Load(self.C, (VI, VJ)) + Load(self.A, (VI, VK)) * Load(self.B, (VK, VJ))
        )
        return loop(
            VI, 5, loop(VJ, 3, seq(Store(self.C, (VI, VJ), const(0, float32)), loop(VK, 7, update))), outer
        )

    @pytest.mark.parametrize("nthreads", [1, 2, 3, 8])
    def test_any_number_of_threads(self, nthreads: int) -> None:
        rng = np.random.default_rng(0)
        a, b = rng.integers(-3, 4, (5, 7)).astype("f"), rng.integers(-3, 4, (7, 3)).astype("f")
        got = run(self.body(), (self.A, IN), (self.B, IN), (self.C, OUT), nthreads=nthreads, A=a, B=b)
        assert (got == a @ b).all()

    def test_its_source_can_be_read(self) -> None:
        source = source_of(kernel(self.body(), self.A, self.B, self.C))
        assert source.count("for ") == 3
        assert "_oob" not in source  # every index is proved to be inside

    def test_each_thread_takes_its_share(self) -> None:
        y = np.zeros(7, np.float32)
        b = buffer("y", 7)
        run_func(kernel(loop(VI, 7, Store(b, (VI,), const(1, float32)), ForKind.PARALLEL), b), {"y": y}, 1, 3)
        assert y.tolist() == [0, 0, 1, 1, 0, 0, 0]


class TestStatements:
    def test_loops_that_run_never_or_depend_on_others(self) -> None:
        y = buffer("y", 4, 4, dtype="int64")
        body = loop(
            VI,
            4,
            seq(
                For(VJ, VI, const(4) - VI, ForKind.SERIAL, Store(y, (VI, VJ), VI * 10 + VJ)),
                loop(VK, 0, Store(y, (VI, VI), VK)),
            ),
        )
        got = run(body, (y, OUT))
        assert got.tolist() == [[0, 1, 2, 3], [0, 11, 12, 13], [0, 0, 22, 23], [0, 0, 0, 33]]

    def test_unrolled_and_vectorized_loops_run_serially(self) -> None:
        y = buffer("y", 2, 3, dtype="int64")
        body = loop(VI, 2, loop(VJ, 3, Store(y, (VI, VJ), VI + VJ), ForKind.VECTORIZED), ForKind.UNROLLED)
        assert run(body, (y, OUT)).tolist() == [[0, 1, 2], [1, 2, 3]]

    def test_if_let_evaluate(self) -> None:
        y = buffer("y", 4, dtype="int64")
        v = Var("v")
        then = Store(y, (VI,), v)
        body = loop(VI, 4, Let(v, VI * 2, seq(Evaluate(v), If((v % 4).equal(0), then, Store(y, (VI,), -v)))))
        assert run(body, (y, OUT)).tolist() == [0, -2, 4, -6]

    def test_a_select_protects_the_load_that_it_does_not_take(self) -> None:
        x, y = buffer("x", 4), buffer("y", 4)
        body = loop(VI, 4, Store(y, (VI,), Select(VI < 3, Load(x, (VI + 1,)), const(0, float32))))
        assert run(body, (x, IN), (y, OUT), x=np.arange(4, dtype="f")).tolist() == [1, 2, 3, 0]

    def test_fresh_memory_is_nan_or_a_trap(self) -> None:
        y, z = buffer("y", 1), buffer("z", 1, dtype="int32")
        t, u = buffer("t", 1, scope=Scope.LOCAL), buffer("u", 1, dtype="int32", scope=Scope.LOCAL)
        o = (const(0),)
        body = Alloc(t, Alloc(u, seq(Store(y, o, Load(t, o)), Store(z, o, Load(u, o)))))
        got_y, got_z = run(body, (y, OUT), (z, OUT))
        assert np.isnan(got_y[0])
        assert got_z[0] == np.frombuffer(b"\xa5" * 4, "i4")[0]

    def test_an_alloc_is_fresh_every_time(self) -> None:
        t, y = buffer("t", 1, scope=Scope.LOCAL), buffer("y", 2)
        o = (const(0),)
        body = loop(VI, 2, Alloc(t, seq(Store(y, (VI,), Load(t, o)), Store(t, o, const(1, float32)))))
        assert np.isnan(run(body, (y, OUT))).all()

    def test_more_loops_than_python_can_nest(self) -> None:
        y = buffer("y", 1, dtype="int64")
        variables = [Var(f"v{n}") for n in range(40)]
        body: Stmt = Store(y, (const(0),), Load(y, (const(0),)) + sum(variables, const(1)))
        for n, v in enumerate(variables):
            body = loop(v, 2 if n % 10 == 0 else 1, body)
        assert run(body, (y, OUT))[0] == 16 + 4 * 8

    def test_stores_outside_of_parallel_loops_happen_once(self) -> None:
        y, z = buffer("y", 1, dtype="int64"), buffer("z", 4, dtype="int64")
        once = Store(y, (const(0),), Load(y, (const(0),)) + 1)
        body = seq(once, Barrier(), loop(VI, 4, Store(z, (VI,), Load(y, (const(0),))), ForKind.PARALLEL))
        assert run(body, (y, OUT), (z, OUT), nthreads=3)[1].tolist() == [1, 1, 1, 1]

    def test_a_parallel_loop_inside_another_is_serial(self) -> None:
        y = buffer("y", 4, 4, dtype="int64")
        body = loop(VI, 4, loop(VJ, 4, Store(y, (VI, VJ), const(1)), ForKind.PARALLEL), ForKind.PARALLEL)
        assert run(body, (y, OUT), nthreads=2).all()

    def test_names_that_python_does_not_allow(self) -> None:
        y = buffer("A.shared:C", 4, dtype="int64")
        v, w = Var("(i.0*j)"), Var("_i_0_j_")
        body = loop(v, 2, loop(w, 2, Store(y, (v * 2 + w,), v * 10 + w)))
        assert run(body, (y, OUT)).tolist() == [0, 1, 10, 11]


class TestMemory:
    def test_scalar_buffers(self) -> None:
        x, y = buffer("x"), buffer("y")
        assert run(Store(y, (), Load(x, ()) + 1), (x, IN), (y, OUT), x=np.array(2, "f"))[()] == 3
        assert (
            run(Store(y, (const(0),), Load(x, (const(0),))), (x, IN), (y, OUT), x=np.array(2, "f"))[()] == 2
        )

    def test_strided_buffers_at_both_levels(self) -> None:
        x = Buffer("x", (2, 3), float32, strides=(5, 1))
        y, z = buffer("y", 2, 3), buffer("z", 2, 3)
        a = np.arange(6, dtype="f").reshape(2, 3)
        at = VI * 5 + VJ
        body = loop(
            VI, 2, loop(VJ, 3, seq(Store(y, (VI, VJ), Load(x, (VI, VJ))), Store(z, (VI, VJ), Load(x, (at,)))))
        )
        got_y, got_z = run(body, (x, IN), (y, OUT), (z, OUT), x=a)
        assert (got_y == a).all()
        assert (got_z == a).all()

    def test_strided_outputs_and_arrays_of_any_layout(self) -> None:
        y = Buffer("y", (2, 3), float32, strides=(1, 2))
        x = buffer("x", 2, 3)
        a = np.asfortranarray(np.arange(6, dtype="f").reshape(2, 3))
        out = np.zeros((2, 6), "f")[:, ::2]
        run(
            loop(VI, 2, loop(VJ, 3, Store(y, (VI + VJ * 2,), Load(x, (VI, VJ))))),
            (x, IN),
            (y, OUT),
            x=a,
            y=out,
        )
        assert (out == a).all()

    def test_workspace_is_fresh_and_prepare_comes_first(self) -> None:
        w, p, t, y = (buffer(n, 2) for n in "wpty")
        pack = PrimFunc("pack", (w, p), loop(VI, 2, Store(p, (VI,), Load(w, (VI,)) * 2)))
        first = PrimFunc("first", (p, t), loop(VI, 2, Store(t, (VI,), Load(p, (VI,)) + Load(t, (VI,)) * 0)))
        second = PrimFunc("second", (t, y), loop(VI, 2, Store(y, (VI,), Load(t, (VI,)))))
        args = ((w, Role.CONSTANT), (p, Role.PREPARED), (t, Role.WORKSPACE), (y, Role.OUTPUT))
        arrays = {"w": np.ones(2, "f"), "y": np.zeros(2, "f")}
        run_program(Program(args, (pack,), (first, second)), arrays)
        assert np.isnan(arrays["y"]).all()  # `first` read its own fresh workspace
        with pytest.raises(IllegalProgram, match="element 0 of 't' is read but was never written"):
            run_program(Program(args, (pack,), (first, second)), arrays, strict=True)

    def test_wrong_arrays(self) -> None:
        x, y = buffer("x", 2), buffer("y", 2)
        body = Store(y, (const(0),), Load(x, (const(0),)))
        args = ((x, IN), (y, OUT))
        with pytest.raises(ArgumentError, match="array 'x' is missing; given are y"):
            run(body, *args)
        with pytest.raises(
            ArgumentError, match=r"array 'x' is float64 of shape \(2,\); expected float32 of shape \(2,\)"
        ):
            run(body, *args, x=np.zeros(2))
        frozen = np.zeros(2, "f")
        frozen.flags.writeable = False
        with pytest.raises(ArgumentError, match="array 'y' is an output but cannot be written"):
            run(body, *args, x=np.zeros(2, "f"), y=frozen)


class TestRefusals:
    Y = buffer("y", 4, 4)

    def refuses(self, body: Stmt, message: str, error: type[Exception] = IllegalProgram) -> None:
        x = buffer("x", 4, 4)
        with pytest.raises(error) as caught:
            run(body, (x, IN), (self.Y, OUT), x=np.zeros((4, 4), "f"))
        assert message in str(caught.value)

    def test_loads_and_stores_out_of_bounds(self) -> None:
        x = buffer("x", 4, 4)
        body = loop(VI, 4, loop(VJ, 4, Store(self.Y, (VI, VJ), Load(x, (VI, VJ + 1)))))
        self.refuses(body, "kernel 'f': load of x[0, 4] is outside its shape (4, 4), in `")
        self.refuses(body, "with i=0, j=3")
        self.refuses(
            loop(VI, 4, Store(self.Y, (VI - 1, VI), const(0, float32))),
            "store of y[-1, 0] is outside its shape (4, 4)",
        )
        self.refuses(
            Store(self.Y, (Ramp(const(12), 1, 8),), Broadcast(const(0, float32), 8)),
            "store of y[16] is outside its shape (4, 4), which has 16 elements",
        )

    def test_malformed_kernels(self) -> None:
        zero, o = const(0, float32), const(0)
        self.refuses(
            Store(self.Y, (o, o), const(0)), "stores a int64 into 'y', which holds float32", CodegenError
        )
        self.refuses(
            Store(self.Y, (o, o), Cast(float32, VI)),
            "uses variable 'i', which is not bound there",
            CodegenError,
        )
        gone = seq(loop(VI, 1, Store(self.Y, (VI, o), zero)), Store(self.Y, (VI, o), zero))
        self.refuses(gone, "uses variable 'i', which is not bound there", CodegenError)
        self.refuses(
            loop(VI, 2, loop(VI, 2, Store(self.Y, (VI, o), zero))), "inside its own scope", CodegenError
        )
        self.refuses(Store(buffer("q", 1), (o,), zero), "uses buffer 'q', which is neither", CodegenError)
        self.refuses(Store(buffer("y", 4, 4, 4), (o, o), zero), "has 2 indices", CodegenError)
        self.refuses(Store(self.Y, (o, o), Call("fft", (zero,), float32)), "calls 'fft'", CodegenError)
        self.refuses(
            Store(self.Y, (o, o), Binary(Op.AND, zero, zero)), "'&' is not defined for float32", CodegenError
        )
        odd = Buffer("odd", (4,), float32, strides=(2,))
        self.refuses(Store(odd, (o,), zero), "has one axis of stride 2", CodegenError)

    def test_a_single_thread_cannot_pass_a_barrier(self) -> None:
        y = buffer("y", 1)
        body = seq(Store(y, (const(0),), const(1, float32)), Barrier())
        with pytest.raises(IllegalProgram, match="its threads cannot run one after another"):
            run_func(kernel(body, y), {"y": np.zeros(1, "f")}, 0, 2)

    def test_a_race_between_cpu_threads(self) -> None:
        y, s = buffer("y", 4), buffer("s", 1)
        body = loop(VI, 4, Store(s, (const(0),), Load(y, (VI,))), ForKind.PARALLEL)
        args = ((y, IN), (s, OUT))
        run(body, *args, y=np.zeros(4, "f"))
        with pytest.raises(
            IllegalProgram, match=r"race on s\[0\]: thread 1 writes what thread 0 wrote without a barrier"
        ):
            run(body, *args, nthreads=2, y=np.zeros(4, "f"))


def test_int64_index_of_int32_type() -> None:
    """After narrowing, loop variables are int32."""
    y = buffer("y", 4, dtype="int32")
    i = Var("i", int32)
    body = For(i, const(0, int32), const(4, int32), ForKind.SERIAL, Store(y, (i,), i * 3))
    assert run(body, (y, OUT)).tolist() == [0, 3, 6, 9]
