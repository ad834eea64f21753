"""Barriers are moved out of conditions."""

from __future__ import annotations

from ir_tools import A, B, I, J, K, T, loop, store, text

from autotensor.ir.expr import Load, Var
from autotensor.ir.stmt import Barrier, If, Let, seq
from autotensor.lowering.gpu.open_guards import open_guards

MEET = Barrier("shared")


def test_a_condition_goes_to_what_lies_between_barriers():
    inner = If(J < 3, seq(store(A, J, 1.0), MEET, store(B, J, 2.0)), None)
    found = open_guards(loop(K, 2, If(I < 4, seq(MEET, loop(J, 5, inner)), None)))
    assert text(found) == (
        """\
for k in range(2):
  barrier("shared")
  for j in range(5):
    if i < 4:
      if j < 3:
        A[j] = 1.0
    barrier("shared")
    if i < 4:
      if j < 3:
        B[j] = 2.0"""
    )


def test_without_barriers_nothing_changes():
    body = loop(K, 2, If(I < 4, store(A, K, 1.0), None))
    assert open_guards(body) is body


def test_a_value_that_is_read_stays_under_its_condition():
    x = Var("x")
    read = Let(x, Load(T, (I,)), seq(store(A, x, 1.0), MEET))
    body = If(I < 64, read, None)
    assert open_guards(body) is body
