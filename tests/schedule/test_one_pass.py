"""solve, scan, sort and recurrences: reductions that read their terms less often give the same results."""

from __future__ import annotations

import numpy as np
import pytest
from comparison import check

import autotensor as at
from autotensor import te
from autotensor.base.errors import ScheduleError
from autotensor.base.target import parse
from autotensor.compiler import nest_text
from autotensor.graph.build import input, ops
from autotensor.operators.cumulative import top_positions
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.terms import ranking, running, solutions
from schedules.generate import default_trace, generate

JOINS = {"sum": (te.sum, 0), "prod": (te.prod, 1), "max": (te.max, te.min_value("float32"))}
ORDERS = {
    "up to": lambda k, i: k <= i,
    "before": lambda k, i: k < i,
    "from": lambda k, i: k >= i,
    "after": lambda k, i: i < k,
}


def scatter(rows, terms, columns=None, join="sum", index="int64"):
    """out[p[k], j] joined with u[k, j]; p[k] may be outside."""
    reducer, neutral = JOINS[join]
    p = te.placeholder((terms,), index, name="p")
    k = te.reduce_axis(terms, "k")

    def hit(i):
        return te.cast("int64", p[k]).equal(i)

    if columns is None:
        u = te.placeholder((terms,), name="u")
        out = te.compute((rows,), lambda i: reducer(te.select(hit(i), u[k], neutral), axis=k), name="out")
    else:
        u = te.placeholder((terms, columns), name="u")
        out = te.compute(
            (rows, columns), lambda i, j: reducer(te.select(hit(i), u[k, j], neutral), axis=k), name="out"
        )
    return p, u, out


def running_sum(shape, axis, order="up to", join="sum"):
    reducer, neutral = JOINS[join]
    x = te.placeholder(shape, name="x")
    k = te.reduce_axis(shape[axis], "k")

    def body(*i):
        element = x[(*i[:axis], k.var, *i[axis + 1 :])]
        return reducer(te.select(ORDERS[order](k.var, i[axis]), element, neutral), axis=k)

    return x, te.compute(shape, body, name="out", axis_names=tuple(f"i{n}" for n in range(len(shape))))


def stage(*tensors):
    return ComputeDAG.of(list(tensors)).stages[-1]


# -- what is found ------------------------------------------------------------------------------------------


def test_solutions_are_axes_that_the_terms_tell():
    assert list(solutions(stage(*scatter(7, 5, 3)))) == ["i"]
    assert not solutions(stage(*running_sum((9,), 0)))
    p, u, k = te.placeholder((5,), "int64", name="p"), te.placeholder((5,), name="u"), te.reduce_axis(5, "k")
    spoilt = te.compute((7,), lambda i: te.sum(te.select(p[k].equal(i), u[k], 1), axis=k), name="out")
    assert not solutions(stage(spoilt))  # a term for another element adds one
    moving = te.compute((7,), lambda i: te.sum(te.select(p[i % 5].equal(i), u[k], 0), axis=k), name="out")
    assert not solutions(stage(moving))


@pytest.mark.parametrize(
    ("bits", "rows", "found"),
    [
        ("int32", 300, ["i"]),
        ("uint8", 256, ["i"]),
        ("uint8", 300, []),
        ("int8", 128, ["i"]),
        ("int8", 129, []),
    ],
)
def test_axes_may_be_compared_in_fewer_bits_that_hold_them(bits, rows, found):
    """Otherwise every element would read every term, which takes 4,700 times as long for a step of
    PageRank."""
    p, k = te.placeholder((50,), bits, name="p"), te.reduce_axis(50, "k")
    body = lambda i: te.sum(te.select(p[k].equal(te.cast(bits, i)), 1.0, 0.0), axis=k)  # noqa: E731
    counts = te.compute((rows,), body, name="out")
    assert list(solutions(stage(counts))) == found
    dag = ComputeDAG.of([p, counts])
    check(dag, default_trace(dag, parse("llvm -mcpu=x86-64-v3 -threads=1")))


def test_running_reductions_and_sorts_may_be_said_in_fewer_bits():
    def narrow(v):
        return te.cast("int32", v)

    x, k = te.placeholder((9,), name="x"), te.reduce_axis(9, "k")
    sums = te.compute((9,), lambda i: te.sum(te.select(narrow(k) <= narrow(i), x[k], 0), axis=k), name="out")
    assert running(stage(sums)) is not None
    n = te.placeholder((9,), "int16", name="n")

    def first(i):
        return (n[k] > n[i]) | (n[k].equal(n[i]) & (narrow(k) < narrow(i)))

    ranks = te.compute((9,), lambda i: te.sum(te.select(first(i), 1, 0), axis=k), name="out")
    assert ranking(stage(ranks)) is not None
    for tensors in ([x, sums], [n, ranks]):
        dag = ComputeDAG.of(tensors)
        check(dag, default_trace(dag, parse("llvm -mcpu=x86-64-v3 -threads=1")))


def test_a_running_reduction_takes_terms_that_are_the_same_for_all():
    assert running(stage(*running_sum((4, 9), 1, "after"))).reverse
    x, k = te.placeholder((9,), name="x"), te.reduce_axis(9, "k")
    weighted = te.compute((9,), lambda i: te.sum(te.select(k <= i, x[k] * x[i], 0), axis=k), name="out")
    assert running(stage(weighted)) is None
    shorter = te.compute((5,), lambda i: te.sum(te.select(k <= i, x[k], 0), axis=k), name="out")
    assert running(stage(shorter)) is None


@pytest.mark.parametrize(
    ("before", "dtype", "fits"),
    [
        (lambda a, b, p, q: (a > b) | (a.equal(b) & (p < q)), "int32", True),
        (lambda a, b, p, q: (a > b) | (a.equal(b) & (p < q)), "float32", False),  # NaN is before nothing
        (lambda a, b, p, q: (a < b) | ((a <= b) & (p > q)), "int8", True),
        (lambda a, b, p, q: (a < b) | (p < q), "int32", False),  # goes round in circles
        (lambda a, b, p, q: a < b, "int32", False),  # equal ones have no order
        (lambda a, b, p, q: (a <= b) & (p < q), "int32", False),
        (lambda a, b, p, q: p < q, "float32", False),  # compares nothing
        (lambda a, b, p, q: (a > b) | (a.equal(b) & (p < q) & (a < p)), "int64", False),  # mixes them
    ],
)
def test_only_an_order_of_all_elements_is_sorted_by(before, dtype, fits):
    x, k = te.placeholder((9,), dtype, name="x"), te.reduce_axis(9, "k")
    out = te.compute(
        (9,), lambda i: te.sum(te.select(before(x[k], x[i], k.var, i), 1, 0), axis=k), name="out"
    )
    assert (ranking(stage(out)) is not None) is fits


# -- every way of computing agrees --------------------------------------------------------------------------


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize(
    ("rows", "terms", "columns"), [(7, 5, 3), (1, 9, 4), (8, 1, 17), (33, 40, 32), (19, 21, None)]
)
@pytest.mark.sample(6)
def test_scatters_agree(rows, terms, columns, join):
    *_, out = scatter(rows, terms, columns, join)
    s = te.create_schedule(out)
    outer, inner = s[out].split("i", nparts=2)
    s[out].reorder(outer, "k", inner, *(["j"] if columns else []))
    if columns and columns >= 16:
        s[out].split("j", factors=[8])
        s[out].vectorize("j.1")
    s[out].parallel(outer)
    s[out].solve(inner)
    check(s.dag, s.trace)


def test_places_beyond_int64_are_outside():
    p, k = te.placeholder((7,), "uint64", name="p"), te.reduce_axis(7, "k")
    hit = lambda i: te.cast("uint64", i).equal(p[k])  # noqa: E731
    out = te.compute((7,), lambda i: te.sum(te.select(hit(i), 1, 0), axis=k), name="out")
    places = np.array([0, 1, 2**63, 2**64 - 1, 5, 5, 2**64 - 3], np.uint64)
    assert at.build([p, out])(places).tolist() == [1, 1, 0, 0, 0, 2, 0]


@pytest.mark.parametrize("place", [-3, 0, 5])
def test_of_two_equations_of_one_axis_one_stays_a_condition(place):
    p, k = te.placeholder((16,), "int64", name="p"), te.reduce_axis(16, "k")
    out = te.compute(
        (16,),
        lambda i: te.sum(te.select(te.all(p[k].equal(i), i.equal(place)), p[k] + 1, 0), axis=k),
        name="out",
    )
    s = te.create_schedule(out)
    s[out].reorder("k", "i")
    s[out].solve("i")
    check(s.dag, s.trace)


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("shape", "axis"), [((9,), 0), ((5, 8), 1), ((3, 7, 20), 1), ((2, 1), 1)])
@pytest.mark.sample(16)
def test_running_reductions_agree(shape, axis, order, join):
    _, out = running_sum(shape, axis, order, join)
    s = te.create_schedule(out)
    inner = [f"i{n}" for n in range(axis + 1, len(shape))]
    s[out].reorder(f"i{axis}", "k", *inner)
    if inner:
        s[out].vectorize(inner[-1])
    if axis:
        s[out].parallel("i0")
    s[out].scan(f"i{axis}")
    check(s.dag, s.trace)


@pytest.mark.parametrize(
    ("shape", "axis", "count"),
    [((1,), 0, 1), ((9,), 0, 9), ((40,), 0, 3), ((3, 70), 1, 70), ((3, 70), 1, 1), ((2, 66, 5), 1, 65)],
)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.sample(4)
def test_sorts_agree(shape, axis, count, dtype):
    x = te.placeholder(shape, dtype, name="x")
    out = top_positions(x, count, axis)
    dag = ComputeDAG.of([x, out])
    s = te.create_schedule(out)
    outer = [f"i{n}" for n in range(len(shape)) if n != axis]
    s["rank"].reorder(*outer, f"i{axis}", "k")
    s["rank"].sort(f"i{axis}")
    check(dag, s.trace)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.sample(1)
def test_rules_write_them(threads):
    target = at.base.target.parse(f"llvm -threads={threads}")
    for args, word in (
        (scatter(40, 50, 33), "solve"),
        (scatter(40, 50), "solve"),
        (running_sum((40,), 0), "algorithm"),
        (running_sum((40, 33), 0, "from"), "scan"),
        (running_sum((17, 40), 1), "scan"),
        (running_sum((3, 40, 33), 1, "from"), "scan"),
        (running_sum((1, 40, 5, 33), 1), "scan"),
    ):
        dag = ComputeDAG.of(list(args))
        trace = default_trace(dag, target)
        assert f".{word}(" in str(trace)
        assert Trace.from_json(trace.to_json()) == trace
        check(dag, trace)
    dag = ComputeDAG.of([top_positions(te.placeholder((2, 300), name="x"), 5)])
    trace = default_trace(dag, target)
    assert ".sort(" in str(trace)
    check(dag, trace)


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("order", ["up to", "before"])
@pytest.mark.parametrize("shape", [(100,), (40, 2, 2), (70, 33)])
@pytest.mark.sample(4)
def test_from_the_beginning_of_the_first_axis_they_are_recurrences(shape, order, join):
    dag = ComputeDAG.of([*running_sum(shape, 0, order, join)])
    for numerics in ("fast", "strict"):
        target = at.base.target.parse(f"llvm -mcpu=haswell -threads=2 -numerics={numerics}")
        for sketch in generate(dag, target):
            trace = sketch.fill(sketch.defaults())
            assert '"recurrence"' in str(trace)
            check(dag, trace)


# -- what is refused ----------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused():
    *_, out = scatter(7, 5, 3)
    s = te.create_schedule(out)
    with pytest.raises(ScheduleError, match="do not say where they are along 'j'; they do for i"):
        s[out].solve("j")
    with pytest.raises(ScheduleError, match="is not a reduction over all terms before the element along 'i'"):
        s[out].scan("i")
    with pytest.raises(ScheduleError, match="does not count the elements along 'i' that come before"):
        s[out].sort("i")
    outer, inner = s[out].split("i", nparts=2)
    with pytest.raises(ScheduleError, match=r"do not say where they are along 'i\.0'"):
        s[out].solve(outer)
    s[out].parallel(outer)
    s[out].solve(inner)
    with pytest.raises(ScheduleError, match=r"'k' of stage 'out' tells the value of 'i\.1' and is inside"):
        nest_text(s.state)


def test_a_place_that_is_one_for_all_terms_is_inside_the_reduction():
    q, k = te.placeholder((1,), "int64", name="q"), te.reduce_axis(5, "k")
    u = te.placeholder((5,), name="u")
    out = te.compute((7,), lambda i: te.sum(te.select(q[0].equal(i), u[k], 0.0), axis=k), name="out")
    s = te.create_schedule(out)
    s[out].solve("i")
    with pytest.raises(ScheduleError, match="an axis of stage 'out' is outside its reduction"):
        nest_text(s.state)
    s = te.create_schedule(out)
    s[out].reorder("k", "i")
    s[out].solve("i")
    check(s.dag, s.trace)


def test_a_sort_is_of_whole_lines():
    s = te.create_schedule(top_positions(te.placeholder((3, 9), "int32", name="x"), 9))
    s["rank"].split("k", factors=[3])
    s["rank"].sort("i1")
    with pytest.raises(ScheduleError, match="'i1' of stage 'rank' must be serial and stand right outside"):
        nest_text(s.state)


def test_marks_on_loops_that_are_not_run_are_refused():
    _, out = running_sum((9,), 0)
    s = te.create_schedule(out)
    s[out].parallel("i0")
    with pytest.raises(ScheduleError, match="scan: axis 'i0' of stage 'out' is parallel"):
        s[out].scan("i0")
    s = te.create_schedule(out)
    s[out].scan("i0")
    s[out].vectorize("k")
    with pytest.raises(ScheduleError, match="axis 'k' of stage 'out' is vectorized; terms are taken one"):
        nest_text(s.state)


def test_a_loop_that_tells_the_place_stays_outside():
    p, k = te.placeholder((5, 8), "int64", name="p"), te.reduce_axis(5, "k")
    out = te.compute((7, 8), lambda i, j: te.sum(te.select(p[k, j].equal(i), 1.0, 0.0), axis=k), name="out")
    s = te.create_schedule(out)
    s[out].reorder("k", "i", "j")
    s[out].solve("i")
    with pytest.raises(ScheduleError, match="'j' of stage 'out' tells the value of 'i' and is inside it"):
        nest_text(s.state)
    s = te.create_schedule(out)
    s[out].reorder("k", "j", "i")
    s[out].vectorize("j")
    s[out].solve("i")
    with pytest.raises(ScheduleError, match="axis 'j' of stage 'out' is vectorized around 'i'"):
        nest_text(s.state)


def test_a_stage_inside_another_is_refused():
    _, _, out = scatter(7, 5)
    after = te.compute((7,), lambda i: out[i] * 2.0, name="after")
    s = te.create_schedule(after)
    s[out].compute_at(s[after], "i")
    with pytest.raises(ScheduleError, match="solve: stage 'out' is not computed by itself"):
        s[out].solve("i")


# -- the operators, over awkward shapes ---------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize(
    ("shape", "index", "axis"),
    [((41,), (67,), 0), ((31, 17), (50, 17), 0), ((5, 33), (4, 40), 1), ((3, 40, 6), (2, 71, 5), 1)],
)
@pytest.mark.sample(6)
def test_scatter_elements_with_duplicates(shape, index, axis, reduction):
    rng = np.random.default_rng(len(shape))
    x = rng.integers(-3, 4, shape).astype(np.float32)
    where = rng.integers(-shape[axis], shape[axis], index)
    u = rng.integers(-3, 4, index).astype(np.float32)
    nodes = input(shape), input(index, "int64"), input(index)
    f = at.compile_model(ops.scatter_elements(*nodes, axis=axis, reduction=reduction))
    want = at.operators.OPERATORS.get("scatter_elements").reference(x, where, u, axis, reduction)
    np.testing.assert_array_equal(f(x, where, u), want)


@pytest.mark.parametrize(("n", "count"), [(33, 33), (100, 7), (257, 64), (257, 65), (1000, 1000)])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.sample(3)
def test_sorting_puts_nan_where_numpy_does(n, count, largest):
    rng = np.random.default_rng(n)
    x = rng.integers(-20, 20, (3, n)).astype(np.float32)
    x[0, ::5], x[1, ::3], x[2, 1] = np.nan, np.inf, -np.inf
    x[2] = np.nan if n == 33 else x[2]
    got = at.compile_model(ops.top_positions(input((3, n)), count=count, largest=largest))(x)
    want = at.operators.OPERATORS.get("top_positions").reference(x, count, -1, largest)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_sums_have_the_same_bits_with_any_number_of_threads(threads):
    rng = np.random.default_rng(0)
    u, where = rng.standard_normal((5000, 24)).astype(np.float32), rng.integers(0, 60, 5000)
    f = at.compile_model(
        ops.scatter_add(input((5000,), "int64", "i"), input((5000, 24), name="u"), extent=60)
    )
    f.threads = threads
    want = np.zeros((60, 24), np.float32)
    np.add.at(want, where, u)
    np.testing.assert_array_equal(f(where, u), want)


@pytest.mark.parametrize(
    ("tensors", "additions"),
    [
        (scatter(700, 500, 33), 500 * 33),
        (running_sum((17, 400), 1), 17 * 400),
        (running_sum((400,), 0, "after"), 400),
    ],
)
def test_operations_are_counted_as_one_pass_makes_them(tensors, additions):
    assert ComputeDAG.of(list(tensors)).flops() == additions


@pytest.mark.parametrize(("shape", "axis"), [((40,), 0), ((5, 40), 1), ((2, 33, 17), 1)])
def test_a_running_reduction_of_pairs_agrees(shape, axis):
    """The largest so far and its place."""
    x, k = te.placeholder(shape, name="x"), te.reduce_axis(shape[axis], "k")

    def larger(a, b):
        takes = te.all(b[0] >= 0, te.any(a[0] < 0, b[1] > a[1], te.all(b[1].equal(a[1]), b[0] < a[0])))
        return te.select(takes, b[0], a[0]), te.select(takes, b[1], a[1])

    so_far = te.comm_reducer(larger, lambda i, v: (te.const(-1, i), te.min_value(v)), name="so_far")

    def body(*i):
        value = x[(*i[:axis], k.var, *i[axis + 1 :])]
        pair = (k.var, te.const(-1, "int64")), (value, te.min_value("float32"))
        return so_far(tuple(te.select(k.var <= i[axis], v, n) for v, n in pair), axis=k)

    names = tuple(f"i{n}" for n in range(len(shape)))
    place, value = te.compute(shape, body, name="out", axis_names=names)
    dag = ComputeDAG.of([x, place, value])
    trace = default_trace(dag, at.base.target.parse("llvm -threads=2"))
    assert (".algorithm(" if axis == 0 else ".scan(") in str(trace)
    check(dag, trace)
