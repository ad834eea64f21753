"""Matrix products are right under every sketch with random decisions, for all sizes, types and machines."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from autotensor import te
from autotensor.base.target import Target, parse
from autotensor.compiler import compile_trace
from autotensor.lowering.pipeline import lower
from autotensor.runtime.module import Module
from autotensor.schedule.primitives.cache import CacheRead
from autotensor.schedule.primitives.layout import Layout
from autotensor.schedule.primitives.mark import Parallel
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.rfactor import RFactor
from autotensor.schedule.primitives.storage import Storage
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate, random_inputs
from autotensor.te.tolerance import tolerance
from schedules.cpu import ZEN4, cpu_of
from schedules.generate import default_trace, generate
from schedules.kit import tiles
from schedules.kit.block_grain import block_of, cuts
from schedules.kit.tiles import column_lanes, lines_per_set

HOST, AVX2, SSE = "llvm -threads=2", "llvm -mcpu=haswell -threads=2", "llvm -mcpu=x86-64 -threads=3"


def product(
    m: int,
    n: int,
    k: int,
    *,
    dtype: str = "float32",
    batch: int = 0,
    across: str = "",
    constant: bool = False,
    relu: bool = False,
) -> ComputeDAG:
    """A[m, k] @ B[k, n]; `across` names the operands that are given transposed."""
    lead = (batch,) if batch else ()
    a = te.placeholder((*lead, *((k, m) if "a" in across else (m, k))), dtype, name="a")
    b = te.placeholder((*lead, *((n, k) if "b" in across else (k, n))), dtype, name="b", constant=constant)
    r = te.reduce_axis((0, k), name="r")

    def body(*at):
        *q, i, j = at
        left = a[(*q, r, i)] if "a" in across else a[(*q, i, r)]
        return te.sum(left * (b[(*q, j, r)] if "b" in across else b[(*q, r, j)]), axis=r)

    c = te.compute((*lead, m, n), body, name="c")
    if relu:
        c = te.compute(c.shape, lambda *at: te.maximum(c[at] + 1, 0), name="d")
    return ComputeDAG.of([a, b, c])


def check(dag: ComputeDAG, machine: str | Target, seed: str, most: int = 12) -> None:
    """Defaults and one random decision of every sketch give the reference's answer."""
    target, draws = parse(machine), random.Random(seed)
    exactly = random_inputs(dag, 3)
    want = evaluate(dag, exactly, accumulate=np.float64)
    out = dag.outputs[0]
    far = tolerance(dag, exactly, want)[out.name]
    for sketch in generate(dag, target)[:most]:
        for decisions in (sketch.defaults(), sketch.random(draws)):
            trace = sketch.fill(decisions)
            f = Module(compile_trace(dag, trace, target), threads=target.num_cores)
            f = f.bind(**{x: exactly[x] for x in dag.constants})
            got = f(*(exactly[x.name] for x in dag.inputs if x.name not in dag.constants))
            error = np.abs(got.astype(np.float64) - want[out.name])
            assert (error <= far).all(), f"off by {error.max()}:\n{trace.to_python()}"


SIZES = [
    (37, 41, 23),
    (17, 33, 19),
    (64, 64, 32),
    (1, 40, 21),
    (3, 5, 200),
    (50, 5, 16),
    (2, 1, 9),
    (30, 16, 8),
]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("across", ["", "a", "b", "ab"])
def test_all_sketches(size: tuple[int, int, int], across: str) -> None:
    check(product(*size, across=across), HOST, f"{size} {across}")


@pytest.mark.parametrize("dtype", ["float64", "int32", "int8"])
@pytest.mark.parametrize("across", ["", "b", "a"])
def test_other_types(dtype: str, across: str) -> None:
    check(product(29, 35, 18, dtype=dtype, across=across, relu=dtype != "int8"), HOST, dtype + across)


@pytest.mark.parametrize("across", ["", "a", "b"])
@pytest.mark.parametrize("relu", [False, True])
def test_batches_and_epilogues(across: str, relu: bool) -> None:
    check(product(19, 21, 17, batch=3, across=across, relu=relu), HOST, f"{across} {relu}")


@pytest.mark.parametrize("target", [AVX2, SSE])
@pytest.mark.parametrize("across", ["", "a", "b"])
def test_older_machines(target: str, across: str) -> None:
    check(product(26, 27, 12, across=across), target, target + across)
    check(product(26, 27, 12, across=across, constant=True), target, target + across)


@pytest.mark.parametrize("relu", [False, True])
def test_a_long_reduction_is_cut(relu: bool) -> None:
    """Large enough for the sketches whose reduction is cut (a share of the last cache, 32 MiB here)."""
    target = replace(parse(HOST), cache_bytes=(32 << 10, 1 << 20, 32 << 20))
    for rows in (1, 5):
        dag = product(rows, 1040, 2048, relu=relu)
        cut = [s for s in generate(dag, target) if any(isinstance(x, RFactor) for x in s.steps)]
        assert cut
        check(dag, target, "cut")


def test_few_results_of_a_long_reduction_are_summed_in_parts() -> None:
    dag = product(8, 8, 10_000)
    steps = default_trace(dag, parse(HOST)).steps
    assert any(isinstance(s, RFactor) for s in steps)
    check(dag, HOST, "parts", most=3)
    assert not any(isinstance(s, RFactor) for s in default_trace(product(8, 8, 100), parse(HOST)).steps)


def test_large_operands_are_copied_and_small_ones_not() -> None:
    target = parse("llvm -mcpu=x86-64-v4 -threads=2")

    def copies(dag: ComputeDAG) -> list[str]:
        return [s.tensor for s in default_trace(dag, target).steps if isinstance(s, CacheRead)]

    assert copies(product(24, 256, 128)) == []
    assert copies(product(1024, 1024, 1024)) == ["b"]
    assert sorted(copies(product(1024, 1024, 1024, across="a"))) == ["a", "b"]
    assert copies(product(64, 64, 64, across="b")) == ["b"]
    assert copies(product(64, 64, 64, across="b", constant=True)) == []


def test_panels_whose_lines_compete_for_a_set_are_copied() -> None:
    """With 8192 columns, each step reads another page, and all lines of a panel are in one set of the
    cache."""
    target = replace(parse("llvm -mcpu=x86-64-v4 -threads=2"), cache_bytes=(48 << 10, 1 << 20, 32 << 20))

    def copies(m: int, n: int, k: int) -> list[str]:
        steps = default_trace(product(m, n, k), target).steps
        return [s.tensor for s in steps if isinstance(s, CacheRead)]

    assert copies(64, 8192, 64) == ["b"]
    assert copies(64, 8000, 64) == []  # its lines are spread, over as many pages as a core has at hand
    assert copies(64, 8000, 65) == ["b"]  # one more
    assert copies(64, 512, 64) == ["b"]  # two sets
    assert copies(64, 8192, 6) == []  # a set holds them all
    assert copies(16, 8192, 64) == []  # too few rows to repay it
    assert copies(64, 64, 512) == []  # a panel of all columns lies together


def test_large_results_of_few_steps_are_written_in_wide_tiles() -> None:
    target = replace(parse("llvm -mcpu=x86-64-v4 -threads=2"), cache_bytes=(48 << 10, 1 << 20, 32 << 20))

    def vectors(m: int, n: int, k: int) -> int:
        (tile,) = [h.default for h in generate(product(m, n, k), target)[0].holes if h.name == "c/tile"]
        return tile[2]

    assert vectors(2048, 2048, 16) >= 4
    assert vectors(2048, 2048, 256) < 4  # computing takes longer than storing
    assert vectors(128, 2048, 16) < 4  # results stay in the cores' caches


def test_tiny_products_are_one_threads_work() -> None:
    """A fork and join takes as long as two threads save on 48 x 48 x 48."""
    target = parse("llvm -mcpu=x86-64-v4 -threads=2")

    def shared(dag: ComputeDAG) -> bool:
        return any(isinstance(s, Parallel) for s in default_trace(dag, target).steps)

    assert not shared(product(31, 33, 37))
    assert not shared(product(1, 10, 64, relu=True))
    assert shared(product(64, 64, 64))
    assert shared(product(8, 8, 64, batch=64))


def test_a_transposed_copy_is_made_by_shuffles() -> None:
    target = parse("llvm -mcpu=x86-64-v4 -threads=1")
    dag = product(64, 64, 64, across="b")
    trace = default_trace(dag, target)
    assert any(isinstance(s, Storage) for s in trace.steps)
    text = compile_trace(dag, trace, target).texts["llvm"]
    assert text.count("i32 0, i32 16, i32 1, i32 17") >= 4  # one of the two shuffles of a square of 16
    assert "insertelement <16 x float> %" not in text  # none by lanes


def test_weights_that_no_cache_holds_are_read_once() -> None:
    """A pass over the weights is a pass over memory. Saving it gains more than keeping a block's rows in
    L2."""
    caches = (32 << 10, 1 << 20, 32 << 20)
    target = replace(parse("llvm -mcpu=x86-64-v4 -threads=1"), cache_bytes=caches)

    def row_blocks(m: int, n: int, k: int) -> int:
        sketch = generate(product(m, n, k, constant=True), target)[0]
        chosen = {h.name: h.default for h in sketch.holes}
        return -(-m // (chosen["c/rows"][0] * chosen["c/tile"][1]))

    assert row_blocks(64, 2048, 8192) == 1  # 64 MB of weights, 2 MB of rows
    assert row_blocks(256, 64, 2048) > 1  # half a MB of weights, 2 MB of rows


def test_weights_from_beyond_l2_are_read_in_as_many_streams_as_a_tile_has_vectors() -> None:
    caches = (32 << 10, 1 << 20, 32 << 20)
    target = replace(parse("llvm -mcpu=x86-64-v4 -threads=1"), cache_bytes=caches)

    def widths(dag: ComputeDAG) -> tuple[object, int]:
        """Columns of a panel, and of a tile."""
        sketch = generate(dag, target)[0]
        trace = sketch.fill(sketch.defaults())
        (layout,) = [s for s in trace.steps if isinstance(s, Layout)]
        return layout.tiles[0][1], dict(sketch.defaults())["c/tile"][3]

    assert widths(product(1, 3072, 768, constant=True)) == (16, 96)  # 9 MB
    assert widths(product(1, 512, 768, constant=True)) == (64, 64)  # 1.5 MB


@pytest.mark.parametrize("size", [(1, 77, 40), (5, 130, 33), (20, 96, 64)], ids=str)
@pytest.mark.parametrize("across", ["", "b"])
def test_streams_give_the_same(size: tuple[int, int, int], across: str) -> None:
    near = replace(parse(HOST), cache_bytes=(1 << 10, 4 << 10, 1 << 20))  # everything is from beyond L2
    check(product(*size, across=across, constant=True, relu=True), near, f"{size} {across}", most=4)


@pytest.mark.parametrize("cores", [1, 2, 4])
def test_cores_divide_the_columns_of_a_layer_s_weights(cores: int) -> None:
    """In a model, 9 MB do not stay in the last cache, because of the other layers. So no two cores read the
    same panel."""
    caches = (32 << 10, 1 << 20, 32 << 20)
    target = replace(parse(f"llvm -mcpu=x86-64-v4 -threads={cores}"), cache_bytes=caches)
    sketch = generate(product(128, 768, 3072, constant=True), target)[0]
    chosen = {h.name: h.default for h in sketch.holes}
    (rows,), (columns,), tile = chosen["c/rows"], chosen["c/columns"], chosen["c/tile"]
    assert rows * tile[1] >= 128
    assert 4 * 3072 * tile[3] <= caches[1]  # all rows read a panel from L2
    assert -(-768 // (columns * tile[3])) == cores


def test_cores_divide_the_rows_unless_panels_are_more_than_rows_and_results() -> None:
    caches = (48 << 10, 2 << 20, 32 << 20)
    target = replace(parse("llvm -mcpu=znver4 -threads=2"), cache_bytes=caches)

    def divided(rows: int, columns: int, depth: int) -> tuple[bool, bool]:
        """Whether parallel blocks have a part of the rows, and of the columns."""
        chosen = generate(product(rows, columns, depth, constant=True), target)[0].defaults()
        (r,), (c,), tile = chosen["c/rows"], chosen["c/columns"], chosen["c/tile"]
        return r * tile[1] < rows, c * tile[3] < columns

    assert divided(196, 384, 64) == (True, False)  # 96 KB of panels, 345 KB of rows and results
    assert divided(49, 960, 160) == (False, True)  # 600 KB of panels, 214 KB
    assert divided(49, 160, 960) == (False, True)


@pytest.mark.parametrize("relu", [False, True], ids=["bare", "relu"])
def test_large_results_are_written_in_whole_rows(relu: bool) -> None:
    caches = (48 << 10, 2 << 20, 32 << 20)
    target = replace(parse("llvm -mcpu=x86-64-v4 -threads=2"), cache_bytes=caches)

    def whole_rows(rows: int, columns: int, depth: int) -> bool:
        """Whether tiles of columns run inside tiles of rows."""
        dag = product(rows, columns, depth, constant=True, relu=relu)
        host = "d" if relu else "c"
        (order,) = [
            s.axes for s in default_trace(dag, target).steps if isinstance(s, Reorder) and s.stage == host
        ]
        i, j = (a.name for a in dag.stages[-1].axes)
        return order.index(f"{i}.1") < order.index(f"{j}.1")

    assert whole_rows(12544, 96, 16)  # 4.8 MB of results, 0.8 MB of rows
    assert whole_rows(3136, 256, 64)
    assert not whole_rows(3136, 64, 256)  # more rows than results
    assert not whole_rows(196, 384, 64)  # results stay in L2
    assert not whole_rows(3136, 4096, 256)  # panels do not


@pytest.mark.parametrize("cores", [1, 2, 3, 8])
@pytest.mark.parametrize("grid", [(1, 1, 1), (37, 16, 1), (10, 96, 1), (7, 2, 5), (512, 1, 1), (3, 40, 12)])
def test_blocks_are_sizes_on_offer_and_shares_are_even(cores: int, grid: tuple[int, int, int]) -> None:
    rows, columns, others = grid
    r, c = block_of(rows, columns, others, cores, 0.02, 0.0)
    assert r in cuts(rows, cores)
    assert c in cuts(columns, cores)
    blocks = -(-rows // r) * -(-columns // c) * others
    assert blocks >= min(cores, rows * columns * others)


def test_cores_divide_rows_where_all_columns_stay_in_the_cache() -> None:
    """14 tiles of rows and 12 of columns are equally even for both divisions."""
    assert block_of(14, 12, 1, 2, 0.04) == (14, 6)
    assert block_of(14, 12, 1, 2, 0.04, apart=0.02) == (7, 12)
    assert block_of(3, 12, 1, 2, 0.04, apart=0.02) == (3, 6), "of 3 rows one core would have 2"

    def blocks(columns: int) -> tuple[int, ...]:
        target = parse("llvm -mcpu=znver4 -threads=2")
        chosen = dict(generate(product(196, columns, 64, constant=True), target)[0].defaults())
        return (*chosen["c/rows"], *chosen["c/columns"])

    assert blocks(384) == (7, 12)
    assert blocks(3840) == (14, 60), "1 MB of weights: each core reads half of them"


@pytest.mark.parametrize(("columns", "lanes"), [(24, 8), (40, 8), (16, 16), (8, 8), (56, 16), (1000, 16)])
def test_half_registers_where_whole_ones_would_be_half_empty(columns: int, lanes: int) -> None:
    dag = product(56, columns, 12)
    assert column_lanes(dag.stages[-1], parse("llvm -mcpu=znver4")) == lanes
    for other in ("x86-64-v4", "haswell"):
        target = parse(f"llvm -mcpu={other}")
        assert column_lanes(dag.stages[-1], target) == target.lanes(32)


@pytest.mark.parametrize("across", ["", "a", "b"])
def test_half_registers_give_the_same(across: str, monkeypatch: pytest.MonkeyPatch) -> None:
    halving = replace(cpu_of(parse(HOST)), halves=ZEN4.halves)  # whatever the processor likes
    monkeypatch.setattr(tiles, "cpu_of", lambda target: halving)
    for constant in (False, True):
        check(product(37, 24, 19, across=across, constant=constant, relu=True), HOST, f"half {across}")


def test_rows_that_compete_for_a_cache_set() -> None:
    assert lines_per_set(8, 4096) == 8
    assert lines_per_set(14, 2048) == 7
    assert lines_per_set(14, 3072) == 4
    assert lines_per_set(6, 0) == 1


def test_steps_written_out_want_registers_beside_a_tile() -> None:
    v4, zen4, v3 = (parse(f"llvm -mcpu={cpu} -threads=2") for cpu in ("x86-64-v4", "znver4", "x86-64-v3"))
    wanting = [(14, 2), (9, 3), (5, 5)]
    assert [t for t in [*wanting, (13, 2), (8, 3), (28, 1)] if tiles.is_pushed_out(*t, 576, v4)] == wanting
    assert not any(tiles.is_pushed_out(14, 2, 576, t) for t in (zen4, v3))
    x, w = te.placeholder((196, 96), name="x"), te.placeholder((96, 576), name="w", constant=True)
    y = te.placeholder((196, 576), name="y")
    k = te.reduce_axis((0, 96), name="k")
    c = te.compute((196, 576), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="c")
    d = te.compute((196, 576), lambda i, j: c[i, j] + y[i, j], name="d")
    sketch = generate(ComputeDAG.of([x, w, y, d]), v4)[0]
    th, tw, nv, _ = next(h.default for h in sketch.holes if h.name.endswith("/tile"))
    assert not tiles.is_pushed_out(th * tw, nv, 96, v4)


@pytest.mark.parametrize("rows", [600, 4096])
def test_an_operand_of_both_sides_is_not_copied_by_panels(rows: int) -> None:
    """A covariance reads one array along rows and along columns. A copy for a panel would be the whole
    array."""
    x = te.placeholder((rows, 512), name="x")
    r = te.reduce_axis((0, rows), name="r")
    c = te.compute((512, 512), lambda i, j: te.sum(x[r, i] * x[r, j], axis=r), name="c")
    sketches = generate(ComputeDAG.of([x, c]), parse(AVX2))
    assert not any(isinstance(s, CacheRead) for k in sketches for s in k.fill(k.defaults()).steps)


def test_an_operand_that_is_read_twice_along_the_columns_is_not_copied() -> None:
    """Summed differences of all pairs: one copy of the operand fits all its reads."""
    p, w = te.placeholder((64, 64), name="p"), te.placeholder((64, 64), name="w")
    j = te.reduce_axis((0, 64), name="j")
    y = te.compute((64, 64), lambda i, c: te.sum(w[i, j] * (p[j, c] - p[i, c]), axis=j), name="y")
    sketches = generate(ComputeDAG.of([p, w, y]), parse(AVX2))  # a rule that fails raises in tests
    assert not any(isinstance(s, CacheRead) for k in sketches for s in k.fill(k.defaults()).steps)


def test_an_operand_that_is_read_twice_is_copied_once() -> None:
    A, B = te.placeholder((1, 8, 2), name="A"), te.placeholder((1, 8, 63), name="B")
    k = te.reduce_axis(8, name="k")
    C = te.compute(
        (1, 2, 63),
        lambda b, i, j: te.sum(te.select(A[0, k, i] <= 0, A[b, k, i] * B[b, k, j], 0.0), axis=k),
        name="C",
    )
    dag = ComputeDAG.of([A, B, C])
    for sketch in generate(dag, parse("llvm -mcpu=x86-64-v4 -threads=2")):
        lower(sketch.fill(sketch.defaults()).replay(dag))


@pytest.mark.parametrize(("columns", "steps"), [(2, 128), (3, 64)])
def test_few_columns_of_many_steps_have_rows_in_registers(columns: int, steps: int) -> None:
    """A sum in two lanes alone would wait for each addition."""
    dag = product(300, columns, steps)
    assert 's.cache_write("c", "local")' in default_trace(dag, parse(HOST)).to_python()
    check(dag, HOST, "few columns", most=4)
