"""Operators that exporters write as several others are recognised, and nothing else is: attention, GELU,
norms."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from autotensor.graph.build import constant, input, ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.explain import explain
from autotensor.graph.ir import Graph
from autotensor.graph.rules import optimize

B, H, N, M, D = 2, 3, 5, 7, 4
LOWEST = float(np.finfo(np.float32).min)


def f32(value):
    return constant(np.asarray(value, np.float32))


def arrays_of(graph, seed=0):
    rng = np.random.default_rng(seed)
    return {
        n: rng.standard_normal(x.shape).astype(np.float32) if x.dtype.is_float else rng.random(x.shape) < 0.6
        for n, x in zip(graph.input_names, graph.inputs, strict=True)
    }


def same(graph, counts, seed=0):
    """The optimised graph has as many of these operators, and the same values."""
    after = optimize(graph)
    assert {name: after.count(name) for name in counts} == counts, str(after)
    arrays = arrays_of(graph, seed)
    with np.errstate(all="ignore"):
        for a, b in zip(evaluate(graph, **arrays), evaluate(after, **arrays), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
    return after


# -- attention -----------------------------------------------------------------------------------------------


def qkv(lead=(B, H)):
    return input((*lead, N, D), name="q"), input((*lead, M, D), name="k"), input((*lead, M, D), name="v")


def turned(x):
    rank = len(x.shape)
    return ops.transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def test_attention_as_bert_writes_it():
    """softmax(q kᵀ / √d + mask) v, and `explain` names the pass."""
    q, k, v = qkv()
    mask = input((B, 1, 1, M), name="mask")
    scores = ops.batch_matmul(q, turned(k)) / math.sqrt(D) + mask
    graph = Graph((q, k, v, mask), ops.batch_matmul(ops.softmax(scores), v))
    after = same(graph, {"attention": 1, "softmax": 0, "batch_matmul": 0, "transpose": 0})
    assert [n.attrs for n in after.applies] == [()]  # the usual factor is the operator's own
    assert "── attention from parts" in str(explain(graph))


def test_both_operands_scaled_as_torch_exports_it():
    q, k, v = qkv()
    root = f32(D**-0.25)
    graph = Graph((q, k, v), ops.batch_matmul(ops.softmax(ops.batch_matmul(q * root, turned(k) * root)), v))
    after = same(graph, {"attention": 1, "multiply": 0})
    assert after.applies[0].attrs == ()


@pytest.mark.parametrize("low", [-math.inf, LOWEST])
def test_a_constant_that_hides_the_future_is_causal(low):
    q, k, v = (input((B, H, N, D), name=n) for n in "qkv")
    tri = np.tri(N, dtype=bool)[None, None]
    scores = ops.batch_matmul(q, turned(k)) * f32(0.3)
    for masked in (
        ops.where(constant(tri), scores, f32(low)),
        ops.where(constant(~tri), f32(low), scores),
        scores + f32(np.where(tri, 0, low)),
    ):
        graph = Graph((q, k, v), ops.batch_matmul(ops.softmax(masked), v))
        (node,) = same(graph, {"attention": 1}).applies
        assert dict(node.attrs) == {"causal": True, "scale": pytest.approx(0.3)}
        assert len(node.inputs) == 3


@pytest.mark.parametrize("low", [-math.inf, LOWEST, -1e9, -1e4, -1.0])
def test_what_hides_is_kept(low):
    """Also for a query without any key: the mean of all values, or NaN."""
    q, k, v = qkv()
    allowed = input((B, 1, N, M), "bool", name="allowed")
    scores = ops.where(allowed, ops.batch_matmul(q, turned(k)), f32(low))
    graph = Graph((q, k, v, allowed), ops.batch_matmul(ops.softmax(scores), v))
    after = same(graph, {"attention": 1, "softmax": 0})
    arrays = arrays_of(graph)
    arrays["allowed"][0, 0, 1] = False
    (a,), (b,) = evaluate(graph, **arrays), evaluate(after, **arrays)
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert np.isnan(b[0, :, 1]).all() == (low == -math.inf)


def test_a_weak_constant_mask_does_not_become_causal():
    q, k, v = (input((B, H, N, D), name=n) for n in "qkv")
    scores = ops.where(constant(np.tri(N, dtype=bool)), ops.batch_matmul(q, turned(k)), f32(-1e4))
    (node,) = same(Graph((q, k, v), ops.batch_matmul(ops.softmax(scores), v)), {"attention": 1}).applies
    assert dict(node.attrs)["hidden"] == -1e4
    assert len(node.inputs) == 4


def test_a_choice_and_a_sum_are_one_mask():
    """As GPT-2: the future is chosen away, padding is added."""
    q, k, v = (input((B, H, N, D), name=n) for n in "qkv")
    pad = input((B, 1, 1, N), name="pad")
    scores = ops.where(constant(np.tri(N, dtype=bool)), ops.batch_matmul(q, turned(k)), f32(LOWEST)) + pad
    same(Graph((q, k, v, pad), ops.batch_matmul(ops.softmax(scores), v)), {"attention": 1, "softmax": 0})


def by_nan(scores):
    """where(isnan(p), 0, p)"""
    p = ops.softmax(scores)
    return ops.where(ops.isnan(p), f32(0), p)


def by_scores(scores):
    """where(not any(scores != -inf), 0, p)"""
    flags = ops.cast(ops.logical_not(ops.equal(scores, f32(-math.inf))), dtype="int32")
    seen = ops.cast(ops.max(flags, axis=(-1,), keepdims=True), dtype="bool")
    return ops.where(ops.logical_not(seen), f32(np.zeros(scores.shape)), ops.softmax(scores))


@pytest.mark.parametrize("guard", [by_nan, by_scores])
@pytest.mark.parametrize("is_bool", [True, False])
def test_weights_of_nobody_are_zero_as_torch_exports_them(is_bool, guard):
    """A query without any key gets 0."""
    q, k, v = qkv()
    mask = input((B, 1, N, M), "bool" if is_bool else "float32", name="mask")
    low = ops.where(mask, f32(0), f32(-math.inf)) if is_bool else mask
    graph = Graph((q, k, v, mask), ops.batch_matmul(guard(ops.batch_matmul(q, turned(k)) + low), v))
    after = same(graph, {"attention": 1, "softmax": 0, "isnan": 0, "equal": 0})
    arrays = arrays_of(graph)
    arrays["mask"][0, 0, 1] = False if is_bool else -math.inf
    (a,), (b,) = evaluate(graph, **arrays), evaluate(after, **arrays)
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert not b[0, :, 1].any()


@pytest.mark.parametrize("guard", [by_nan, by_scores])
def test_nothing_guards_what_hides_nothing(guard):
    q, k, v = (input((B, H, N, D), name=n) for n in "qkv")
    scores = ops.batch_matmul(q, turned(k))
    for s in (scores, scores + f32(np.where(np.tri(N), 0, -math.inf))):
        graph = Graph((q, k, v), ops.batch_matmul(guard(s), v))
        assert len(same(graph, {"attention": 1}).applies) == 1


def test_an_added_choice_is_a_mask_of_flags():
    q, k, v = qkv()
    flags = input((B, 1, N, M), "bool", name="flags")
    for low in (ops.where(flags, f32(0), f32(LOWEST)), ops.where(flags, f32(LOWEST), f32(0))):
        graph = Graph(
            (q, k, v, flags), ops.batch_matmul(ops.softmax(ops.batch_matmul(q, turned(k)) + low), v)
        )
        node = next(n for n in same(graph, {"attention": 1, "where": 0}).applies if n.op == "attention")
        assert node.inputs[3].dtype.is_bool


def test_three_axes_with_views_between():
    """As torch.export has it: products of [batch * heads], masks and softmax of [batch, heads]."""
    q, k, v = (input((B * H, n, D), name=x) for x, n in (("q", N), ("k", M), ("v", M)))
    mask = input((B, 1, N, M), name="mask")
    scores = ops.reshape(ops.batch_matmul(q, turned(k)), shape=(B, H, N, M)) * f32(0.5) + mask
    weights = ops.reshape(ops.softmax(scores), shape=(B * H, N, M))
    same(Graph((q, k, v, mask), ops.batch_matmul(weights, v)), {"attention": 1, "softmax": 0})


def refused(q, k, v, y, *more):
    same(Graph((q, k, v, *more), y), {"attention": 0})


def test_what_is_something_else_stays():
    q, k, v = qkv()
    scores = ops.batch_matmul(q, turned(k))
    weights = ops.softmax(scores)
    refused(q, k, v, ops.batch_matmul(ops.softmax(scores, axis=2), v))  # over the queries
    refused(q, k, v, (ops.batch_matmul(weights, v), weights))  # the weights are an output
    refused(q, k, v, (ops.batch_matmul(weights, v), scores * f32(2)))  # the scores are
    refused(q, k, v, ops.batch_matmul(ops.softmax(scores * f32(np.arange(1, M + 1))), v))  # many factors
    refused(q, k, v, ops.batch_matmul(ops.softmax(scores * f32(1e-20)), v))
    mask = input((B, H, N, M), name="mask")
    refused(q, k, v, ops.batch_matmul(ops.softmax((scores + mask) * f32(2)), v), mask)
    wide = input((4, B, H, N, M), name="wide")
    refused(q, k, v, ops.batch_matmul(ops.softmax(scores + wide), v), wide)
    alone = ops.softmax(ops.batch_matmul(input((1, H, N, D), name="q1"), input((1, H, D, M), name="k1")))
    (q1, k1) = alone.inputs[0].inputs  # weights that the whole batch shares
    same(Graph((q1, k1, v), ops.batch_matmul(alone, v)), {"attention": 0})
    one = input((B, 1, M, D), name="one")  # keys that all heads share
    refused(q, one, v, ops.batch_matmul(ops.softmax(ops.batch_matmul(q, turned(one))), v))


def random_attention(rng: random.Random):
    """A graph of softmax(q kᵀ …) v in one of many spellings, and whether it must be recognised."""
    lead = rng.choice([(), (3,), (2, 3), (2, 1), (2, 2, 3)])
    n, m = rng.choice([(1, 6), (5, 5), (4, 7)])
    d, w = rng.choice([1, 3, 8]), rng.choice([1, 5])
    q, v = input((*lead, n, d), name="q"), input((*lead, m, w), name="v")
    product = ops.batch_matmul if lead else ops.matmul
    k_is_turned, by_attribute = rng.random() < 0.3, rng.random() < 0.5
    k = input((*lead, d, m) if k_is_turned else (*lead, m, d), name="k")
    left, right = q, k
    if rng.random() < 0.4:
        left = left * f32(rng.uniform(0.2, 2))
    if rng.random() < 0.4:
        right = right / rng.uniform(0.5, 3)
    if k_is_turned or not by_attribute:
        scores = product(left, right if k_is_turned else turned(right))
    else:
        scores = product(left, right, transpose_b=True)
    more = []
    if rng.random() < 0.5:
        scores = rng.choice([lambda s: s * f32(0.7), lambda s: s / 1.7, lambda s: f32(-0.4) * s])(scores)
    masks = rng.randrange(3)
    for i in range(masks):
        rank = rng.randrange(3)  # of the axes in front
        shape = tuple(rng.choice([1, e]) for e in lead[len(lead) - min(rank, len(lead)) :])
        shape += (rng.choice([1, n]), rng.choice([1, m]))
        low = rng.choice([-math.inf, LOWEST] if masks > 1 else [-math.inf, LOWEST, -1e9, -3.0])
        if rng.random() < 0.5:
            mask = input(shape, name=f"mask{i}")
            scores = rng.choice([lambda s, x: s + x, lambda s, x: x + s, lambda s, x: s - x])(scores, mask)
        elif rng.random() < 0.5 and n == m:
            mask = None
            scores = ops.where(constant(np.tri(n, dtype=bool)), scores, f32(low))
        else:
            mask = input(shape, "bool", name=f"mask{i}")
            scores = (
                ops.where(mask, scores, f32(low)) if rng.random() < 0.5 else ops.where(mask, f32(low), scores)
            )
        more += [] if mask is None else [mask]
    y = product(ops.softmax(scores), v)
    return Graph((q, k, v, *more), y), not (len(lead) > 2 and masks)


@pytest.mark.parametrize("seed", range(150))
def test_random_spellings(seed):
    graph, is_attention = random_attention(random.Random(seed))
    same(graph, {"attention": int(is_attention)}, seed)


# -- GELU ----------------------------------------------------------------------------------------------------


def random_gelu(rng: random.Random, x):
    """GELU by erf or tanh, its factors in any order."""
    half, one = f32(0.5), f32(1.0)
    if rng.random() < 0.5:
        inner = rng.choice([lambda: x / math.sqrt(2), lambda: x * f32(0.70710678)])()
        f = ops.erf(inner)
    else:
        c = f32(0.7978845608)
        cube = rng.choice(
            [lambda: ops.power(x, f32(3.0)), lambda: x * x * x, lambda: ops.power(x, f32(2.0)) * x]
        )
        inner = rng.choice(
            [
                lambda: c * (x + cube() * f32(0.044715)),
                lambda: (x + f32(0.044715) * cube()) * c,
                lambda: x * c * (one + f32(0.044715) * x * x),
            ]
        )()
        f = ops.tanh(inner)
    other = rng.choice([lambda: f + one, lambda: one + f])()
    return rng.choice(
        [
            lambda: x * half * other,
            lambda: half * (x * other),
            lambda: (x * other) / 2.0,
            lambda: x * (half * other),
            lambda: other * half * x,
        ]
    )()


@pytest.mark.parametrize("seed", range(60))
def test_random_gelus(seed):
    x = input((3, 7), name="x")
    same(Graph(x, random_gelu(random.Random(seed), x)), {"gelu": 1, "erf": 0, "tanh": 0, "multiply": 0})


def test_other_functions_are_no_gelu():
    x, z = input((3, 7), name="x"), input((3, 7), name="z")
    e = ops.erf(x / math.sqrt(2))
    for y in (
        x * f32(0.5) * (e + f32(2.0)),
        x * f32(0.4) * (e + f32(1.0)),
        z * f32(0.5) * (e + f32(1.0)),
        x * f32(0.5) * (ops.erf(x / 1.4) + f32(1.0)),
        x * x * f32(0.5) * (e + f32(1.0)),
        x * f32(0.5) * (ops.tanh(f32(0.7978845608) * (x + f32(0.05) * x * x * x)) + f32(1.0)),
        x * f32(0.5) * (ops.tanh(f32(0.7978845608) * (x + f32(0.044715) * x * x)) + f32(1.0)),
        x * f32(0.5) * (ops.tanh(f32(0.7978845608) * (x + f32(0.044715) * z * x * x)) + f32(1.0)),
    ):
        same(Graph((x, z), y), {"gelu": 0})
    same(Graph(x, (x * f32(0.5) * (e + f32(1.0)), e)), {"gelu": 0})  # erf is an output, too


# -- norms ---------------------------------------------------------------------------------------------------


def inverse_root(rng: random.Random, d, v):
    """d / sqrt(v)"""
    return rng.choice(
        [
            lambda: d / ops.sqrt(v),
            lambda: d * ops.rsqrt(v),
            lambda: d * ops.reciprocal(ops.sqrt(v)),
            lambda: f32(1.0) / ops.sqrt(v) * d,
            lambda: d * ops.power(v, f32(-0.5)),
        ]
    )()


@pytest.mark.parametrize("seed", range(60))
def test_random_norms(seed, array):
    rng = random.Random(seed)
    shape = rng.choice([(3, 7), (2, 5, 6), (2, 3, 4, 5)])
    x = input(shape, name="x")
    axis = rng.choice([-1, -2]) if len(shape) > 2 else -1
    over = tuple(range(axis, 0))
    centred = rng.random() < 0.6
    d = x - ops.mean(x, axis=over, keepdims=True) if centred else x
    square = rng.choice([lambda: d * d, lambda: ops.power(d, f32(2.0))])()
    y = inverse_root(rng, d, ops.mean(square, axis=over, keepdims=True) + rng.choice([1e-5, 1e-3]))
    affine = rng.randrange(3)
    if affine:
        gamma = array(*shape[axis:])
        y = y * gamma if rng.random() < 0.5 else gamma * y
    if affine == 2 and centred:
        y = y + array(*shape[axis:])
    left = {"layer_norm": int(centred), "rms_norm": int(not centred), "sqrt": 0, "multiply": 0, "add": 0}
    same(Graph(x, y), left, seed)


def test_norms_of_something_else_stay(array):
    x, z = input((2, 5, 6), name="x"), input((2, 5, 6), name="z")
    mean = ops.mean(x, axis=-1, keepdims=True)
    d = x - mean

    def root(v, axis=-1):
        return ops.sqrt(ops.mean(v, axis=axis, keepdims=True) + f32(1e-5))

    none = {"layer_norm": 0, "rms_norm": 0}
    same(Graph((x, z), z / root(d * d)), none)
    same(Graph((x, z), x / root(x * z)), none)
    same(Graph(x, d / root(d * d, axis=1)), none)  # an axis that is not the last
    same(Graph(x, (d / root(d * d), root(d * d))), none)  # the root is an output, too
    same(Graph(x, (x - ops.mean(x, axis=1, keepdims=True)) / root(d * d)), none)
    half = same(Graph(x, (d / root(d * d), d)), {"layer_norm": 0, "rms_norm": 1})
    assert half.count("subtract") == 1
    shifted = d / root(d * d) + array(1, 5, 6)  # a number for each row is not a bias of the norm
    same(Graph(x, shifted), {"layer_norm": 1, "add": 1})


# -- group norms -----------------------------------------------------------------------------------------


def split_group_norm(array, x, groups, tail=()):
    """As torch's exporter writes it: an instance norm of the groups, then numbers for each channel."""
    n, channels, *spatial = x.shape
    rows = ops.reshape(x, (n, groups, *(tail or (-1,))))
    y = ops.group_norm(rows, array(groups), array(groups), groups=groups, eps=1e-3)
    y = ops.reshape(y, x.shape) * array(channels, *(1 for _ in spatial))
    return y + array(1, channels, *(1 for _ in spatial))


@pytest.mark.parametrize(
    ("shape", "groups"),
    [((2, 6, 5, 3), 3), ((1, 4, 7), 2), ((2, 4), 2), ((1, 3, 2, 2), 1), ((2, 4, 3, 3), 4)],
)
def test_group_norms(array, shape, groups):
    x = input(shape)
    graph = Graph(x, split_group_norm(array, x, groups))
    same(graph, {"group_norm": 1, "multiply": 0, "add": 0})
    assert optimize(graph).count("reshape") == 0


def test_no_group_norms(array):
    """Numbers within a channel, statistics of other groups, a result that is read between."""
    x = input((2, 6, 5, 3))
    rows = ops.reshape(x, (2, 3, -1))
    normed = ops.group_norm(rows, array(3), array(3), groups=3)
    same(Graph(x, ops.reshape(normed, x.shape) * array(6, 5, 1)), {"multiply": 1, "group_norm": 1})
    same(Graph(x, (ops.reshape(normed, x.shape) * array(6, 1, 1), normed)), {"multiply": 1, "group_norm": 1})
    other = ops.group_norm(ops.reshape(x, (4, 3, -1)), array(3), array(3), groups=3)
    same(Graph(x, ops.reshape(other, x.shape)), {"group_norm": 1, "reshape": 2})
