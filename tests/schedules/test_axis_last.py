"""Reductions whose result lies across their operands or their readers: which of them get another order of
axes, and whether their results are right."""

from __future__ import annotations

import random

import pytest
from comparison import check

from autotensor import te
from autotensor.base.target import parse
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.primitives.compute_at import Inline
from autotensor.te.dag import ComputeDAG
from schedules.algorithms.axis_last import NAME, axis_along_memory
from schedules.generate import default_trace, generate
from schedules.placement.cost import vectors_in_box

TARGET = parse("llvm -mcpu=x86-64-v4 -threads=2")


def batch_last(rows: int = 37, columns: int = 7, depth: int = 11, most: bool = False) -> ComputeDAG:
    """c[i, j] from a[k, i] and e[j, k, i]. Both are contiguous along i, and e is computed."""
    a = te.placeholder((depth, rows), name="a")
    b = te.placeholder((columns, depth, rows), name="b")
    k = te.reduce_axis(depth, name="k")
    e = te.compute((columns, depth, rows), lambda j, k, i: te.exp(b[j, k, i]), name="e")
    join = te.max if most else te.sum
    c = te.compute((rows, columns), lambda i, j: join(a[k, i] * e[j, k, i], axis=k), name="c")
    d = te.compute((rows, columns), lambda i, j: c[i, j] + 1.0, name="d")
    return ComputeDAG.of([a, b, d])


def largest(rows: int = 37, columns: int = 7, depth: int = 11) -> ComputeDAG:
    """Two results: the largest of b[j, :, i], and where it is."""
    b = te.placeholder((columns, depth, rows), name="b")
    k = te.reduce_axis(depth, name="k")
    argmax = te.comm_reducer(
        lambda x, y: (te.select(x[1] >= y[1], x[0], y[0]), te.select(x[1] >= y[1], x[1], y[1])),
        lambda t0, t1: (te.const(-1, t0), te.min_value(t1)),
        name="argmax",
    )
    where, most = te.compute((rows, columns), lambda i, j: argmax((k, b[j, k, i]), axis=k), name="most")
    return ComputeDAG.of([b, where, most])


def is_turned(dag: ComputeDAG) -> bool:
    return any(isinstance(s, UseAlgorithm) and s.algorithm == NAME for s in default_trace(dag, TARGET).steps)


@pytest.mark.parametrize(
    "dag",
    [
        batch_last(columns=23),
        batch_last(columns=23, most=True),
        batch_last(rows=16, columns=24),
        largest(columns=23),
    ],
)
def test_made_along_its_operands(dag: ComputeDAG) -> None:
    assert is_turned(dag)
    check(dag, default_trace(dag, TARGET))


def test_the_general_tile_stays_on_offer() -> None:
    assert any("tile_general" in s.made_by for s in generate(batch_last(), TARGET))


def test_a_product_whose_last_axis_lies_well_stays() -> None:
    a = te.placeholder((33, 20), name="a")
    b = te.placeholder((20, 40), name="b")
    k = te.reduce_axis(20, name="k")
    dag = ComputeDAG.of(
        [a, b, te.compute((33, 40), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")]
    )
    assert not is_turned(dag)


def test_the_longest_axis_is_chosen() -> None:
    x = te.placeholder((5, 6, 48), name="x")
    y = te.placeholder((6, 32), name="y")
    k = te.reduce_axis(6, name="k")
    c = te.compute((48, 32, 5), lambda i, j, m: te.sum(x[m, k, i] * y[k, j], axis=k), name="c")
    (op,) = ComputeDAG.of([x, y, c]).stages
    axis = axis_along_memory(op)
    assert axis is not None
    assert axis.name == "i"


def test_a_turned_result_is_not_computed_in_slivers() -> None:
    """Parts of rows do not follow one another in memory: one element of each of 64 rows needs 64 vectors."""
    by_default = generate(largest(1000, 256, 32), TARGET)[0]
    assert "pipeline" not in by_default.made_by
    (op,) = largest(64, 3, 32).stages  # rows have three elements
    assert vectors_in_box(op, (64, 1), 8) == 64
    assert vectors_in_box(op, (64, 3), 8) == 24


# -- readers that consume the last axis ---------------------------------------------------------------------


def in_readers_order(dag: ComputeDAG) -> bool:
    """Whether a stage is turned and nothing transposes it again."""
    steps = default_trace(dag, TARGET).steps
    turned = {s.stage for s in steps if isinstance(s, UseAlgorithm) and s.algorithm == NAME}
    return any(isinstance(s, Inline) and s.stage in turned for s in steps)


def matched(rows: int = 3, columns: int = 40, depth: int = 5, shifts: int = 4, **form: bool) -> ComputeDAG:
    """The best of a few shifts of a product, or of a window (`window`). The shifts read shifted columns, or
    different tables (`tables`)."""
    window, tables, between, least = (form.get(f, False) for f in ("window", "tables", "between", "least"))
    k, d = te.reduce_axis(depth, "k"), te.reduce_axis(shifts, "d")
    down = depth - 1 if window else 0
    lead = () if window else (depth,)
    a = te.placeholder((*lead, rows + down, columns), name="a")
    table = (shifts, depth, rows) if tables else (*lead, rows + down, columns + shifts - 1)
    b = te.placeholder(table, name="b")

    def term(y, x, d):
        mine = a[y + k, x] if window else a[k, y, x]
        other = b[d, k, y] if tables else b[y + k, x + d] if window else b[k, y, x + d]
        return te.abs(mine - other) if window else mine * other

    c = te.compute((rows, columns, shifts), lambda y, x, d: te.sum(term(y, x, d), axis=k), name="c")
    if between:
        c0 = c
        c = te.compute(c.shape, lambda y, x, d: te.maximum(c0[y, x, d], 0.0) * 2.0, name="between")
    join = te.min if least else te.max
    return ComputeDAG.of([a, b, te.compute((rows, columns), lambda y, x: join(c[y, x, d], axis=d), name="m")])


FORMS = [
    {},
    {"window": True},
    {"window": True, "least": True},
    {"tables": True},
    {"between": True},
    {"between": True, "tables": True},
]


@pytest.mark.parametrize("form", FORMS, ids=lambda f: " ".join(f) or "shifted")
def test_vectors_run_along_the_axis_that_the_reader_keeps(form: dict[str, bool]) -> None:
    dag = matched(**form)
    assert in_readers_order(dag)
    check(dag, default_trace(dag, TARGET))


@pytest.mark.parametrize("seed", range(12))
def test_any_size_and_any_schedule_gives_the_same(seed: int) -> None:
    rng = random.Random(seed)
    names = ("window", "tables", "between", "least")
    form = {f: rng.random() < 0.5 for f in names}
    form["tables"] = form["tables"] and not form["window"]
    sizes = rng.randint(1, 4), rng.choice((16, 17, 31, 33, 48)), rng.randint(1, 5), rng.randint(2, 9)
    dag = matched(*sizes, **form)
    sketches = [s for s in generate(dag, TARGET) if "axis_last" in s.made_by]
    assert sketches
    for sketch in rng.sample(sketches, min(2, len(sketches))):
        check(dag, sketch.fill(sketch.random(rng)), native=seed % 3 == 0)


def test_a_short_axis_gets_no_vectors_by_default() -> None:
    """With more shifts than columns, vectors stay along the shifts; the other order is on offer."""
    dag = matched(columns=20, shifts=70)
    assert not in_readers_order(dag)
    assert any("axis_last" in s.made_by for s in generate(dag, TARGET))


def test_a_stage_whose_operands_lie_across_the_readers_axis_stays() -> None:
    a = te.placeholder((3, 40, 32), name="a")
    b = te.placeholder((3, 43, 32), name="b")
    k, d = te.reduce_axis(32, "k"), te.reduce_axis(4, "d")
    c = te.compute((3, 40, 4), lambda y, x, d: te.sum(a[y, x, k] * b[y, x + d, k], axis=k), name="c")
    dag = ComputeDAG.of([a, b, te.compute((3, 40), lambda y, x: te.max(c[y, x, d], axis=d), name="m")])
    assert not any("axis_last" in s.made_by for s in generate(dag, TARGET))


def test_all_readers_must_want_one_order() -> None:
    k, d, e = te.reduce_axis(5, "k"), te.reduce_axis(6, "d"), te.reduce_axis(6, "e")
    x, y = te.placeholder((5, 70), name="x"), te.placeholder((5, 75), name="y")
    c = te.compute((70, 6), lambda i, d: te.sum(te.abs(x[k, i] - y[k, i + d]), axis=k), name="c")
    m = te.compute((70,), lambda i: te.min(c[i, d], axis=d), name="m")
    z = te.compute((70,), lambda i: te.sum(te.exp(m[i] - c[i, e]), axis=e), name="z")
    p = te.compute((70, 6), lambda i, d: c[i, d] - m[i], name="p")
    dag = ComputeDAG.of([x, y, m, z])
    assert in_readers_order(dag)
    check(dag, default_trace(dag, TARGET))
    assert not in_readers_order(ComputeDAG.of([x, y, m, p]))
    assert not in_readers_order(ComputeDAG.of([x, y, c, m]))


def test_a_pointwise_stage_alone_keeps_its_order() -> None:
    """The stage's reader may sum in any order; a stored transposed stage would be worse."""
    x, d = te.placeholder((3, 20, 40), name="x"), te.reduce_axis(20, "d")
    e = te.compute((3, 40, 20), lambda y, i, d: te.exp(x[y, d, i]), name="e")
    s = te.compute((3, 40), lambda y, i: te.sum(e[y, i, d], axis=d), name="s")
    assert not in_readers_order(ComputeDAG.of([x, s]))


def test_sums_inside_a_readers_sums_keep_their_order() -> None:
    """Such sums are never stored, and `nested_sums` takes any order of axes."""
    x, w = te.placeholder((8, 12), name="x"), te.placeholder((12, 40, 3), name="w", constant=True)
    k, p = te.reduce_axis(12, "k"), te.reduce_axis(3, "p")
    z = te.compute((8, 40, 3), lambda b, o, p: te.sum(x[b, k] * w[k, o, p], axis=k), name="z")
    dag = ComputeDAG.of([x, w, te.compute((8, 40), lambda b, o: te.max(z[b, o, p], axis=p), name="m")])
    first, *_ = generate(dag, TARGET)
    assert first.made_by == ("nested_sums",)
    check(dag, default_trace(dag, TARGET))


def heads_last(heads: int, layout: str, depth: int = 20) -> ComputeDAG:
    """c[i, j, h] = Σ_k a[i, h, k] * b[j, h, k]: the result has its batch axis last."""
    k = te.reduce_axis(depth, name="k")

    def operand(name: str, rows: int) -> tuple[te.Tensor, tuple[int, ...]]:
        extents = {"n": rows, "h": heads, "d": depth}
        return te.placeholder(tuple(extents[x] for x in layout), name=name), tuple(map("nhd".index, layout))

    (a, order), (b, _) = operand("a", 16), operand("b", 17)

    def body(i: te.Expr, j: te.Expr, h: te.Expr) -> te.Expr:
        left, right = (i, h, k), (j, h, k)
        return te.sum(a[tuple(left[n] for n in order)] * b[tuple(right[n] for n in order)], axis=k)

    return ComputeDAG.of([a, b, te.compute((16, 17, heads), body, name="c")])


@pytest.mark.parametrize("layout", ["nhd", "hnd", "ndh"])
@pytest.mark.parametrize("heads", [3, 4, 18])
def test_a_batch_axis_is_not_the_vector_axis_if_it_is_short_or_lies_across(heads: int, layout: str) -> None:
    dag = heads_last(heads, layout)
    assert is_turned(dag) == (heads < 16 or layout != "ndh")
    check(dag, default_trace(dag, TARGET))


def test_a_batch_axis_of_few_terms_stays() -> None:
    assert not is_turned(heads_last(4, "nhd", depth=4))
