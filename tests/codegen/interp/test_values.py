"""The interpreter's values: scalars of every type, functions, casts, vectors."""

from __future__ import annotations

import math
import operator
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from interp_tools import IN, NAN, OUT, VI, VJ, buffer, loop, run, value_of

from autotensor.base.dtype import bool_, dtype_of, float32, float64, int8, int32, uint8
from autotensor.codegen.interp.interpreter import IllegalProgram
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
    const,
)
from autotensor.ir.stmt import Store, seq

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
            "rounded": float,
            "rsqrt": lambda x: x**-0.5,
            "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
            "floordiv": operator.floordiv,
            "floormod": operator.mod,
        }
        two = name in ("pow", "atan2", "fmod", "floordiv", "floormod")
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


def test_bfloat16_kernels() -> None:
    x, y = buffer("x", 4, dtype="bfloat16"), buffer("y", 4, dtype="bfloat16")
    a = np.array([1, 2, 3, 256.5], ml_dtypes.bfloat16)
    got = run(loop(VI, 4, Store(y, (VI,), Load(x, (VI,)) * 3 + 1)), (x, IN), (y, OUT), x=a)
    assert got.tolist() == [4, 7, 10, 768]
