"""The kind of access of a load or store. An access of this kind gives each lane its element."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autotensor.base.dtype import float32, int64
from autotensor.codegen.access import Access, Kind, access_of, load_access, store_access
from autotensor.ir.expr import Broadcast, Expr, Load, Ramp, Var, cast, const
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.lane_offsets import lanes_of
from autotensor.ir.stmt import Store

i = Var("i")
A = Buffer("A", (64,), float32)
R = Buffer("R", (64,), float32, Scope.REGISTER)
EVERY, ONE = Ramp(i, 1, 4) < Broadcast(const(3), 4), i < 3
PAIRS = Ramp(i * 4, 1, 4) // Broadcast(const(2), 4) * Broadcast(const(2), 4)
LOADED = cast(int64, Load(Buffer("p", (64,), int64), (Ramp(i, 1, 4),)))

LOADS = {
    "scalar": (A, i, None, Kind.CONTIGUOUS),
    "neighbours": (A, Ramp(i * 4, 1, 4), None, Kind.CONTIGUOUS),
    "neighbours, masked by lane": (A, Ramp(i, 1, 4), EVERY, Kind.CONTIGUOUS),
    "one element": (A, Broadcast(i, 4), None, Kind.BROADCAST),
    "backwards": (A, Ramp(i, -1, 4), None, Kind.PERMUTED),
    "inside an aligned vector": (A, PAIRS, None, Kind.PERMUTED),
    "inside a vector of unknown place": (A, PAIRS + Broadcast(i, 4), None, Kind.LANES),
    "inside a vector of registers": (R, PAIRS, None, Kind.LANES),
    "inside the last vector, which is not whole": (Buffer("B", (63,), float32), PAIRS, None, Kind.LANES),
    "with a stride": (A, Ramp(i, 3, 4), None, Kind.LANES),
    "with a stride, one mask for all": (A, Ramp(i, 3, 4), ONE, Kind.LANES),
    "with a stride, masked by lane": (A, Ramp(i, 3, 4), EVERY, Kind.SCATTERED),
    "loaded indices": (A, LOADED, None, Kind.SCATTERED),
}
STORES = {
    "scalar": (A, i, None, Kind.CONTIGUOUS),
    "neighbours": (A, Ramp(i * 4, 1, 4), EVERY, Kind.CONTIGUOUS),
    "backwards": (A, Ramp(i, -1, 4), None, Kind.LANES),
    "with a stride, masked": (A, Ramp(i, 3, 4), ONE, Kind.SCATTERED),
    "two lanes to one element": (A, PAIRS, None, Kind.SCATTERED),  # the last one's value stays
    "two lanes to one register": (R, PAIRS, None, Kind.LANES),
    "loaded indices": (A, LOADED, None, Kind.SCATTERED),
}


@pytest.mark.parametrize("name", LOADS)
def test_kinds_of_loads(name: str) -> None:
    buffer, index, mask, kind = LOADS[name]
    assert load_access(buffer, index, mask).kind is kind
    assert access_of(Load(buffer, (index,), mask)) == load_access(buffer, index, mask)


@pytest.mark.parametrize("name", STORES)
def test_kinds_of_stores(name: str) -> None:
    buffer, index, mask, kind = STORES[name]
    value = const(0.0, float32.with_lanes(index.dtype.lanes))
    assert store_access(buffer, index, mask).kind is kind
    assert access_of(Store(buffer, (index,), value, mask)) == store_access(buffer, index, mask)


def test_a_mask_that_is_always_true_is_none_and_one_that_all_lanes_share_a_scalar() -> None:
    index = Ramp(i, 1, 4)
    assert load_access(A, index, Broadcast(const(True), 4)).is_whole
    assert load_access(A, index, Broadcast(ONE, 4)).mask is ONE
    assert not load_access(A, index, Broadcast(ONE, 4)).is_whole


@pytest.mark.parametrize(
    ("index", "most", "aligned", "width"),
    [
        (Ramp(i * 16, 1, 16), 16, True, 16),
        (Ramp(i * 16, 1, 16), 4, True, 4),
        (Ramp(i * 16 + 4, 1, 16), 16, True, 4),
        (Ramp(i, 1, 16), 16, True, 1),
        (Ramp(i, 1, 16), 16, False, 16),
        (Ramp(const(0), 1, 12), 16, True, 4),
        (Ramp(i * 16, 2, 16), 16, False, 1),
        (i * 16, 16, True, 1),
    ],
)
def test_lanes_that_one_instruction_may_move(index: Expr, most: int, aligned: bool, width: int) -> None:
    assert load_access(A, index).width(most, aligned) == width


@st.composite
def indices(draw: st.DrawFn) -> Expr:
    """Vectors of indices whose lanes have constant distances, and some whose lanes have not."""
    lanes = draw(st.sampled_from([2, 4, 8]))
    index: Expr = Ramp(i * draw(st.sampled_from([0, 1, lanes])) + 24, draw(st.integers(-2, 3)), lanes)
    for _ in range(draw(st.integers(0, 2))):
        by = Broadcast(const(draw(st.sampled_from([2, 4, 8]))), lanes)
        match draw(st.sampled_from("+*/%")):
            case "+":
                index = index + Ramp(const(1), draw(st.integers(-1, 1)), lanes)
            case "*":
                index = index * by
            case "/":
                index = index // by
            case "%":
                index = index % by
    return index


def moved(access: Access, memory: np.ndarray, at: int) -> np.ndarray:
    """The elements that the lanes get from a load of this kind. The index i is `at`."""
    assert access.start is not None
    start = access.start.constant + access.start.coefficient(i) * at
    lanes = np.array(access.offsets)
    match access.kind:
        case Kind.CONTIGUOUS | Kind.PERMUTED:
            return memory[start : start + len(lanes)][lanes]
        case Kind.BROADCAST:
            return np.repeat(memory[start], len(lanes))
    return memory[start + lanes]


@given(indices(), st.integers(0, 3))
def test_every_lane_is_given_its_element(index: Expr, at: int) -> None:
    lanes, access = lanes_of(index), load_access(Buffer("M", (8192,), float32), index)
    assert (lanes is None) == (access.start is None)
    assume(lanes is not None and set(lanes.base.terms) <= {i})  # no quotients that stand for themselves
    places = 4096 + lanes.base.constant + lanes.base.coefficient(i) * at + np.array(lanes.offsets)
    memory = np.arange(8192)
    assert (moved(replace(access, start=access.start.shift(4096)), memory, at) == memory[places]).all()
