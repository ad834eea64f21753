"""The text of nodes. The two matrix products are the classic lecture listings, line for line."""

import pytest

from autotensor.base.dtype import bool_, float16, float32, float64, int32, int64
from autotensor.ir.expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Combiner,
    Load,
    Op,
    Ramp,
    Reduce,
    Var,
    all_of,
    any_of,
    const,
    maximum,
    minimum,
    select,
)
from autotensor.ir.func import Buffer, Launch, PrimFunc, Program, Role, Scope
from autotensor.ir.printer import neighbourhood, to_text
from autotensor.ir.stmt import NOTHING, Alloc, Barrier, Evaluate, For, ForKind, If, Let, Store, seq

A, B, C = (Buffer(n, (1024, 1024), float32) for n in "ABC")
i, j, k = Var("i"), Var("j"), Var("k")
x, y = Var("x", float32), Var("y", float32)
ZERO = const(0.0, float32)


def loops(names_and_extents, body):
    for var, extent in reversed(names_and_extents):
        body = For(var, const(0), const(extent), ForKind.SERIAL, body)
    return body


def multiply_add(y, x, k):
    return Store(C, (y, x), Load(C, (y, x)) + Load(A, (k, y)) * Load(B, (k, x)))


def test_naive_matrix_product():
    y, x, k = Var("y"), Var("x"), Var("k")
    update = loops([(k, 1024)], multiply_add(y, x, k))
    nest = loops([(y, 1024), (x, 1024)], seq(Store(C, (y, x), ZERO), update))
    assert (
        to_text(nest)
        == """\
for y in range(1024):
  for x in range(1024):
    C[y][x] = 0
    for k in range(1024):
      C[y][x] += A[k][y] * B[k][x]"""
    )


def test_tiled_matrix_product():
    yo, yi, xo, xi, ko, ki = (Var(n) for n in ("C.y.0", "C.y.1", "C.x.0", "C.x.1", "C.k.0", "C.k.1"))
    y, x, k = yo * 8 + yi, xo * 8 + xi, ko * 8 + ki
    fill = loops([(yi, 8), (xi, 8)], Store(C, (y, x), ZERO))
    update = loops([(ko, 128), (yi, 8), (xi, 8), (ki, 8)], multiply_add(y, x, k))
    nest = loops([(yo, 128), (xo, 128)], seq(fill, update))
    names = {"C.y.0": "yo", "C.y.1": "yi", "C.x.0": "xo", "C.x.1": "xi", "C.k.0": "ko", "C.k.1": "ki"}
    assert (
        to_text(nest, names=names)
        == """\
for yo in range(128):
  for xo in range(128):
    for yi in range(8):
      for xi in range(8):
        C[yo*8+yi][xo*8+xi] = 0
    for ko in range(128):
      for yi in range(8):
        for xi in range(8):
          for ki in range(8):
            C[yo*8+yi][xo*8+xi] += A[ko*8+ki][yo*8+yi] * B[ko*8+ki][xo*8+xi]"""
    )


@pytest.mark.parametrize(
    ("e", "text"),
    [
        ((i + j) * k, "(i + j) * k"),
        (i + j * k, "i + j * k"),
        (i - (j - k), "i - (j - k)"),
        (i - j - k, "i - j - k"),
        (i // 7 % 3, "i // 7 % 3"),
        (i * (j // 2), "i * (j // 2)"),
        (-(i + j), "-(i + j)"),
        (-i * j, "-i * j"),
        (-const(3), "-(3)"),
        (i - (-3), "i - -3"),
        (minimum(i, j + 1), "min(i, j + 1)"),
        ((i & 7) + 1, "(i & 7) + 1"),
        (i << 2 | j, "i << 2 | j"),
        (~i, "~i"),
        (all_of(i < 3, any_of(j > 4, k.equal(5))), "i < 3 and (j > 4 or k == 5)"),
        (~(i < 3), "not i < 3"),
        (select(i < 3, x, 0.0), "(x if i < 3 else 0)"),
        (Cast(float32, i + 1), "float32(i + 1)"),
        (Call("exp", (x - y,), float32), "exp(x - y)"),
        (Ramp(i, 4, 8), "ramp(i, 4, 8)"),
        (Broadcast(x, 16), "x16(x)"),
        (Load(A, (i * 2 + 1, minimum(j, k + 3))), "A[i*2+1][min(j, k+3)]"),
        (Load(A, ((i + 1) * 8, (i % 4) // 2)), "A[(i+1)*8][i%4//2]"),
        (Load(A, (i, j), i < 3), "(A[i][j] if i < 3)"),
        (Load(Buffer("s", (), float32), ()), "s[()]"),
    ],
)
def test_expressions(e, text):
    assert str(e) == text


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.0, float32, "0"),
        (-0.0, float32, "-0.0"),
        (1.0, float32, "1.0"),
        (1.5, float32, "1.5"),
        (0.1, float32, "0.1"),
        (float(float32.numpy.type(0.1)), float32, "0.1"),
        (0.1, float64, "0.1"),
        (1 / 3, float64, "0.3333333333333333"),
        (float(float16.numpy.type(1 / 3)), float16, "0.3333"),
        (1e30, float32, "1e+30"),
        (float("-inf"), float32, "-inf"),
        (float("nan"), float32, "nan"),
        (True, bool_, "True"),
        (-7, int32, "-7"),
    ],
)
def test_numbers(value, dtype, text):
    assert str(const(value, dtype)) == text


F = Buffer("F", (4096,), float32)


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (Ramp(i * 64 + j, 1, 16), "F[i*64+j:i*64+j+16]"),
        (Ramp(i + 4, 1, 16), "F[i+4:i+20]"),
        (Ramp(const(8), 1, 16), "F[8:24]"),
        (Ramp(i, 2, 16), "F[ramp(i, 2, 16)]"),
    ],
)
def test_vector_index(index, text):
    assert str(Load(F, (index,))) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Load(F, (i,)) + x * y, "F[i] += x * y"),
        (Load(F, (i,)) * x, "F[i] *= x"),
        (Load(F, (i,)) + x + y, "F[i] = F[i] + x + y"),
        (x + Load(F, (i,)), "F[i] = x + F[i]"),
        (Load(F, (j,)) + x, "F[i] = F[j] + x"),
        (maximum(Load(F, (i,)), x), "F[i] = max(F[i], x)"),
    ],
)
def test_updates(value, text):
    assert str(Store(F, (i,), value)) == text


def test_masks():
    old, mask = Load(F, (i,), i < 9), i < 9
    assert str(Store(F, (i,), x, mask)) == "F[i] = x if i < 9"
    assert str(Store(F, (i,), old + x, mask)) == "F[i] += x if i < 9"
    assert str(Store(F, (i,), Load(F, (i,)) + x, mask)) == "F[i] = F[i] + x if i < 9"


@pytest.mark.parametrize(
    ("kind", "begin", "extent", "text"),
    [
        (ForKind.SERIAL, const(0), const(8), "range(8)"),
        (ForKind.SERIAL, const(2), const(3), "range(2, 5)"),
        (ForKind.SERIAL, const(0), minimum(k, 8), "range(min(k, 8))"),
        (ForKind.SERIAL, j * 4, const(4), "range(j * 4, j * 4 + 4)"),
        (ForKind.PARALLEL, const(0), const(8), "parallel(8)"),
        (ForKind.VECTORIZED, const(0), const(8), "vectorized(8)"),
        (ForKind.UNROLLED, const(1), const(8), "unrolled(1, 9)"),
        (ForKind.THREAD, const(0), const(8), 'bind(8, "threadIdx.x")'),
    ],
)
def test_loops(kind, begin, extent, text):
    thread = "threadIdx.x" if kind is ForKind.THREAD else ""
    assert str(For(i, begin, extent, kind, NOTHING, thread)) == f"for i in {text}:\n  pass"


def test_other_statements():
    local = Buffer("CL", (6, 64), float32, Scope.LOCAL)
    acc = Buffer("acc", (4,), float32, Scope.REGISTER, (2,))
    store = Store(F, (i,), ZERO)
    body = Alloc(local, Alloc(acc, seq(Let(Var("m"), i // 7, store), Barrier(), Barrier("shared"))))
    assert (
        to_text(seq(body, If(i < 3, store, Evaluate(Call("exp", (x,), float32)))))
        == """\
with CL = local([6, 64], float32):
  acc = register([4], float32, strides=[2])
  with m = i // 7:
    F[i] = 0
  barrier()
  barrier("shared")
if i < 3:
  F[i] = 0
else:
  exp(x)"""
    )


def test_function():
    body = For(i, const(0), const(64), ForKind.PARALLEL, Store(F, (i,), Load(A, (i, i))))
    f = PrimFunc("copy", (A, F), body, Launch((64, 1, 1), (32, 1, 1), 512), (("fast", True),))
    assert (
        str(f)
        == """\
def copy(A: float32[1024, 1024], F: float32[4096]):
  # grid=(64, 1, 1) block=(32, 1, 1) shared=512 B
  # fast=True
  for i in parallel(64):
    F[i] = A[i][i]"""
    )


def test_program():
    first = PrimFunc("pack", (A, F), Store(F, (const(0),), Load(A, (const(0), const(0)))))
    args = ((A, Role.CONSTANT), (F, Role.PREPARED))
    assert (
        str(Program(args, (first,), ()))
        == """\
program(
  A: float32[1024, 1024]  # constant
  F: float32[4096]  # prepared
)

# prepare
def pack(A: float32[1024, 1024], F: float32[4096]):
  F[0] = A[0][0]"""
    )


def test_reductions():
    one = Combiner("sum", (x,), (y,), (x + y,), (ZERO,))
    assert str(Reduce(one, (Load(A, (k, i)) * 2.0,), (k,))) == "sum(A[k][i] * 2.0, axis=[k])"
    two = Combiner("argmax", (x, i), (y, j), (x, i), (ZERO, const(0)))
    assert str(Reduce(two, (Load(A, (k, i)), k), (k, j), 1)) == "argmax((A[k][i], k), axis=[k, j])[1]"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("i.0", "i_0"), "i_0_1 + i_0"),  # a user's own identifier keeps its spelling
        (("(a*b)", "a_b"), "a_b_1 + a_b"),
        (("A.shared:C", "x"), "A_shared_C + x"),
        (("for", "min"), "for_ + min_"),
        (("0", "...",), "v0 + v"),
    ],
)  # fmt: skip
def test_names_that_are_no_identifiers(names, text):
    a, b = (Var(n) for n in names)
    assert str(a + b) == text


def test_given_names_do_not_collide():
    assert to_text(Var("i.0") + Var("io"), names={"i.0": "io"}) == "io + io_1"


def test_types():
    e = Cast(int64, Var("n", int32) + 1) * Var("i.0")
    assert to_text(e, types=True) == "int64(n:int32 + 1:int32) * `i.0`:int64"


def test_short_form_in_containers():
    assert repr([i + 1]) == "[<Binary i + 1>]"
    assert repr(loops([(i, 4)], Store(F, (i,), ZERO))) == "<For for i in range(4):>"
    long = repr(Binary(Op.ADD, i, Call("f" * 100, (), int64)))
    assert long.endswith("...>")
    assert len(long) < 80


def test_neighbourhood():
    target = Store(F, (j,), ZERO)
    others = [Store(F, (const(n),), ZERO) for n in range(7)]
    f = PrimFunc("f", (F,), seq(*others, For(j, const(0), const(4), ForKind.SERIAL, target), *others))
    assert (
        neighbourhood(f, target, lines=2)
        == """\
    F[6] = 0
    for j in range(4):
>     F[j] = 0
    F[0] = 0
    F[1] = 0"""
    )
