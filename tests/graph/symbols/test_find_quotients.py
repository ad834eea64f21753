"""Extents that strides and halves make: the quotients that are found, and their values at every extent."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import GraphNode
from autotensor.graph.symbols.find_quotients import sampled
from autotensor.graph.symbols.quotients import NO_QUOTIENTS, KernelSymbols
from autotensor.ir.expr import Symbol
from autotensor.te.symbols import number
from tests.kit.graph_families import meant

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


def joined_levels(first: int, across: bool) -> Callable[[int, int], GraphNode]:
    """Three halves of an image, from the `first` on, give six numbers for each place, in two rows of three.
    The rows of all are joined.

    across: a level is transposed across its rows of three; otherwise rows are made of all that is joined.
    """

    def net(rows: int, columns: int) -> GraphNode:
        x = at.input((1, 6, rows, columns), name="x")
        found = []
        for n in range(first + 3):
            x = at.ops.conv2d(x, np.full((6, 1, 3, 3), 1 / 9, np.float32), stride=2, padding=1, groups=6)
            h, w = x.shape[2:]
            if n >= first and across:
                parts = at.ops.transpose(at.ops.reshape(x, (1, 2, 3, h, w)), (0, 1, 3, 4, 2))
                found.append(at.ops.reshape(parts, (1, 2 * h * w, 3)))
            elif n >= first:
                found.append(at.ops.reshape(at.ops.transpose(x, (0, 2, 3, 1)), (1, 6 * h * w)))
        joined = at.ops.concat(*found, axis=1)
        made = joined if across else at.ops.reshape(joined, (1, joined.shape[1] // 3, 3))
        return at.ops.relu(at.ops.slice(made, (1,), (3,), axes=(2,)))

    return net


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("across", [False, True])
def test_levels_of_an_image_are_joined(first: int, across: bool) -> None:
    rows, columns = te.var("rows", range=(33, 90)), te.var("columns", range=(33, 90))
    family = at.open_graph(joined_levels(first, across), rows, columns)
    plan = at.plan_model(family, TARGET)
    sizes = [(33, 33), (90, 90), (34, 90), (90, 34), (33, 89), (47, 71), (64, 65), (81, 40)]
    for size in sizes:
        choice = dict(zip(family.symbols, size, strict=True))
        graph = family.at(choice)
        x = np.random.default_rng(size).standard_normal(graph.inputs[0].shape).astype(np.float32)
        (found,) = meant(plan, choice, x)
        np.testing.assert_allclose(found, evaluate(graph, x)[0], 1e-5, 1e-5)


def test_a_quotient_of_rows_is_not_taken_for_one_of_columns() -> None:
    """At all samples, the fifth half of the columns was a third of the fourth half of the rows."""
    rows, columns = te.var("rows", range=(33, 90)), te.var("columns", range=(33, 90))

    def net(*image: int) -> GraphNode:
        x = at.input((1, 4, *image), name="x")
        for _ in range(5):
            x = at.ops.conv2d(x, np.ones((4, 4, 3, 3), np.float32), stride=2, padding=1)
        return x

    family = at.open_graph(net, rows, columns)
    opened = at.plan_model(family, TARGET).opened
    assert opened is not None
    for size in product(range(33, 91, 3), range(33, 91, 3)):
        (shape,) = (opened.shapes[name] for name in opened.shapes if name != "x")
        found = [number(e, dict(zip(family.symbols, size, strict=True))) for e in shape]
        assert found == [1, 4, *(-(-n // 32) for n in size)]
