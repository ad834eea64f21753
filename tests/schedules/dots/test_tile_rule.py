"""Products by tiles (AMX): the choices of the rule. All its sketches are exact at the edges of tiles."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from comparison import Native, interpreted
from dot_products import drawn

from autotensor import te
from autotensor.base.errors import CodegenError
from autotensor.base.target import Target, host, parse
from autotensor.codegen.dot_instructions import available
from autotensor.codegen.llvm.backend import module_text
from autotensor.codegen.llvm.kernel import Kernel
from autotensor.lowering.pipeline import lower
from autotensor.schedule import extents
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace, generate
from schedules.kit.matrix_tiles import groups_at_once

AMX = parse("llvm -mcpu=sapphirerapids -threads=1")
HAS_TILES = "x86.tdpbusd" in {d.name for d in available(host())}


def product(m: int, n: int, k: int, types: tuple[str, str] = ("uint8", "int8")) -> ComputeDAG:
    acc = "int32" if types[0] == "uint8" else "float32"
    A = te.placeholder((m, k), types[0], name="A")
    W = te.placeholder((k, n), types[1], name="W", constant=True)
    r = te.reduce_axis(k, name="r")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r].astype(acc) * W[r, j].astype(acc), axis=r), name="C")
    D = te.compute((m, n), lambda i, j: C[i, j] + te.const(1, acc), name="D")
    return ComputeDAG.of([A, W, D])


def run(dag: ComputeDAG, trace: Trace, target: Target, inputs: dict[str, np.ndarray]) -> np.ndarray:
    if HAS_TILES:
        return Native(dag, lower(trace.replay(dag), host()), host())(inputs, 1)["D"]
    return interpreted(dag, lower(trace.replay(dag), target), inputs, 1)["D"]


SHAPES = [
    (16, 16, 64),  # one tile
    (17, 33, 68),  # one row, one column and one group more; a last step of one group
    (37, 100, 264),  # uneven rows, columns that are not whole tiles, a smaller last step
    (49, 48, 96),  # even rows of 13, of which the last tile is moved inside
    (7, 64, 128),  # fewer rows than a tile has
    (100, 31, 40),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.sample(2)
def test_all_sketches_are_exact(shape: tuple[int, int, int]) -> None:
    dag, rng = product(*shape), random.Random(3)
    m, n, k = shape
    given = {
        "A": drawn(np.random.default_rng(1), "u1", (m, k)),
        "W": drawn(np.random.default_rng(2), "i1", (k, n)),
    }
    want = (given["A"].astype("i8") @ given["W"].astype("i8")).astype("i4") + 1
    sketches = [s for s in generate(dag, AMX) if "tdpbusd" in str(s.fill(s.defaults()))]
    assert sketches
    for sketch in sketches[::3]:
        for trace in (sketch.fill(sketch.defaults()), sketch.fill(sketch.random(rng))):
            assert np.array_equal(run(dag, trace, AMX, given), want), trace


@pytest.mark.parametrize("shape", SHAPES)
def test_bfloat16_too(shape: tuple[int, int, int]) -> None:
    """Sums of whole numbers are exact in any order."""
    from autotensor.base.dtype import bfloat16

    dag = product(*shape, ("bfloat16", "bfloat16"))
    m, n, k = shape
    a, w = (np.random.default_rng(s).integers(-8, 8, size) for s, size in ((1, (m, k)), (2, (k, n))))
    given = {"A": a.astype(bfloat16.numpy), "W": w.astype(bfloat16.numpy)}
    trace = default_trace(dag, AMX)
    assert np.array_equal(run(dag, trace, AMX, given), (a @ w + 1).astype("f4"))


def test_many_rows_take_tiles_and_one_takes_vectors() -> None:
    assert "tdpbusd" in str(default_trace(product(64, 64, 256), AMX))
    assert "vpdpbusd" in str(default_trace(product(1, 64, 256), AMX))
    assert "tdp" not in str(default_trace(product(64, 64, 255), AMX))  # no whole groups


def test_threads_meet_before_tiles_are_read() -> None:
    """A panel that every call packs is read by all threads: loads of tiles count as reads of a kernel."""
    A, W = te.placeholder((40, 64), "uint8", name="A"), te.placeholder((70, 64), "int8", name="W")
    r = te.reduce_axis(64, name="r")
    C = te.compute(
        (40, 70), lambda i, j: te.sum(A[i, r].astype("int32") * W[j, r].astype("int32"), axis=r), name="C"
    )
    dag = ComputeDAG.of([A, W, C])
    sketch = next(s for s in generate(dag, AMX) if "tdpbusd" in str(s.fill(s.defaults())))
    func = lower(sketch.fill(sketch.defaults()).replay(dag), AMX).run[-1]
    kernel = Kernel(func, ())
    kernel.function()
    assert {b.name for b in kernel.loaded} >= {"A", "W.packed"}


@pytest.mark.parametrize(("rows", "lines"), [(128, 4), (96, 6), (32, 16)])
def test_each_pass_over_a_panel_fetches_its_share_of_the_next_one(rows: int, lines: int) -> None:
    """Passes of 32 rows. Each step loads two tiles of 16 rows, of panels of 512 x 32 bytes."""
    dag = product(rows, 96, 512)
    text, _ = module_text(lower(default_trace(dag, AMX).replay(dag), AMX), AMX)
    fetched = re.findall(r"getelementptr i8, ptr %v\d+, i64 (\d+)\n  call void @llvm.prefetch", text)
    begin = 4096 if rows == 32 else 512 * 32
    assert [int(at) for at in fetched] == [begin + 128 * line for line in range(lines)] * 2


def test_other_processors_have_none() -> None:
    for name in ("cooperlake", "znver5"):
        assert not any(
            "tdp" in str(s.fill(s.defaults()))
            for s in generate(product(64, 64, 256), parse(f"llvm -mcpu={name}"))
        )


def test_steps_are_whole_where_that_costs_little() -> None:
    assert [groups_at_once(n, 16) for n in (16, 24, 64, 17, 66, 250)] == [16, 12, 16, 9, 11, 16]


def test_a_tile_that_sticks_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the last tile is not moved inside the tensor. Its rows then are tiles of another shape."""
    dag = product(37, 100, 264)
    trace = default_trace(dag, AMX)
    monkeypatch.setattr(extents, "_of_whole_tiles", lambda stage, box: box)
    with pytest.raises(CodegenError, match=r"several shapes|registers of tiles"):
        module_text(lower(trace.replay(dag), AMX), AMX)
