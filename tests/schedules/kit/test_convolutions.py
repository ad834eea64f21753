"""Every sketch of every kind of convolution gives the right results, for all decisions.

Inputs are small integers, so results are equal bit for bit in any order of additions. There are three
machines: this one, one with 16 vector registers of 256 bits, and one with registers of 128 bits.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace

import numpy as np
import pytest
from comparison import check, check_texts

from autotensor import te
from autotensor.base.errors import ScheduleError
from autotensor.base.target import parse
from autotensor.compiler import compile_trace
from autotensor.operators import OPERATORS
from autotensor.runtime.module import Module
from autotensor.schedule.axis import Mark
from autotensor.schedule.extents import derive
from autotensor.schedule.primitives.compute_at import Inline
from autotensor.schedule.primitives.mark import Vectorize
from autotensor.schedule.primitives.pragma import Pragma
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.state import Ref
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.tensor import AxisKind
from schedules.generate import generate, structure

TARGETS = tuple(
    f"llvm {options} -numerics=strict"  # Winograd has tests of its own
    for options in ("-threads=2", "-mcpu=haswell -threads=2", "-mcpu=x86-64 -threads=3")
)
LAYOUTS = {"conv1d": "NWC", "conv2d": "NHWC", "conv3d": "NDHWC", "conv2d_transpose": "NHWC"}


def case(op, x, w, *, relu=True, bias=True, **attrs):
    """(operator, shapes, attributes, whether bias and activation follow)."""
    return op, x, w, {"layout": LAYOUTS[op], **attrs}, bias, relu


CASES = {
    "padded rows": case("conv2d", (1, 7, 7, 8), (33, 8, 3, 3), padding=1),
    "long rows": case("conv2d", (1, 3, 61, 4), (16, 4, 3, 3), padding=1),
    "stride 2": case("conv2d", (2, 9, 13, 3), (20, 3, 7, 7), stride=2, padding=3),
    "dilated": case("conv2d", (1, 9, 9, 5), (32, 5, 3, 3), padding=1, dilation=2),
    "one-sided": case("conv2d", (1, 6, 8, 5), (17, 5, 3, 2), padding=(0, 2, 1, 0), relu=False, bias=False),
    "more padding than image": case("conv2d", (1, 2, 2, 8), (16, 8, 5, 5), padding=4),
    "nothing but padding": case("conv2d", (1, 3, 3, 8), (16, 8, 1, 1), padding=2, bias=False),
    "one dimension": case("conv1d", (1, 31, 6), (40, 6, 5), padding=2),
    "one dimension, stride 3": case("conv1d", (2, 32, 16), (16, 16, 4), padding=(3, 1), stride=3),
    "three dimensions": case("conv3d", (1, 4, 5, 6, 3), (18, 3, 3, 3, 3), padding=1),
    "three dimensions, stride 2": case(
        "conv3d", (1, 5, 4, 9, 2), (16, 2, 3, 1, 5), padding=(1, 0, 2), stride=2
    ),
    "grouped": case("conv2d", (1, 6, 7, 12), (64, 3, 3, 3), padding=1, groups=4),
    "grouped points": case("conv2d", (1, 5, 6, 32), (32, 16, 1, 1), groups=2, relu=False, bias=False),
    "odd groups": case("conv2d", (1, 5, 5, 9), (51, 3, 3, 3), padding=1, groups=3, bias=False),
    "small groups": case("conv2d", (1, 5, 5, 8), (8, 2, 3, 3), padding=1, groups=4),
    "narrow groups": case("conv2d", (1, 5, 9, 32), (32, 4, 3, 3), padding=1, groups=8),
    "narrow groups, stride 2": case(
        "conv2d", (2, 7, 7, 32), (32, 8, 3, 3), padding=1, stride=2, groups=4, relu=False
    ),
    "narrow groups, one axis": case("conv1d", (1, 13, 16), (16, 2, 5), padding=2, groups=8, bias=False),
    "groups of an image": case("conv2d", (1, 48, 52, 32), (32, 16, 3, 3), padding=1, stride=2, groups=2),
    "transposed": case("conv2d_transpose", (1, 4, 5, 8), (8, 33, 4, 4), stride=2, padding=1),
    "transposed, ragged": case(
        "conv2d_transpose", (1, 4, 5, 8), (8, 16, 3, 3), stride=2, padding=1, output_padding=1
    ),
    "transposed, odd": case(
        "conv2d_transpose", (2, 3, 4, 5), (5, 17, 5, 3), stride=(3, 2), padding=(2, 0, 1, 1)
    ),
    "transposed, stride 1": case("conv2d_transpose", (1, 5, 6, 6), (6, 16, 3, 3), padding=1, bias=False),
    "transposed, one axis": case("conv2d_transpose", (1, 5, 6, 6), (6, 16, 3, 4), stride=(1, 2), padding=1),
    "transposed groups": case("conv2d_transpose", (1, 4, 4, 8), (8, 16, 4, 4), stride=2, padding=1, groups=2),
    "kernel smaller than stride": case("conv2d_transpose", (1, 4, 4, 8), (8, 16, 2, 1), stride=3, relu=False),
    "few channels": case("conv2d_transpose", (1, 6, 9, 32), (32, 3, 4, 4), stride=2, padding=1),
    "few channels, plain": case("conv2d", (1, 6, 19, 16), (2, 16, 3, 3), padding=1),
    "one channel": case("conv2d", (1, 6, 19, 32), (1, 32, 3, 3), padding=1),
    "one channel, one axis": case("conv1d", (2, 23, 16), (1, 16, 5), padding=2, stride=2),
    "one channel, no epilogue": case("conv2d", (1, 6, 9, 16), (1, 16, 5, 1), relu=False, bias=False),
    "one channel, transposed": case("conv2d_transpose", (1, 5, 4, 16), (16, 1, 4, 4), stride=2, padding=1),
    "few channels, three dimensions": case(
        "conv3d", (1, 3, 4, 5, 16), (1, 16, 3, 3, 3), padding=1, bias=False
    ),
}


def build(name):
    op, x_shape, w_shape, attrs, bias, relu = CASES[name]
    cout = w_shape[1] * attrs.get("groups", 1) if op == "conv2d_transpose" else w_shape[0]
    x = te.placeholder(x_shape, name="x")
    w = te.placeholder(w_shape, name="w", constant=True)
    b = [te.placeholder((cout,), name="b", constant=True)] if bias else []
    y = OPERATORS.get(op).compute(x, w, *b, **attrs)
    return ComputeDAG.of([x, w, *b, OPERATORS.get("relu").compute(y) if relu else y])


def integers(dag, seed=0):
    rng = np.random.default_rng(seed)
    return {b.name: rng.integers(-4, 5, b.shape).astype(np.float32) for b in dag.inputs}


def wanted(name, arrays):
    op, _, _, attrs, _, relu = CASES[name]
    y = OPERATORS.get(op).reference(*(a.astype(np.float64) for a in arrays.values()), **attrs)
    return np.maximum(y, 0) if relu else y


def run(dag, trace, target, arrays):
    module = Module(compile_trace(dag, trace, parse(target)), threads=2)
    return module.bind(**{n: a for n, a in arrays.items() if n in dag.constants})(arrays["x"])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.sample(20)
def test_every_sketch_computes_it(name, target):
    dag, rng = build(name), random.Random(name)
    arrays = integers(dag)
    exact = wanted(name, arrays)
    sketches = generate(dag, parse(target))
    for n, sketch in enumerate(sketches[: 4 if target == TARGETS[0] else 1]):
        for decisions in (sketch.defaults(), sketch.random(rng))[: 2 if n < 2 else 1]:
            trace = sketch.fill(decisions)
            np.testing.assert_array_equal(run(dag, trace, target, arrays), exact, err_msg=trace.to_python())


@pytest.mark.parametrize(
    "name",
    [
        "padded rows",
        "one-sided",
        "odd groups",
        "narrow groups",
        "transposed, ragged",
        "few channels",
        "one dimension",
    ],
)
@pytest.mark.sample(2)
def test_passes_and_texts_agree(name):
    """Checks by the interpreter on loops, with every pass verified, by native code on 1 to 16 threads, and
    with traces as text."""
    dag = build(name)
    for sketch in generate(dag, parse(TARGETS[0]))[:2]:
        trace = sketch.fill(sketch.defaults())
        check(dag, trace)
        check_texts(dag, trace)


@pytest.mark.parametrize(
    ("name", "along"),
    [
        ("padded rows", "results"),
        ("grouped", "results"),
        ("narrow groups", "groups"),
        ("narrow groups, one axis", "groups"),
        ("transposed", "results"),
        ("three dimensions", "results"),
        ("few channels", "terms"),
        ("one channel", "terms"),
        ("one channel, one axis", "terms"),
    ],
)
def test_the_vectors_for_it_come_first(name, along):
    sketch = generate(build(name), parse(TARGETS[0]))[0]
    assert "convolution" in sketch.made_by
    assert vectors_along(sketch, build(name)) == along


def vectors_along(sketch, dag):
    """The contents of the lanes of the reduction's vectors: results, results of several groups, or terms."""
    state = sketch.fill(sketch.defaults()).replay(dag)
    (sums,) = [s for s in state.stages if s.op.is_reduction]
    (vector,) = [a for a in sums.leaves if a.mark is Mark.VECTORIZED]
    if vector.kind is AxisKind.REDUCE:
        return "terms"
    return "groups" if vector.name.startswith("(") else "results"


@pytest.mark.parametrize(("terms", "rule"), [(64, "tile_cpu"), (512, "convolution")])
def test_few_terms_do_not_repay_joining_lanes(terms, rule):
    x = te.placeholder((100, terms), name="x")
    w = te.placeholder((7, terms), name="w", constant=True)
    dag = ComputeDAG.of([x, w, OPERATORS.get("dense").compute(x, w)])
    assert generate(dag, parse("llvm -mcpu=x86-64-v4 -threads=2"))[0].made_by == (rule,)


def few_channels_then(activation, bias=False):
    x = te.placeholder((1, 5, 9, 16), name="x")
    w = te.placeholder((16, 3, 4, 4), name="w", constant=True)
    b = [te.placeholder((3,), name="b", constant=True)] if bias else []
    y = OPERATORS.get("conv2d_transpose").compute(x, w, *b, stride=2, padding=1, layout="NHWC")
    return ComputeDAG.of([x, w, *b, OPERATORS.get(activation).compute(y)])


@pytest.mark.parametrize(
    ("activation", "bias", "apart"), [("tanh", False, True), ("tanh", True, False), ("relu", False, False)]
)
@pytest.mark.sample(1)
def test_what_takes_long_comes_behind_few_channels_in_whole_vectors(activation, bias, apart):
    """Sums of lanes are single numbers. With 24 separate calls of tanh, a tile had 34 vectors on the
    stack."""
    dag = few_channels_then(activation, bias)
    sketch = generate(dag, parse(TARGETS[0]))[0]
    assert vectors_along(sketch, dag) == "terms"
    vectors = [s.stage for s in sketch.steps if isinstance(s, Vectorize)]
    assert (activation in vectors) == apart
    check(dag, sketch.fill(sketch.defaults()))


def test_padding_is_not_copied():
    """The default reads the image itself; no stage stores the image with its border."""
    dag = build("padded rows")
    (sketch, *_) = generate(dag, parse(TARGETS[0]))
    assert Inline("pad") in sketch.steps


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("l2", "rows_first"), [(40 << 10, True), (2 << 20, False)])
def test_groups_of_a_large_image_are_computed_row_by_row(l2, rows_first, threads):
    """A group reads a part of every pixel. If the image comes from memory, each row is read only once."""
    dag = build("groups of an image")
    target = replace(parse(f"llvm -mcpu=haswell -threads={threads}"), cache_bytes=(32 << 10, l2))
    sketch = generate(dag, target)[0]
    trace = sketch.fill(sketch.defaults())
    order = next(s.axes for s in trace.steps if isinstance(s, Reorder) and s.stage == "relu")
    assert (order.index("i3.0") > order.index("i1.1")) == rows_first
    arrays = integers(dag)
    found = run(dag, trace, f"llvm -mcpu=haswell -threads={threads}", arrays)
    np.testing.assert_array_equal(found, wanted("groups of an image", arrays))


def test_multiplications_by_padding_are_left_out():
    """A weight that only ever meets padding may be infinite."""
    x = te.placeholder((1, 1, 5, 8), name="x")
    w = te.placeholder((16, 8, 3, 1), name="w", constant=True)
    dag = ComputeDAG.of([x, w, OPERATORS.get("conv2d").compute(x, w, padding=(1, 0), layout="NHWC")])
    sketch = generate(dag, parse(TARGETS[0]))[0]
    weights = np.full((16, 8, 3, 1), np.inf, np.float32)
    weights[:, :, 1] = 1
    arrays = {"x": np.ones((1, 1, 5, 8), np.float32), "w": weights}
    found = run(dag, sketch.fill(sketch.defaults()), TARGETS[0], arrays)
    np.testing.assert_array_equal(found, np.full((1, 1, 5, 16), 8))


def test_skip_zeros_wants_a_number():
    dag = build("one dimension")
    with pytest.raises(ScheduleError, match=re.escape("skip_zeros is 'yes'")):
        Trace((Pragma("conv", "kw", "skip_zeros", "yes"),)).replay(dag)


@pytest.mark.parametrize("name", ["grouped", "transposed", "transposed groups", "few channels", "dilated"])
def test_a_population_is_its_candidates(name):
    """Extents of all loops as arrays over candidates, and one candidate at a time."""
    dag = build(name)
    for sketch in generate(dag, parse(TARGETS[0]))[:2]:
        rng = random.Random(name)
        decisions = [sketch.random(rng) for _ in range(9)]
        state = structure(sketch, dag)
        columns = {
            Ref(h.name, n): np.array([d[h.name][n] for d in decisions])
            for h in sketch.holes
            for n in range(len(h.default))
        }
        whole = derive(state, columns)
        for row in range(len(decisions)):
            one = derive(state, {r: int(v[row]) for r, v in columns.items()})
            for key, extent in one.of.items():
                assert np.broadcast_to(whole.of[key], (len(decisions),))[row] == extent, key
