"""Products and convolutions of narrow types: every sketch is exact, for all signs and zero points."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from comparison import Native, interpreted
from dot_products import Array, drawn
from hypothesis import given, settings
from hypothesis import strategies as st

from autotensor import te
from autotensor.base.target import Target, host, parse
from autotensor.codegen.dot_instructions import DOTS, available, known_dots
from autotensor.codegen.llvm import dots as spelling
from autotensor.ir.expr import Dot
from autotensor.ir.visit import any_node
from autotensor.lowering.pipeline import lower
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from schedules.algorithms import narrow_products
from schedules.generate import default_trace, generate

VNNI = parse("llvm -mcpu=cooperlake -threads=2")
AMX = parse("llvm -mcpu=sapphirerapids -threads=2")
AVX2 = parse("llvm -mcpu=haswell -threads=2")
BYTES = ("uint8", "int8")
needs_vnni = pytest.mark.skipif(
    not {"x86.vpdpbusd.512", "x86.vpdpbsud.512"} <= {d.name for d in available(host())},
    reason="the processor has no AVX512-VNNI",
)


def product(m: int, n: int, k: int, types: tuple[str, str], zeros: tuple[object, object]) -> ComputeDAG:
    """C = Σ (A - z)(W - y); a zero is a number, "scalar" or "column" (tensors, of W only), or None."""
    A, W = (
        te.placeholder((m, k), types[0], name="A"),
        te.placeholder((k, n), types[1], name="W", constant=True),
    )
    extra = {}

    def centred(x, zero, name, column):
        wide = x.astype("int32")
        if zero is None:
            return wide
        if isinstance(zero, int):
            return wide - zero
        shape = (1,) if zero == "scalar" else (n,)
        tensor = extra.setdefault(name, te.placeholder(shape, "int32", name=name))
        return wide - tensor[0 if zero == "scalar" else column]

    r = te.reduce_axis(k, name="r")
    C = te.compute(
        (m, n),
        lambda i, j: te.sum(centred(A[i, r], zeros[0], "z", j) * centred(W[r, j], zeros[1], "y", j), axis=r),
        name="C",
    )
    return ComputeDAG.of([A, W, *extra.values(), C])


def operands(dag: ComputeDAG, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        b.name: rng.integers(-300, 300, b.shape).astype("i4")
        if b.name in "zy"
        else drawn(rng, b.dtype.numpy, b.shape)
        for b in dag.inputs
    }


def wanted(inputs: dict[str, Array], zeros: tuple[object, object]) -> Array:
    def zero(name: str, given: object) -> Array | int:
        return inputs[name].astype("i8") if isinstance(given, str) else int(given or 0)  # type: ignore[call-overload]

    a, w = inputs["A"].astype("i8") - zero("z", zeros[0]), inputs["W"].astype("i8") - zero("y", zeros[1])
    return (a @ w).astype("i4")


def run(dag: ComputeDAG, trace: Trace, target: Target, inputs: dict[str, Array]) -> Array:
    """Natively where this machine can; else by the interpreter, after all passes."""
    program = lower(trace.replay(dag), target)
    has = {d.name for d in available(host())}
    used = {n.instruction for f in program.run for n in _dots(f.body)}
    if used <= has and host().vector_bytes >= target.vector_bytes:
        return Native(dag, program, replace(target, arch=host().arch, features=host().features))(inputs, 2)[
            "C"
        ]
    return interpreted(dag, program, inputs, 2)["C"]


def _dots(body):
    found = []
    any_node(body, lambda n: isinstance(n, Dot) and bool(found.append(n)))
    return found


CASES = [
    ((5, 37, 19), ("uint8", "int8"), (None, None)),
    ((1, 33, 64), ("int8", "uint8"), (None, None)),
    ((7, 16, 5), ("int8", "int8"), (None, None)),
    ((13, 50, 36), ("uint8", "uint8"), (None, None)),
    ((13, 50, 36), ("uint8", "int8"), (7, None)),
    ((4, 48, 17), ("uint8", "uint8"), (128, 100)),
    ((9, 20, 11), ("int8", "int8"), ("scalar", "column")),
    ((2, 64, 40), ("int8", "uint8"), (-3, "scalar")),
    ((37, 40, 72), ("uint8", "int8"), (5, None)),
]


@pytest.mark.parametrize("target", [AMX, VNNI, AVX2], ids=["amx", "vnni", "avx2"])
@pytest.mark.parametrize(("shape", "types", "zeros"), CASES)
@pytest.mark.sample(6)
def test_sketches_are_exact(shape, types, zeros, target: Target) -> None:
    dag = product(*shape, types, zeros)
    inputs, rng = operands(dag, 3), random.Random(4)
    want = wanted(inputs, zeros)
    sketches = generate(dag, target)[::3]
    assert any("dots" in s.made_by for s in sketches)
    for sketch in sketches:
        got = run(dag, sketch.fill(sketch.random(rng)), target, inputs)
        assert np.array_equal(got, want), sketch.made_by
    assert np.array_equal(run(dag, default_trace(dag, target), target, inputs), want)


ZEROS = st.one_of(st.none(), st.integers(-300, 300), st.just("scalar"))


@settings(max_examples=12, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 20), st.integers(1, 70), st.integers(1, 50)),
    types=st.tuples(st.sampled_from(BYTES), st.sampled_from(BYTES)),
    zeros=st.tuples(ZEROS, st.one_of(ZEROS, st.just("column"))),
    target=st.sampled_from([AMX, VNNI, AVX2]),
    seed=st.integers(0, 1 << 30),
)
def test_drawn_products_are_exact(shape, types, zeros, target: Target, seed: int) -> None:
    dag = product(*shape, types, zeros)
    inputs, rng = operands(dag, seed), random.Random(seed)
    sketch = rng.choice(generate(dag, target))
    got = run(dag, sketch.fill(sketch.random(rng)), target, inputs)
    assert np.array_equal(got, wanted(inputs, zeros)), sketch.made_by


def has_dots(dag: ComputeDAG, target: Target) -> bool:
    program = lower(default_trace(dag, target).replay(dag), target)
    return any(_dots(f.body) for f in program.run)


@pytest.mark.parametrize(("shape", "types", "zeros"), CASES)
def test_the_default_has_dots(shape, types, zeros) -> None:
    dag = product(*shape, types, zeros)
    assert has_dots(dag, VNNI)
    assert not has_dots(dag, parse("llvm -mcpu=x86-64-v2"))


def test_an_instruction_as_fast_as_fmas_is_faster_than_separate_integers() -> None:
    """The first Zen's vpmaddwd does no more operations than FMAs, but twice as many as its vpmulld."""
    dag = product(8, 32, 64, BYTES, (None, None))
    assert has_dots(dag, parse("llvm -mcpu=znver1"))


def test_sums_of_constant_weights_are_prepared() -> None:
    dag = product(8, 32, 64, ("int8", "int8"), (3, None))
    program = lower(default_trace(dag, VNNI).replay(dag), VNNI)
    assert "C.sums" in [f.name for f in program.prepare]
    assert not any("sums" in f.name for f in program.run)


@pytest.mark.parametrize("constant", [False, True])
def test_both_operands_may_be_one_tensor(constant: bool) -> None:
    x, r = te.placeholder((32, 32), "bfloat16", name="x", constant=constant), te.reduce_axis(32, name="r")
    y = te.compute(
        (32, 32),
        lambda i, j: te.sum(x[i, r].astype("float32") * x[r, j].astype("float32"), axis=r),
        name="y",
    )
    dag = ComputeDAG.of([x, y])
    for sketch in generate(dag, AMX):
        lower(sketch.fill({h.name: h.default for h in sketch.holes}).replay(dag))


def test_bfloat16_takes_what_its_processor_does_faster() -> None:
    A, W = te.placeholder((64, 64), "bfloat16"), te.placeholder((64, 64), "bfloat16", constant=True)
    r = te.reduce_axis(64)
    C = te.compute(
        (64, 64), lambda i, j: te.sum(A[i, r].astype("float32") * W[r, j].astype("float32"), axis=r)
    )
    dag = ComputeDAG.of([A, W, C])
    assert has_dots(dag, parse("llvm -mcpu=znver5 -threads=2"))
    assert not has_dots(dag, VNNI)  # two cycles each there
    assert any("vdpbf16ps" in str(s.fill(s.defaults())) for s in generate(dag, VNNI))
    assert "tdpbf16ps" in str(default_trace(dag, AMX))


def convolution(
    h: int, ci: int, co: int, k: int, stride: int, zero: int, types: tuple[str, str]
) -> ComputeDAG:
    """NHWC; the border holds the zero point."""
    p = k // 2
    X, W = (
        te.placeholder((h, h, ci), types[0], name="X"),
        te.placeholder((k, k, ci, co), types[1], name="W", constant=True),
    )

    def padded(y, x, c):
        inside = te.all(y >= p, y < h + p, x >= p, x < h + p)
        return te.if_then_else(inside, X[y - p, x - p, c], te.const(zero, types[0]))

    P = te.compute((h + 2 * p, h + 2 * p, ci), padded, name="P") if p else X
    kh, kw, c = (te.reduce_axis(n, name=name) for n, name in ((k, "kh"), (k, "kw"), (ci, "c")))
    size = (h + 2 * p - k) // stride + 1

    def term(y, x, o):
        pixel = P[y * stride + kh, x * stride + kw, c].astype("int32") - zero
        return te.sum(pixel * W[kh, kw, c, o].astype("int32"), axis=[kh, kw, c])

    return ComputeDAG.of([X, W, te.compute((size, size, co), term, name="C")])


@pytest.mark.parametrize("target", [AMX, VNNI], ids=["amx", "vnni"])
@pytest.mark.parametrize("types", [("uint8", "int8"), ("int8", "int8")])
@pytest.mark.parametrize(
    ("h", "ci", "co", "k", "stride", "zero"),
    [
        (6, 8, 40, 3, 1, 7),
        (9, 9, 16, 3, 2, 0),
        (5, 24, 33, 1, 1, 100),
        (8, 4, 16, 1, 2, 3),
        (19, 8, 16, 3, 1, 0),
    ],
)
@pytest.mark.sample(5)
def test_convolutions_are_exact(h, ci, co, k, stride, zero, types, target: Target) -> None:
    dag = convolution(h, ci, co, k, stride, zero, types)
    inputs, rng = operands(dag, 5), random.Random(6)
    p = k // 2
    x = np.pad(inputs["X"].astype("i8") - zero, ((p, p), (p, p), (0, 0)))
    size = (h + 2 * p - k) // stride + 1
    want = np.zeros((size, size, co), "i8")
    for a in range(k):
        for b in range(k):
            part = x[a : a + stride * size : stride, b : b + stride * size : stride]
            want += part @ inputs["W"][a, b].astype("i8")
    assert has_dots(dag, target)
    for sketch in generate(dag, target)[:9:3]:
        got = run(dag, sketch.fill(sketch.random(rng)), target, inputs)
        assert np.array_equal(got, want.astype("i4")), sketch.made_by


# -- planted faults: what the tests above would see ----------------------------------------------------------


def differs(types: tuple[str, str], zeros: tuple[object, object] = (None, None)) -> bool:
    dag = product(5, 37, 20, types, zeros)
    inputs = operands(dag, 3)
    return not np.array_equal(run(dag, default_trace(dag, VNNI), VNNI, inputs), wanted(inputs, zeros))


def test_a_wrong_compensation_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    flipped = {t: (other, by - 1) for t, (other, by) in narrow_products.FLIPPED.items()}
    assert not differs(("int8", "int8"))
    monkeypatch.setattr(narrow_products, "FLIPPED", flipped)
    generate.__globals__["_preferred"].cache_clear()
    assert differs(("int8", "int8"))
    generate.__globals__["_preferred"].cache_clear()


@needs_vnni
@pytest.mark.parametrize("fault", ["llvm.x86.avx512.vpdpbusds.512", "llvm.x86.avx512.vpdpbusd.512"])
def test_another_instruction_is_found(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Instructions with saturating 32-bit sums, and with operands in the wrong order."""
    known = known_dots().get("x86.vpdpbusd.512")
    wrong = replace(known, write=spelling.call(fault, "i8", swapped=not fault.endswith("ds.512")))
    monkeypatch.setitem(DOTS._things, known.name, wrong)
    dag = product(5, 37, 20, ("uint8", "int8"), (None, None))
    inputs = operands(dag, 3)
    if wrong.write is not known.write and "usds" in fault:  # sums that leave 32 bits
        dag = product(1, 16, 70_000, ("uint8", "int8"), (None, None))
        inputs = {"A": np.full((1, 70_000), 255, "u1"), "W": np.full((70_000, 16), 127, "i1")}
    got = run(dag, default_trace(dag, VNNI), VNNI, inputs)
    assert not np.array_equal(got, wanted(inputs, (None, None)))


@pytest.mark.parametrize(("cpu", "tile"), [("znver4", (1, 7, 2, 32)), ("cascadelake", (1, 12, 2, 32))])
def test_tiles_leave_registers_to_what_makes_bytes_of_sums(cpu: str, tile: tuple[int, ...]) -> None:
    target = parse(f"llvm -mcpu={cpu} -threads=1")
    sketch = generate(product(196, 256, 1024, ("uint8", "int8"), (3, 0)), target)[0]
    assert tile == next(h.default for h in sketch.holes if h.name.endswith("/tile"))


def test_a_tile_of_two_rows_of_pixels_is_halved_to_one() -> None:
    X = te.placeholder((9, 9, 64), "uint8", name="X")
    W = te.placeholder((3, 3, 64, 64), "int8", name="W", constant=True)
    p, q, k = te.reduce_axis(3), te.reduce_axis(3), te.reduce_axis(64)
    C = te.compute(
        (7, 7, 64),
        lambda i, j, n: te.sum(
            X[i + p, j + q, k].astype("int32") * W[p, q, k, n].astype("int32"), axis=[p, q, k]
        ),
        name="C",
    )
    sketch = generate(ComputeDAG.of([X, W, C]), parse("llvm -mcpu=znver4 -threads=1"))[0]
    assert next(h.default for h in sketch.holes if h.name.endswith("/tile")) == (1, 7, 2, 32)
