"""Rules keep the meaning of a graph, and have their effect."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor.base.switches import override
from autotensor.graph.build import call, constant, input, ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Apply, Constant, Graph
from autotensor.graph.rules import (
    PASSES,
    Pass,
    canonicalize,
    channels_last,
    common_subexpressions,
    fold_batch_norm,
    fold_constants,
    optimize,
)

SEEDS = range(60)


def close(a, b):
    for x, y in zip(a, b, strict=True):
        scale = max(1.0, float(np.abs(x).max(initial=0)))
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=2e-5 * scale)


def norm(array, x, axis=1):
    c = x.shape[axis]
    return ops.batch_norm(x, array(c), array(c), array(c), np.abs(array(c)) + 0.5, axis=axis)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.sample(20)
def test_every_pass_keeps_the_meaning(random_graph, seed):
    graph = random_graph(seed)
    x = np.random.default_rng(seed).standard_normal(graph.inputs[0].shape).astype(np.float32)
    expected = evaluate(graph, x)
    for p in PASSES:
        graph = p.run(graph)
        close(expected, evaluate(graph, x))
        assert [o.type for o in graph.outputs] == [o.type for o in random_graph(seed).outputs], p.name


@pytest.mark.parametrize("seed", SEEDS)
def test_optimizing_again_changes_nothing(random_graph, seed):
    graph = optimize(random_graph(seed))
    # Edges of the model are transposed once; a second run sees channels-last operators and leaves them alone.
    assert optimize(graph).count("transpose") == graph.count("transpose")


# -- canonical forms ------------------------------------------------------------------------------------


def test_what_does_nothing_goes():
    x = input((2, 3))
    y = ops.cast(ops.identity(ops.reshape(ops.transpose(ops.transpose(x)), (2, 3))), dtype="float32")
    assert canonicalize(Graph(x, ops.relu(ops.relu(y)))).outputs == (ops.relu(x),)


def test_views_become_one_reshape():
    x = input((2, 3, 4, 1))
    y = ops.squeeze(ops.unsqueeze(ops.flatten(x), axes=(0,)), axes=(0,))
    assert canonicalize(Graph(x, y)).outputs == (ops.reshape(x, (2, 12)),)


def test_a_transpose_that_moves_only_ones_is_a_reshape():
    x = input((5, 1, 1, 7))
    assert canonicalize(Graph(x, ops.transpose(x, (0, 3, 1, 2)))).outputs == (ops.reshape(x, (5, 7, 1, 1)),)


def test_transposes_compose():
    x = input((2, 3, 4))
    y = ops.transpose(ops.transpose(x, (1, 2, 0)), (1, 2, 0))
    assert canonicalize(Graph(x, y)).outputs == (ops.transpose(x, (2, 0, 1)),)


def test_hundreds_of_tensors_are_joined_in_groups():
    xs = [input((2, 1 + n % 3), name=f"x{n}") for n in range(1000)]
    graph = Graph(xs, ops.concat(*xs, axis=1))
    after = canonicalize(graph)
    assert max(len(n.inputs) for n in after.applies) <= 64
    values = [np.full(x.shape, n, np.float32) for n, x in enumerate(xs)]
    np.testing.assert_array_equal(evaluate(graph, *values)[0], evaluate(after, *values)[0])


def test_tokens_that_become_an_image_do_not_move():
    """[n, hw, c] ─▶ [n, c, h, w] ─▶ [n, h, w, c], and back."""
    tokens, image = input((2, 12, 5)), input((2, 3, 4, 5))
    there = ops.transpose(ops.reshape(ops.transpose(tokens, (0, 2, 1)), (2, 5, 3, 4)), (0, 2, 3, 1))
    assert canonicalize(Graph(tokens, there)).outputs == (ops.reshape(tokens, (2, 3, 4, 5)),)
    back = ops.transpose(ops.reshape(ops.transpose(image, (0, 3, 1, 2)), (2, 5, 12)), (0, 2, 1))
    assert canonicalize(Graph(image, back)).outputs == (ops.reshape(image, (2, 12, 5)),)


def test_transposes_around_a_view_of_others_keep_both():
    """Nothing would be saved: the first one stays for its other reader."""
    x = input((2, 12, 5))
    first = ops.transpose(x, (2, 0, 1))
    second = ops.transpose(ops.reshape(first, (5, 2, 3, 4)), (2, 0, 1, 3))
    graph = canonicalize(Graph(x, (ops.relu(first), second)))
    assert graph.count("transpose") == 2


@pytest.mark.parametrize("seed", range(60))
def test_transposes_around_views_keep_every_element(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.choice([1, 2, 3, 4, 6], rng.integers(1, 5)))
    x = input(shape)
    y = ops.transpose(x, tuple(int(a) for a in rng.permutation(len(shape))))
    cuts = [
        d for n in y.shape for d in ((n,) if rng.random() < 0.5 else (n // 2, 2) if n % 2 == 0 else (1, n))
    ]
    while len(cuts) > 5:
        at = int(rng.integers(len(cuts) - 1))
        cuts[at : at + 2] = [cuts[at] * cuts[at + 1]]
    z = ops.transpose(ops.reshape(y, tuple(cuts)), tuple(int(a) for a in rng.permutation(len(cuts))))
    graph = Graph(x, z)
    after = canonicalize(graph)
    assert after.count("transpose") <= graph.count("transpose")
    value = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(evaluate(graph, value)[0], evaluate(after, value)[0])


def test_a_bias_behind_a_view_of_a_dense_layer_comes_before_it(array):
    x = input((6, 5))
    y = ops.reshape(ops.dense(x, array(4, 5)), (2, 3, 4))
    for b in (array(4), array(1, 1, 4), array(1)):
        graph = Graph(x, y + b)
        after = canonicalize(graph)
        assert [n.op for n in after.applies] == ["dense", "add", "reshape"]
        value = np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)
        close(evaluate(graph, value), evaluate(after, value))
    for b in (array(3, 4), array(2, 1, 1), array(3, 1)):  # not one number for each column
        assert canonicalize(Graph(x, y + b)).outputs[0].op == "add"


def test_copies_of_one_matrix_are_one(array):
    """A weight that was broadcast for a batched product, as torch.export decomposes linear layers."""
    x, w = input((2, 3, 5)), array(5, 4)
    value = np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)
    for stack, dense in ((np.stack([w, w]), 1), (np.stack([w, w + 1]), 0)):
        graph = Graph(x, ops.batch_matmul(x, constant(stack)))
        after = canonicalize(graph)
        assert after.count("dense") == dense
        close(evaluate(graph, value), evaluate(after, value))
    rows = input((3, 5))
    wide = Graph(rows, ops.batch_matmul(rows, constant(np.stack([w, w]))))
    assert canonicalize(wide).count("dense") == 0  # a batch that only the weights have


def test_a_bias_becomes_an_add(array):
    x, w, b = input((1, 3, 4, 4)), array(2, 3, 3, 3), array(2)
    graph = fold_constants(canonicalize(Graph(x, ops.conv2d(x, w, b, padding=(1, 1)))))
    assert graph.outputs == (ops.conv2d(x, w, padding=1) + b.reshape(2, 1, 1),)


def test_zero_padding_goes_into_the_convolution(array):
    x, w = input((1, 3, 4, 4)), array(2, 3, 3, 3)
    y = ops.conv2d(ops.pad(x, ((0, 0), (0, 0), (1, 2), (1, 2))), w, padding=1)
    assert canonicalize(Graph(x, y)).outputs == (ops.conv2d(x, w, padding=(2, 2, 3, 3)),)
    kept = ops.conv2d(ops.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), value=1.0), w)
    assert canonicalize(Graph(x, kept)).count("pad") == 1


def test_constants_stand_last():
    x = input((2,))
    assert canonicalize(Graph(x, 2.0 + x)).outputs == (x + 2.0,)
    assert canonicalize(Graph(x, 2.0 - x)).outputs == (2.0 - x,)


# -- constants ------------------------------------------------------------------------------------------


def test_constants_fold(array):
    x, a = input((2, 3)), array(2, 3)
    y = x + ops.relu(ops.transpose(constant(a.T)))
    graph = fold_constants(Graph(x, y))
    assert graph.count() == 1
    np.testing.assert_array_equal(graph.constants[0].array, np.maximum(a, 0))


def test_large_broadcasts_are_not_folded():
    x = input((1024, 1024))
    y = x + ops.broadcast_to(constant(np.float32(1)), (1024, 1024))
    assert fold_constants(Graph(x, y)).count("broadcast_to") == 1


# -- batch norm -----------------------------------------------------------------------------------------


def test_batch_norm_goes_into_the_convolution(array):
    x = input((1, 3, 5, 5))
    graph = Graph(x, ops.relu(norm(array, ops.conv2d(x, array(4, 3, 3, 3), padding=1))))
    folded = fold_batch_norm(graph)
    assert [n.op_name for n in folded.applies] == ["conv2d", "add", "relu"]
    sample = array(1, 3, 5, 5)
    close(evaluate(graph, sample), evaluate(folded, sample))


def test_batch_norm_goes_into_a_convolution_with_bias_and_into_dense(array):
    x = input((2, 3, 5, 5))
    y = norm(array, ops.conv2d(x, array(4, 3, 3, 3), array(4)))
    z = norm(array, ops.dense(ops.flatten(y), array(6, 36), array(6)))
    graph = fold_batch_norm(fold_constants(canonicalize(Graph(x, z))))
    assert [n.op_name for n in graph.applies] == ["conv2d", "add", "reshape", "dense", "add"]


def test_batch_norm_alone_is_scale_and_shift(array):
    x = input((2, 3, 5, 5))
    assert [n.op_name for n in fold_batch_norm(Graph(x, norm(array, x))).applies] == ["multiply", "add"]


def test_a_convolution_with_two_readers_keeps_its_weights(array):
    x = input((1, 3, 5, 5))
    y = ops.conv2d(x, array(4, 3, 1, 1))
    graph = fold_batch_norm(Graph(x, norm(array, y) + y))
    assert graph.count("conv2d") == 1
    assert graph.count("multiply") == 1


def test_batch_norm_with_parameters_that_are_inputs_stays():
    x, parts = input((1, 3, 5, 5)), [input((3,), name=n) for n in ("gamma", "beta", "mean", "var")]
    assert fold_batch_norm(Graph((x, *parts), ops.batch_norm(x, *parts))).count("batch_norm") == 1


# -- layout ---------------------------------------------------------------------------------------------


def test_transposes_stand_at_the_edges_only(array):
    x = input((1, 3, 8, 8))
    y = ops.relu(ops.conv2d(x, array(4, 3, 3, 3), padding=1) + array(4, 1, 1))
    y = ops.concat(ops.max_pool2d(y, 2), ops.avg_pool2d(y, 2), axis=1)
    y = ops.pad(y, ((0, 0), (0, 0), (1, 1), (1, 1)))
    y = ops.conv2d(y, array(2, 8, 1, 1)) * ops.sigmoid(ops.mean(y, axis=(1, 2, 3), keepdims=True))
    graph = channels_last(Graph(x, y))
    assert [n.op_name for n in graph.applies].count("transpose") == 2
    assert graph.applies[0].op == "transpose"
    assert graph.outputs[0].op == "transpose"
    assert all(n.attr("layout") == "NHWC" for n in graph.applies if n.has_attr("layout"))


def test_flattening_after_a_global_pool_needs_no_transpose(array):
    x = input((2, 3, 8, 8))
    y = ops.dense(ops.flatten(ops.global_avg_pool2d(ops.conv2d(x, array(4, 3, 3, 3)))), array(5, 4))
    assert channels_last(Graph(x, y)).count("transpose") == 1
    means = ops.mean(ops.conv2d(x, array(4, 3, 3, 3)), axis=(2, 3))
    assert channels_last(Graph(x, means)).count("transpose") == 1


def test_one_channel_needs_no_transpose_at_all(array):
    x = input((2, 1, 8, 8))
    assert channels_last(Graph(x, ops.conv2d(x, array(1, 1, 3, 3)))).count("transpose") == 0


def test_flattened_pixels_turn_the_weights_round(array):
    x = input((2, 3, 4, 4))
    graph = Graph(x, ops.dense(ops.flatten(ops.conv2d(x, array(5, 3, 3, 3))), array(7, 20)))
    turned = channels_last(graph)
    assert turned.count("transpose") == 1  # the input
    sample = array(2, 3, 4, 4)
    close(evaluate(graph, sample), evaluate(turned, sample))


def test_user_functions_keep_their_layout(array, user_functions):
    x = input((1, 3, 6, 6))
    y = ops.conv2d(x, array(4, 3, 3, 3), padding=1)
    z = ops.conv2d(call(user_functions["shift_channels"], y), array(2, 4, 1, 1))
    graph = Graph(x, z)
    turned = channels_last(graph)
    assert turned.count("transpose") == 4  # model in, function in, function out, model out
    inner = next(n for n in turned.applies if n.op_name == "shift_channels")
    assert inner.shape == (1, 4, 6, 6)
    sample = array(1, 3, 6, 6)
    close(evaluate(graph, sample), evaluate(turned, sample))


def test_pointwise_user_functions_have_no_layout(array, user_functions):
    x = input((1, 3, 6, 6))
    y = call(user_functions["swish"], ops.conv2d(x, array(4, 3, 3, 3), padding=1))
    graph = Graph(x, ops.conv2d(y, array(2, 4, 1, 1)))
    turned = channels_last(graph)
    assert turned.count("transpose") == 2  # the model's edges
    sample = array(1, 3, 6, 6)
    close(evaluate(graph, sample), evaluate(turned, sample))


def test_weights_stay_as_they_are_and_constants_are_turned_now(array):
    x, w = input((1, 3, 6, 6)), array(4, 3, 3, 3)
    graph = channels_last(Graph(x, ops.conv2d(x, w, padding=1) + array(1, 4, 6, 6)))
    assert sorted(c.shape for c in graph.constants) == [(1, 6, 6, 4), (4, 3, 3, 3)]


def test_a_model_that_is_channels_last_already_is_left_alone(array):
    x = input((1, 6, 6, 3))
    graph = Graph(x, ops.relu(ops.conv2d(x, array(4, 3, 3, 3), layout="NHWC")))
    assert channels_last(graph).outputs == graph.outputs


# -- common subexpressions --------------------------------------------------------------------------------


def test_equal_applications_are_one_node():
    x, y = input((2,), name="x"), input((2,), name="y")
    assert ops.relu(x + y) is ops.relu(x + y)
    graph = common_subexpressions(Graph((x, y), ops.relu(x + y) * ops.sigmoid(y + x)))
    assert graph.count("add") == 1


def test_inputs_that_nothing_reads_stay():
    """Inputs stay as they are, because a caller passes them."""
    x, y = input((2,)), input((2,))
    assert optimize(Graph((x, y), ops.relu(x))).inputs == (x, y)


def test_a_long_chain_does_not_recurse():
    x = y = input((2,))
    for n in range(3000):
        y = y + float(n)
    assert optimize(Graph(x, y)).count() == 3000
    assert isinstance(y, Apply)
    assert isinstance(y.inputs[1], Constant)


# -- other ranks and operators ---------------------------------------------------------------------------


def volumes(array, x):
    """A small network of three spatial axes: norms, a shortcut, a concatenation, a mean."""
    y = ops.relu(norm(array, ops.conv3d(x, array(4, 3, 3, 1, 3), padding=(1, 0, 1))))
    z = ops.conv3d(y, array(4, 4, 1, 1, 1), array(4)) * array(4, 1, 1, 1)
    y = ops.concat(ops.relu(y + z), y, axis=1)
    return ops.dense(ops.mean(ops.slice(y, (1,), (3,), axes=(2,)), axis=(2, 3, 4)), array(2, 8))


def rows_of_channels(array, x):
    y = ops.relu(norm(array, ops.conv1d(x, array(4, 3, 3), padding=1)))
    y = ops.softmax(ops.conv1d(y, array(4, 4, 1), array(4), stride=2) + array(4, 1), axis=1)
    return ops.dense(ops.flatten(y), array(2, 4 * y.shape[2]))


@pytest.mark.parametrize(("shape", "network"), [((2, 3, 4, 3, 5), volumes), ((2, 3, 9), rows_of_channels)])
def test_convolutions_of_other_ranks(array, shape, network):
    x = input(shape)
    graph = Graph(x, network(array, x))
    after = optimize(graph)
    data = array(*shape)
    close(evaluate(graph, data), evaluate(after, data))
    assert after.count("batch_norm") == 0
    assert after.count("transpose") == 1  # at the input; flatten is turned in the weights
    layouts = {n.attr("layout") for n in after.applies if n.op in ("conv1d", "conv3d")}
    assert layouts <= {"NDHWC", "NWC"}


def test_norms_fold_into_transposed_convolutions(array):
    x = input((1, 3, 4, 4))
    graph = Graph(x, norm(array, ops.conv2d_transpose(x, array(3, 5, 4, 4), stride=2, padding=1)))
    after = fold_batch_norm(graph)
    assert [n.op for n in after.applies] == ["conv2d_transpose", "add"]
    data = array(1, 3, 4, 4)
    close(evaluate(graph, data), evaluate(after, data))
    grouped = Graph(x, norm(array, ops.conv2d_transpose(x, array(3, 1, 2, 2), groups=3)))
    close(evaluate(grouped, data), evaluate(optimize(grouped), data))


@pytest.mark.parametrize(
    ("shape", "weights", "attrs"),
    [
        ((5, 7), (7, 3), {}),
        ((5, 7), (3, 7), {"transpose_b": True}),
        ((2, 4, 7), (7, 3), {}),
        ((2, 3, 4, 7), (3, 7), {"transpose_b": True}),
    ],
)
def test_products_with_constants_are_dense_layers(array, shape, weights, attrs):
    x = input(shape)
    op = ops.matmul if len(shape) == 2 else ops.batch_matmul
    graph = Graph(x, op(x, array(*weights), **attrs))
    after = canonicalize(graph)
    assert [n.op for n in after.applies if n.op != "reshape"] == ["dense"]
    data = array(*shape)
    close(evaluate(graph, data), evaluate(after, data))


def test_products_of_two_values_stay(array):
    x, y = input((5, 7), name="x"), input((7, 3), name="y")
    assert canonicalize(Graph((x, y), ops.matmul(x, y))).count("matmul") == 1
    turned = Graph(y, ops.matmul(array(7, 4), y, transpose_a=True))
    assert canonicalize(turned).count("matmul") == 1


def test_a_pass_that_fails_is_left_out(array, caplog):
    def broken(graph):
        raise IndexError("tuple index out of range")

    x = input((1, 4))
    graph = Graph(x, ops.dense(x, array(3, 4)) + 0.0, "small")
    passes = (Pass("broken", broken), *PASSES)
    with override(strict=False):
        after = optimize(graph, passes)
    close(evaluate(graph, given := array(1, 4)), evaluate(after, given))
    said = "Graph pass 'broken' fails on 'small' and is left out (IndexError: tuple index out of range)"
    assert said in caplog.text
    with override(strict=True), pytest.raises(IndexError):
        optimize(graph, passes)


def test_two_numbers_without_axes_are_joined(array):
    """Constants of no axes: NumPy makes no array of their product."""
    x = input((2, 4))
    graph = Graph(x, ops.dense(x, array(3, 4)) + np.float32(1) + np.float32(2))
    after = optimize(graph)
    given = array(2, 4)
    close(evaluate(graph, given), evaluate(after, given))
    assert after.count("add") == 1
