"""A masked store writes its lanes and no byte next to them, also if the mask is a constant with one lane."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from comparison import Native

from autotensor import te
from autotensor.base.target import host
from autotensor.codegen.llvm.build import build
from autotensor.codegen.llvm.single_lane_stores import scalar_stores
from autotensor.lowering.pipeline import lower
from autotensor.runtime.linking.linker import link
from autotensor.schedule.schedule import Schedule
from autotensor.te.dag import ComputeDAG

FILLING = 0x5C


def module(wide: int, narrow: int, lanes: int, on: set[int]) -> str:
    """f(to, from) stores some lanes of a vector, cut from `wide` to `narrow` bits."""
    mask = ", ".join(f"i1 {'true' if k in on else 'false'}" for k in range(lanes))
    store = f"@llvm.masked.store.v{lanes}i{narrow}.p0"
    return f"""
declare void {store}(<{lanes} x i{narrow}>, ptr, <{lanes} x i1>)
define void @f(ptr %to, ptr %from) {{
  %x = load <{lanes} x i{wide}>, ptr %from, align 1
  %v = trunc <{lanes} x i{wide}> %x to <{lanes} x i{narrow}>
  call void {store}(<{lanes} x i{narrow}> %v, ptr align 1 %to, <{lanes} x i1> <{mask}>)
  ret void
}}
"""


def stored(text: str, given: np.ndarray, size: int) -> np.ndarray:
    """The memory after the function ran; it was filled before."""
    linked = link("stores", (build(text, host()).object,), ("f",))
    out = np.full(size, FILLING, np.uint8)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(linked.addresses["f"])(
        out.ctypes.data, given.ctypes.data
    )
    return out


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize(("wide", "narrow"), [(64, 32), (64, 16), (64, 8), (32, 16), (32, 8), (16, 8)])
def test_no_byte_next_to_the_lanes_is_written(wide: int, narrow: int, lanes: int) -> None:
    given = np.random.default_rng(1).integers(1, 1 << (wide - 2), lanes).astype(f"u{wide // 8}")
    for on in ({0}, {1}, {lanes - 1}, {0, 1}, {1, lanes - 1}):
        want = np.full(lanes * narrow // 8 + 16, FILLING, np.uint8)
        for k in on:
            want[k * narrow // 8 :][: narrow // 8] = given[k : k + 1].view(np.uint8)[: narrow // 8]
        assert np.array_equal(stored(module(wide, narrow, lanes, on), given, want.size), want), on


def test_only_stores_of_one_lane_are_rewritten() -> None:
    one, two = module(32, 8, 16, {2}), module(32, 8, 16, {2, 3})
    assert scalar_stores(two) == two
    assert "store i8 %lane.0, ptr %lane.0.at" in scalar_stores(one)
    assert "call" not in scalar_stores(one)


def test_a_pointer_may_be_an_expression() -> None:
    text = module(32, 8, 16, {2}).replace(
        "ptr align 1 %to", "ptr nonnull align 1 getelementptr inbounds (i8, ptr @zeros, i64 4)"
    )
    assert "%lane.0.at = getelementptr i8, ptr getelementptr inbounds (i8, ptr @zeros, i64 4), i64 2" in (
        scalar_stores(text)
    )


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "bfloat16"])
def test_the_last_column_of_a_kernel_leaves_the_next_row_alone(dtype: str) -> None:
    """17 columns in vectors of 16: the columns' loop is outside, so the next row's first column is stored
    before."""
    X = te.placeholder((5, 17), "float32" if dtype == "bfloat16" else "int32", name="X")
    Y = te.compute((5, 17), lambda i, j: X[i, j].astype(dtype), name="Y")
    s = Schedule(ComputeDAG.of([X, Y]))
    outer, inner = s["Y"].split("j", factor=16)
    s["Y"].reorder(outer, "i", inner)
    s["Y"].unroll(outer)
    s["Y"].vectorize(inner)
    x = np.arange(1, 86).reshape(5, 17).astype(X.dtype.numpy)
    got = Native(s.dag, lower(s.state, host()), host())({"X": x}, 1)["Y"]
    assert np.array_equal(got.astype("i4"), x)
