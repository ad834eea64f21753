"""The interpreter: a matmul, then one test per promise of its docstring, what it reports, and fuzzing."""

from __future__ import annotations

import math
import random
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from autotensor.base.dtype import DType, bool_, dtype_of, float32, float64, int8, int32, int64, uint8
from autotensor.base.errors import ArgumentError, CodegenError
from autotensor.codegen.interp import IllegalProgram, run_func, run_program, source_of
from autotensor.ir.expr import (
    MATH,
    Binary,
    Broadcast,
    Call,
    Cast,
    Cmp,
    Compare,
    Const,
    Expr,
    Load,
    Neg,
    Op,
    Ramp,
    Select,
    Unary,
    Var,
    cast,
    const,
)
from autotensor.ir.func import Buffer, Launch, PrimFunc, Program, Role, Scope
from autotensor.ir.stmt import Alloc, Barrier, Evaluate, For, ForKind, If, Let, Stmt, Store, seq

VI, VJ, VK = Var("i"), Var("j"), Var("k")
NAN = float("nan")


def loop(var: Var, extent: Any, body: Stmt, kind: ForKind = ForKind.SERIAL, thread: str = "") -> For:
    return For(var, const(0), extent if isinstance(extent, Expr) else const(extent), kind, body, thread)


def thread(var: Var, extent: int, body: Stmt, axis: str = "threadIdx.x") -> For:
    return loop(var, extent, body, ForKind.THREAD, axis)


def buffer(name: str, *shape: int, dtype: str = "float32", scope: Scope = Scope.GLOBAL) -> Buffer:
    return Buffer(name, shape, dtype_of(dtype), scope)


def kernel(body: Stmt, *params: Buffer, launch: Launch | None = None) -> PrimFunc:
    return PrimFunc("f", params, body, launch)


def run(
    body: Stmt, *args: tuple[Buffer, Role], nthreads: int = 1, strict: bool = False, **arrays: Any
) -> Any:
    """Runs one kernel; gives the outputs, which start as NaN or 0."""
    for b, role in args:
        if role is Role.OUTPUT and b.name not in arrays:
            arrays[b.name] = np.full(b.shape, NAN if b.dtype.is_float else 0, b.dtype.numpy)
    program = Program(args, (), (kernel(body, *(b for b, _ in args)),))
    run_program(program, arrays, nthreads=nthreads, strict=strict)
    outs = [arrays[b.name] for b, role in args if role is Role.OUTPUT]
    return outs[0] if len(outs) == 1 else outs


def value_of(e: Expr) -> Any:
    """What one expression gives, as NumPy sees it."""
    out = Buffer("out", (e.dtype.lanes,), e.dtype.element)
    index: Expr = Ramp(const(0), 1, e.dtype.lanes) if e.dtype.lanes > 1 else const(0)
    result = run(Store(out, (index,), e), (out, Role.OUTPUT))
    return result if e.dtype.lanes > 1 else result[0]


_INTEGER_OPS = {
    Op.ADD: np.add,
    Op.SUB: np.subtract,
    Op.MUL: np.multiply,
    Op.FLOORDIV: np.floor_divide,
    Op.MOD: np.remainder,
    Op.MIN: np.minimum,
    Op.MAX: np.maximum,
    Op.AND: np.bitwise_and,
    Op.OR: np.bitwise_or,
    Op.XOR: np.bitwise_xor,
}
OUT = Role.OUTPUT
IN = Role.INPUT


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


class TestValues:
    @pytest.mark.parametrize("t", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
    def test_integers_are_numpys(self, t: str) -> None:
        dtype = dtype_of(t)
        info = np.iinfo(t)
        numbers = sorted(
            {int(info.min), int(info.max), 0, 1, 3, 7, max(-3, int(info.min)), max(-1, int(info.min))}
        )
        x, y = buffer("x", len(numbers), dtype=t), buffer("y", len(numbers), dtype=t)
        a = np.array(numbers, t)
        for op, fn in _INTEGER_OPS.items():
            out = buffer("out", len(numbers), len(numbers), dtype=t)
            body = loop(
                VI, len(a), loop(VJ, len(a), Store(out, (VI, VJ), Binary(op, Load(x, (VI,)), Load(y, (VJ,)))))
            )
            got = run(body, (x, IN), (y, IN), (out, OUT), x=a, y=a)
            with np.errstate(all="ignore"):
                assert (got == fn(a[:, None], a[None, :])).all(), op
        assert value_of(Unary(Neg.NEG, const(int(info.min), dtype))) == np.negative(np.array(info.min, t))
        assert value_of(Unary(Neg.NOT, const(3, dtype))) == np.invert(np.array(3, t))

    def test_division_by_zero_is_zero(self) -> None:
        x = buffer("x", 1, dtype="int32")
        out = buffer("out", 2, dtype="int32")
        zero = Load(x, (const(0),))
        body = seq(
            Store(out, (const(0),), Binary(Op.FLOORDIV, const(5, int32), zero)),
            Store(out, (const(1),), Binary(Op.MOD, const(5, int32), zero)),
        )
        assert run(body, (x, IN), (out, OUT), x=np.zeros(1, "i4"), out=np.ones(2, "i4")).tolist() == [0, 0]

    def test_shifts(self) -> None:
        assert value_of(Binary(Op.SHL, const(100, int8), const(1, int8))) == -56
        assert value_of(Binary(Op.SHR, const(-7, int8), const(1, int8))) == -4
        assert value_of(Binary(Op.SHR, const(200, uint8), const(3, uint8))) == 25

    @pytest.mark.parametrize("t", ["float16", "bfloat16", "float32", "float64"])
    def test_floats_round_to_their_own_type(self, t: str) -> None:
        dtype = dtype_of(t)
        a, b = const(0.1, dtype), const(3.3, dtype)
        x, y = dtype.numpy.type(0.1), dtype.numpy.type(3.3)
        for op, want in ((Op.ADD, x + y), (Op.SUB, x - y), (Op.MUL, x * y), (Op.DIV, x / y)):
            got = value_of(Binary(op, a, b))
            assert got.dtype == dtype.numpy
            assert got == want

    @pytest.mark.parametrize("op", [Op.MIN, Op.MAX])
    def test_minimum_and_maximum_keep_nan(self, op: Op) -> None:
        assert math.isnan(value_of(Binary(op, const(NAN, float32), const(1, float32))))
        assert math.isnan(value_of(Binary(op, const(1, float32), const(NAN, float32))))
        assert value_of(Binary(op, const(1, float32), const(2, float32))) == (1 if op is Op.MIN else 2)
        assert value_of(Binary(op, const(True, bool_), const(False, bool_))) == (op is Op.MAX)

    def test_division_by_zero_of_floats(self) -> None:
        assert value_of(Binary(Op.DIV, const(1, float32), const(0, float32))) == math.inf

    @pytest.mark.parametrize("name", MATH)
    @pytest.mark.parametrize("t", ["float16", "bfloat16", "float32", "float64"])
    def test_functions(self, name: str, t: str) -> None:
        dtype = dtype_of(t)
        names = {
            "pow": lambda x, y: x**y,
            "round": round,
            "abs": abs,
            "rsqrt": lambda x: x**-0.5,
            "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
        }
        two = name in ("pow", "atan2", "fmod")
        at = 1.75 if name == "acosh" else 0.5
        args = (at, 1.25) if two else (at,)
        out = bool_ if name in ("isnan", "isinf") else dtype
        got = value_of(Call(name, tuple(const(a, dtype) for a in args), out))
        want = names.get(name, getattr(math, name, None))(*args)  # type: ignore[misc]
        eps = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-22, "float64": 2**-50}[t]
        assert float(got) == pytest.approx(float(want), rel=eps)
        vector = value_of(Call(name, tuple(Broadcast(const(a, dtype), 4) for a in args), out.with_lanes(4)))
        assert (vector == got).all()

    def test_abs_of_integers_wraps(self) -> None:
        assert value_of(Call("abs", (const(-128, int8),), int8)) == -128
        assert value_of(Call("abs", (const(-5, int8),), int8)) == 5

    @pytest.mark.parametrize(
        ("value", "old", "new", "want"),
        [
            (-2.9, "float32", "int32", -2),
            (300, "int32", "uint8", 44),
            (200, "uint8", "int8", -56),
            (-1, "int8", "uint32", 2**32 - 1),
            (0.1, "float64", "float32", np.float32(0.1)),
            (2**25 + 1, "int64", "float32", 2**25),
            (2**62 + 1, "int64", "float32", 2**62),
            (0.5, "float32", "bool", True),
            (-0.0, "float32", "bool", False),
            (True, "bool", "int32", 1),
            (True, "bool", "bfloat16", 1),
            (3, "int8", "float16", 3),
        ],
    )
    @pytest.mark.parametrize("lanes", [1, 2])
    def test_casts(self, value: Any, old: str, new: str, want: Any, lanes: int) -> None:
        x = const(value, dtype_of(old).with_lanes(lanes))
        got = value_of(Cast(dtype_of(new), x))
        assert np.all(got == want)
        assert got.dtype == dtype_of(new).numpy

    def test_constants_of_float32_are_float32(self) -> None:
        x = Const(0.1, float32)
        assert value_of(Cast(float64, x)) == np.float64(np.float32(0.1))
        assert np.signbit(value_of(Const(-0.0, float32)))

    def test_comparisons_and_logic(self) -> None:
        nan = const(NAN, float32)
        assert value_of(Compare(Cmp.NE, nan, nan))
        assert not value_of(Compare(Cmp.LE, nan, nan))
        assert value_of(Unary(Neg.NOT, const(False, bool_)))
        assert value_of(Binary(Op.XOR, const(True, bool_), const(False, bool_)))

    def test_shared_parts_are_computed_once(self) -> None:
        x = buffer("x", 1)
        e: Expr = Load(x, (const(0),))
        for _ in range(100):  # 2**100 loads if written out
            e = Binary(Op.ADD, e, e)
        out = buffer("out", 1)
        got = run(Store(out, (const(0),), e), (x, IN), (out, OUT), x=np.full(1, 2.0**-100, "f"))
        assert got[0] == 1

    def test_deep_expressions(self) -> None:
        x, out = buffer("x", 150), buffer("out", 1)
        e = reduce(lambda a, k: Binary(Op.ADD, a, Load(x, (const(k),))), range(150), const(0, float32))
        assert run(Store(out, (const(0),), e), (x, IN), (out, OUT), x=np.ones(150, "f"))[0] == 150


class TestVectors:
    X, Y = buffer("x", 8), buffer("y", 8)

    def test_ramp_and_broadcast(self) -> None:
        value = Load(self.X, (Ramp(const(7), -1, 8),)) + Broadcast(const(1, float32), 8)
        got = run(
            Store(self.Y, (Ramp(const(0), 1, 8),), value),
            (self.X, IN),
            (self.Y, OUT),
            x=np.arange(8, dtype="f"),
        )
        assert got.tolist() == [8, 7, 6, 5, 4, 3, 2, 1]

    def test_masks_protect_loads_and_stores(self) -> None:
        at = Ramp(const(4), 1, 8)
        mask = Compare(Cmp.LT, at, Broadcast(const(8), 8))
        body = Store(self.Y, (at,), Load(self.X, (at,), mask), mask)
        got = run(body, (self.X, IN), (self.Y, OUT), x=np.arange(8, dtype="f"), y=np.full(8, -1, "f"))
        assert got.tolist() == [-1, -1, -1, -1, 4, 5, 6, 7]

    def test_a_masked_load_gives_zero(self) -> None:
        at = Ramp(const(6), 1, 8)
        value = Load(self.X, (at,), Compare(Cmp.LT, at, Broadcast(const(8), 8)))
        got = run(
            Store(self.Y, (Ramp(const(0), 1, 8),), value), (self.X, IN), (self.Y, OUT), x=np.ones(8, "f")
        )
        assert got.tolist() == [1, 1, 0, 0, 0, 0, 0, 0]
        scalar = Load(self.X, (VI,), VI < 8)
        got = run(
            loop(VI, 8, Store(self.Y, (VI,), Load(self.X, (VI + 4,), VI < 4))),
            (self.X, IN),
            (self.Y, OUT),
            x=np.ones(8, "f"),
        )
        assert scalar.mask is not None
        assert got.tolist() == [1, 1, 1, 1, 0, 0, 0, 0]

    @pytest.mark.parametrize("strict", [False, True])
    def test_select_reads_only_the_lanes_it_takes(self, strict: bool) -> None:
        at = Ramp(const(0), 1, 8)
        behind = Load(self.X, (at + 4,))
        inner = Select(at < 2, behind, Broadcast(const(9, float32), 8))
        value = Select(at < 4, behind + inner, Load(self.X, (at - 4,)))
        got = run(
            Store(self.Y, (at,), value), (self.X, IN), (self.Y, OUT), x=np.arange(8, dtype="f"), strict=strict
        )
        assert got.tolist() == [8, 10, 15, 16, 0, 1, 2, 3]

    @pytest.mark.parametrize("flat", [False, True])
    def test_vector_along_one_axis_of_two(self, flat: bool) -> None:
        x, y = buffer("x", 2, 8), buffer("y", 8, 2)
        lanes = Ramp(const(0), 1, 8)
        value = Load(x, (lanes + 8,) if flat else (const(1), lanes))
        body = Store(y, (lanes * 2 + 1,) if flat else (lanes, const(1)), value)
        got = run(body, (x, IN), (y, OUT), x=np.arange(16, dtype="f").reshape(2, 8), y=np.zeros((8, 2), "f"))
        assert got[:, 1].tolist() == list(range(8, 16))

    def test_two_lanes_on_one_element(self) -> None:
        body = Store(self.Y, (Ramp(const(3), 0, 8),), Broadcast(const(0, float32), 8))
        with pytest.raises(IllegalProgram, match="two lanes of one vector store write element 3 of 'y'"):
            run(body, (self.Y, OUT))


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


class TestThreads:
    """GPU semantics: blocks, shared memory, barriers."""

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
            match="divergent barrier: thread 0 of block 0 waits at a barrier, thread 4 has ended",
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


class TestFuzz:
    """Random expressions: scalar code, vector code and the tracked code give the same bits."""

    @pytest.mark.parametrize("t", ["int8", "uint8", "int32", "int64", "float32", "bool"])
    def test_scalar_vector_and_tracked_code_agree(self, t: str) -> None:
        rng = random.Random(f"fuzz {t}")
        dtype = dtype_of(t)
        n = 16
        x, y, i = buffer("x", n, dtype=t), Buffer("y", (n,), dtype), Var("i")
        data = (
            np.random.default_rng(1).integers(-120 if dtype.kind != "uint" else 0, 120, n).astype(dtype.numpy)
        )
        for _ in range(25):
            lanes = Ramp(const(0), 1, n)
            e = random_expr(rng, x, 4)
            scalar, vector = e(i), e(lanes)
            results = [
                run(loop(i, n, Store(y, (i,), scalar)), (x, IN), (y, OUT), x=data),
                run(loop(i, n, Store(y, (i,), scalar)), (x, IN), (y, OUT), x=data, strict=True),
                run(
                    loop(i, n, Store(y, (i,), scalar), ForKind.PARALLEL),
                    (x, IN),
                    (y, OUT),
                    x=data,
                    nthreads=3,
                ),
                run(Store(y, (lanes,), vector), (x, IN), (y, OUT), x=data),
                run(Store(y, (lanes,), vector), (x, IN), (y, OUT), x=data, strict=True),
            ]
            for r in results[1:]:
                assert r.tobytes() == results[0].tobytes() or np.array_equal(
                    r, results[0], equal_nan=dtype.is_float
                ), scalar


def random_expr(rng: random.Random, x: Buffer, depth: int) -> Any:
    """A function from an index (scalar or vector) to an expression of x's type."""
    t: DType = x.dtype
    if depth == 0 or rng.random() < 0.1:
        shift, number = rng.randrange(16), rng.randrange(0, 100)
        if rng.random() < 0.6:
            return lambda i: Load(x, ((i + shift) % 16,))
        return lambda i: const(number, t.with_lanes(i.dtype.lanes))
    a, b = random_expr(rng, x, depth - 1), random_expr(rng, x, depth - 1)
    kind = rng.randrange(4)
    if kind == 0:
        limit, inner = rng.randrange(16), random_expr(rng, x, depth - 1)
        unsafe = rng.random() < 0.5  # reads x[i - limit] where i >= limit only
        other = (lambda i: Load(x, (i - limit,))) if unsafe else inner
        return lambda i: Select(i >= limit, other(i), b(i))
    if kind == 1:
        wide = (
            bool_ if t.is_bool else rng.choice([int8, int32, int64, float32]) if not t.is_float else float64
        )
        return lambda i: (
            cast(t, cast(wide, a(i))) if not (wide.is_float and t.is_int and t.bits < 64) else a(i)
        )
    ops = (
        [Op.AND, Op.OR, Op.XOR, Op.MIN, Op.MAX]
        if t.is_bool
        else [
            Op.ADD,
            Op.SUB,
            Op.MUL,
            Op.MIN,
            Op.MAX,
            *([Op.DIV] if t.is_float else [Op.FLOORDIV, Op.MOD, Op.AND, Op.XOR]),
        ]
    )
    op = rng.choice(ops)
    return lambda i: Binary(op, a(i), b(i))


def test_bfloat16_kernels() -> None:
    x, y = buffer("x", 4, dtype="bfloat16"), buffer("y", 4, dtype="bfloat16")
    a = np.array([1, 2, 3, 256.5], ml_dtypes.bfloat16)
    got = run(loop(VI, 4, Store(y, (VI,), Load(x, (VI,)) * 3 + 1)), (x, IN), (y, OUT), x=a)
    assert got.tolist() == [4, 7, 10, 768]


def test_int64_index_of_int32_type() -> None:
    """After narrowing, loop variables are int32."""
    y = buffer("y", 4, dtype="int32")
    i = Var("i", int32)
    body = For(i, const(0, int32), const(4, int32), ForKind.SERIAL, Store(y, (i,), i * 3))
    assert run(body, (y, OUT)).tolist() == [0, 3, 6, 9]
