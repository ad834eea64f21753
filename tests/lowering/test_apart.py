"""Parts of a reduction that are summed separately: the places of their accumulators, and the results."""

from __future__ import annotations

import numpy as np
import pytest
from comparison import check

from autotensor import te
from autotensor.codegen.interp.interpreter import run_program
from autotensor.lowering.pipeline import lower, lower_nest
from autotensor.schedule.schedule import Schedule
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate

LOOPS = """\
def C(A: float32[5, 12], B: float32[12, 20], C: float32[5, 20]):
  for C_i in range(5):
    for C_j in range(20):
      C[C_i][C_j] = 0
  for C_k_0 in range(3):
    C_part = local([5, 20], float32)
    for C_i in range(5):
      for C_j in range(20):
        C_part[C_i][C_j] = 0
    for C_k_1 in range(4):
      for C_i in range(5):
        for C_j in range(20):
          C_part[C_i][C_j] += A[C_i][C_k_0*4+C_k_1] * B[C_k_0*4+C_k_1][C_j]
    for C_i in range(5):
      for C_j in range(20):
        C[C_i][C_j] += C_part[C_i][C_j]"""


def product(rows=5, columns=20, depth=12, reducer=te.sum):
    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((depth, columns), name="B")
    k = te.reduce_axis(depth, name="k")
    c = te.compute((rows, columns), lambda i, j: reducer(a[i, k] * b[k, j], axis=k), name="C")
    return ComputeDAG.of([a, b, c])


def tiled(dag, *, apart=("k.0",), cut=4):
    s = Schedule(dag)
    stage = s["C"]
    stage.split("k", factors=[cut, 2])
    stage.split("j", factor=8)
    stage.reorder("j.0", "k.0", "k.1", "k.2", "i", "j.1")
    stage.vectorize("j.1")
    for loop in apart:
        stage.pragma(loop, "sum_apart", 1)
    return s


def test_a_part_is_cleared_summed_and_added():
    s = Schedule(product())
    s["C"].split("k", factor=4)
    s["C"].reorder("k.0", "k.1", "i", "j")
    s["C"].pragma("k.0", "sum_apart", 1)
    assert str(lower_nest(s.state).run[0]) == LOOPS
    check(s.dag, s.trace)


@pytest.mark.parametrize("apart", [("k.0",), ("k.1",), ("k.0", "k.1"), ("k.2",), ("j.0",), ()])
@pytest.mark.parametrize("reducer", [te.sum, te.max])
@pytest.mark.parametrize("depth", [16, 13])
def test_any_loop_of_any_reduction(apart, reducer, depth):
    """Parts of parts, a loop with nothing inside, one that sums nothing, a split that does not divide."""
    s = tiled(product(depth=depth, reducer=reducer), apart=apart)
    check(s.dag, s.trace)


@pytest.mark.parametrize("lanes", ["j.1", "k.1"])
def test_lanes_outside_and_of_a_reduction_are_left_alone(lanes):
    s = Schedule(product())
    s["C"].split("k", factor=4)
    s["C"].split("j", factor=4)
    s["C"].reorder("i", "j.0", "j.1", "k.0", "k.1")
    s["C"].vectorize(lanes)
    plain = str(lower_nest(s.state).run[0])
    s["C"].pragma("k.0", "sum_apart", 1)
    assert str(lower_nest(s.state).run[0]) == plain
    check(s.dag, s.trace)


def test_the_sum_is_rounded_as_it_is_written():
    """2**24 + 1 is not a float32. Next to 2**24, ones are lost if they are added one by one, but not if 256
    are added at once."""
    dag = product(1, 8, 513)
    a, b = np.ones((1, 513), np.float32), np.ones((513, 8), np.float32)
    a[0, 0] = 2.0**24
    for apart, lost in ((("k.0",), 256), ((), 512)):
        s = tiled(dag, apart=apart, cut=128)
        got = np.full((1, 8), np.nan, np.float32)
        run_program(lower(s.state), {"A": a, "B": b, "C": got})
        exact = evaluate(dag, {"A": a, "B": b}, accumulate=np.float64)["C"]
        assert (exact - got == lost).all()
