"""Sums of convolutions of one input: one convolution with the weights' sum."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor.graph.build import constant, input, ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph, GraphNode
from autotensor.graph.rules import merge_sums, optimize


@pytest.fixture
def array():
    rng = np.random.default_rng(0)
    return lambda *shape: rng.standard_normal(shape).astype(np.float32)


def check(x: GraphNode, y: GraphNode, op: str, left: int) -> Graph:
    """Merging leaves `left` operators of the kind, and does not change values."""
    before = Graph(x, y)
    after = merge_sums(before)
    assert after.count(op) == left
    data = np.random.default_rng(1).standard_normal(x.shape).astype(np.float32)
    expected, got = evaluate(before, data)[0], evaluate(after, data)[0]
    assert np.abs(expected - got).max() <= 2e-6 * np.abs(expected).max()
    return after


def test_two_convolutions_become_one_with_half_the_operations(array):
    x = input((1, 8, 9, 9))
    y = ops.relu(ops.conv2d(x, array(6, 8, 3, 3), padding=1) + ops.conv2d(x, array(6, 8, 3, 3), padding=1))
    after = check(x, y, "conv2d", left=1)
    assert after.flops() < 0.51 * Graph(x, y).flops()


def test_terms_are_found_among_others(array):
    x, other = input((1, 4, 7, 7)), array(1, 5, 7, 7)
    y = ops.conv2d(x, array(5, 4, 3, 3)) + array(5, 1, 1)
    y = (y + other[:, :, 1:6, 1:6]) + (ops.conv2d(x, array(5, 4, 3, 3)) + ops.conv2d(x, array(5, 4, 3, 3)))
    check(x, y, "conv2d", left=1)


def test_a_pointwise_kernel_joins_a_larger_one(array):
    x = input((2, 4, 8, 6))
    y = ops.conv2d(x, array(3, 4, 1, 1), stride=2) + ops.conv2d(x, array(3, 4, 3, 3), stride=2, padding=1)
    check(x, y, "conv2d", left=1)


def test_kernels_that_reach_over_different_elements_stay(array):
    x = input((1, 4, 8, 8))
    y = ops.conv2d(x, array(3, 4, 1, 3), padding=(1, 1)) + ops.conv2d(x, array(3, 4, 3, 1), padding=(2, 0))
    check(x, y, "conv2d", left=2)


def test_dilated_kernels(array):
    x = input((1, 4, 12, 12))
    wide = ops.conv2d(x, array(3, 4, 3, 3), padding=2, dilation=2)
    check(x, wide + ops.conv2d(x, array(3, 4, 1, 1)), "conv2d", left=1)
    check(x, wide + ops.conv2d(x, array(3, 4, 3, 3), padding=1), "conv2d", left=2)


@pytest.mark.parametrize("other", ["stride", "input", "groups", "read twice", "weights are an input"])
def test_what_differs_stays(array, other):
    x = input((1, 4, 8, 8))
    w = array(4, 4, 3, 3)
    first = ops.conv2d(x, w, padding=1)
    match other:
        case "stride":
            second = ops.conv2d(ops.upsample_nearest(x, 2), w, padding=1, stride=2)
        case "input":
            second = ops.conv2d(ops.relu(x), w, padding=1)
        case "groups":
            second = ops.conv2d(x, array(4, 2, 3, 3), padding=1, groups=2)
        case "read twice":
            second = ops.conv2d(x, array(4, 4, 3, 3), padding=1)
            first = first * ops.relu(first)
        case _:
            second = ops.conv2d(x, array(4, 4, 3, 3), padding=1) * 2.0
    check(x, ops.add(first, second), "conv2d", left=2)


def test_grouped_one_and_three_dimensional_and_dense(array):
    x = input((1, 4, 8, 8))
    w = (array(4, 2, 3, 3), array(4, 2, 3, 3))
    check(x, ops.conv2d(x, w[0], groups=2) + ops.conv2d(x, w[1], groups=2), "conv2d", left=1)
    x = input((1, 4, 9))
    check(x, ops.conv1d(x, array(2, 4, 3)) + ops.conv1d(x, array(2, 4, 3)), "conv1d", left=1)
    x = input((1, 2, 4, 4, 4))
    v = ops.conv3d(x, array(2, 2, 3, 3, 3), padding=1) + ops.conv3d(x, array(2, 2, 1, 1, 1))
    check(x, v, "conv3d", left=1)
    x = input((3, 8))
    check(x, ops.dense(x, array(5, 8)) + ops.dense(x, array(5, 8)), "dense", left=1)


def test_batch_norms_are_folded_first(array):
    """RepVGG's block while training: 3x3 and 1x1, each with a batch norm, become one convolution."""
    x = input((1, 4, 8, 8))

    def normed(y: GraphNode) -> GraphNode:
        return ops.batch_norm(y, array(4), array(4), array(4), np.abs(array(4)) + 0.5)

    y = ops.relu(
        normed(ops.conv2d(x, array(4, 4, 3, 3), padding=1)) + normed(ops.conv2d(x, array(4, 4, 1, 1)))
    )
    graph = Graph(x, y)
    after = optimize(graph)
    assert after.count("conv2d") == 1
    data = np.random.default_rng(1).standard_normal(x.shape).astype(np.float32)
    expected, got = evaluate(graph, data)[0], evaluate(after, data)[0]
    assert np.abs(expected - got).max() <= 1e-5 * np.abs(expected).max()


def test_constants_that_are_weights_elsewhere_are_left_alone(array):
    x, w = input((1, 4, 8, 8)), constant(array(4, 4, 3, 3))
    y = ops.conv2d(x, w) + ops.conv2d(x, array(4, 4, 3, 3))
    before = w.array.copy()
    check(x, y, "conv2d", left=1)
    assert (w.array == before).all()
