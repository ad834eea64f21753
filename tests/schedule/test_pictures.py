"""The effect of every primitive on the loops, as a person would draw it: before and after, in golden
files."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autotensor import te
from autotensor.compiler import nest_text
from autotensor.schedule import Schedule, create_schedule
from autotensor.te import Tensor

Golden = Callable[[str], None]
PICTURES: dict[str, Callable[[], tuple[Schedule, Schedule]]] = {}


def picture(fn: Callable[[Schedule], None]) -> Callable[[Schedule], None]:
    """Registers a primitive under its name. It is applied to `matmul_relu`, or to the schedule in
    `STARTS`."""

    def pair() -> tuple[Schedule, Schedule]:
        start = STARTS.get(fn.__name__, matmul_relu)
        before, after = start(), start()
        fn(after)
        return before, after

    PICTURES[fn.__name__] = pair
    return fn


def scale_rows() -> Schedule:
    """B = A * 2 in rows of 8."""
    a = te.placeholder((6, 8), name="A")
    return create_schedule(te.compute((6, 8), lambda i, j: a[i, j] * 2, name="B"))


def matmul_relu() -> Schedule:
    """C = A B, then D = max(C, 0)."""
    a, b = te.placeholder((6, 5), name="A"), te.placeholder((5, 8), name="B", constant=True)
    k = te.reduce_axis(5, name="k")
    c = te.compute((6, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return create_schedule(te.compute((6, 8), lambda i, j: te.maximum(c[i, j], 0), name="D"))


def blur() -> Schedule:
    """Two stencils: B reads its neighbours of A, C those of B."""
    a = te.placeholder((18,), name="A")
    b = te.compute((16,), lambda i: a[i] + a[i + 2], name="B")
    return create_schedule(te.compute((14,), lambda i: b[i] + b[i + 2], name="C"))


def row_sums() -> Schedule:
    a = te.placeholder((3, 10), name="A")
    k = te.reduce_axis(10, name="k")
    return create_schedule(te.compute((3,), lambda i: te.sum(a[i, k], axis=k), name="B"))


STARTS: dict[str, Callable[[], Schedule]] = {
    **dict.fromkeys(("split", "split_nparts", "split_with_a_tail", "tile", "fuse", "reorder"), scale_rows),
    **dict.fromkeys(("vectorize", "unroll", "parallel", "pragma"), scale_rows),
    **dict.fromkeys(("compute_at", "compute_inline", "compute_root"), blur),
    "rfactor": row_sums,
}


@picture
def split(s: Schedule) -> None:
    s["B"].split("j", factors=(2, 2))


@picture
def split_nparts(s: Schedule) -> None:
    s["B"].split("j", nparts=2)


@picture
def split_with_a_tail(s: Schedule) -> None:
    s["B"].split("j", factor=3)


@picture
def tile(s: Schedule) -> None:
    s["B"].tile("i", "j", 3, 4)


@picture
def fuse(s: Schedule) -> None:
    s["B"].fuse("i", "j")


@picture
def reorder(s: Schedule) -> None:
    s["B"].reorder("j", "i")


@picture
def vectorize(s: Schedule) -> None:
    s["B"].vectorize("j")


@picture
def unroll(s: Schedule) -> None:
    s["B"].unroll("i")


@picture
def parallel(s: Schedule) -> None:
    s["B"].parallel("i")


@picture
def pragma(s: Schedule) -> None:
    s["B"].pragma("j", "auto_unroll_max_step", 8)


@picture
def compute_at(s: Schedule) -> None:
    s["C"].split("i", factor=4)
    s["B"].compute_at(s["C"], "i.0")


@picture
def compute_inline(s: Schedule) -> None:
    s["B"].compute_inline()


@picture
def compute_root(s: Schedule) -> None:
    s["B"].compute_at(s["C"], "i")
    s["B"].compute_root()


@picture
def cache_read(s: Schedule) -> None:
    near = s.cache_read("B", "local", ["C"])
    near.compute_at(s["C"], "i")


@picture
def cache_write(s: Schedule) -> None:
    near = s.cache_write("C", "local")
    near.compute_at(s["C"], "i")


@picture
def rfactor(s: Schedule) -> None:
    _, ki = s["B"].split("k", factor=4)
    s.rfactor("B", ki)


@picture
def layout(s: Schedule) -> None:
    s.layout("B", [(1, 4)], "1.0 0 1.1")


@picture
def register_tile(s: Schedule) -> None:
    """A schedule with everything: packed constant, accumulators, epilogue."""
    s.layout("B", [(1, 4)], "1.0 0 1.1")
    yo, xo, yi, xi = s["D"].tile("i", "j", 4, 4)
    s["C"].compute_at(s["D"], xo)
    s["C"].reorder("k", "i", "j")
    s["C"].unroll("i")
    s["C"].vectorize("j")
    s["D"].unroll(yi)
    s["D"].vectorize(xi)
    s["D"].parallel(yo)


@pytest.mark.parametrize("name", PICTURES)
def test_picture(name: str, golden: Golden) -> None:
    before, after = PICTURES[name]()
    calls = str(after.trace).replace("\n", "\n    ")
    golden(f"{nest_text(before.state)}\n\n──▶ {calls}\n\n{nest_text(after.state)}")


# -- the lecture's matrix product, line for line -------------------------------------------------------------


def transposed_matmul() -> tuple[Schedule, Tensor, te.IterVar]:
    a, b = te.placeholder((1024, 1024), name="A"), te.placeholder((1024, 1024), name="B")
    k = te.reduce_axis((0, 1024), name="k")
    c = te.compute((1024, 1024), lambda y, x: te.sum(a[k, y] * b[k, x], axis=k), name="C")
    return create_schedule(c), c, k


def test_naive_matmul() -> None:
    s, _, _ = transposed_matmul()
    assert (
        str(s)
        == """\
for y in range(1024):
  for x in range(1024):
    C[y][x] = 0
    for k in range(1024):
      C[y][x] += A[k][y] * B[k][x]"""
    )


def test_tiled_matmul() -> None:
    s, c, k = transposed_matmul()
    yo, yi = s[c].split(c.op.axis[0], factor=8)
    xo, xi = s[c].split(c.op.axis[1], factor=8)
    ko, ki = s[c].split(k, factor=8)
    s[c].reorder(yo, xo, ko, yi, xi, ki)
    assert (
        str(s)
        == """\
for yo in range(128):
  for xo in range(128):
    C[yo*8:yo*8+8][xo*8:xo*8+8] = 0
    for ko in range(128):
      for yi in range(8):
        for xi in range(8):
          for ki in range(8):
            C[yo*8+yi][xo*8+xi] += A[ko*8+ki][yo*8+yi] * B[ko*8+ki][xo*8+xi]"""
    )
