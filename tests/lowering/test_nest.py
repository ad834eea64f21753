"""States become loops: initialisation, guards, boxes, prepared kernels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from comparison import check
from fixed_cases import CASES

from autotensor import te
from autotensor.base import switches
from autotensor.codegen.interp.interpreter import run_program
from autotensor.compiler import nest_text
from autotensor.ir.func import Role
from autotensor.ir.verify import check_bounds
from autotensor.lowering.nest.nest import build_program
from autotensor.lowering.pipeline import PIPELINE, lower
from autotensor.schedule import Schedule, create_schedule

Golden = Callable[[str], None]


@pytest.mark.parametrize("name", CASES)
def test_nests_of_the_fixed_cases(name: str, golden: Golden) -> None:
    golden(nest_text(CASES[name]().state))


@pytest.mark.parametrize("name", ["register_tile", "padded_convolution", "fused_rows", "chain_of_boxes"])
def test_final_programs(name: str, golden: Golden) -> None:
    golden(str(lower(CASES[name]().state)))


@pytest.mark.parametrize("name", CASES)
def test_accesses_of_final_programs_are_provably_in_bounds(name: str) -> None:
    program = lower(CASES[name]().state)
    assert [str(a) for f in (*program.prepare, *program.run) for a in check_bounds(f)] == []


def sums() -> Schedule:
    a = te.placeholder((4, 6, 5), name="A")
    k, j = te.reduce_axis(6, name="k"), te.reduce_axis(5, name="j")
    return create_schedule(te.compute((4,), lambda i: te.sum(a[i, k, j], axis=(k, j)), name="B"))


def test_initialisation_stands_before_the_first_reduction_loop() -> None:
    s = sums()
    s["B"].split("i", factor=2)
    s["B"].reorder("i.0", "k", "i.1", "j")
    assert (
        nest_text(s.state)
        == """\
for io in range(2):
  B[io*2:io*2+2] = 0
  for k in range(6):
    for ii in range(2):
      for j in range(5):
        B[io*2+ii] += A[io*2+ii][k][j]"""
    )


def test_initialisation_has_the_guards_of_its_loops() -> None:
    s = sums()
    s["B"].split("i", factor=3)
    s["B"].reorder("k", "i.0", "i.1", "j")
    assert (
        nest_text(s.state)
        == """\
for io in range(2):
  for ii in range(3):
    if io * 3 + ii < 4:
      B[io*3+ii] = 0
for k in range(6):
  for io in range(2):
    for ii in range(3):
      if io * 3 + ii < 4:
        for j in range(5):
          B[io*3+ii] += A[io*3+ii][k][j]"""
    )


def test_a_guard_stands_as_far_out_as_it_can() -> None:
    a = te.placeholder((7, 8), name="A")
    s = create_schedule(te.compute((7, 8), lambda i, j: a[i, j], name="B"))
    s["B"].split("i", factor=2)
    assert nest_text(s.state).splitlines()[2:4] == ["    if io * 2 + ii < 7:", "      for j in range(8):"]


def test_points_outside_the_domain_are_computed_where_that_does_no_harm() -> None:
    """C has 5 rows, D is tiled by 4: the fourth to eighth row of A exist, the accumulators too."""
    a = te.placeholder((8, 3), name="A")
    k = te.reduce_axis(3, name="k")
    c = te.compute((5,), lambda i: te.sum(a[i, k], axis=k), name="C")
    s = create_schedule(te.compute((5,), lambda i: c[i] + 1, name="D"))
    s["D"].split("i", factor=4)
    s["C"].compute_at(s["D"], "i.0")
    assert "if" not in nest_text(s.state).split("D[")[0].rpartition("for")[0]
    check(s.dag, s.trace)


def test_two_axes_that_stick_out_together_are_guarded() -> None:
    """Each of them stays in bounds alone, because A has 3 additional elements. Both together do not."""
    a = te.placeholder((12,), name="A")
    p = te.compute((5, 5), lambda i, j: a[i + j], name="P")
    s = create_schedule(te.compute((5, 5), lambda i, j: p[i, j] * 2, name="Q"))
    _, jo, _, _ = s["Q"].tile("i", "j", 4, 4)
    s["P"].compute_at(s["Q"], jo)
    assert nest_text(s.state).split("Q[")[0].count("if ") == 3  # one for P, two for Q
    check(s.dag, s.trace)


def test_a_table_decides_where_to_read() -> None:
    """Positions that come from memory cannot be bounded: the whole table's target is private."""
    a = te.placeholder((6,), name="A")
    table = te.compute((6,), lambda i: te.cast("int32", 5 - i), name="table")
    p = te.compute((6,), lambda i: a[i] + 1, name="P")
    q = te.compute((6,), lambda i: p[table[i]], name="Q")
    s = create_schedule(te.compute((6,), lambda i: q[i] * 2, name="R"))
    s["R"].split("i", factor=4)
    s["Q"].compute_at(s["R"], "i.0")
    s["P"].compute_at(s["R"], "i.0")
    s["table"].compute_at(s["R"], "i.0")
    check(s.dag, s.trace)


def test_constants_are_prepared_together_with_what_is_inside_them() -> None:
    w = te.placeholder((8,), name="W", constant=True)
    x = te.placeholder((8,), name="X")
    v = te.compute((8,), lambda i: w[i] * 2, name="V")
    u = te.compute((8,), lambda i: v[i] + 1, name="U")
    s = create_schedule(te.compute((8,), lambda i: x[i] * u[i], name="Y"))
    s["V"].compute_at(s["U"], "i")
    program = build_program(s.state)
    assert [f.name for f in program.prepare] == ["U"]
    assert [f.name for f in program.run] == ["Y"]
    assert {b.name: r for b, r in program.args} == {
        "X": Role.INPUT,
        "W": Role.CONSTANT,
        "Y": Role.OUTPUT,
        "U": Role.PREPARED,
    }


def test_parameters_are_in_the_program_s_order() -> None:
    a, b = te.placeholder((4,), name="A"), te.placeholder((4,), name="B")
    c = te.compute((4,), lambda i: b[i] - a[i], name="C")
    (func,) = build_program(create_schedule(c).state).run
    assert [p.name for p in func.params] == ["B", "A", "C"]


def test_no_elements() -> None:
    a = te.placeholder((0, 4), name="A")
    k = te.reduce_axis(0, name="k")
    b = te.compute((4,), lambda j: te.sum(a[k, j], axis=k), name="B")
    s = create_schedule(b)
    s["B"].split("j", factor=3)
    out = np.full(4, np.nan, np.float32)
    run_program(lower(s.state), {"A": np.zeros((0, 4), np.float32), "B": out})
    assert out.tolist() == [0, 0, 0, 0]


def test_the_verifier_can_be_switched_on() -> None:
    seen = []
    s = CASES["tiled_matmul"]()
    with switches.override(verify=True):
        lower(s.state, hook=lambda p, f: seen.append((p.name, f.name)))
    assert seen == [(p.name, "C") for p in PIPELINE if p.when(None)]
