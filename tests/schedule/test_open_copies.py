"""Copies of tensors with run-time extents: as many elements are copied as a call gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.base.target import parse
from autotensor.ir.func import Role
from autotensor.lowering.pipeline import lower
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.schedule import Schedule
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG

n = te.var("n", range=(1, 100))


def sums() -> tuple[te.Tensor, te.Tensor, Schedule]:
    a, k = te.placeholder((4, n, 16), name="A"), te.reduce_axis(n, name="k")
    c = te.compute((4, 16), lambda b, j: te.sum(a[b, k, j], axis=k), name="C")
    return a, c, te.create_schedule(c)


def near(a: te.Tensor, c: te.Tensor, s: Schedule) -> None:
    copy = s.cache_read(a, "local", [c])
    s[copy].compute_at(s[c], s[c].op.axis[0])


COPIES: dict[str, tuple[Callable[[te.Tensor, te.Tensor, Schedule], object], str]] = {
    "a copy at an outer loop": (
        near,
        """\
  for i1 in range(n):
    for i2 in range(16):
      A_local_C[0][i1][i2] = A[b][i1][i2]""",
    ),
    "a layout": (
        lambda a, c, s: s.layout("A", [], "0 2 1"),
        """\
  for d1 in range(n):
    A_packed[d0][d2][d1] = A[d0][d1][d2]""",
    ),
    "a layout in tiles": (
        lambda a, c, s: s.layout("A", [(1, 8)], "1.0 0 2 1.1"),
        """\
for d1o_d0_d2 in parallel((n + 7) // 8 * 64):
  d1o_d0 = d1o_d0_d2 // 16
  d2 = d1o_d0_d2 % 16
  d1o = d1o_d0 // 4
  d0 = d1o_d0 % 4
  for d1i in range(8):
    A_packed[d1o][d0][d2][d1i] = (A[d0][d1o*8+d1i][d2] if d1o * 8 + d1i < n else 0)""",
    ),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_end_where_the_tensor_ends(name: str) -> None:
    copy, want = COPIES[name]
    a, c, s = sums()
    copy(a, c, s)
    assert want in str(at.lower(s, [a, c]))
    f = at.build(s, [a, c], target="llvm -threads=1")
    for rows in (1, 13, 100):
        x = np.arange(4 * rows * 16, dtype=np.float32).reshape(4, rows, 16)
        np.testing.assert_array_equal(f(x), x.sum(1))


def test_a_result_that_is_computed_elsewhere_has_the_current_extents() -> None:
    b = te.placeholder((n, 3), name="B")
    d = te.compute((n, 3), lambda i, j: b[i, j] * 2, name="D")
    s = te.create_schedule(d)
    s.cache_write(d, "global")
    (made,) = lower(s.state).buffers(Role.WORKSPACE)
    assert [str(e) for e in made.dims] == ["n", "3"]


def test_stages_of_algorithms_have_the_current_extents() -> None:
    x = te.placeholder((n, n + 2, 18, 8), name="X")
    w = te.placeholder((8, 8, 3, 3), name="W", constant=True)
    r, q, k = (te.reduce_axis(e, name=name) for name, e in (("r", 3), ("q", 3), ("k", 8)))
    y = te.compute(
        (n, n, 16, 8),
        lambda b, i, j, o: te.sum(x[b, i + r, j + q, k] * w[o, k, r, q], axis=[r, q, k]),
        name="Y",
    )
    state = Trace((UseAlgorithm("Y", "winograd_f4"),)).replay(ComputeDAG.of([x, w, y]))
    made = {b.name: b for b in lower(state, parse("llvm")).buffers(Role.WORKSPACE)}
    assert [str(e) for e in made["Y.M"].dims] == ["n", "6", "6", "(n + 3) // 4", "4", "8"]
