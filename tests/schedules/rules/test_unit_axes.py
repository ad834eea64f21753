"""A result with an axis of one element at its end is computed as it is without: images of one channel, sums
that keep their axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from comparison import check

from autotensor import te
from autotensor.base.target import parse
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace

TARGET = parse("llvm -mcpu=x86-64-v3 -threads=1")


def shaped(units: int, *extents: int) -> tuple[int, ...]:
    return (*extents, *(1,) * units)


def columns(units: int) -> Sequence[Any]:
    x, k = te.placeholder(shaped(units, 40, 50), name="x"), te.reduce_axis(40, name="k")
    return x, te.compute(shaped(units, 50), lambda j, *c: te.sum(x[(k, j, *c)], axis=k), name="s")


def means(units: int) -> Sequence[Any]:
    *tensors, s = columns(units)
    return *tensors, te.compute(shaped(units, 50), lambda *i: s[i] / 40.0, name="mean")


def stencil(units: int) -> Sequence[Any]:
    x = te.placeholder(shaped(units, 42, 50), name="x")

    def body(i: Any, j: Any, *c: Any) -> Any:
        return sum((x[(i + a, j + b, *c)] for a in range(3) for b in range(3)), te.const(0.0))

    return x, te.compute(shaped(units, 40, 48), body, name="y")


def chain(units: int) -> Sequence[Any]:
    x = te.placeholder(shaped(units, 44, 52), name="x")
    v = te.compute(shaped(units, 40, 52), lambda i, j, *c: x[(i, j, *c)] - 2.0 * x[(i + 4, j, *c)], name="v")
    return x, te.compute(shaped(units, 40, 48), lambda i, j, *c: v[(i, j, *c)] * v[(i, j + 4, *c)], name="h")


def looked_up(units: int) -> Sequence[Any]:
    x = te.placeholder(shaped(units, 90), name="x")
    at = te.placeholder((20, 30), "int32", name="at")
    return x, at, te.compute(
        shaped(units, 20, 30), lambda i, j, *c: x[(te.maximum(te.minimum(at[i, j], 89), 0), *c)], name="y"
    )  # fmt: skip


PROGRAMS = {"columns": columns, "means": means, "stencil": stencil, "chain": chain, "looked up": looked_up}


@pytest.mark.parametrize("units", [1, 2])
@pytest.mark.parametrize("how", PROGRAMS)
def test_vectors_are_as_without(how: str, units: int) -> None:
    plain, more = (ComputeDAG.of(PROGRAMS[how](n)) for n in (0, units))
    first, second = default_trace(plain, TARGET), default_trace(more, TARGET)
    assert str(first).count("vectorize") == str(second).count("vectorize") > 0
    check(more, second)
