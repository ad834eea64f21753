"""Refusals of verify, with their messages; accesses that can be proved to be in range."""

import pytest

from autotensor.base.dtype import bool_, float32, int32
from autotensor.base.errors import LoweringError
from autotensor.ir.expr import (
    Binary,
    Broadcast,
    Cmp,
    Combiner,
    Compare,
    Load,
    Op,
    Ramp,
    Reduce,
    Select,
    Var,
    all_of,
    const,
    maximum,
    minimum,
    select,
)
from autotensor.ir.func import Buffer, PrimFunc, Scope
from autotensor.ir.stmt import Alloc, Evaluate, For, ForKind, If, Let, Store, seq
from autotensor.ir.verify import Level, check_bounds, verify

A = Buffer("A", (16, 8), float32)
F = Buffer("F", (128,), float32)
F9, F3 = Buffer("F9", (9,), float32), Buffer("F3", (3,), float32)
R = Buffer("R", (4,), float32, Scope.REGISTER)
IDX = Buffer("IDX", (128,), int32)
i, j, n = Var("i"), Var("j"), Var("n")
ZERO = const(0.0, float32)


def loop(var, extent, body, kind=ForKind.SERIAL):
    return For(var, const(0), extent + const(0), kind, body)


def func(body, *params):
    return PrimFunc("kernel", params or (A, F, F9, F3, IDX), body)


def put(index, value=ZERO, mask=None):
    return Store(F, (index,), value, mask)


GOOD = loop(i, 16, loop(j, 8, Store(A, (i, j), Load(A, (i, j)) + 1.0)), ForKind.PARALLEL)


def test_legal_functions_pass():
    verify(func(GOOD), Level.LOOP)
    verify(func(Alloc(R, seq(loop(i, 4, put(i)), loop(i, 8, put(i))))), Level.FINAL)
    verify(func(loop(i, 4, Let(n, i * 2, put(n)), ForKind.PARALLEL)), Level.FINAL)
    verify(
        func(put(Ramp(const(0), 1, 4), Broadcast(ZERO, 4), Broadcast(const(True, bool_), 4))), Level.DEVICE
    )


ADD = Combiner("sum", (), (), (), ())
TWICE = loop(j, 2, put(j), ForKind.PARALLEL)


@pytest.mark.parametrize(
    ("body", "level", "message"),
    [
        (put(i), Level.LOOP, "variable 'i' (int64) is not defined here"),
        (seq(loop(i, 4, put(i)), put(i)), Level.LOOP, "variable 'i' (int64) is not defined here"),
        (loop(i, 4, loop(i, 4, put(i))), Level.LOOP, "variable 'i' is defined inside its own scope"),
        (
            seq(loop(i, 4, put(i)), Let(Var("i", int32), const(1, int32), put(const(0)))),
            Level.LOOP,
            "variable 'i' is int64 elsewhere and int32 here",
        ),
        (Let(n, const(1, int32), put(n)), Level.LOOP, "variable 'n' is int64, its value int32"),
        (
            For(i, const(0), const(4, int32), ForKind.SERIAL, put(i)),
            Level.LOOP,
            "loop 'i' is int64, begins at int64 and has extent int32",
        ),
        (If(const(1), put(const(0))), Level.LOOP, "the condition is int64, not bool"),
        (Store(R, (const(0),), ZERO), Level.LOOP, "buffer 'R' is neither a parameter nor allocated around"),
        (Alloc(Buffer("F", (4,), float32), put(const(0))), Level.LOOP, "there is already a buffer 'F'"),
        (Store(A, (const(0),), ZERO), Level.LOOP, "'A' has 1 indices and should have 2"),
        (GOOD, Level.FLAT, "'A' has 2 indices and should have 1"),
        (put(const(0), const(1)), Level.LOOP, "a int64 is stored where float32 belongs"),
        (put(Ramp(const(0), 1, 4)), Level.LOOP, "a float32 is stored where float32x4 belongs"),
        (put(const(0.0, float32)), Level.LOOP, "an index of 'F' is float32, not an integer"),
        (put(const(0), mask=const(1)), Level.LOOP, "the mask of 'F' is int64, with 1 lanes"),
        (put(const(0), Reduce(ADD, (ZERO,), ())), Level.LOOP, "a reduction is left"),
        (
            put(const(0), Select(const(1), ZERO, ZERO)),
            Level.LOOP,
            "a select of float32 has a condition of type int64",
        ),
        (
            loop(n, 4, loop(i, n, put(i), ForKind.UNROLLED)),
            Level.LOOP,
            "unrolled loop 'i' has no constant extent",
        ),
        (loop(i, 4, put(i), ForKind.VECTORIZED), Level.FINAL, "loop 'i' is still vectorized"),
        (loop(i, 4, put(i), ForKind.UNROLLED), Level.FINAL, "loop 'i' is still unrolled"),
        (loop(i, 4, put(i), ForKind.THREAD), Level.LOOP, "loop 'i' is bound to no thread axis"),
        (loop(i, 2, TWICE), Level.FINAL, "parallel loop 'j' is not outermost"),
        (seq(TWICE, TWICE), Level.FINAL, "there are 2 parallel loops; a kernel has at most one"),
        (
            Alloc(R, loop(i, 4, Store(R, (i,), ZERO))),
            Level.FINAL,
            "register buffer 'R' has the index i, which is not constant",
        ),
        (Evaluate(Load(R, (const(0),))), Level.LOOP, "buffer 'R' is neither a parameter nor"),
    ],
)
def test_refusals(body, level, message):
    with pytest.raises(LoweringError) as caught:
        verify(func(body), level, "unroll")
    assert caught.value.what.startswith(f"unroll: {message}")


def test_parameters():
    with pytest.raises(LoweringError, match="two parameters are called 'F'"):
        verify(func(put(const(0)), F, Buffer("F", (4,), float32)), Level.LOOP)
    with pytest.raises(LoweringError, match="parameter 'R' has scope register, not global"):
        verify(func(put(const(0)), F, R), Level.LOOP)


def test_the_message_shows_the_neighbourhood():
    body = loop(i, 4, seq(*(put(const(k)) for k in range(8)), put(j), *(put(const(k)) for k in range(8))))
    with pytest.raises(LoweringError) as caught:
        verify(func(body, F), Level.LOOP, "vectorize")
    assert str(caught.value).split("\n") == [
        "vectorize: variable 'j' (int64) is not defined here, in `F[j] = 0` of kernel 'kernel'. ",
        *(f"      F[{k}] = 0" for k in range(3, 8)),
        ">     F[j] = 0",
        *(f"      F[{k}] = 0" for k in range(5)),
    ]


# -- bounds --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "body",
    [
        GOOD,
        loop(i, 16, loop(j, 9, If(i * 8 + j < 128, put(i * 8 + j)))),
        loop(i, 17, loop(j, 8, put(i * 8 + j, mask=i < 16))),
        loop(
            i,
            17,
            For(j, const(0), minimum(8, 130 - i * 8), ForKind.SERIAL, If(i * 8 + j <= 127, put(i * 8 + j))),
        ),
        loop(i, 128, put(i, select(all_of(i >= 1, i < 127), Load(F, (i + 1,)) + Load(F, (i - 1,)), 0.0))),
        loop(i, 128, put(i, Load(F, (i + 1,), i < 127))),
        loop(i, 128, Let(n, i + 1, If(n < 128, put(n)))),
        loop(i, 9, Let(n, i // 3, Let(j, i % 3, Store(F9, (n * 3 + j,), Load(F9, (n * 3 + j + 1,), j < 2))))),
        loop(n, 7, loop(i, 3, loop(j, 2, If(n * 7 + i * 2 + j < 3, Store(F3, (i * 2 + j,), ZERO))))),
        loop(i, 128, If(i >= 100, put(i - 100), put(i + 28))),
        loop(i, 128, Store(A, (i // 8, i % 8), ZERO)),
        loop(i, 128, Store(A, (i,), ZERO)),  # flat
        loop(i, 8, put(Ramp(i * 16, 1, 16), Broadcast(ZERO, 16))),
        loop(
            i,
            10,
            put(Ramp(i * 16, 1, 16), Broadcast(ZERO, 16), Ramp(i * 16, 1, 16) < Broadcast(const(128), 16)),
        ),
        loop(i, 128, put(minimum(maximum(Load(IDX, (i,)).astype("int64"), 0), 127))),
        Alloc(Buffer("S", (4, 4), float32, Scope.LOCAL, (8, 1)), put(const(127))),
    ],
)
def test_provably_in_range(body):
    assert check_bounds(func(body)) == []


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (loop(i, 129, put(i)), "F: index i takes [0, 128], extent 128, in `F[i] = 0`"),
        (loop(i, 16, Store(A, (i, i), ZERO)), "A: index i takes [0, 15], extent 8, in `A[i][i] = 0`"),
        (loop(i, 128, put(Load(IDX, (i,)))), "F: index IDX[i] takes [-2147483648, 2147483647], extent 128"),
        (
            loop(i, 128, put(i, select(Load(F, (i + 1,)) > 0.0, 1.0, ZERO))),
            "F: index i + 1 takes [1, 128], extent 128",
        ),
        (
            loop(i, 9, put(Ramp(i * 16, 1, 16), Broadcast(ZERO, 16))),
            "F: index ramp(i * 16, 1, 16) takes [0, 143], extent 128",
        ),
    ],
)
def test_what_may_leave_its_buffer(body, text):
    found = check_bounds(func(body))
    assert len(found) == 1
    assert str(found[0]).startswith(text)


def test_an_index_that_a_store_may_have_changed_is_not_trusted():
    index = Load(IDX, (i,))
    guarded = If(all_of(Compare(Cmp.GE, index, const(0, int32)), index < 128), put(index))
    assert len(check_bounds(func(loop(i, 128, guarded)))) == 1


def test_wrong_types_cannot_even_be_built():
    with pytest.raises(Exception, match="operands of"):
        Binary(Op.ADD, const(1), const(1, int32))
