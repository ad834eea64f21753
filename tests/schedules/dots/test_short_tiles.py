"""Products of bytes on Zen 5 have short tiles. Passes over a panel fetch the next one."""

from __future__ import annotations

import re

import pytest

from autotensor import te
from autotensor.base.target import parse
from autotensor.codegen.llvm.backend import module_text
from autotensor.lowering.pipeline import lower
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace, generate

ZEN5, ZEN4 = parse("llvm -mcpu=znver5 -threads=1"), parse("llvm -mcpu=znver4 -threads=1")


def product(m: int, n: int, k: int) -> ComputeDAG:
    A, W = te.placeholder((m, k), "uint8", name="A"), te.placeholder((k, n), "int8", name="W", constant=True)
    r = te.reduce_axis(k, name="r")
    C = te.compute(
        (m, n), lambda i, j: te.sum(A[i, r].astype("int32") * W[r, j].astype("int32"), axis=r), name="C"
    )
    return ComputeDAG.of([A, W, C])


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((49, 512, 4608), (7, 2)),
        ((28, 256, 2304), (7, 2)),
        ((128, 768, 3072), (8, 2)),
        ((196, 1024, 256), (4, 4)),  # a panel of 64 columns stays in L1
        ((128, 768, 768), (8, 2)),  # a panel of 64 columns would fill L1
    ],
)
def test_zen5_takes_short_tiles(shape: tuple[int, int, int], tile: tuple[int, int]) -> None:
    sketch = generate(product(*shape), ZEN5)[0]
    (default,) = (h.default for h in sketch.holes if h.name.endswith("/tile"))
    assert default[1:3] == tile


def test_zen4_keeps_its_tiles() -> None:
    sketch = generate(product(128, 768, 768), ZEN4)[0]
    (default,) = (h.default for h in sketch.holes if h.name.endswith("/tile"))
    assert default[1] * default[2] > 16


@pytest.mark.parametrize(("rows", "lines"), [(7, 0), (14, 4), (28, 2), (70, 1)])
def test_each_pass_fetches_its_share_of_the_next_panel(rows: int, lines: int) -> None:
    """A pass has 7 rows, and four steps of a panel of 512 x 32 bytes have eight lines. A product with one
    pass reads each panel once, so there is no time in which the next one could come."""
    dag = product(rows, 96, 512)
    text, _ = module_text(lower(default_trace(dag, ZEN5).replay(dag), ZEN5), ZEN5)
    fetched = re.findall(r"getelementptr i8, ptr %v\d+, i64 (\d+)\n  call void @llvm.prefetch", text)
    assert [int(at) for at in fetched] == [512 * 32] * lines
