"""Laws one by one, then statements as pictures."""

import doctest

import pytest

from autotensor.base.dtype import bool_, float32, float64, int8, int32, int64
from autotensor.ir import affine as affine_module
from autotensor.ir import printer as printer_module
from autotensor.ir import simplify as simplify_module
from autotensor.ir.bounds import Interval
from autotensor.ir.expr import (
    FALSE,
    TRUE,
    Binary,
    Broadcast,
    Call,
    Cast,
    Cmp,
    Compare,
    Load,
    Neg,
    Op,
    Ramp,
    Unary,
    Var,
    all_of,
    any_of,
    const,
    maximum,
    minimum,
    select,
)
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.rewrite import on_rewrite
from autotensor.ir.simplify import LAWS, simplify
from autotensor.ir.stmt import NOTHING, Alloc, Barrier, Evaluate, For, ForKind, If, Let, Seq, Store, seq

i, j, k, n, f = (Var(x) for x in "ijknf")
x, y = Var("x", float32), Var("y", float32)
RANGES = {i: Interval(0, 3), j: Interval(0, 7), k: Interval(0, 15)}
A = Buffer("A", (64,), float32)
D = Buffer("D", (64,), int32)
ZERO = const(0.0, float32)


@pytest.mark.parametrize("module", [affine_module, simplify_module, printer_module])
def test_doctests(module):
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(
    ("e", "text"),
    [
        # sums
        (1 + i + 2, "i + 3"),
        ((i + j) * 8 - j * 8, "i * 8"),
        (f // 7 * 7 + f % 7, "f"),
        ((f % 56) // 7 * 7 + (f % 56) % 7, "f % 56"),
        ((i * 8 + j) // 4 * 4 + (i * 8 + j) % 4, "i * 8 + j"),
        # quotients and remainders
        ((i * 8 + j) // 8, "i"),
        ((i * 8 + j) % 8, "j"),
        ((i * 8 + j) // 4, "i * 2 + j // 4"),
        ((i * 8 + j + 8) // 8, "i + 1"),
        ((n * 16 + j) // 32, "n // 2"),
        ((n * 16 + j) % 32, "n % 2 * 16 + j"),
        ((n * 8 + 3) % 4, "3"),
        ((n - 1) // 8, "(n + 7) // 8 - 1"),
        (n // 4 // 8, "n // 32"),
        (n % 12 // 4, "n // 4 % 3"),
        (n % 12 % 4, "n % 4"),
        (n // 1 + n % 1, "n"),
        (j // 8 + j % 8, "j"),
        ((j + 16) % 8, "j"),
        (n // 0, "n // 0"),
        # minima and maxima
        (minimum(i, 4), "i"),
        (maximum(i, 4), "4"),
        (minimum(8, n), "min(n, 8)"),
        (minimum(minimum(n, 8), 5), "min(n, 5)"),
        (minimum(n, minimum(n + 1, 4)), "min(n, 4)"),
        (minimum(n * 8 + 8, n * 8 + j), "n * 8 + j"),
        # bits
        (j & 7, "j"),
        (n & 8, "n & 8"),
        (n << 3, "n * 8"),
        (n << 64, "0"),
        (n >> 64, "n >> 63"),
        (Call("pow", (n, const(3)), int64), "n * n * n"),
        (Call("pow", (const(3), const(41)), int64), str((3**41 + 2**63) % 2**64 - 2**63)),
        (Call("abs", (i + 1,), int64), "i + 1"),
        (Call("abs", (n,), int64), "abs(n)"),
        # comparisons
        (i < 4, "True"),
        (i * 8 + j < 24, "i < 3"),
        (i * 8 + j < 17, "i * 8 + j < 17"),
        (i * 8 <= 16, "i < 3"),
        (n * 16 + k < 40, "n * 16 + k < 40"),
        (n >= 8, "n >= 8"),
        (n > 7, "n >= 8"),
        (-n < -3, "n >= 4"),
        (n + 3 < f + 5, "n < f + 2"),
        (n + 5 < f + 3, "n + 2 < f"),
        (n <= f, "n <= f"),
        ((n * 4).equal(8), "n == 2"),
        ((n * 4).equal(9), "False"),
        (Compare(Cmp.NE, n, n + 1), "True"),
        # conditions
        (all_of(i < 4, n < 4), "n < 4"),
        (all_of(n < 3, n < 5), "n < 3"),
        (all_of(n < 3, n > 5), "False"),
        (any_of(n < 3, n < 5), "n < 5"),
        (any_of(n < 3, n >= 3), "True"),
        (~(n < 3), "n >= 3"),
        (~~(x < y), "x < y"),
        (~(x < y), "not x < y"),  # NaN
        (select(i < 4, i, n), "i"),
        (select(n < 4, i, i), "i"),
        (select(~(x < y), i, j), "(j if x < y else i)"),
        (select(n < 4, TRUE, FALSE), "n < 4"),
    ],
)
def test_integer_laws(e, text):
    assert str(simplify(e, RANGES)) == text


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (const(1.5, float32) * 2.0 + 0.25, "3.25"),
        (const(0.1, float32) + 0.2, "0.3"),  # as float32 adds them
        (x * 1.0, "x"),
        (x / 1.0, "x"),
        (x - 0.0, "x"),
        (x + -0.0, "x"),
        (Unary(Neg.NEG, -x), "x"),
        (x + 0.0, "x + 0"),  # -0.0 + 0.0 is 0.0
        (x * 0.0, "x * 0"),  # NaN, infinity
        (x - x, "x - x"),
        (minimum(x, x), "x"),
        (maximum(x, y), "max(x, y)"),
    ],
)
def test_floats_keep_every_bit(e, text):
    assert str(simplify(e)) == text


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (Cast(int64, Cast(int8, const(300))), "44"),
        (Cast(float64, const(0.1, float32)), "0.10000000149011612"),
        (Cast(float32, Cast(float64, x)), "x"),
        (Cast(float64, Cast(float32, Var("d", float64))), "float64(float32(d))"),
        (Cast(int32, Cast(int64, Load(D, (i,)))), "D[i]"),
        (Cast(int32, Cast(int8, Load(D, (i,)))), "int32(int8(D[i]))"),
        (Cast(bool_, const(2)), "True"),
        (Cast(bool_, i + 1), "True"),
        (Cast(float32, select(n < 4, 1, 0)), "(1.0 if n < 4 else 0)"),
    ],
)
def test_casts(e, text):
    assert str(simplify(e, RANGES)) == text


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (Ramp(i, 1, 4) + Broadcast(n, 4), "ramp(i + n, 1, 4)"),
        (Ramp(i, 1, 4) * 3, "ramp(i * 3, 3, 4)"),
        (Ramp(i, 1, 4) - Ramp(n, 1, 4), "x4(i - n)"),
        (Broadcast(x, 4) * Broadcast(y, 4), "x4(x * y)"),
        (Ramp(i, 0, 4), "x4(i)"),
        (Ramp(i, 3, 1), "i"),
        (Ramp(n * 16, 1, 16) // 32, "x16(n // 2)"),
        (Ramp(n * 16, 1, 16) % 32, "ramp(n % 2 * 16, 1, 16)"),
        (Ramp(n * 8, 4, 4) // 4, "ramp(n * 2, 1, 4)"),
        (Unary(Neg.NEG, Ramp(n, 1, 4)), "ramp(-n, -1, 4)"),
        (Broadcast(n, 1), "n"),
        (Ramp(n, 1, 4) // 4, "ramp(n, 1, 4) // x4(4)"),
        (Ramp(n, 1, 4) < Broadcast(const(9), 4), "ramp(n, 1, 4) < x4(9)"),
        (Ramp(i * 4, 1, 4) < Broadcast(const(16), 4), "x4(True)"),
        (Cast(int32, Ramp(n, 1, 4)), "ramp(int32(n), 1, 4)"),
        (Load(A, (Broadcast(i, 4),)), "x4(A[i])"),
        (Load(A, (Ramp(i, 1, 4),), Broadcast(i < 4, 4)), "A[i:i+4]"),
        (Load(A, (n,), n > n), "0"),
        (select(Broadcast(n < 4, 4), Broadcast(x, 4), Broadcast(y, 4)), "x4((x if n < 4 else y))"),
    ],
)
def test_vectors(e, text):
    assert str(simplify(e, RANGES)) == text


def test_every_law_is_used():
    fired = set()
    with on_rewrite(lambda law, before, after: fired.add(law)):
        for test in (test_integer_laws, test_floats_keep_every_bit, test_casts, test_vectors):
            for e, _ in test.pytestmark[0].args[1]:
                simplify(e, RANGES)
    assert {law.__name__ for law in LAWS.rules} == {law.__name__ for law in fired}


def test_data_arithmetic_is_not_multiplied_out():
    e = (Load(D, (i,)) + Load(D, (j,))) * 3
    assert simplify(e) is e


def test_assumptions():
    assert simplify(minimum(n, 8), assume=[n < 5]) is n
    assert str(simplify(n % 4 + i, RANGES, assume=[i.equal(2)])) == "n % 4 + 2"


# -- statements ----------------------------------------------------------------------------------------------
def loop(var, extent, body, kind=ForKind.SERIAL, begin=0):
    return For(var, begin if hasattr(begin, "dtype") else const(begin), extent + const(0), kind, body)


def put(index, value=ZERO, mask=None):
    return Store(A, (index,), value, mask)


def test_ranges_of_loops():
    nest = loop(i, 4, loop(j, 8, If(i * 8 + j < 32, put((i * 8 + j) // 8 + j % 8))))
    assert str(simplify(nest)) == "for i in range(4):\n  for j in range(8):\n    A[i+j] = 0"


def test_what_is_known_inside_an_if():
    inner = If(i * 8 + j < 20, put(i), put(j))
    nest = loop(i, 4, loop(j, 8, If(i * 8 + j < 17, inner, If(i < 2, put(n)))))
    assert str(simplify(nest)).split("\n")[2:] == ["    if i * 8 + j < 17:", "      A[i] = 0"]


def test_the_extent_of_a_tail_proves_its_guard():
    tail = loop(
        i, 3, For(j, const(0), minimum(8, 17 - i * 8), ForKind.SERIAL, If(i * 8 + j < 17, put(i * 8 + j)))
    )
    assert "if" not in str(simplify(tail))


def test_conditions_that_read_memory_may_change():
    flag = Load(D, (n,)) < 3
    body = If(flag, seq(Store(D, (n,), const(5, int32)), If(flag, put(i))))
    assert simplify(body) is body


def test_siblings_with_one_variable_have_their_own_ranges():
    both = seq(loop(i, 4, put(minimum(i, 5))), loop(i, 8, put(minimum(i, 5))))
    assert str(simplify(both)).split("\n") == [
        *("for i in range(4):", "  A[i] = 0"),
        *("for i in range(8):", "  A[min(i, 5)] = 0"),
    ]


@pytest.mark.parametrize("kind", [ForKind.SERIAL, ForKind.PARALLEL, ForKind.VECTORIZED, ForKind.UNROLLED])
def test_a_loop_of_one_turn_is_its_body(kind):
    assert str(simplify(loop(i, 1, loop(j, 8, put(i * 8 + j)), kind, begin=n * 2))) == (
        "for j in range(8):\n  A[n*16+j] = 0"
    )


def test_what_stands_for_a_variable_is_known_where_it_lies():
    """j is i + 0, which is below 4. The loop over k is outside of both, and does not matter."""
    nest = loop(k, 2, loop(i, 4, loop(j, 1, put(j * 2 // 8 + n), begin=i)))
    assert str(simplify(nest)) == "for k in range(2):\n  for i in range(4):\n    A[n] = 0"


def test_a_thread_axis_of_one_turn_stays():
    st = For(i, const(0), const(1), ForKind.THREAD, put(n), "threadIdx.x")
    assert simplify(st) is st


@pytest.mark.parametrize(
    "st",
    [
        loop(i, 0, put(i)),
        loop(i, n - n, put(i)),
        loop(i, 4, If(i > 4, put(i))),
        If(n < 4, NOTHING),
        If(n < 4, NOTHING, NOTHING),
        put(i, mask=FALSE),
        Alloc(A, NOTHING),
        Let(n, i + 1, NOTHING),
        Evaluate(const(0)),
        Seq((NOTHING, Seq((NOTHING,)))),
    ],
)
def test_nothing_is_left_of_nothing(st):
    assert simplify(st) is NOTHING


def test_barriers_stay():
    st = loop(i, 4, Barrier())
    assert simplify(st) is st


def test_an_empty_then_becomes_a_negated_condition():
    assert str(simplify(If(n < 4, NOTHING, put(n)))) == "if n >= 4:\n  A[n] = 0"


def test_lets():
    assert str(simplify(Let(k, const(3), put(k + n)))) == "A[n+3] = 0"
    assert str(simplify(Let(k, n, put(k + n)))) == "A[n*2] = 0"
    kept = loop(j, 8, Let(k, j // 4, If(k < 2, put(k))))
    assert str(simplify(kept)) == "for j in range(8):\n  k = j // 4\n  A[k] = 0"


def test_masks_that_hold_go():
    st = loop(i, 4, put(Ramp(i * 4, 1, 4), Broadcast(ZERO, 4), Ramp(i * 4, 1, 4) < Broadcast(const(16), 4)))
    assert str(simplify(st)) == "for i in range(4):\n  A[i*4:i*4+4] = x4(0)"


def test_unchanged_is_identical():
    st = loop(i, 4, Alloc(Buffer("R", (4,), float32, Scope.REGISTER), put(i, Load(A, (i,)) + x)))
    assert simplify(st) is st


def test_division_rules_hold_no_more_when_data_may_wrap():
    b = Var("b", int8)
    e = Binary(Op.FLOORDIV, b * 4, const(4, int8))  # 64 * 4 is 0 in int8
    assert simplify(e) is e
    assert simplify(e, {b: Interval(0, 31)}) is b
