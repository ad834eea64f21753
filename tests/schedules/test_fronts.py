"""Stages before a product, computed block by block: right for every decision. When such a sketch comes
first."""

from __future__ import annotations

import random
from typing import Any

import pytest
from comparison import check

from autotensor import te
from autotensor.base.target import parse
from autotensor.schedule.primitives.cache import CacheRead
from autotensor.schedule.primitives.compute_at import ComputeAt
from autotensor.schedule.primitives.mark import Parallel
from autotensor.te.dag import ComputeDAG
from schedules.generate import generate, is_one_nest, preferred

WIDE = parse("llvm -mcpu=x86-64-v4 -threads=2")
TARGETS = (WIDE, parse("llvm -mcpu=haswell -threads=3"), parse("llvm -mcpu=znver4 -threads=1"))
Tensor = Any


# -- what may stand in front: of pixels [h, w, c], or of rows [m, c] ---------------------------------------
def windowed(x: Tensor, rng: random.Random, name: str) -> Tensor:
    """A depthwise convolution, with or without a border of zeros, and an activation."""
    h, w, c = x.shape
    taps, step, border = rng.choice((2, 3)), rng.choice((1, 1, 2)), rng.random() < 0.5
    f = te.placeholder((taps, taps, c), name=f"{name}_f", constant=rng.random() < 0.7)
    if border:
        h, w, inner = h + taps - 1, w + taps - 1, x
        x = te.compute(
            (h, w, c),
            lambda i, j, k: te.select(
                te.all(i > 0, i <= inner.shape[0], j > 0, j <= inner.shape[1]), inner[i - 1, j - 1, k], 0.0
            ),
            name=f"{name}_pad",
        )
    p, q = te.reduce_axis(taps, name=f"{name}_p"), te.reduce_axis(taps, name=f"{name}_q")
    y = te.compute(
        ((h - taps) // step + 1, (w - taps) // step + 1, c),
        lambda i, j, k: te.sum(x[i * step + p, j * step + q, k] * f[p, q, k], axis=[p, q]),
        name=name,
    )
    if rng.random() < 0.5:
        return y
    return te.compute(y.shape, lambda *i: te.maximum(y[i], 0.0), name=f"{name}_relu")


def largest(x: Tensor, rng: random.Random, name: str) -> Tensor:
    h, w, c = x.shape
    p, q = te.reduce_axis(3, name=f"{name}_p"), te.reduce_axis(2, name=f"{name}_q")
    return te.compute((h - 2, w - 1, c), lambda i, j, k: te.max(x[i + p, j + q, k], axis=[p, q]), name=name)


def scaled(x: Tensor, rng: random.Random, name: str) -> Tensor:
    s = te.placeholder((x.shape[-1],), name=f"{name}_s")
    return te.compute(x.shape, lambda *i: te.maximum(x[i] * s[i[-1]], 0.0), name=name)


def centred(x: Tensor, rng: random.Random, name: str) -> Tensor:
    k = te.reduce_axis(x.shape[-1], name=f"{name}_k")
    total = te.compute(x.shape[:-1], lambda *i: te.sum(x[(*i, k)], axis=k), name=f"{name}_total")
    return te.compute(x.shape, lambda *i: x[i] - total[i[:-1]], name=name)


def product(seed: int) -> ComputeDAG:
    rng = random.Random(seed)
    shape = (rng.randint(5, 12), rng.randint(5, 14), rng.randint(3, 40))
    x = y = te.placeholder(shape, name="x")
    for n in range(rng.randint(1, 3)):
        fronts = [scaled, centred, *([windowed, windowed, largest] if min(y.shape[:2]) > 3 else [])]
        y = rng.choice(fronts)(y, rng, f"s{n}")
    h, w, c = y.shape
    columns = rng.randint(3, 70)
    weights = te.placeholder((c, columns), name="w", constant=rng.random() < 0.8)
    k = te.reduce_axis(c, name="k")
    if rng.random() < 0.5:
        z = te.compute((h, w, columns), lambda i, j, o: te.sum(y[i, j, k] * weights[k, o], axis=k), name="z")
    else:
        z = te.compute(
            (h * w, columns), lambda m, o: te.sum(y[m // w, m % w, k] * weights[k, o], axis=k), name="z"
        )
    if rng.random() < 0.5:
        r = z
        z = te.compute(r.shape, lambda *i: te.maximum(r[i], 0.0), name="r")
    return ComputeDAG.of([x, z])


def is_joined(sketch: Any, dag: ComputeDAG) -> bool:
    """Whether a stage before the product is computed in its loops."""
    last = {s.name for s in dag.stages if s.name in ("z", "r")}
    return any(
        isinstance(s, ComputeAt) and s.host in last and s.stage.partition(".")[0] not in last
        for s in sketch.steps
    )


def joined(seed: int) -> tuple[ComputeDAG, list[Any]]:
    """A program, and its sketches that compute a stage before the product block by block."""
    dag = product(seed)
    return dag, [s for s in generate(dag, TARGETS[seed % 3]) if is_joined(s, dag)]


def draws(seed: int, sketches: int) -> None:
    dag, found = joined(seed)
    rng = random.Random(seed)
    for sketch in rng.sample(found, min(sketches, len(found))):
        check(dag, sketch.fill(sketch.random(rng)), seed=seed)


def test_most_of_what_is_drawn_can_be_joined() -> None:
    assert sum(bool(joined(seed)[1]) for seed in range(24)) > 15


@pytest.mark.parametrize("seed", range(12))
def test_any_front_and_decision_gives_the_same(seed: int) -> None:
    draws(seed, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 400))
def test_many_fronts_and_decisions_give_the_same(seed: int) -> None:
    draws(seed, 3)


# -- what is on offer ---------------------------------------------------------------------------------------
def separable(h: int, c: int, columns: int, read_again: bool = False) -> ComputeDAG:
    x = te.placeholder((h + 2, h + 2, c), name="x")
    f = te.placeholder((3, 3, c), name="f", constant=True)
    w = te.placeholder((c, columns), name="w", constant=True)
    p, q, k = te.reduce_axis(3, name="p"), te.reduce_axis(3, name="q"), te.reduce_axis(c, name="k")
    y = te.compute((h, h, c), lambda i, j, k: te.sum(x[i + p, j + q, k] * f[p, q, k], axis=[p, q]), name="y")
    z = te.compute((h, h, columns), lambda i, j, o: te.sum(y[i, j, k] * w[k, o], axis=k), name="z")
    return ComputeDAG.of([x, f, w, *([y] if read_again else []), z])


def test_a_window_is_made_with_the_rows_that_a_product_reads() -> None:
    dag = separable(28, 96, 64)
    assert is_one_nest(dag, WIDE)
    kinds = {is_joined(s, dag) for s in generate(dag, WIDE)}
    assert kinds == {True, False}  # a search may still cut it


def test_blocks_are_divided_once() -> None:
    steps = preferred(separable(28, 96, 64), WIDE).steps
    assert sum(isinstance(s, Parallel) for s in steps) == 1


def test_what_is_wanted_whole_stays_outside() -> None:
    dag = separable(28, 96, 64, read_again=True)
    assert not any(is_joined(s, dag) for s in generate(dag, WIDE))


def test_weights_beyond_the_second_cache_are_not_read_for_every_block() -> None:
    assert not is_one_nest(separable(14, 1024, 4096), WIDE)


def test_what_every_block_would_copy_across_keeps_blocks_large() -> None:
    """Scores whose queries are computed before the product: keys are transposed for each block."""
    rows, depth = 256, 64
    q, k = te.placeholder((8, rows, depth), name="q"), te.placeholder((8, rows, depth), name="k")
    half = depth // 2
    made = te.compute((8, rows, depth), lambda h, i, e: q[h, i, e] + q[h, i, (e + half) % depth], name="made")
    r = te.reduce_axis(depth, name="r")
    out = te.compute((8, rows, rows), lambda h, i, j: te.sum(made[h, i, r] * k[h, j, r], axis=r), name="out")
    sketch = preferred(ComputeDAG.of([q, k, out]), WIDE)
    assert any(isinstance(s, CacheRead) for s in sketch.steps)
    inside = [s for s in sketch.steps if isinstance(s, ComputeAt) and s.stage == "made"]
    block = next(h.default[0] for h in sketch.holes if h.name == "out/rows")
    assert not inside or block >= rows // 2


def of_lines(width: int, c: int, columns: int) -> ComputeDAG:
    """A window, and a product over its pixels as one axis."""
    x = te.placeholder((18, width + 2, c), name="x")
    f = te.placeholder((3, 3, c), name="f", constant=True)
    w = te.placeholder((c, columns), name="w", constant=True)
    p, q, k = te.reduce_axis(3, name="p"), te.reduce_axis(3, name="q"), te.reduce_axis(c, name="k")
    y = te.compute(
        (16, width, c), lambda i, j, k: te.sum(x[i + p, j + q, k] * f[p, q, k], axis=[p, q]), name="y"
    )
    rows = (16 * width, columns)
    z = te.compute(rows, lambda m, o: te.sum(y[m // width, m % width, k] * w[k, o], axis=k), name="z")
    return ComputeDAG.of([x, f, w, z])


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.arch)
@pytest.mark.parametrize("width", [28, 29, 31, 35, 37, 41, 47])  # no register tile divides some of these
def test_lines_of_any_width_have_sketches(width: int, target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTENSOR_STRICT", "1")
    for columns in (16, 96, 512):
        sketch = preferred(of_lines(width, 24, columns), target)
        assert "tile_cpu" in sketch.made_by
