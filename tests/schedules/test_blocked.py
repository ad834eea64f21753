"""Products of few rows with a moving matrix: how wide the blocks of the result are by default."""

from __future__ import annotations

from math import ceil

import pytest

from autotensor import te
from autotensor.base.target import parse
from autotensor.schedule.primitives.rfactor import RFactor
from autotensor.te.dag import ComputeDAG
from schedules.generate import generate


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
