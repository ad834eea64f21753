"""Terms that a Select makes neutral are left out: the conditions that become guards, and the places of the
guards."""

from __future__ import annotations

import pytest
from comparison import check

from autotensor import te
from autotensor.base.target import parse
from autotensor.lowering.pipeline import lower, lower_nest
from autotensor.schedule.schedule import Schedule
from autotensor.schedule.state import State
from autotensor.te.dag import ComputeDAG


def padded_sum(reducer=te.sum, fill=0.0, weights=True):
    """Σ over a window of three elements of a row with one element of padding at either end."""
    x = te.placeholder((20,), name="X")
    w = te.placeholder((3,), name="W")
    k = te.reduce_axis(3, name="k")

    def body(i):
        inside = te.select(te.all(i + k >= 1, i + k <= 20), x[i + k - 1], te.const(fill, "float32"))
        return reducer(inside * w[k] if weights else inside, axis=k)

    y = te.compute((20,), body, name="Y")
    return ComputeDAG.of([x, *([w] if weights else []), y])


def loops(dag, *steps):
    s = Schedule(dag)
    for step in steps:
        step(s["Y"])
    return s, str(lower_nest(s.state).run[0])


def guards(text):
    return sum(line.strip().startswith("if ") for line in text.splitlines())


def selects(text):
    return " else " in text


def skip(stage):
    stage.pragma("k", "skip_zeros", 1)


def test_without_the_pragma_nothing_changes():
    _, text = loops(padded_sum())
    assert guards(text) == 0
    assert selects(text)


def test_a_product_with_padding_is_guarded():
    s, text = loops(padded_sum(), skip)
    assert not selects(text)
    assert guards(text) == 2
    check(s.dag, s.trace)


@pytest.mark.parametrize(("reducer", "fill"), [(te.max, float("-inf")), (te.min, float("inf"))])
def test_what_is_neutral_depends_on_the_reducer(reducer, fill):
    _, text = loops(padded_sum(reducer, fill, weights=False), skip)
    assert guards(text) == 2
    assert not selects(text)


@pytest.mark.parametrize(("reducer", "fill"), [(te.max, 0.0), (te.sum, 1.0)])
def test_other_values_are_not_left_out(reducer, fill):
    s, text = loops(padded_sum(reducer, fill, weights=False), skip)
    assert guards(text) == 0
    check(s.dag, s.trace)


def test_a_maximum_of_products_keeps_its_zeros():
    """0 * w is 0, which is not neutral for the maximum."""
    s, text = loops(padded_sum(te.max), skip)
    assert selects(text)
    check(s.dag, s.trace)


def padded_bytes(fill, zero, plus=False):
    """Σ over the same window of bytes less their zero point."""
    x, w = te.placeholder((20,), "uint8", name="X"), te.placeholder((3,), "int8", name="W")
    k = te.reduce_axis(3, name="k")

    def body(i):
        inside = te.select(te.all(i + k >= 1, i + k <= 20), x[i + k - 1], te.const(fill, "uint8"))
        wide = inside.astype("int32")
        return te.sum((wide + -zero if plus else wide - zero) * w[k].astype("int32"), axis=k)

    return ComputeDAG.of([x, w, te.compute((20,), body, name="Y")])


@pytest.mark.parametrize("plus", [False, True])
@pytest.mark.parametrize("zero", [0, 7, 255])
def test_padding_that_is_the_zero_point_is_guarded(zero, plus):
    s, text = loops(padded_bytes(zero, zero, plus), skip)
    assert not selects(text)
    assert guards(text) == 2
    check(s.dag, s.trace)


@pytest.mark.parametrize(("fill", "zero"), [(0, 7), (7, 0), (249, -7)])
def test_padding_that_is_another_number_is_added(fill, zero):
    s, text = loops(padded_bytes(fill, zero), skip)
    assert selects(text)
    assert guards(text) == 0
    check(s.dag, s.trace)


def test_conditions_on_lanes_stay_in_the_select():
    s, text = loops(padded_sum(), lambda y: y.reorder("k", "i"), lambda y: y.vectorize("i"), skip)
    assert selects(text)
    assert guards(text) == 0
    check(s.dag, s.trace)


def causal(n=64, clamped=False):
    """The sum of the terms before each place, with a select for every lane."""
    h, x = te.placeholder((n,), name="H"), te.placeholder((n,), name="X")
    k = te.reduce_axis(n, name="k")

    def body(i):
        at = te.maximum(i - k, 0) if clamped else i - k
        return te.sum(te.select(k <= i, h[k] * x[at], 0.0), axis=k)

    return ComputeDAG.of([h, x, te.compute((n,), body, name="Y")])


def in_tiles(stage):
    """Tiles of two vectors, the second of which is written out."""
    stage.split("i", factors=[2, 8])
    stage.reorder("i.0", "k", "i.1", "i.2")
    stage.unroll("i.1")
    stage.vectorize("i.2")


def test_terms_that_no_lane_of_a_tile_adds_are_left_out():
    s, text = loops(causal(), in_tiles, skip)
    assert "if Y_k <= Y_i_0 * 16 + 15:" in text or "if Y_k < Y_i_0 * 16 + 16:" in text
    assert selects(text)
    check(s.dag, s.trace)


def test_the_loop_ends_where_no_lane_adds_a_term():
    """A tile of 16 places takes the terms up to its last place, out of 64. If all lanes add a term, there is
    no select."""
    s, _ = loops(causal(), in_tiles, skip)
    text = str(lower(s.state, parse("llvm -mcpu=x86-64-v3 -threads=1")).run[0])
    assert "range(64)" not in text
    assert any(" else " not in line for line in text.splitlines() if "+= x8(" in line)


def test_limits_that_a_choice_implies_are_no_limits_of_a_reduction():
    assert str(State.initial(causal(clamped=True)).stage("Y").op.bodies) == str(
        State.initial(causal()).stage("Y").op.bodies
    )
    s, _ = loops(causal(clamped=True), in_tiles, skip)
    check(s.dag, s.trace)


def test_lanes_are_left_out_on_request():
    s, text = loops(
        padded_sum(),
        lambda y: y.reorder("k", "i"),
        lambda y: y.vectorize("i"),
        lambda y: y.pragma("k", "skip_zeros", 2),
    )
    assert not selects(text)
    assert guards(text) == 2
    check(s.dag, s.trace)


@pytest.mark.parametrize("reducer", [te.sum, te.max])
def test_lanes_of_a_reduction_are_left_out_on_request(reducer):
    fill = 0.0 if reducer is te.sum else float("-inf")
    s, _ = loops(
        padded_sum(reducer, fill, weights=False),
        lambda y: y.vectorize("k"),
        lambda y: y.pragma("k", "skip_zeros", 2),
    )
    check(s.dag, s.trace)


def test_the_result_is_initialised_where_everything_is_padding():
    """The guard has no reduction variable: it must not keep the zero from being written."""
    x = te.placeholder((4,), name="X")
    k = te.reduce_axis(3, name="k")
    y = te.compute((8,), lambda i: te.sum(te.select(i < 4, x[i], 0.0) * 2.0 + 0.0 * k, axis=k), name="Y")
    z = te.compute((8,), lambda i: te.sum(te.select(i < 4, x[i], 0.0), axis=k), name="Y")
    for out in (y, z):
        dag = ComputeDAG.of([x, out])
        s, text = loops(dag, skip)
        assert (guards(text) > 0) == (out is z)  # a sum of two terms is not a product
        check(s.dag, s.trace)


def test_tiles_leave_out_elements_at_the_edges():
    """With the window written out, the guards are constants."""

    def tiled(y):
        y.split("i", factors=[10])
        y.reorder("i.0", "k", "i.1")
        y.unroll("i.1")
        y.unroll("k")

    s, _ = loops(padded_sum(), tiled, skip)
    check(s.dag, s.trace)
