"""Meanings changed in one backend each: the walk over the table must find every one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from test_walk import walk

from autotensor.base.dtype import int64
from autotensor.codegen.c.opencl import OPENCL
from autotensor.codegen.interp import interpreter, operations
from autotensor.codegen.llvm import expr as llvm_expr
from autotensor.codegen.llvm.arithmetic import casts, intrinsics
from autotensor.ir import expr
from autotensor.ir.bounds import Bounds
from autotensor.ir.expr import Compare, match_types
from autotensor.ir.ops import Op

Plant = Callable[[pytest.MonkeyPatch], None]


def _unguarded_shifts(m: pytest.MonkeyPatch) -> None:
    m.setattr(Bounds, "below", lambda self, e, end: True)


def _never_negative(m: pytest.MonkeyPatch) -> None:
    m.setattr(Bounds, "at_least", lambda self, e, least: True)


def _near_only(m: pytest.MonkeyPatch) -> None:
    m.setattr(intrinsics, "_CIRCULAR_END", float("inf"))


def _no_nan(m: pytest.MonkeyPatch) -> None:
    m.setattr(llvm_expr, "_is_number", lambda e: True)


def _through_int64(m: pytest.MonkeyPatch) -> None:
    m.setattr(casts, "stopover", lambda t: int64.with_lanes(t.lanes))


def _rounded_twice(m: pytest.MonkeyPatch) -> None:
    m.setattr(casts, "_round_to_odd", lambda w, x, old: w.op(_narrow(x, old)))


def _narrow(x: str, old: Any) -> str:
    return f"fptrunc {casts.ty(old)} {x} to {casts.ty(casts.float32.with_lanes(old.lanes))}"


def _as_signed(m: pytest.MonkeyPatch) -> None:
    m.setattr(expr, "_compare_signs", lambda op, x, y: Compare(op, *match_types(x, y)))


def _shift_modulo(m: pytest.MonkeyPatch) -> None:
    m.setitem(
        operations.OF_INTEGERS, Op.SHL, lambda t: lambda a, b: (a << (b % t.bits)) & ((1 << t.bits) - 1)
    )


def _truncated(m: pytest.MonkeyPatch) -> None:
    helpers: Any = OPENCL.helpers
    text = "inline int at_floormod_int32(int a, int b) { return b ? a % b : 0; }"
    m.setitem(helpers, "at_floormod_int32", text)


@pytest.fixture(autouse=True)
def _interpreted_anew() -> Iterator[None]:
    """The interpreter remembers what kernels became; a fault must not stay, nor be missed."""
    yield
    interpreter._compiled.cache_clear()


FAULTS: dict[str, tuple[Plant, str, str, str]] = {
    "shifts of scalars are not guarded": (_unguarded_shifts, "scalar", "int32", "<<"),
    "remainders of vectors are cut": (_never_negative, "vector", "int32", "% 3"),
    "no exact reduction of huge arguments": (_near_only, "vector", "float32", "sin"),
    "NaN is lost in a maximum": (_no_nan, "vector", "float32", "max"),
    "floats to int32 go through int64": (_through_int64, "scalar", "float32", "to int32"),
    "float64 to bfloat16 is rounded twice": (_rounded_twice, "scalar", "float64", "to bfloat16"),
    "uint64 against int64 compares as signed": (_as_signed, "interpreter", "uint64", "<"),
    "the interpreter shifts modulo the bits": (_shift_modulo, "interpreter", "uint32", "<<"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_walk_finds(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, machine, name, operation = FAULTS[fault]
    assert not walk(machine, (name,), operation)[1]
    plant(monkeypatch)
    interpreter._compiled.cache_clear()
    assert walk(machine, (name,), operation)[1]


@pytest.mark.opencl
def test_the_walk_finds_a_remainder_that_is_cut_in_opencl(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not walk("opencl", ("int32",), "%")[1]
    _truncated(monkeypatch)
    assert walk("opencl", ("int32",), "%")[1]
