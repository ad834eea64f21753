"""Extents that strides and halves make: the quotients that are found, and their values at every extent."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.graph.ir import GraphNode
from autotensor.graph.symbols.find_quotients import sampled
from autotensor.graph.symbols.quotients import NO_QUOTIENTS, KernelSymbols
from autotensor.ir.expr import Symbol
from autotensor.te.symbols import number

h = te.var("h", range=(224, 400))
TARGET = "llvm -mcpu=x86-64-v3 -threads=1"


def conv(x: GraphNode, kernel: int, stride: int, padding: int) -> GraphNode:
    weights = np.ones((2, x.shape[1], kernel, 1), np.float32)
    return at.ops.conv2d(x, weights, stride=(stride, 1), padding=(padding, 0))


MODELS: list[Callable[[GraphNode], GraphNode]] = [
    lambda x: conv(conv(x, 3, 2, 1), 3, 2, 1),
    lambda x: conv(conv(conv(x, 7, 2, 3), 3, 2, 0), 3, 2, 0),
    lambda x: conv(x, 16, 16, 0),
    lambda x: conv(x, 7, 4, 2),
    lambda x: at.ops.concat(conv(x, 32, 32, 0), conv(x, 32, 32, 15), axis=2),
    lambda x: at.ops.upsample_nearest(conv(conv(x, 3, 3, 1), 3, 2, 1), 2),
]


@pytest.mark.parametrize("model", MODELS)
def test_quotients_are_right_at_every_extent_of_the_range(model: Callable[[GraphNode], GraphNode]) -> None:
    """Few samples lie where (h + 31) // 32 and (h + 30) // 32 differ."""
    family = at.open_graph(lambda n: model(at.input((1, 1, n, 1), name="x")), h)
    opened = at.plan_model(family, TARGET).opened
    assert opened is not None
    (symbol,) = family.symbols
    for n in range(224, 401):
        graph = family.at({symbol: n})
        found = [number(e, {symbol: n}) for e in opened.shapes[graph.output_names[0]]]
        assert found == list(graph.outputs[0].shape)


def test_a_kernel_has_the_extent_of_its_results_and_a_rest() -> None:
    family = at.open_graph(lambda n: MODELS[0](at.input((1, 1, n, 1), name="x")), h)
    _, samples, _ = sampled(family)
    (symbol,) = family.symbols
    one, two = (q.symbol for q in samples.quotients.all)
    assert samples.quotients.between(two, one) == (1, 2)
    own = KernelSymbols.of(samples.quotients, (symbol,), {two})
    assert str(own.written(symbol)) == "h_2 * 4 + h_rest - 3"
    assert [number(own.value(s), {symbol: 301}) for s in (two, *own.rests)] == [76, 0]


def test_quotients_of_quotients_are_one_quotient() -> None:
    quotients, one = NO_QUOTIENTS.with_one(Symbol("n", h.dtype, 1, 100), 1, -1, 2)
    quotients, two = quotients.with_one(one, 1, 2, 3)
    assert quotients.between(two, Symbol("n", h.dtype, 1, 100)) == (3, 6)
    assert number(quotients.in_full(two), {Symbol("n", h.dtype, 1, 100): 27}) == 5
    assert quotients.between(two, Symbol("m", h.dtype, 1, 100)) is None


def enlarged(n: int) -> GraphNode:
    """Half of the rows, enlarged to all rows. If there are exactly twice as many, one operator enlarges
    them."""
    x = at.input((1, 1, n, 4), name="x")
    half = conv(x, 3, 2, 1)
    if n == 2 * half.shape[2]:
        return at.ops.upsample_nearest(half, (2, 1)) + x
    step = np.float32(half.shape[2] / n)
    places = np.floor(np.arange(n, dtype=np.float32) * step).astype(np.int64)
    wide = at.ops.take(at.ops.take(half, places, axis=2), np.arange(4), axis=3)
    return wide + x


def test_an_operator_of_some_extents_becomes_that_of_the_others() -> None:
    m = te.var("m", range=(20, 60))
    f = at.compile_model(at.open_graph(enlarged, m), target=TARGET)
    for n in (20, 21, 37, 60):
        x = np.random.default_rng(n).standard_normal((1, 1, n, 4)).astype(np.float32)
        np.testing.assert_allclose(f(x), at.compile_model(enlarged(n), target=TARGET)(x), 1e-5, 1e-5)


def test_a_number_in_a_kernel_may_be_a_quotient() -> None:
    m = te.var("m", range=(20, 60))
    family = at.open_graph(lambda n: at.input((n, 4), name="x") * np.float32(n // 2), m)
    f = at.compile_model(family, target=TARGET)
    for n in (20, 21, 60):
        assert f(np.ones((n, 4), np.float32))[0, 0] == n // 2


def framed(n: int) -> GraphNode:
    """n // 16 + 1 frames, and half as many, rounded up. All samples near the greatest n had an odd number of
    frames, so that twice the halves were taken for the frames and one."""
    x = at.input((1, 1, n, 1), name="x")
    return conv(
        at.ops.conv2d(x, np.ones((2, 1, 64, 1), np.float32), stride=(16, 1), padding=(32, 0)), 3, 2, 1
    )


def test_a_sum_that_is_right_at_all_samples_by_chance_is_not_taken() -> None:
    n = te.var("n", range=(64, 1000))
    _, samples, _ = sampled(at.open_graph(framed, n))
    (root,) = samples.symbols
    for some in (samples, samples.few()[0]):
        told = some.expression(
            [c[root] // 16 + 2 for c in some.choices], [q.symbol for q in some.quotients.all]
        )
        assert told is not None
        for at_n in range(64, 1001):
            assert some.number(told, {root: at_n}) == at_n // 16 + 2


def test_a_strided_layer_behind_frames_is_right_at_every_number_of_frames() -> None:
    n = te.var("n", range=(64, 1000))
    f = at.compile_model(at.open_graph(framed, n), target=TARGET)
    for at_n in (64, 80, 96, 500, 999, 1000):
        x = np.arange(at_n, dtype=np.float32).reshape(1, 1, at_n, 1) % 7
        padded = np.pad(x.ravel(), 32)
        frames = np.array([padded[k : k + 64].sum() for k in range(0, at_n + 1, 16)])
        sides = np.pad(frames, 1)
        want = [2 * sides[k : k + 3].sum() for k in range(0, len(frames), 2)]
        np.testing.assert_array_equal(f(x)[0, :, :, 0], [want, want])
