"""The sketch rule of attention finds attention by its structure, and is right for all decisions."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from comparison import check as check_all

from autotensor import te
from autotensor.base.target import parse
from autotensor.compiler import compile_trace
from autotensor.lowering.pipeline import lower
from autotensor.operators import OPERATORS
from autotensor.runtime.module import Module
from autotensor.schedule.state import State
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate
from schedules.generate import default_trace, generate
from schedules.rules.tiles.attention import find_chain

HOST, OLDER = "llvm -threads=2", ("llvm -mcpu=haswell -threads=2", "llvm -mcpu=x86-64 -threads=1")


def own(tokens, heads, depth, batch=1, **attrs):
    """self_attention, with a mask if attrs says its type."""
    x = te.placeholder((batch, tokens, 3, heads, depth), name="x")
    kind = attrs.pop("mask", None)
    masks = [te.placeholder((batch, 1, 1, tokens), kind, name="mask")] if kind else []
    y = OPERATORS.get("self_attention").compute(x, *masks, **attrs)
    return ComputeDAG.of([x, *masks, y])


def cross(queries, keys, depth, width, layout="BHND"):
    shapes = [(2, 3, n, d) for n, d in ((queries, depth), (keys, depth), (keys, width))]
    if layout == "BNHD":
        shapes = [(b, n, h, d) for b, h, n, d in shapes]
    q, k, v = (te.placeholder(s, name=n) for n, s in zip("qkv", shapes, strict=True))
    return ComputeDAG.of([q, k, v, OPERATORS.get("attention").compute(q, k, v, layout=layout)])


def with_epilogue():
    """Two stages after an attention; the condition of one is another stage."""
    q, k, v = (te.placeholder((2, 3, n, 24), name=name) for name, n in (("q", 21), ("k", 37), ("v", 37)))
    seen = te.placeholder((2, 21), name="seen")
    y = OPERATORS.get("attention").compute(q, k, v)
    known = te.compute((2, 21), lambda b, i: seen[b, i] > 0.0, name="known")
    z = te.compute(y.shape, lambda b, h, i, d: te.select(known[b, i], y[b, h, i, d], 0.0), name="z")
    return ComputeDAG.of([q, k, v, seen, te.compute(y.shape, lambda *p: z[p] * 2.0, name="twice")])


CASES = {
    "an epilogue": with_epilogue,
    "one head": lambda: own(32, 1, 16),
    "several": lambda: own(48, 2, 32, batch=2),
    "odd tokens": lambda: own(37, 2, 16, causal=True),
    "odd depth": lambda: own(33, 1, 19),
    "padding": lambda: own(29, 2, 16, batch=2, mask="bool"),
    "added mask": lambda: own(16, 1, 16, mask="float32", causal=True, scale=0.3),
    "more keys": lambda: cross(17, 50, 8, 24),
    "fewer keys": lambda: cross(40, 3, 16, 16, layout="BNHD"),
    "one key": lambda: cross(16, 1, 1, 16),
}


def arrays_of(dag, seed=0):
    rng = np.random.default_rng(seed)
    found = {}
    for b in dag.inputs:
        values = rng.standard_normal(b.shape)
        found[b.name] = values > -0.5 if b.dtype.is_bool else values.astype(np.float32)
    return found


def check(dag, trace, target, arrays, expected):
    f = Module(compile_trace(dag, trace, target), threads=target.num_cores)
    got = f(*(arrays[b.name] for b in dag.inputs))
    error = np.abs(got - expected).max() / np.abs(expected).max()
    assert error <= 2e-6, trace.to_python()


def ours(dag, target):
    found = [s for s in generate(dag, target) if "attention" in s.made_by]
    assert found
    return found


@pytest.mark.parametrize(
    ("name", "text"),
    [*((name, HOST) for name in CASES), *((n, t) for n in ("several", "padding") for t in OLDER)],
)
@pytest.mark.sample(4)
def test_any_decision_gives_attention(name, text):
    dag, target, draws = CASES[name](), parse(text), random.Random(name)
    arrays = arrays_of(dag)
    expected = evaluate(dag, arrays, accumulate=np.float64)[dag.outputs[0].name]
    for sketch in ours(dag, target):
        for decisions in (sketch.defaults(), sketch.random(draws), sketch.random(draws)):
            check(dag, sketch.fill(decisions), target, arrays, expected)


def test_it_means_the_same_at_every_step_of_lowering():
    """The interpreter, pass by pass, and native code on 1, 2, 3 and 16 threads."""
    dag = own(19, 2, 16, causal=True)
    (sketch,) = ours(dag, parse(HOST))
    check_all(dag, sketch.fill(sketch.random(random.Random(1))))


def test_it_is_the_default():
    target = parse("llvm -mcpu=x86-64-v4 -threads=2")
    trace = default_trace(own(128, 12, 64), target)
    parallel = [s for s in trace.steps if type(s).__name__ == "Parallel"]
    assert [s.stage for s in parallel] == ["self_attention"]


@pytest.mark.parametrize("size", [(8, 1, 16), (32, 1, 4)], ids=["few queries", "narrow values"])
def test_what_has_no_full_vector_is_left_to_others(size):
    target = parse("llvm -mcpu=x86-64-v4")
    assert not any("attention" in s.made_by for s in generate(own(*size), target))


def test_softmax_alone_is_something_else():
    x = te.placeholder((4, 32, 32), name="x")
    dag = ComputeDAG.of([x, OPERATORS.get("softmax").compute(x)])
    state = State.initial(dag)
    assert find_chain(state, state.stages[-1]) is None


def test_scores_that_are_wanted_too_are_something_else():
    x = te.placeholder((1, 32, 3, 1, 16), name="x")
    y = OPERATORS.get("self_attention").compute(x)
    mixed = next(t for t in y.op.input_tensors if t.op.name == "mixed")
    state = State.initial(ComputeDAG.of([x, mixed, y]))
    assert find_chain(state, state.stages[-1]) is None


def test_hidden_keys_are_not_computed():
    """Loops over keys end at the last key that the queries of the block, or of the tile, read."""
    dag, target = own(256, 1, 16, causal=True), parse("llvm -mcpu=x86-64-v4 -threads=1")
    (sketch,) = ours(dag, target)
    trace = sketch.fill({**dict(sketch.defaults()), f"{dag.outputs[0].name}/block": (2, 16, 1, 14)})
    text = str(lower(trace.replay(dag)).run[0])
    ends = re.findall(r"for (top|weights|total|mixed)_\w+ in range\((.*)\):", text)
    bounded = {name for name, extent in ends if "b_h_i_0" in extent}
    assert bounded == {"top", "weights", "total", "mixed"}
    assert "if scores_j_0 * 7 < self_attention_b_h_i_0 * 16 + 16:" in text
