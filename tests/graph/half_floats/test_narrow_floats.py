"""Networks in float16 and bfloat16 compute in float32, and round only where a user can see a value."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import autotensor as at
from autotensor.api.style_programs import Programs
from autotensor.base.dtype import dtype_of
from autotensor.graph.build import call, constant, input, ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Apply, Constant, Graph, apply, topological
from autotensor.graph.rules.narrow_floats import float32_inside
from autotensor.operators import OPERATORS

HALVES = ("float16", "bfloat16")
FLOAT_CASES = [
    (name, n)
    for name in OPERATORS.names()
    for n, case in enumerate(OPERATORS.get(name).cases)
    if name not in ("cast", "store")
    and (not case.dtypes or "float32" in case.dtypes)
    and "float64" not in case.dtypes
]


def drawn(rng, shape, dtype, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(dtype_of(dtype).numpy)


def perceptron(dtype, rows, widths):
    rng = np.random.default_rng(len(widths))
    x = y = input((rows, widths[0]), dtype)
    for n, m in pairwise(widths):
        y = ops.relu(ops.dense(y, drawn(rng, (m, n), dtype, n**-0.5), drawn(rng, (m,), dtype, 0.1)))
    return Graph(x, y)


def exact(graph, *arrays):
    """The float64 answers of a graph of 16-bit floats."""
    made = {x: a.astype(np.float64) for x, a in zip(graph.inputs, arrays, strict=True)}
    for node in graph.nodes:
        if isinstance(node, Constant):
            made[node] = node.array.astype(np.float64)
        elif isinstance(node, Apply):
            result = OPERATORS.get(node.op).reference(*(made[x] for x in node.inputs), **dict(node.attrs))
            made[node] = np.asarray(result)
    return tuple(made[o] for o in graph.outputs)


def test_there_is_one_cast_at_each_end():
    graph = float32_inside(perceptron("float16", 3, (8, 4, 2)))
    assert [n.op_name for n in graph.applies] == ["cast", "dense", "relu", "dense", "relu", "cast"]
    assert [str(n.dtype) for n in graph.applies] == ["float32"] * 5 + ["float16"]
    assert {str(c.dtype) for c in graph.constants} == {"float32"}
    assert float32_inside(graph).outputs == graph.outputs


@pytest.mark.parametrize(("name", "n"), FLOAT_CASES)
def test_every_operator_is_that_of_float32_on_the_same_numbers(name, n):
    case = OPERATORS.get(name).cases[n]
    arrays = case.arrays(np.random.default_rng(n))
    half = [a.astype(np.float16) if a.dtype == np.float32 else a for a in arrays]
    whole = [a.astype(np.float32) if a.dtype == np.float16 else a for a in half]

    def graph(of):
        nodes = [input(a.shape, str(a.dtype)) for a in of]
        return Graph(tuple(nodes), (apply(name, nodes, case.attrs),))

    narrow, wide = graph(half), graph(whole)
    rewritten = float32_inside(narrow)
    assert [o.type for o in rewritten.outputs] == [o.type for o in narrow.outputs]
    for got, want in zip(evaluate(rewritten, *half), evaluate(wide, *whole), strict=True):
        np.testing.assert_array_equal(got, want.astype(got.dtype))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("rows", "widths"), [(1, (64, 48, 10)), (7, (33, 17, 5)), (16, (256, 256, 256, 8))])
def test_a_network_rounds_once(dtype, rows, widths):
    graph = perceptron(dtype, rows, widths)
    x = drawn(np.random.default_rng(0), (rows, widths[0]), dtype)
    (want,) = exact(graph, x)
    got = at.compile_model(graph)(x)
    assert got.dtype == dtype_of(dtype).numpy
    eps = 2.0 ** (-8 if dtype == "bfloat16" else -11)  # half the distance between two of its numbers
    error = np.abs(got.astype(np.float64) - want)
    assert (error <= 1.01 * eps * np.abs(want) + 1e-6 * np.abs(want).max()).all()


@pytest.mark.parametrize("dtype", HALVES)
def test_the_authors_own_cast_rounds(dtype):
    x = input((1000,))
    graph = Graph(x, ops.cast(ops.cast(x * 3.0, dtype=dtype), dtype="float32") * 2.0)
    a = drawn(np.random.default_rng(1), (1000,), "float32")
    want = (a * np.float32(3)).astype(dtype_of(dtype).numpy).astype(np.float32) * 2
    np.testing.assert_array_equal(at.compile_model(graph)(a), want)


def test_te_functions_sum_in_float32_and_keep_their_own_casts():
    def rounded_sum(x):
        k = at.te.reduce_axis(4096, "k")
        total = at.te.compute((3,), lambda i: at.te.sum(x[i, k], axis=k), name="total")
        return at.te.compute(
            (3,), lambda i: at.te.cast("float32", at.te.cast("bfloat16", total[i])), name="out"
        )

    x = input((3, 4096), "float16")
    a = drawn(np.random.default_rng(2), (3, 4096), "float16") + np.float16(1)
    got = at.compile_model(call(rounded_sum, x))(a)
    assert got.dtype == np.float32
    want = a.astype(np.float64).sum(axis=1).astype(dtype_of("bfloat16").numpy)
    np.testing.assert_array_equal(got, want.astype(np.float32))


def test_a_table_is_read_in_the_type_that_it_lies_in():
    table, at_rows = input((1000, 8), "float16", "table"), input((3,), "int64", "rows")
    graph = float32_inside(Graph((table, at_rows), ops.exp(ops.take(table, at_rows))))
    first = [(n.op_name, str(n.dtype)) for n in graph.applies][:2]
    assert first == [("take", "float16"), ("cast", "float32")]


def test_an_update_of_a_cache_stays_in_its_type():
    cache, rows, at_rows = (
        input((64, 8), "bfloat16", "cache"),
        input((2, 8), "bfloat16", "rows"),
        input((2, 1), "int64", "at"),
    )
    new = ops.scatter_nd(cache, at_rows, rows)
    plan = at.plan_model(Graph((cache, rows, at_rows), new, output_names=("new",)), updates={"new": "cache"})
    assert [str(o.dtype) for o in plan.graph.outputs] == ["bfloat16"]


@pytest.mark.parametrize("dtype", HALVES)
def test_in_the_programming_styles_bits_do_not_depend_on_what_is_asked_for(dtype):
    rng = np.random.default_rng(3)
    x, w = input((9, 40), dtype), input((40, 24), dtype)
    y = ops.softmax(ops.relu(ops.matmul(x, w)) * 0.3 + 0.1)
    values = {x: drawn(rng, x.shape, dtype), w: drawn(rng, w.shape, dtype, 0.2)}
    programs = Programs("llvm -threads=1")
    nodes = [n for n in topological([y]) if isinstance(n, Apply)]
    together = dict(zip(nodes, programs.run(nodes, values), strict=True))
    apart = dict(values)
    for node in nodes:
        (apart[node],) = programs.run([node], apart)
        np.testing.assert_array_equal(apart[node], together[node], err_msg=node.op_name)
    (whole,) = programs.run([y], values)
    np.testing.assert_array_equal(whole, together[y])


def test_a_constant_that_only_moves_is_no_larger():
    graph = float32_inside(Graph((), ops.reshape(constant(np.ones((4, 4), np.float16)), (16,))))
    assert {str(c.dtype) for c in graph.constants} == {"float16"}


def test_inputs_that_an_operator_converts_itself_stay():
    q, k = input((1, 2, 1, 16)), input((1, 2, 1, 16))
    cache, position = input((1, 2, 9, 16), "float16"), input((1,), "int64")
    attended = float32_inside(
        Graph((q, k, cache, position), ops.cached_attention(q, k, k, cache, cache, position))
    )
    assert [n.op_name for n in attended.applies] == ["cached_attention"]
    w, scale = np.zeros((8, 2, 16), np.uint8), np.ones((8, 2), np.float16)
    x = input((1, 64))
    packed = float32_inside(Graph(x, ops.dense_nbits(x, w, scale)))
    assert [str(c.dtype) for c in packed.constants] == ["uint8", "float16"]


def test_what_it_computes_with_becomes_float32():
    q, cache, position = (
        input((1, 2, 1, 16), "float16"),
        input((1, 2, 9, 16), "float16"),
        input((1,), "int64"),
    )
    graph = Graph((q, cache, position), ops.cached_attention(q, q, q, cache, cache, position))
    (attended,) = (n for n in float32_inside(graph).applies if n.op_name == "cached_attention")
    assert [str(x.dtype) for x in attended.inputs] == ["float32"] * 3 + ["float16"] * 2 + ["int64"]
