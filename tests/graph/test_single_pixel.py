"""Transposed convolutions over one pixel are matrix products, with their epilogues."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor.graph.build import input, ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph
from autotensor.graph.partition import own_outputs, partition
from autotensor.graph.rules import optimize, single_pixels


def close(graph, after):
    x = np.random.default_rng(0).standard_normal(graph.inputs[0].shape).astype(np.float32)
    np.testing.assert_allclose(evaluate(graph, x)[0], evaluate(after, x)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", [1, 3])
def test_dcgans_first_layer(array, batch):
    z = input((batch, 6))
    y = ops.conv2d_transpose(ops.reshape(z, (batch, 6, 1, 1)), array(6, 5, 4, 3))
    y = ops.batch_norm(y, array(5), array(5), array(5), np.abs(array(5)) + 0.5)
    y = ops.conv2d_transpose(ops.relu(y), array(5, 2, 4, 4), stride=2, padding=1)
    graph = Graph(z, y)
    after = own_outputs(optimize(graph))
    close(graph, after)
    assert (after.count("dense"), after.count("conv2d_transpose"), after.count("batch_norm")) == (1, 1, 0)
    assert partition(after)[0].name == f"dense {'' if batch == 1 else '3x'}6->60 +add+relu"


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_both_layouts(array, layout):
    x = input((2, 3, 1, 1) if layout == "NCHW" else (2, 1, 1, 3))
    graph = Graph(x, ops.conv2d_transpose(x, array(3, 4, 2, 3), layout=layout))
    after = single_pixels(graph)
    assert after.count("conv2d_transpose") == 0
    close(graph, after)


@pytest.mark.parametrize(
    ("shape", "attrs"),
    [
        ((1, 4, 2, 1), {}),
        ((1, 4, 1, 1), {"padding": 1}),
        ((1, 4, 1, 1), {"stride": 2, "output_padding": 1}),
        ((1, 4, 1, 1), {"groups": 2}),
    ],
    ids=["two pixels", "padding", "output padding", "groups"],
)
def test_others_stay(array, shape, attrs):
    x = input(shape)
    graph = Graph(x, ops.conv2d_transpose(x, array(4, 3, 3, 3), **attrs))
    assert single_pixels(graph).count("conv2d_transpose") == 1
    close(graph, optimize(graph))


def test_a_constant_that_differs_within_the_batch_stays_behind(array):
    x = input((2, 3, 1, 1))
    graph = Graph(x, ops.conv2d_transpose(x, array(3, 4, 2, 2)) + array(2, 4, 2, 2))
    after = single_pixels(graph)
    close(graph, after)
    assert after.outputs[0].op == "add"


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
def test_a_product_of_one_element_as_a_scalar(array, shape):
    """`linear(x).squeeze() * 4 + 1`: there are no axes to look at."""
    x = input((1, 6))
    graph = Graph(x, ops.reshape(ops.dense(x, array(1, 6)), shape) * 4.0 + np.float32(1))
    after = single_pixels(graph)
    close(graph, after)
    assert after.outputs[0].op == "reshape"


def test_rows_that_get_different_numbers_stay(array):
    x = input((2, 6))
    graph = Graph(x, ops.reshape(ops.dense(x, array(1, 6)), (2,)) + np.array([1, 2], np.float32))
    after = single_pixels(graph)
    close(graph, after)
    assert after.outputs[0].op == "add"


def test_no_rows(array):
    x = input((0, 6))
    graph = Graph(x, ops.reshape(ops.dense(x, array(3, 6)), (0,)) * 4.0)
    assert evaluate(optimize(graph), np.zeros((0, 6), np.float32))[0].shape == (0,)
