"""Groups: which operators are fused, which groups are equal; their tensor expressions have the graph's
meaning."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from autotensor import te
from autotensor.base.errors import GraphError
from autotensor.graph.build import call, constant, input, ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph
from autotensor.graph.partition import check_groups, own_outputs, partition, tasks
from autotensor.graph.rules import optimize
from autotensor.graph.storage import storage


def names(graph):
    return [g.name for g in partition(own_outputs(graph))]


@pytest.mark.parametrize("seed", range(40))
def test_groups_mean_what_the_graph_means(run_groups, random_graph, seed):
    graph = random_graph(seed + 1000)
    x = np.random.default_rng(seed).standard_normal(graph.inputs[0].shape).astype(np.float32)
    for form in (own_outputs(graph), own_outputs(optimize(graph))):
        groups = partition(form)
        check_groups(form, groups)
        kernels = [n for g in groups for n in g.nodes]
        assert len(kernels) == len(set(kernels)) == sum(n.kind.value != "view" for n in form.applies)
        for got, expected in zip(run_groups(form, groups, x), evaluate(graph, x), strict=True):
            scale = max(1.0, float(np.abs(expected).max(initial=0)))
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=2e-5 * scale)


def test_a_convolution_takes_its_epilogue(array):
    x = input((1, 8, 6, 6), name="x")
    y = ops.conv2d(x, array(8, 8, 3, 3), array(8), padding=1)
    graph = optimize(Graph(x, ops.relu(y + x)))
    assert names(graph) == ["transpose 8x6x6", "conv2d 3x3 6x6x8->8 +add+add+relu", "transpose 6x6x8"]


def test_a_value_that_others_read_is_not_swallowed(array):
    x = input((1, 6, 6, 8))
    y = ops.conv2d(x, array(8, 8, 3, 3), layout="NHWC", padding=1)
    z = ops.relu(y)
    assert names(Graph(x, (y, z))) == ["conv2d 3x3 6x6x8->8", "relu 6x6x8"]
    both = Graph(x, ops.max_pool2d(y, 2, layout="NHWC") + ops.max_pool2d(z, 2, layout="NHWC"))
    assert names(both)[:2] == ["conv2d 3x3 6x6x8->8", "relu 6x6x8"]


def test_a_diamond_inside_an_epilogue_is_fused():
    x = input((4, 8))
    y = ops.exp(x)
    graph = Graph(x, ops.sigmoid(y) * y + y)
    assert names(graph) == ["exp 4x8 +sigmoid+multiply+add"]


def test_no_group_depends_on_itself(array):
    """relu(y) is fused with y only if the pool of y does not stand between them."""
    x = input((1, 8, 8, 4))
    y = ops.conv2d(x, array(4, 4, 3, 3), layout="NHWC", padding=1)
    pooled = ops.max_pool2d(y, 3, stride=1, padding=1, layout="NHWC")
    graph = own_outputs(Graph(x, y + pooled))
    groups = partition(graph)
    check_groups(graph, groups)
    assert [g.name for g in groups] == ["conv2d 3x3 8x8x4->4", "max_pool2d 8x8x4 +add"]


def test_pointwise_convolutions_and_dense_layers_of_one_size_are_one_task(array):
    x = input((1, 4, 8, 6))
    y = ops.relu(ops.conv2d(x, array(6, 6, 1, 1), layout="NHWC") + array(6))
    flat = ops.reshape(y, (32, 6))
    z = ops.relu(ops.dense(flat, array(6, 6), array(6)))
    wide = ops.reshape(z, (1, 2, 16, 6))
    w = ops.relu(ops.conv2d(wide, array(6, 6, 1, 1), layout="NHWC") + array(1, 1, 1, 6))
    graph = own_outputs(optimize(Graph(x, w)))
    groups = partition(graph)
    (task,) = tasks(groups)
    assert task.weight == 3
    assert [b.shape for b in task.workload.dag.inputs] == [(32, 6), (6, 6), (6,)]
    assert sorted(task.workload.dag.constants) == ["a1", "a2"]
    assert str(task) == "conv2d 1x1 4x8x6->6 +add+relu ×3"


@pytest.mark.parametrize(
    "attrs", [{"stride": 2}, {"padding": 1}, {"groups": 2}], ids=["stride", "padding", "groups"]
)
def test_other_convolutions_keep_their_axes(array, attrs):
    x = input((1, 4, 4, 4))
    depth = 4 // attrs.get("groups", 1)
    (group,) = partition(Graph(x, ops.conv2d(x, array(4, depth, 1, 1), layout="NHWC", **attrs)))
    assert len(group.workload.dag.outputs[0].shape) == 4


def test_elementwise_groups_are_flat(array):
    x = input((2, 3, 4, 5))
    (whole,) = partition(Graph(x, ops.relu(x) + 1.0))
    assert [b.shape for b in whole.workload.dag.inputs] == [(120,), (1,)]
    (rows,) = partition(Graph(x, ops.relu(x * array(5)) + x))
    assert [b.shape for b in rows.workload.dag.inputs] == [(24, 5), (5,)]
    (full,) = partition(Graph(x, x * array(3, 1, 1)))  # broadcast along rows: stays as written
    assert [b.shape for b in full.workload.dag.inputs] == [(2, 3, 4, 5), (3, 1, 1)]


def test_views_cost_no_kernel_and_outputs_behind_views_are_made_directly():
    x = input((2, 3, 4))
    y = ops.reshape(ops.relu(ops.reshape(x, (6, 4))), (24,))
    graph = own_outputs(Graph(x, y))
    (group,) = partition(graph)
    assert group.inputs == (x,)
    assert storage(graph.outputs[0]) is group.outputs[0]


def test_outputs_without_bytes_of_their_own_are_copied(run_groups, array):
    x, c = input((2, 3)), array(4)
    y = ops.relu(x)
    graph = own_outputs(Graph(x, (x, constant(c), y, y, ops.reshape(y, (6,)))))
    groups = partition(graph)
    check_groups(graph, groups)
    a = array(2, 3)
    got = run_groups(graph, groups, a)
    for value, expected in zip(got, (a, c, a.clip(0), a.clip(0), a.clip(0).reshape(6)), strict=True):
        np.testing.assert_array_equal(value, expected)


def test_groups_without_own_outputs_are_refused():
    x = input((2, 3))
    graph = Graph(x, (ops.relu(x), x))
    with pytest.raises(GraphError, match=r"output that no group computes. Use own_outputs"):
        check_groups(graph, partition(graph))


def test_user_functions_fuse_as_far_as_is_known(array, user_functions):
    x = input((2, 3, 4, 5))
    assert names(Graph(x, ops.relu(call(user_functions["swish"], ops.exp(x))))) == ["exp 2x3x4x5 +swish+relu"]
    assert names(Graph(x, ops.relu(call(user_functions["row_sums"], x)))) == ["row_sums 2x3x4x5 +relu"]
    assert names(Graph(x, call(user_functions["shift_channels"], ops.relu(x)))) == [
        "relu 2x3x4x5",
        "shift_channels 2x3x4x5",
    ]


def test_pointwise_user_functions_join_flat_epilogues(run_groups, array, user_functions):
    x = input((1, 4, 8, 6))
    y = call(user_functions["swish"], ops.conv2d(x, array(5, 6, 1, 1), layout="NHWC") + array(5))
    graph = Graph(x, y)
    (group,) = partition(graph)
    assert [b.shape for b in group.workload.dag.inputs] == [(32, 6), (5, 6), (5,)]
    a = array(1, 4, 8, 6)
    np.testing.assert_allclose(run_groups(graph, [group], a)[0], evaluate(graph, a)[0], rtol=1e-4, atol=1e-5)


def test_functions_that_know_where_they_are_are_not_flattened(run_groups, array):
    def ramp(x):
        return te.compute(x.shape, lambda n, c: x[n, c] + te.cast("float32", c), name="ramp")

    x = input((4, 6))
    graph = Graph(x, call(ramp, ops.relu(x)))
    (group,) = partition(graph)
    assert group.workload.dag.inputs[0].shape == (4, 6)
    a = array(4, 6)
    np.testing.assert_allclose(run_groups(graph, [group], a)[0], a.clip(0) + np.arange(6), rtol=1e-6)


def test_several_results_are_one_group(run_groups, array):
    def split(x):
        return te.compute(x.shape, lambda i: (x[i] * 2.0, x[i] + 1.0), name="two")

    x = input((5,))
    double, more = call(split, x)
    graph = own_outputs(Graph(x, (ops.relu(double), more)))
    groups = partition(graph)
    assert [len(g.outputs) for g in groups] == [2, 1]
    a = array(5)
    got = run_groups(graph, groups, a)
    np.testing.assert_allclose(got[0], (a * 2).clip(0))
    np.testing.assert_allclose(got[1], a + 1)


def test_resnet50_has_few_tasks():
    from autotensor.models import MODELS

    graph = own_outputs(optimize(MODELS.get("resnet50").build()))
    groups = partition(graph)
    found = tasks(groups)
    assert (len(groups), len(found)) == (57, 28)
    assert sum(t.weight for t in found) == len(groups)
    assert 8.1e9 < sum(t.flops * t.weight for t in found) < 8.3e9
    assert prod(groups[-1].workload.dag.outputs[0].shape) == 1000
