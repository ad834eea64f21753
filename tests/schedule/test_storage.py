"""storage: the private buffer of an attached stage in another order."""

from __future__ import annotations

import pytest
from comparison import check
from gpu_cases import CASES, fetch, product, tiled

from autotensor import te
from autotensor.base.errors import ScheduleError
from autotensor.base.target import parse
from autotensor.ir.func import PrimFunc
from autotensor.lowering.gpu.banks import conflicts, traffic
from autotensor.lowering.pipeline import lower, lower_nest
from autotensor.schedule import Schedule, Trace, create_schedule


def copied() -> tuple[Schedule, str]:
    """C = A @ B.T with a copy of the panel of B that a block needs."""
    a, b = te.placeholder((6, 8), name="A"), te.placeholder((12, 8), name="B")
    k = te.reduce_axis(8, name="k")
    c = te.compute((6, 12), lambda y, x: te.sum(a[y, k] * b[x, k], axis=k), name="C")
    s = create_schedule(c)
    xo, xi = s[c].split("x", factor=4)
    s[c].reorder(xo, "y", "k", xi)
    near = s.cache_read(b, "local", [c])
    near.compute_at(s[c], xo)
    return s, near.name


def test_the_buffer_is_turned_and_the_meaning_stays() -> None:
    s, name = copied()
    s[name].storage("i1", "i0", pad=2)
    assert "local([8, 6], float32)" in str(lower_nest(s.state).run[0])
    check(s.state.dag, s.trace)


def test_it_survives_json() -> None:
    s, name = copied()
    s[name].storage("i1", "i0")
    assert Trace.from_json(s.trace.to_json()) == s.trace
    assert s.trace.steps[-1].call() == 's["B.local:C"].storage("i1", "i0", pad=0)'


@pytest.mark.parametrize(
    ("axes", "pad", "message"),
    [
        (("i0",), 0, "must name each axis of stage 'B.local:C' once: i0, i1"),
        (("i0", "i0"), 0, "must name each axis"),
        (("i0", "i1"), -1, "it must be at least 0"),
    ],
)
def test_what_is_refused(axes: tuple[str, ...], pad: int, message: str) -> None:
    s, name = copied()
    with pytest.raises(ScheduleError, match=message):
        s[name].storage(*axes, pad=pad)


def test_only_attached_stages_have_private_buffers() -> None:
    a = te.placeholder((6, 8), name="A")
    c = te.compute((6, 8), lambda y, x: a[y, x] + 1, name="C")
    s = create_schedule(c)
    with pytest.raises(ScheduleError, match="is not computed inside another"):
        s[c].storage("x", "y")


# -- storage_align, as TVM has it ----------------------------------------------------------------------------
def test_rows_that_are_aligned() -> None:
    s, name = copied()
    s[name].storage_align("i0", 16, 3)
    assert "local([4, 19], float32)" in str(lower_nest(s.state).run[0])
    check(s.state.dag, s.trace)
    assert s.trace.steps[-1].call() == 's["B.local:C"].storage_align("i0", 16, 3)'
    assert Trace.from_json(s.trace.to_json()) == s.trace


def test_alignment_knows_the_order_of_dimensions() -> None:
    s, name = copied()
    s[name].storage("i1", "i0")
    s[name].storage_align("i1", 32, 1)
    assert "local([8, 33], float32)" in str(lower_nest(s.state).run[0])
    check(s.state.dag, s.trace)


@pytest.mark.parametrize(
    ("axis", "factor", "offset", "message"),
    [
        ("i1", 32, 1, "'i1' is not an axis of stage 'B.local:C' with others inside it; i0 can be aligned"),
        ("i0", 8, 8, "factor 8 and offset 8 of stage 'B.local:C' do not fit"),
        ("i0", 0, 0, "factor 0 and offset 0"),
    ],
)
def test_what_alignment_refuses(axis: str, factor: int, offset: int, message: str) -> None:
    s, name = copied()
    with pytest.raises(ScheduleError, match=message):
        s[name].storage_align(axis, factor, offset)


def test_distances_that_whole_rows_cannot_give() -> None:
    a = te.placeholder((4, 6, 8), name="A")
    c = te.compute((4, 6, 8), lambda x, y, z: a[x, y, z] + 1, name="C")
    s = create_schedule(c)
    near = s.cache_read(a, "local", [c])
    near_name = near.name
    wide, _ = s[c].split("x", factor=4)
    s[near].compute_at(s[c], wide)
    s[near].storage_align("i0", 16, 8)
    assert "local([4, 7, 8], float32)" in str(lower_nest(s.state).run[0])
    s[near].storage_align("i0", 16, 1)
    with pytest.raises(ScheduleError, match=r"no number of rows of 8 elements is 1 modulo 16") as caught:
        lower_nest(s.state)
    assert near_name in str(caught.value)


def test_an_aligned_axis_does_not_become_the_last() -> None:
    """Lowering raised IndexError."""
    s, name = copied()
    s[name].storage_align("i0", 16, 3)
    before = s.trace
    with pytest.raises(ScheduleError, match="axis 'i0' of stage 'B\\.local:C' is aligned"):
        s[name].storage("i1", "i0")
    assert s.trace == before
    s[name].storage("i0", "i1")


# -- swizzle -------------------------------------------------------------------------------------------------
def columns(layout: str) -> PrimFunc:
    """Threads of a block that read a column of A's tile of 64 × 32 elements; each thread reads four rows."""
    s = tiled(product(64, 64, 64), threads=8, each=4, depth=32)
    near = fetch(s, "A", "C.local", "k.0", (8, 8), 4)
    if layout == "align":
        s[near].storage_align("i0", 32, 4)
    elif layout == "swizzle":
        s[near].swizzle(4)
    fetch(s, "B", "C.local", "k.0", (8, 8), 4)
    (kernel,) = lower(s.state, parse("cuda")).run
    return kernel


def test_what_swizzle_refuses() -> None:
    s, name = copied()
    with pytest.raises(
        ScheduleError, match=r"swizzle: stage 'B.local:C' is not attached to a loop and kept in"
    ):
        s[name].swizzle(4)
    s = tiled(product(6, 6, 6), depth=3)
    near = fetch(s, "A", "C.local", "k.0", (4, 4), 1)
    with pytest.raises(
        ScheduleError, match=r"chunks of 3 elements of stage 'A.shared:C.local'; a power of two"
    ):
        s[near].swizzle(3)
    s[near].swizzle(16)
    with pytest.raises(
        ScheduleError, match=r"the box of stage 'A.shared:C.local', 6 × 3, is not a multiple of two"
    ):
        lower(s.state, parse("cuda"))


def test_columns_without_conflicts() -> None:
    """By the counts, both layouts help."""
    ways = {}
    for layout in ("plain", "align", "swizzle"):
        found = {(t.buffer, t.writes): t for t in traffic(columns(layout))}
        load = found["A.shared:C.local", False]
        ways[layout] = load.ways
        assert found["A.shared:C.local", True].ways == 1.0, layout  # whole vectors, one behind the other
        assert str(load).startswith("load A.shared:C.local: ")
    # rows 0, 4, 8, 12 of a warp: 36 words apart each, or xored with 0, 4, 0, 4
    assert ways == {"plain": 4.0, "align": 2.0, "swizzle": 2.0}
    assert conflicts(columns("swizzle")) < conflicts(columns("plain"))


def test_operands_of_tensor_cores_without_conflicts() -> None:
    """Eight rows of 32 bytes share banks in pairs. With swizzle, they use all banks."""

    def ways(name: str) -> dict[str, float]:
        (kernel,) = lower(CASES[name]().state, parse("cuda")).run
        return {t.buffer[0]: t.ways for t in traffic(kernel) if not t.writes}

    assert ways("tensor_cores_f16") == {"A": 2.0, "B": 2.0}
    assert ways("tensor_cores_swizzled") == {"A": 1.0, "B": 1.0}
