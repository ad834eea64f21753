"""Products of few rows with a matrix that is not constant: the default width of the result's blocks."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np
import pytest

from autotensor import te
from autotensor.base.target import parse
from autotensor.compiler import compile_trace
from autotensor.runtime.module import Module
from autotensor.schedule.primitives.rfactor import RFactor
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate, random_inputs
from autotensor.te.tolerance import tolerance
from schedules.generate import default_trace, generate


def product(m: int, n: int, k: int) -> ComputeDAG:
    """a: [m, k] times b: [k, n], both inputs."""
    a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
    r = te.reduce_axis(k, name="r")
    return ComputeDAG.of([a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")])


CASES = (  # m, n, k, threads, blocks of columns
    (1, 4096, 4096, 1, 1),  # whole rows of the matrix: 16 KB of sums
    (1, 4096, 4096, 2, 2),  # one run for each core
    (1, 50257, 768, 1, 1),  # 200 KB of sums
    (16, 8192, 1024, 1, 2),  # 512 KB of sums would crowd L2
    (16, 8192, 1024, 2, 2),  # a core has half of them
)


@pytest.mark.parametrize(("m", "n", "k", "threads", "blocks"), CASES)
def test_a_core_streams_long_runs(m: int, n: int, k: int, threads: int, blocks: int) -> None:
    target = parse(f"llvm -mcpu=znver4 -threads={threads}")
    sketch = generate(product(m, n, k), target)[0]
    chosen = {h.name: h.default for h in sketch.holes}
    assert any(isinstance(s, RFactor) for s in sketch.steps)
    assert ceil(n / (chosen["c/columns"][0] * chosen["c/tile"][3])) == blocks


ZEN5 = replace(parse("llvm -mcpu=x86-64-v4 -threads=2"), cache_bytes=(48 << 10, 1 << 20, 32 << 20))


@pytest.mark.parametrize(
    ("m", "n", "k", "cut"),
    [
        (64, 64, 8192, True),  # panels of 2 MB, used by several tiles of rows
        (64, 64, 2048, False),  # L2 holds them
        (4, 64, 8192, False),  # one tile of rows: nothing reads them again
        (256, 64, 8192, False),  # not seen to pay
    ],
)
def test_panels_that_l2_does_not_hold_are_read_in_cuts(m: int, n: int, k: int, cut: bool) -> None:
    alone = ZEN5.with_threads(1)  # two would sum parts of the same tile
    assert any(isinstance(s, RFactor) for s in default_trace(product(m, n, k), alone).steps) is cut


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_cores_divide_rows_where_columns_do_not_suffice(threads: int) -> None:
    sketch = generate(product(64, 64, 8192), ZEN5.with_threads(threads))[0]
    chosen = {h.name: h.default for h in sketch.holes}
    height = chosen["c/rows"][0] * chosen["c/tile"][1]
    columns = ceil(64 / (chosen["c/columns"][0] * chosen["c/tile"][3]))
    assert ceil(64 / height) * columns >= threads


@pytest.mark.parametrize("size", [(20, 24, 400), (37, 17, 210), (9, 70, 128)], ids=str)
def test_cuts_divided_by_rows_give_the_same(size: tuple[int, int, int]) -> None:
    small = replace(parse("llvm -threads=3"), cache_bytes=(1 << 10, 4 << 10, 64 << 10))
    dag = product(*size)
    given = random_inputs(dag, 3)
    want = evaluate(dag, given, accumulate=np.float64)
    far = tolerance(dag, given, want)["c"]
    cut = [s for s in generate(dag, small) if any(isinstance(x, RFactor) for x in s.steps)]
    assert cut
    for sketch in cut:
        (rows,) = [h for h in sketch.holes if h.name == "c/rows"]
        for choice in (rows.options[0], rows.default):
            trace = sketch.fill({**sketch.defaults(), "c/rows": choice})
            got = Module(compile_trace(dag, trace, small), threads=3)(given["a"], given["b"])
            assert (np.abs(got - want["c"]) <= far).all(), trace.to_python()
