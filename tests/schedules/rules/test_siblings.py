"""Stages that share work are one stage of several results, with the same bits."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from comparison import Different, check

from autotensor import te
from autotensor.base.target import host, parse
from autotensor.compiler import compile_trace
from autotensor.runtime.module import Module
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.sketch import Sketch
from autotensor.schedule.state import State
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import random_inputs
from autotensor.te.stage import StageOp
from schedules.algorithms import siblings as algorithm
from schedules.generate import generate, preferred

TARGET = parse("llvm -mcpu=x86-64-v3 -threads=2")
STEP = UseAlgorithm("t", "siblings")


def is_joined(sketch: Sketch) -> bool:
    return any(isinstance(s, UseAlgorithm) and s.algorithm == "siblings" for s in sketch.steps)


def pair(axes: tuple[int, ...], terms: tuple[int, ...], s: Any, t: Any, *inputs: Any) -> ComputeDAG:
    """Two reductions over the same extents, and a stage that reads both. s, t: (reducer, term)."""
    made = []
    for name, (reducer, term) in (("s", s), ("t", t)):
        over = [te.reduce_axis(n, name=f"{name}{at}") for at, n in enumerate(terms)]
        body = lambda *i, r=reducer, f=term, ks=over: r(f(*i, *ks), axis=ks)  # noqa: E731
        made.append(te.compute(axes, body, name=name))
    one, other = made
    return ComputeDAG.of([*inputs, te.compute(axes, lambda *i: 2.0 * one[i] - other[i], name="out")])


def bilateral() -> ComputeDAG:
    x = te.placeholder((13, 37), name="x")

    def weight(i: Any, j: Any, a: Any, b: Any) -> Any:
        return te.maximum(1.0, te.abs(x[i + a, j + b] - x[i + 1, j + 1]))

    return pair(
        (11, 35), (3, 3), (te.sum, weight),
        (te.sum, lambda i, j, a, b: weight(i, j, a, b) * x[i + a, j + b]), x,
    )  # fmt: skip


def columns() -> ComputeDAG:
    x = te.placeholder((21, 35), name="x")
    return pair((35,), (21,), (te.sum, lambda i, k: x[k, i]), (te.sum, lambda i, k: x[k, i] * x[k, i]), x)


def rows() -> ComputeDAG:
    x = te.placeholder((9, 45), name="x")
    return pair((9,), (45,), (te.max, lambda i, k: x[i, k]), (te.min, lambda i, k: x[i, k]), x)


def filters() -> ComputeDAG:
    x = te.placeholder((9, 11, 19), name="x")
    u, v = (te.placeholder((3, 3, 19), name=n, constant=True) for n in "uv")
    return pair(
        (7, 9, 19), (3, 3), (te.sum, lambda i, j, c, a, b: x[i + a, j + b, c] * u[a, b, c]),
        (te.sum, lambda i, j, c, a, b: x[i + a, j + b, c] * v[a, b, c]), x, u, v,
    )  # fmt: skip


def everywhere() -> ComputeDAG:
    x = te.placeholder((700,), name="x")
    return pair((), (700,), (te.sum, lambda k: x[k]), (te.sum, lambda k: x[k] * x[k]), x)


SHAPES: dict[str, Callable[[], ComputeDAG]] = {
    f.__name__: f for f in (bilateral, columns, rows, filters, everywhere)
}


@pytest.mark.parametrize("shape", SHAPES)
def test_they_are_joined_by_default_and_apart_is_on_offer(shape: str) -> None:
    dag = SHAPES[shape]()
    sketches = generate(dag, TARGET)
    assert is_joined(sketches[0])
    apart = next(s for s in sketches if not is_joined(s))
    for sketch in (sketches[0], apart):
        check(dag, sketch.fill(sketch.defaults()))


def test_each_result_has_the_bits_that_it_has_apart() -> None:
    """Sums of floats have the same bits, because the loops run in the same order."""
    dag = columns()
    inputs = random_inputs(dag, 3, "normal")
    values = [inputs[b.name] for b in dag.inputs]
    together, apart = (
        np.asarray(Module(compile_trace(dag, sketch.fill(sketch.defaults()), host()))(*values))
        for sketch in (preferred(dag, host()), next(s for s in generate(dag, host()) if not is_joined(s)))
    )
    np.testing.assert_array_equal(together, apart)


# -- what is left apart --------------------------------------------------------------------------------------


def joined_with(dag: ComputeDAG, stage: str) -> list[str]:
    state = State.initial(dag)
    return [op.name for op in algorithm.siblings_of(state, state.stage(stage))]


def test_products_that_share_an_operand_are_not_joined() -> None:
    x, u, v = (te.placeholder((16, 16), name=n) for n in "xuv")
    dag = pair(
        (16, 16), (16,), (te.sum, lambda i, j, k: x[i, k] * u[k, j]),
        (te.sum, lambda i, j, k: x[i, k] * v[k, j]), x, u, v,
    )  # fmt: skip
    assert joined_with(dag, "t") == []
    assert not any(map(is_joined, generate(dag, TARGET)))


def test_one_that_needs_the_other_is_not_joined() -> None:
    x = te.placeholder((9, 8), name="x")
    k, l = te.reduce_axis(9, name="k"), te.reduce_axis(9, name="l")  # noqa: E741
    mean = te.compute((8,), lambda i: te.sum(x[k, i], axis=k), name="mean")
    far = te.compute((9, 8), lambda r, i: x[r, i] - mean[i], name="far")
    t = te.compute((8,), lambda i: te.sum(far[l, i] * far[l, i] * x[l, i], axis=l), name="t")
    assert joined_with(ComputeDAG.of([x, t]), "t") == []


def test_masked_terms_keep_their_loops() -> None:
    x = te.placeholder((16, 16), name="x")
    dag = pair(
        (16,), (16,), (te.sum, lambda i, k: te.select(k <= i, x[k, i], 0.0)),
        (te.sum, lambda i, k: x[k, i] * 2.0), x,
    )  # fmt: skip
    assert joined_with(dag, "t") == []


def test_other_extents_are_not_joined() -> None:
    x = te.placeholder((16, 16), name="x")
    k, l = te.reduce_axis(16, name="k"), te.reduce_axis(15, name="l")  # noqa: E741
    s = te.compute((16,), lambda i: te.sum(x[k, i], axis=k), name="s")
    t = te.compute((16,), lambda i: te.sum(x[l, i], axis=l), name="t")
    assert joined_with(ComputeDAG.of([x, s, t]), "t") == []


# -- pointwise results ---------------------------------------------------------------------------------------

SMALL_CACHES = replace(TARGET, cache_bytes=(512, 1024))  # smaller than the tensors of these tests


def results(
    first: Callable[..., Any], second: Callable[..., Any], shape: tuple[int, ...] = (9, 32)
) -> ComputeDAG:
    """Two pointwise results over the same extents: first(x, y, indices) and second(x, y, first, indices)."""
    x, y = te.placeholder(shape, name="x"), te.placeholder(shape, name="y")
    a = te.compute(shape, lambda *i: first(x, y, *i), name="a")
    b = te.compute(shape, lambda *i: second(x, y, a, *i), name="b")
    return ComputeDAG.of([x, y, a, b])


POINTWISE = {
    "one operand": results(lambda x, _, *i: te.exp(x[i]), lambda x, y, _, *i: x[i] * y[i]),
    "the other result": results(lambda x, _, *i: te.exp(x[i]), lambda _, y, a, *i: a[i] + a[i] * y[i]),
    "short rows": results(lambda x, _, *i: x[i] + 1.0, lambda x, y, _, *i: x[i] * y[i], shape=(50, 3)),
}


@pytest.mark.parametrize("shares", POINTWISE)
def test_pointwise_results_that_share_are_written_in_one_nest(shares: str) -> None:
    dag = POINTWISE[shares]
    sketches = generate(dag, SMALL_CACHES)
    assert is_joined(sketches[0])
    assert State.initial(dag).names == ("a", "b")
    assert sketches[0].fill(sketches[0].defaults()).replay(dag).names == ("b",)
    for sketch in (sketches[0], next(s for s in sketches if not is_joined(s))):
        check(dag, sketch.fill(sketch.defaults()))


def test_results_that_stay_in_the_caches_are_apart_by_default() -> None:
    """One nest saves no time for small tensors, but the search may try it."""
    sketches = generate(POINTWISE["one operand"], TARGET)
    assert [is_joined(s) for s in sketches] == [False, True]


def test_extents_at_run_time_must_be_the_same() -> None:
    n, m = te.var("n", range=(1, 9)), te.var("m", range=(1, 9))
    x = te.placeholder((9, 32), name="x")
    a = te.compute((n, 32), lambda i, j: x[i, j] * 2.0, name="a")
    same = te.compute((n, 32), lambda i, j: x[i, j] + 1.0, name="same")
    other = te.compute((m, 32), lambda i, j: x[i, j] + 1.0, name="other")
    rows = [te.placeholder((e,), name=f"r{e}") for e in (n, m)]  # a call's extents are those of its arrays
    told = [te.compute((r.shape[0],), lambda i, r=r: r[i] * 1.0, name=f"t{r.shape[0]}") for r in rows]
    assert joined_with(ComputeDAG.of([x, rows[0], told[0], a, same]), "same") == ["a"]
    assert joined_with(ComputeDAG.of([x, *rows, *told, a, other]), "other") == []


def test_a_result_that_others_read_is_apart() -> None:
    """Its reader may need it whole, as a sum does, or at another point."""
    x, k = te.placeholder((9, 32), name="x"), te.reduce_axis(32, name="k")
    a = te.compute((9, 32), lambda i, j: x[i, j] * 2.0, name="a")
    b = te.compute((9, 32), lambda i, j: x[i, j] + a[i, 31 - j], name="b")
    s = te.compute((9,), lambda i: te.sum(a[i, k], axis=k), name="s")
    c = te.compute((9, 32), lambda i, j: x[i, j] + 1.0, name="c")
    assert joined_with(ComputeDAG.of([x, a, b]), "b") == []
    assert joined_with(ComputeDAG.of([x, a, s, c]), "c") == []


def test_results_of_two_reductions_are_apart_by_default() -> None:
    """Each is computed in the loops of its own reduction."""
    x, z = te.placeholder((9, 32), name="x"), te.placeholder((5, 9, 32), name="z")
    k, l = te.reduce_axis(5, name="k"), te.reduce_axis(4, name="l")  # noqa: E741
    s = te.compute((9, 32), lambda i, j: te.max(z[k, i, j], axis=k), name="s")
    t = te.compute((9, 32), lambda i, j: te.sum(z[l, i, j], axis=l), name="t")
    a = te.compute((9, 32), lambda i, j: s[i, j] * x[i, j], name="a")
    b = te.compute((9, 32), lambda i, j: t[i, j] + x[i, j], name="b")
    sketches = generate(ComputeDAG.of([x, z, a, b]), SMALL_CACHES)
    assert not is_joined(sketches[0])
    assert any(map(is_joined, sketches))


def test_what_may_be_inlined_counts_as_part_of_its_reader() -> None:
    x = te.placeholder((9, 32), name="x")
    k, l = te.reduce_axis(9, name="k"), te.reduce_axis(9, name="l")  # noqa: E741
    positive = te.compute((9, 32), lambda i, j: te.maximum(x[i, j], 0.0), name="positive")
    s = te.compute((32,), lambda j: te.sum(positive[k, j], axis=k), name="s")
    t = te.compute((32,), lambda j: te.sum(x[l, j] * x[l, j], axis=l), name="t")
    dag = ComputeDAG.of([x, s, t])
    assert joined_with(dag, "t") == ["s"]
    sketch = preferred(dag, TARGET)
    assert is_joined(sketch)
    check(dag, sketch.fill(sketch.defaults()))


# -- order ---------------------------------------------------------------------------------------------------


def test_readers_of_the_first_come_behind_the_last() -> None:
    x = te.placeholder((12, 10), name="x")
    k, l = te.reduce_axis(12, name="k"), te.reduce_axis(12, name="l")  # noqa: E741
    s = te.compute((10,), lambda i: te.sum(x[k, i], axis=k), name="s")
    reader = te.compute((10,), lambda i: s[i] * 0.5, name="reader")
    t = te.compute((10,), lambda i: te.max(x[l, i], axis=l), name="t")
    last = te.compute((10,), lambda i: t[i] + 1.0, name="last")
    dag = ComputeDAG.of([x, s, reader, last])
    assert [op.name for op in dag.stages] == ["s", "reader", "t", "last"]
    assert STEP.apply(State.initial(dag)).names == ("t", "reader", "last")
    for sketch in generate(dag, TARGET)[:3]:
        check(dag, sketch.fill(sketch.defaults()))


# -- drawn at random -----------------------------------------------------------------------------------------


def drawn(seed: int) -> ComputeDAG:
    """Two to four reductions over one domain. Their terms have parts in common; some are read by other
    stages, and some are results."""
    rng = random.Random(seed)
    axes = tuple(rng.choice((1, 3, 5, 9, 17)) for _ in range(rng.choice((1, 2))))
    terms = tuple(rng.choice((1, 2, 3, 7)) for _ in range(rng.choice((1, 2))))
    window = rng.random() < 0.5 and len(terms) <= len(axes)
    shape = tuple(a + b - 1 for a, b in zip(axes, (*terms, *(1,) * 2), strict=False))
    x = te.placeholder(shape if window else (*terms, *axes), name="x")
    y = te.placeholder(terms, name="y")

    def at(i: Any, k: Any) -> Any:
        if not window:
            return x[(*k, *i)]
        return x[tuple(a + k[n] if n < len(k) else a for n, a in enumerate(i))]

    bodies = [
        lambda i, k: te.abs(at(i, k)) + y[tuple(k)],
        lambda i, k: te.maximum(at(i, k), 0.5) * y[tuple(k)] - te.abs(at(i, k)) * at(i, k),
        lambda i, k: at(i, k),
        lambda i, k: te.abs(at(i, k)) * at(i, k),
    ]
    made: list[Any] = []
    results: list[Any] = []
    for n in range(rng.randint(2, 4)):
        ks = [te.reduce_axis(e, name=f"k{n}_{m}") for m, e in enumerate(terms)]
        reducer, body = rng.choice((te.sum, te.sum, te.max, te.min)), rng.choice(bodies if n else bodies[:2])
        whole = lambda *i, r=reducer, f=body, ks=ks: r(f(i, ks), axis=ks)  # noqa: E731
        made.append(te.compute(axes, whole, name=f"s{n}"))
        if rng.random() < 0.4:
            results.append(te.compute(axes, lambda *i, of=made[-1]: of[i] * 2.0, name=f"r{n}"))
    results.append(te.compute(axes, lambda *i: made[0][i] + made[-1][i], name="out"))
    outputs = [*rng.sample(made, rng.randint(0, 2)), *results]
    return ComputeDAG.of([x, y, *dict.fromkeys(outputs)])


def drawn_results(seed: int) -> ComputeDAG:
    """Two to four pointwise results, which have parts in common, and read one another and a reduction."""
    rng = random.Random(seed)
    shape = tuple(rng.choice((1, 3, 8, 17, 33)) for _ in range(rng.choice((1, 2, 3))))
    x, y = te.placeholder(shape, name="x"), te.placeholder(shape[-1:], name="y")
    z, k = te.placeholder((5, *shape), name="z"), te.reduce_axis(5, name="k")
    part = te.compute(shape, lambda *i: te.abs(x[i]) + y[i[-1]], name="part")
    total = te.compute(shape, lambda *i: te.sum(z[(k, *i)], axis=k), name="total")
    made: list[Any] = []
    for n in range(rng.randint(2, 4)):
        terms = [x, part, total, x, *made]
        one, other = rng.choice(terms), rng.choice(terms)
        turned = rng.random() < 0.2  # reads the second term from its end

        def body(*i: Any, a: Any = one, b: Any = other, turned: bool = turned) -> Any:
            return a[i] * 0.5 - te.maximum(b[(*i[:-1], shape[-1] - 1 - i[-1]) if turned else i], 0.25)

        made.append(te.compute(shape, body, name=f"r{n}"))
    return ComputeDAG.of(made)


def checked(seed: int, draw: Callable[[int], ComputeDAG] = drawn) -> bool:
    """Whether something can be joined; the default and a joined sketch are right."""
    dag = draw(seed)
    sketches = generate(dag, SMALL_CACHES)
    rng = random.Random(seed)
    check(dag, sketches[0].fill(sketches[0].defaults()), seed=seed)
    joined = [s for s in sketches if is_joined(s)]
    other = rng.choice(joined or sketches)
    check(dag, other.fill(other.random(rng)), seed=seed)
    return bool(joined)


def test_drawn_siblings() -> None:
    assert sum(map(checked, range(6))) >= 4
    assert sum(checked(n, drawn_results) for n in range(6)) == 6


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_drawn_siblings_at_length() -> None:
    assert sum(map(checked, range(6, 400))) >= 200
    assert sum(checked(n, drawn_results) for n in range(6, 400)) >= 300


def test_results_in_another_order_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault in the joining of stages."""
    right = algorithm.together

    def turned(others: tuple[StageOp, ...], op: StageOp) -> StageOp:
        made = right(others, op)
        return replace(made, bodies=made.bodies[::-1])

    monkeypatch.setattr(algorithm, "together", turned)
    dag = columns()
    sketch = preferred(dag, parse("llvm -mcpu=x86-64-v3 -threads=3"))
    with pytest.raises(Different):
        check(dag, sketch.fill(sketch.defaults()), native=False)
