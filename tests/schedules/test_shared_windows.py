"""Windows of maxima and similar reductions: the windows that are shared, their numbers of steps, and exact
results."""

from __future__ import annotations

from functools import reduce
from itertools import product
from typing import Any

import numpy as np
import pytest
from comparison import Native, check

from autotensor import te
from autotensor.base.errors import ScheduleError
from autotensor.base.target import host, parse
from autotensor.lowering.pipeline import lower
from autotensor.schedule.primitives.algorithm import UseAlgorithm, algorithms_of
from autotensor.schedule.state import State
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.stage import StageOp
from schedules.algorithms.shared_windows import NAME, parts_of
from schedules.generate import default_trace, generate

TARGET = parse("llvm -mcpu=x86-64-v3 -threads=1")
ENDS = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0)


def lengths(op: StageOp) -> list[int] | None:
    """Terms that are joined for an element of each part."""
    found = parts_of(op, frozenset({op.name}))
    return None if found is None else [int(np.prod([a.extent for a in p.reduce_axes])) for p in found]


def row(window: int, n: int = 1000, dtype: str = "float32", stride: int = 1, step: int = 1) -> StageOp:
    x = te.placeholder((stride * (n - 1) + step * (window - 1) + 1,), dtype, name="x")
    r = te.reduce_axis(window, name="r")
    m = te.compute((n,), lambda i: te.max(x[stride * i + step * r], axis=r), name="m")
    return ComputeDAG.of([x, m]).stages[-1]


@pytest.mark.parametrize(
    ("window", "parts"),
    [(2, None), (3, None), (5, None), (7, [3, 3]), (9, [3, 3]), (25, [3, 3, 3]), (81, [3, 3, 3, 3])],
)
def test_a_window_is_joined_from_shorter_ones(window: int, parts: list[int] | None) -> None:
    assert lengths(row(window)) == parts
    assert lengths(row(window, step=3)) == parts


def test_windows_that_move_by_more_than_one_and_few_places_stay_as_they_are() -> None:
    assert lengths(row(9, stride=2)) is None
    assert lengths(row(9, n=2)) is None


def plane(window: tuple[int, int], stride: int = 1, shape: tuple[int, ...] = (40, 64, 16)) -> StageOp:
    h, w, *rest = shape
    x = te.placeholder((stride * h + window[0], stride * w + window[1], *rest), name="x")
    a, b = (te.reduce_axis(n, name=name) for n, name in zip(window, "ab", strict=True))
    m = te.compute(
        shape, lambda i, j, *c: te.max(x[(stride * i + a, stride * j + b, *c)], axis=[a, b]), name="m"
    )
    return ComputeDAG.of([x, m]).stages[-1]


def test_a_window_of_two_axes_is_one_along_the_other() -> None:
    assert lengths(plane((3, 3))) == [3, 3]
    assert lengths(plane((5, 5))) == [5, 5]
    assert lengths(plane((9, 9))) == [3, 3, 3, 3]
    assert lengths(plane((7, 7), stride=2)) == [7, 7]


def test_what_minds_a_term_twice_is_left_alone() -> None:
    x, r = te.placeholder((108,), name="x"), te.reduce_axis(9, name="r")
    op = ComputeDAG.of([x, te.compute((100,), lambda i: te.prod(x[i + r], axis=r))]).stages[-1]
    assert lengths(op) is None
    first = te.comm_reducer(lambda a, b: a, lambda t: te.const(0, t), name="first")
    assert (
        lengths(ComputeDAG.of([x, te.compute((100,), lambda i: first(x[i + r], axis=r))]).stages[-1]) is None
    )


@pytest.mark.parametrize(
    ("window", "parts"),
    [((1, 5), None), ((1, 7), None), ((1, 9), [3, 3]), ((5, 5), [5, 5]), ((9, 9), [3, 3, 3, 3])],
)
def test_parts_of_sums_do_not_overlap(window: tuple[int, int], parts: list[int] | None) -> None:
    x, (a, b) = te.placeholder((60, 80), name="x"), (te.reduce_axis(n) for n in window)
    m = te.compute((40, 64), lambda i, j: te.sum(x[i + a, j + b], axis=[a, b]), name="m")
    assert lengths(ComputeDAG.of([x, m]).stages[-1]) == parts


def box(window: tuple[int, int], dtype: str = "float32") -> ComputeDAG:
    """Sums over boxes of products that depend only on the place."""
    x, y = (te.placeholder((12 + window[0], 30 + window[1]), dtype, name=n) for n in "xy")
    a, b = (te.reduce_axis(n, name=name) for n, name in zip(window, "ab", strict=True))
    body = lambda i, j: te.sum(x[i + a, j + b] * y[i + a, j + b], axis=[a, b])  # noqa: E731
    return ComputeDAG.of([x, y, te.compute((12, 30), body, name="m")])


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
@pytest.mark.parametrize("window", [(5, 5), (9, 7), (9, 1)])
def test_sums_over_boxes_are_right(window: tuple[int, int], dtype: str) -> None:
    dag = box(window, dtype)
    sketch = next(s for s in generate(dag, TARGET) if s.steps[0] == UseAlgorithm("m", NAME))
    check(dag, sketch.fill(sketch.defaults()))


def test_sums_of_two_stages_in_one_are_shared() -> None:
    """The mean of a box and that of its squares: two results of one stage."""
    x, (a, b) = te.placeholder((17, 35), name="x"), (te.reduce_axis(7) for _ in range(2))
    c, d = (te.reduce_axis(7) for _ in range(2))
    m = te.compute((11, 29), lambda i, j: te.sum(x[i + a, j + b], axis=[a, b]), name="m")
    q = te.compute((11, 29), lambda i, j: te.sum(x[i + c, j + d] * x[i + c, j + d], axis=[c, d]), name="q")
    dag = ComputeDAG.of([x, te.compute((11, 29), lambda i, j: q[i, j] * 49.0 - m[i, j] * m[i, j])])
    trace = default_trace(dag, TARGET)
    assert sum(isinstance(s, UseAlgorithm) and s.algorithm == NAME for s in trace.steps) == 1
    check(dag, trace)


def test_small_windows_of_sums_are_no_sure_gain() -> None:
    """Rows that are computed together share parts of their terms."""
    trace = default_trace(box((3, 3)), TARGET)
    assert not any(isinstance(s, UseAlgorithm) for s in trace.steps)


def test_terms_that_depend_on_their_number_are_no_window() -> None:
    x, w, r = te.placeholder((108,), name="x"), te.placeholder((9,), name="w"), te.reduce_axis(9, name="r")
    op = ComputeDAG.of([x, w, te.compute((100,), lambda i: te.max(x[i + r] + w[r], axis=r))]).stages[-1]
    assert lengths(op) is None


def test_padding_slides_too() -> None:
    x, r = te.placeholder((100,), name="x"), te.reduce_axis(9, name="r")

    def term(i: Any) -> Any:
        return te.select(te.all(i + r >= 4, i + r < 104), x[i + r - 4], te.min_value("float32"))

    assert lengths(ComputeDAG.of([x, te.compute((100,), lambda i: te.max(term(i), axis=r))]).stages[-1]) == [
        3,
        3,
    ]


def test_terms_that_take_more_than_a_load_are_computed_once() -> None:
    x, r = te.placeholder((20,), name="x"), te.reduce_axis(3, name="r")
    m = te.compute((18,), lambda i: te.max(te.abs(x[i + r]) * x[i + r] * 3.0 - x[i + r], axis=r), name="m")
    dag = ComputeDAG.of([x, m])
    assert lengths(dag.stages[-1]) == [1, 3]
    check(dag, Trace((UseAlgorithm("m", NAME),)))
    check(dag, default_trace(dag, TARGET))


def written(order: list[int], join: Any = te.maximum) -> ComputeDAG:
    x = te.placeholder((100 + max(order),), name="x")
    return ComputeDAG.of([x, te.compute((100,), lambda i: reduce(join, [x[i + d] for d in order]), name="m")])


def test_windows_that_are_written_out() -> None:
    assert lengths(written([*range(9)]).stages[-1]) == [3, 3]
    assert lengths(written([*range(0, 27, 3)], te.minimum).stages[-1]) == [3, 3]
    assert lengths(written([0, 1, 2, 3, 4, 5, 6, 8, 7]).stages[-1]) is None  # which of two zeros would change
    assert lengths(written([0, 1, 2, 4, 5, 6, 8, 9, 10]).stages[-1]) is None  # no even steps


def test_a_window_that_is_part_of_an_expression() -> None:
    """A morphological gradient: the greatest minus the least of 5 x 5 neighbours."""
    x = te.placeholder((16, 28), name="x")

    def body(i: Any, j: Any) -> Any:
        near = [x[i + a, j + b] for a, b in product(range(5), range(5))]
        return reduce(te.maximum, near) - reduce(te.minimum, near)

    dag = ComputeDAG.of([x, te.compute((12, 24), body, name="g")])
    assert lengths(dag.stages[-1]) == [5, 5, 5, 5, 1]
    assert shares(dag)
    check(dag, default_trace(dag, TARGET))


def test_a_window_under_a_choice_may_not_read_where_the_choice_does_not() -> None:
    x = te.placeholder((100,), name="x")

    def body(i: Any) -> Any:
        return te.select(i < 92, reduce(te.maximum, [x[i + d] for d in range(9)]), 0.0)

    assert lengths(ComputeDAG.of([x, te.compute((100,), body, name="m")]).stages[-1]) is None


def test_windows_within_the_steps_of_a_recurrence_stay_there() -> None:
    """Each step takes the greatest of nine neighbours of the step before. The reader may be split."""
    x, s = te.placeholder((6, 40), name="x"), te.placeholder((6, 40), name="s")
    r, q = te.reduce_axis(9, name="r"), te.reduce_axis(9, name="q")
    near = te.compute((6, 32), lambda t, i: te.max(s[t - 1, i + r], axis=r), name="near")
    later = te.compute((6, 40), lambda t, i: near[t, te.minimum(i, 31)] * 0.5 + x[t, i], name="later")
    y = te.scan(te.compute((1, 40), lambda t, i: x[0, i], name="first"), later, s, name="y")
    z = te.compute((6, 32), lambda t, i: te.max(y[t, i + q], axis=q), name="z")
    dag = ComputeDAG.of([x, z])
    steps = default_trace(dag, TARGET).steps
    assert [s.stage for s in steps if isinstance(s, UseAlgorithm) and s.algorithm == NAME] == ["z"]
    with pytest.raises(ScheduleError, match="does not fit"):
        UseAlgorithm("near", NAME).apply(State.initial(dag))
    check(dag, default_trace(dag, TARGET))


def shares(dag: ComputeDAG) -> bool:
    return any(isinstance(s, UseAlgorithm) and s.algorithm == NAME for s in default_trace(dag, TARGET).steps)


def test_all_of_its_sketches_are_right() -> None:
    x = te.placeholder((10, 24), name="x")
    a, b = te.reduce_axis(3, name="a"), te.reduce_axis(9, name="b")
    m = te.compute((8, 16), lambda i, j: te.max(x[i + a, j + b], axis=[a, b]), name="m")
    dag = ComputeDAG.of([x, m])
    sketches = generate(dag, TARGET)
    found = [s for s in sketches if NAME in algorithms_of(s.steps)]
    assert 0 < len(found) < len(sketches)  # as it is written, too
    for sketch in found[:3]:
        check(dag, sketch.fill(sketch.defaults()))


class Drawn:
    """A window along one axis or two of a random tensor, and NumPy's result."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.dtype = str(rng.choice(["float32", "float32", "float64", "int32", "uint8"]))
        self.most, self.is_written = bool(rng.integers(2)), rng.random() < 0.3
        rank = int(rng.integers(1, 4))
        self.shape = tuple(int(n) for n in rng.integers(3, 40, rank))
        last = 4 if self.is_written else 12
        self.window = [int(n) for n in rng.integers(2, last, min(2, rank))]
        self.stride = [int(n) for n in rng.choice([1, 1, 1, 2], len(self.window))]
        self.step = [1 if s > 1 else int(rng.choice([1, 1, 2])) for s in self.stride]
        sides = zip(self.shape, self.window, self.stride, self.step, strict=False)
        self.around = [s * (n - 1) + d * (w - 1) + 1 for n, w, s, d in sides]

    def dag(self) -> ComputeDAG:
        x = te.placeholder((*self.around, *self.shape[len(self.window) :]), self.dtype, name="x")
        over = [te.reduce_axis(w, name=f"r{n}") for n, w in enumerate(self.window)]

        def term(axes: Any, at: Any) -> Any:
            moved = [s * i + d * r for i, r, s, d in zip(axes, at, self.stride, self.step, strict=False)]
            return x[(*moved, *axes[len(moved) :])]

        def body(*axes: Any) -> Any:
            if self.is_written:
                terms = [term(axes, at) for at in product(*map(range, self.window))]
                return reduce(te.maximum if self.most else te.minimum, terms)
            return (te.max if self.most else te.min)(term(axes, over), axis=over)

        return ComputeDAG.of([x, te.compute(self.shape, body, name="m")])

    def inputs(self) -> np.ndarray:
        shape = (*self.around, *self.shape[len(self.window) :])
        if not self.dtype.startswith("float"):
            return self.rng.integers(0, 200, shape).astype(self.dtype)
        x = np.round(self.rng.standard_normal(shape), 1)
        rare = self.rng.random(shape) < self.rng.choice([0.0, 0.02, 0.5])
        x[rare] = self.rng.choice(ENDS, rare.sum())
        return x.astype(self.dtype)

    def wanted(self, x: np.ndarray) -> np.ndarray:
        def shifted(at: tuple[int, ...]) -> np.ndarray:
            places = zip(at, self.shape, self.stride, self.step, strict=False)
            return x[tuple(slice(d * r, d * r + s * (n - 1) + 1, s) for r, n, s, d in places)]

        return reduce(
            np.maximum if self.most else np.minimum, map(shifted, product(*map(range, self.window)))
        )


def same_bits(a: np.ndarray, b: np.ndarray) -> None:
    """NaN where NaN is, and everything else with its sign."""
    np.testing.assert_array_equal(a, b)
    if a.dtype.kind == "f":
        number = ~np.isnan(a)
        np.testing.assert_array_equal(np.signbit(a[number]), np.signbit(b[number]))


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(n, marks=pytest.mark.slow) for n in range(12, 400))]
)
def test_random_windows_are_numpys_and_as_they_were_without(seed: int) -> None:
    drawn = Drawn(seed)
    dag, x = drawn.dag(), drawn.inputs()
    stage = dag.stages[-1]
    traces = [Trace(), default_trace(dag, TARGET)]
    if lengths(stage) is not None:
        traces.append(Trace((UseAlgorithm(stage.name, NAME),)))
    plain, default, *shared = (Native(dag, lower(t.replay(dag)), host())({"x": x}, 1)["m"] for t in traces)
    np.testing.assert_array_equal(plain, drawn.wanted(x))
    np.testing.assert_array_equal(default, plain)  # its loops may join terms in another order
    for got in shared:
        same_bits(got, plain)
