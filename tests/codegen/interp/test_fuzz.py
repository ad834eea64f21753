"""Random expressions: the interpreter's scalar, vector and tracked code give the same bits."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from interp_tools import IN, OUT, buffer, loop, run

from autotensor.base.dtype import DType, bool_, dtype_of, float32, float64, int8, int32, int64
from autotensor.ir.expr import Binary, Load, Op, Ramp, Select, Var, cast, const
from autotensor.ir.func import Buffer
from autotensor.ir.stmt import ForKind, Store


class TestFuzz:
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
