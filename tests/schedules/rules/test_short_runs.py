"""Sums over short runs: right for any size and decision. The sketch comes first if runs are short, and is
never the only one."""

from __future__ import annotations

import random
from typing import Any

import pytest
from comparison import check

from autotensor import te
from autotensor.base.target import parse
from autotensor.schedule.primitives.storage import Storage
from autotensor.schedule.sketch import Sketch
from autotensor.te.dag import ComputeDAG
from schedules.generate import generate

TARGETS = tuple(
    parse(t) for t in ("llvm -mcpu=haswell -threads=1", "llvm -mcpu=x86-64-v4 -threads=3")
)  # fmt: skip


def statistics(pixels: tuple[int, int], groups: int, per: int, batch: int = 1) -> ComputeDAG:
    """The mean square of each group of channels, of a tensor whose channels lie last."""
    x = te.placeholder((batch, *pixels, groups * per), name="x")
    a, b, e = (te.reduce_axis(n, name=m) for n, m in zip((*pixels, per), "abe", strict=True))

    def square(n: Any, g: Any) -> Any:
        v = x[n, a, b, g * per + e]
        return te.sum(v * v, axis=[a, b, e])

    s = te.compute((batch, groups), square, name="s")
    return ComputeDAG.of([x, te.compute((batch, groups), lambda n, g: te.sqrt(s[n, g]), name="norm")])


def in_short_runs(sketch: Sketch) -> bool:
    """Whether the partial results of several runs are kept next to one another."""
    return any(isinstance(step, Storage) and step.stage.endswith(".rf") for step in sketch.steps)


def made_by(dag: ComputeDAG, target: Any) -> list[bool]:
    return [in_short_runs(s) for s in generate(dag, target)]


@pytest.mark.parametrize("target", TARGETS)
def test_short_runs_come_first_and_rows_behind(target: Any) -> None:
    found = made_by(statistics((32, 32), 8, 16), target)
    assert found[0]
    assert not all(found)


def test_runs_of_a_page_are_left_to_rows() -> None:
    assert not any(made_by(statistics((16, 16), 2, 2048), TARGETS[0]))


def test_few_terms_are_left_to_rows() -> None:
    assert not any(made_by(statistics((7, 7), 8, 16), TARGETS[0]))


def test_runs_shorter_than_a_vector_are_left_to_others() -> None:
    assert not any(made_by(statistics((16, 16), 8, 4), TARGETS[0]))


@pytest.mark.parametrize("seed", range(8))
def test_any_size_and_decision_gives_the_same(seed: int) -> None:
    rng = random.Random(seed)
    target = TARGETS[seed % 2]
    lanes = target.vector_bytes // 4
    sizes = (rng.randint(6, 9), rng.randint(11, 13)), rng.randint(2, 9), rng.randint(lanes, 3 * lanes)
    dag = statistics(*sizes, batch=rng.randint(1, 3))
    first = generate(dag, target)[0]
    assert in_short_runs(first)
    check(dag, first.fill(first.random(rng)), seed=seed)
