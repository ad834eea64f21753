"""Pipelines are right under any plan and any decision, and the offered plans differ in places."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from comparison import check

from autotensor import te
from autotensor.base.target import parse
from autotensor.schedule.carried import vector_along
from autotensor.schedule.extents import derive
from autotensor.schedule.primitives.compute_at import ComputeAt, Inline
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.primitives.store_at import StoreAt
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace, generate, preferred
from schedules.placement.cost import nodes

WIDE = parse("llvm -mcpu=x86-64-v4 -threads=2")
TARGETS = (WIDE, parse("llvm -mcpu=haswell -threads=3"))
Tensor = Any


# -- random pipelines ---------------------------------------------------------------------------------------
def cross(x: Tensor, rng: random.Random, name: str) -> Tensor:
    h, w = x.shape[-2] - 2, x.shape[-1] - 2
    return te.compute(
        (h, w), lambda i, j: x[i + 1, j] + x[i + 1, j + 2] - x[i, j + 1] + x[i + 2, j + 1], name=name
    )


def window(x: Tensor, rng: random.Random, name: str) -> Tensor:
    taps, axis, most = rng.choice((2, 3, 5)), rng.randint(0, 1), rng.random() < 0.5
    k = te.reduce_axis(taps, name=f"{name}_k")
    shape = tuple(n - (taps - 1) * (a == axis) for a, n in enumerate(x.shape))

    def body(i: Any, j: Any) -> Any:
        v = x[i + k, j] if axis == 0 else x[i, j + k]
        return te.max(v, axis=k) if most else te.sum(v, axis=k)

    return te.compute(shape, body, name=name)


def halved(x: Tensor, rng: random.Random, name: str) -> Tensor:
    shape = (x.shape[0], (x.shape[1] - 1) // 2)
    return te.compute(shape, lambda i, j: x[i, 2 * j] + x[i, 2 * j + 1] + x[i, 2 * j + 2], name=name)


def doubled(x: Tensor, rng: random.Random, name: str) -> Tensor:
    shape = (2 * x.shape[0] - 2, x.shape[1])
    return te.compute(shape, lambda i, j: x[i // 2, j] + x[i // 2 + i % 2, j], name=name)


def bordered(x: Tensor, rng: random.Random, name: str) -> Tensor:
    n = x.shape[1]
    return te.compute(
        x.shape,
        lambda i, j: te.select(te.all(j > 0, j < n - 1), x[i, j - 1] + x[i, j + 1], x[i, j]),
        name=name,
    )


def coloured(x: Tensor, rng: random.Random, name: str) -> Tensor:
    """Three colours, and grey again."""
    c = te.compute((*x.shape, 3), lambda i, j, c: x[i, j] * te.cast("float32", c + 1), name=f"{name}c")
    return te.compute(x.shape, lambda i, j: c[i, j, 0] + c[i, j, 1] - c[i, j, 2], name=name)


STEPS: Sequence[Callable[[Tensor, random.Random, str], Tensor]] = (
    *(cross, cross, window, window, halved, doubled, bordered, coloured),
)


def pipeline(seed: int) -> ComputeDAG:
    rng = random.Random(seed)
    x = te.placeholder((rng.randint(14, 40), rng.randint(30, 90)), name="x")
    values = [x]
    for n in range(rng.randint(2, 5)):
        y = rng.choice(values[-2:])
        fitting = [s for s in STEPS if min(y.shape) > 10]
        if fitting:
            values.append(rng.choice(fitting)(y, rng, f"s{n}"))
    if rng.random() < 0.5:
        a, b = values[-1], rng.choice(values)
        shape = tuple(min(n, m) for n, m in zip(a.shape, b.shape, strict=True))
        values.append(te.compute(shape, lambda i, j: a[i, j] - b[i, j], name="mixed"))
    read = {id(t) for v in values for t in getattr(v.op, "inputs", ())}
    outputs = [v for v in values[1:] if id(v) not in read] or values[-1:]
    return ComputeDAG.of([x, *outputs[-2:]])


def draws(seed: int, sketches: int) -> None:
    dag, rng = pipeline(seed), random.Random(seed)
    target = TARGETS[seed % 2]
    found = generate(dag, target)
    for sketch in (found[0], *rng.sample(found, min(sketches, len(found)))):
        check(dag, sketch.fill(sketch.random(rng)), seed=seed)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.sample(4)
def test_any_plan_and_decision_gives_the_same(seed: int) -> None:
    draws(seed, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 600))
def test_many_plans_and_decisions_give_the_same(seed: int) -> None:
    draws(seed, 3)


# -- what is on offer ---------------------------------------------------------------------------------------
def blur(taps: int = 9) -> ComputeDAG:
    x = te.placeholder((512, 768), name="x")

    def along(v: Tensor, axis: int, name: str) -> Tensor:
        shape = tuple(n - (taps - 1) * (a == axis) for a, n in enumerate(v.shape))

        def body(i: Any, j: Any) -> Any:
            parts = [v[i + d, j] if axis == 0 else v[i, j + d] for d in range(taps)]
            return sum(parts[1:], parts[0])

        return te.compute(shape, body, name=name)

    return ComputeDAG.of([x, along(along(x, 0, "a"), 1, "b")])


def places(sketch: Any) -> tuple[frozenset[str], frozenset[str]]:
    inlined = frozenset(s.stage for s in sketch.steps if isinstance(s, Inline))
    return inlined, frozenset(s.stage for s in sketch.steps if isinstance(s, ComputeAt))


def test_sketches_differ_in_places() -> None:
    assert {places(s) for s in generate(blur(), WIDE)} >= {
        (frozenset(), frozenset({"a"})),
        (frozenset({"a"}), frozenset()),
        (frozenset(), frozenset()),
    }


def test_many_taps_are_not_computed_again_for_each_other() -> None:
    state = default_trace(blur(), WIDE).replay(blur())
    assert state.stage("a").place.stage == "b"  # type: ignore[union-attr]


def test_one_window_with_its_activation_is_no_pipeline() -> None:
    x = te.placeholder((1, 30, 30, 32), name="x")
    p, q = te.reduce_axis(3, name="p"), te.reduce_axis(3, name="q")
    pool = te.compute(
        (1, 28, 28, 32), lambda n, i, j, c: te.sum(x[n, i + p, j + q, c], axis=[p, q]), name="pool"
    )
    relu = te.compute(pool.shape, lambda n, i, j, c: te.maximum(pool[n, i, j, c], 0.0), name="relu")
    assert "pipeline" not in generate(ComputeDAG.of([x, relu]), WIDE)[0].made_by


def test_a_deep_chain_of_stencils_stays_small() -> None:
    x = y = te.placeholder((512, 512), name="x")
    for n in range(10):
        y = cross(y, random.Random(0), f"s{n}")
    dag = ComputeDAG.of([x, y])
    trace = default_trace(dag, WIDE)
    assert sum(isinstance(s, ComputeAt) for s in trace.steps) >= 1
    state = trace.replay(dag)
    assert max(nodes(s.op) for s in state.live()) < 4000


def test_stages_slide_along_whole_rows() -> None:
    """A chain of five stencils: values that tiles would compute again are kept, with enough rows in each
    step."""
    x = te.placeholder((1034, 1034), name="x")
    for n in range(5):
        x = cross(x, random.Random(0), f"s{n}")
    trace = default_trace(ComputeDAG.of([x]), WIDE)
    assert {s.stage for s in trace.steps if isinstance(s, StoreAt)} >= {"s1", "s2", "s3"}
    (strip, rows), (columns,) = [s.factors for s in trace.steps if isinstance(s, SplitStep)][:2]
    assert (strip * rows, columns) == (512, 1024)


def test_steps_that_keep_nothing_are_not_on_offer() -> None:
    """Rows of an image of half the height: for two output rows, they move by one; for one output row, by none
    or one."""
    x = te.placeholder((520, 512), name="x")
    a = te.compute((516, 512), lambda i, j: te.exp(x[i, j] + x[i + 2, j] + x[i + 4, j]), name="a")
    b = te.compute((1024, 512), lambda i, j: a[i // 2, j] - a[i // 2 + 2, j], name="b")
    found = [h for s in generate(ComputeDAG.of([b]), WIDE) for h in s.holes if h.name == "b/i steps"]
    assert found
    assert all(rows % 2 == 0 for h in found for _, rows in h.options)


def slides(sketch: Any) -> bool:
    return any(isinstance(s, StoreAt) for s in sketch.steps)


def test_stages_slide_whatever_is_computed_behind_them() -> None:
    """Another result was scheduled before, and its holes are still open."""
    x = y = te.placeholder((42, 138), name="x")
    for n in range(5):
        y = cross(y, random.Random(0), f"s{n}")
    z = te.compute((32, 128), lambda i, j: te.maximum(x[i, j], 0.0), name="z")
    dag = ComputeDAG.of([x, y, z])
    assert dag.stages[-1].name == "z"
    trace = default_trace(dag, WIDE)
    assert slides(trace)
    check(dag, trace)


def smaller(x: Tensor, name: str) -> Tensor:
    h, w = ((n - 2) // 2 for n in x.shape)
    rows = te.compute(
        (h, x.shape[1]), lambda i, j: x[2 * i, j] + x[2 * i + 1, j] + x[2 * i + 2, j], name + "v"
    )
    return te.compute((h, w), lambda i, j: rows[i, 2 * j] + rows[i, 2 * j + 1] + rows[i, 2 * j + 2], name)


def larger(x: Tensor, h: int, w: int, name: str) -> Tensor:
    rows = te.compute((h, x.shape[1]), lambda i, j: x[i // 2, j] + x[i // 2 + i % 2, j], name + "v")
    return te.compute((h, w), lambda i, j: rows[i, j // 2] + rows[i, j // 2 + j % 2], name)


def test_plans_that_cannot_slide_leave_their_place_to_others() -> None:
    """An image is halved twice and doubled twice. The cheapest plans would keep rows that move by unequal
    steps."""
    x = te.placeholder((1038, 1550), name="x")
    one = smaller(x, "d1")
    back = larger(smaller(one, "d2"), one.shape[0] - 4, one.shape[1] - 4, "u1")
    low = te.compute(back.shape, lambda i, j: one[i, j] - 0.5 * back[i, j], name="low")
    whole = larger(low, 1024, 1536, "u0")
    out = te.compute((1024, 1536), lambda i, j: x[i, j] + 0.3 * whole[i, j], name="out")
    assert slides(preferred(ComputeDAG.of([x, out]), parse("llvm -mcpu=znver4 -threads=1")))


def test_stages_in_front_of_a_product_do_not_slide_inside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only loops at root keep the values that earlier iterations computed."""
    monkeypatch.setenv("AUTOTENSOR_STRICT", "1")
    x = te.placeholder((1024, 1030), name="x")
    a = te.compute((1024, 1027), lambda i, j: x[i, j] - x[i, j + 1] + x[i, j + 3], name="a")
    b = te.compute((1024, 1024), lambda i, j: a[i, j] - a[i, j + 1] + a[i, j + 3], name="b")
    w, k = te.placeholder((1024, 256), name="w", constant=True), te.reduce_axis(1024, name="k")
    o = te.compute((1024, 256), lambda i, j: te.sum(b[i, k] * w[k, j], axis=k), name="o")
    found = generate(ComputeDAG.of([x, w, o]), parse("llvm -mcpu=znver4 -threads=1"))
    inside = [s for s in found if computed_at(s).get("b") == "o"]
    assert inside
    assert not any(map(slides, inside))


def test_rows_of_windows_share_what_they_read() -> None:
    """The greatest of each square, by columns and then by rows: several rows of the first at a time."""
    x = te.placeholder((40, 72), name="x")
    a, b = te.reduce_axis(5, name="a"), te.reduce_axis(5, name="b")
    down = te.compute((36, 72), lambda i, j: te.max(x[i + a, j], axis=a), name="down")
    out = te.compute((36, 68), lambda i, j: te.max(down[i, j + b], axis=b), name="out")
    dag = ComputeDAG.of([x, out])
    made = [s for s in generate(dag, WIDE) if any(h.name == "down/rows" for h in s.holes)]
    assert made
    for sketch in made:
        (hole,) = (h for h in sketch.holes if h.name == "down/rows")
        for option in (hole.options[0], hole.options[-1]):
            check(dag, sketch.fill({**sketch.defaults(), "down/rows": option}))


# -- terms of sums that are stages of their own -------------------------------------------------------------
def alike(h: int, w: int, near: int, patch: int, swapped: bool = False) -> ComputeDAG:
    """A mean of neighbours, weighed by the similarity of their patches. swapped: the sum runs over the
    neighbours in another order than the weights have in memory."""
    size = near + patch - 1
    x = te.placeholder((h + size - 1, w + size - 1), name="x")
    p, q = te.reduce_axis(patch, name="p"), te.reduce_axis(patch, name="q")
    s, t = te.reduce_axis(near, name="s"), te.reduce_axis(near, name="t")
    half = near // 2

    def differ(s: Any, t: Any, i: Any, j: Any) -> Any:
        d = x[i + s + p, j + t + q] - x[i + half + p, j + half + q]
        return te.sum(d * d, axis=[p, q])

    apart = te.compute((near, near, h, w), differ, name="apart")
    weight = te.compute(
        (near, near, h, w), lambda s, t, i, j: te.exp(-0.3 * apart[s, t, i, j]), name="weight"
    )
    total = te.compute(
        (h, w),
        lambda i, j: te.sum(weight[s, t, i, j] * x[i + s, j + t], axis=[t, s] if swapped else [s, t]),
        name="total",
    )
    return ComputeDAG.of([x, te.compute((h, w), lambda i, j: total[i, j] + x[i, j], name="out")])


def computed_at(trace: Any) -> dict[str, str]:
    return {s.stage: s.host for s in trace.steps if isinstance(s, ComputeAt)}


@pytest.mark.parametrize("target", TARGETS)
def test_terms_of_a_sum_are_computed_where_it_adds_them(target: Any) -> None:
    found = computed_at(default_trace(alike(256, 384, 5, 3), target))
    assert found["weight"] == found["apart"] == "total.local"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sample(1)
def test_terms_give_the_same_at_any_size(seed: int) -> None:
    rng = random.Random(seed)
    dag = alike(rng.randint(3, 21), rng.randint(9, 75), rng.randint(2, 5), rng.choice((1, 3)), seed % 2 == 0)
    made = [s for s in generate(dag, TARGETS[seed % 2]) if computed_at(s).get("weight") == "total.local"]
    assert made
    for sketch in made[:2]:
        check(dag, sketch.fill(sketch.random(rng)), seed=seed)


def test_a_stage_that_several_sums_read_is_not_a_term() -> None:
    """Each sum would compute it again."""
    x, (k, m) = te.placeholder((64, 128), name="x"), (te.reduce_axis(5, name=n) for n in "km")
    e = te.compute((5, 64, 128), lambda s, i, j: te.exp(x[i, j] * te.cast("float32", s)), name="e")
    a = te.compute((64, 128), lambda i, j: te.max(e[k, i, j], axis=k), name="a")
    b = te.compute((64, 128), lambda i, j: te.sum(e[m, i, j] - a[i, j], axis=m), name="b")
    out = te.compute((64, 128), lambda i, j: a[i, j] * b[i, j], name="out")
    for sketch in generate(ComputeDAG.of([x, out]), WIDE):
        assert not computed_at(sketch).get("e", "").endswith(".local")


def test_nothing_slides_along_its_vectors() -> None:
    """A reader that transposes its operand moves along the operand's rows."""
    x, w = te.placeholder((24, 96, 96), name="x"), te.placeholder((5,), name="w")
    r = te.reduce_axis(5, name="r")
    turned = te.compute((24, 96, 96), lambda i, j, k: x[i, k, j] * 0.9, name="turned")
    v = te.compute((24, 92, 96), lambda i, j, k: te.sum(turned[i, j + r, k] * w[r], axis=r), name="v")
    back = te.compute((24, 96, 92), lambda i, j, k: v[i, k, j] * 0.9, name="back")
    c = te.placeholder((24,), name="c")
    y = te.compute((24, 96, 92), lambda i, j, k: back[i, j, k] / (1.5 + c[i] * c[i]), name="y")
    z = te.compute((24, 96, 92), lambda i, j, k: te.exp(-y[i, j, k] * y[i, j, k]), name="z")
    again = te.compute((24, 92, 96), lambda i, j, k: y[i, k, j] * 0.9, name="again")
    dag = ComputeDAG.of([x, w, c, z, again])
    for sketch in generate(dag, parse("llvm -threads=1")):
        state = sketch.fill(sketch.defaults()).replay(dag)
        for name, window in derive(state).windows.items():
            stage = state.stage(name)
            assert not vector_along(stage, stage.op.axes[window.along].name)
