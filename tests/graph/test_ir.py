"""Graphs as people write and read them."""

from __future__ import annotations

import gc
import inspect
import pickle
import weakref

import numpy as np
import pytest

from autotensor import te
from autotensor.base.errors import GraphError
from autotensor.graph.build import call, constant, input, ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.function import TeFunction
from autotensor.graph.ir import Apply, Constant, Graph
from autotensor.graph.rules import optimize
from autotensor.operators import Kind, TensorType


def double(x):
    return te.compute(x.shape, lambda *i: x[i] * 2.0, name="double")


TEXT = """\
graph small(image: float32[1, 3, 8, 8]):
    %0 = conv2d(image, stem: float32[4, 3, 3, 3], padding=1)  # float32[1, 4, 8, 8]
    %1 = double(%0)  # float32[1, 4, 8, 8]
    %2 = add(%1, 1.0)  # float32[1, 4, 8, 8]
    %3 = multiply(%2, const: float32[4, 1, 1])  # float32[1, 4, 8, 8]
    return %3, image"""


def small():
    x = input((1, 3, 8, 8), name="image")
    y = ops.conv2d(x, constant(np.ones((4, 3, 3, 3), "float32"), "stem"), padding=1, stride=1)
    y = (call(double, y) + 1) * np.ones((4, 1, 1), "float32")
    return Graph((x,), (y, x), "small")


def test_a_graph_is_written_and_read():
    assert str(small()) == TEXT
    assert small().count() == 4
    assert small().count("add") == 1
    assert small().flops() == 2 * 27 * 256 + 3 * 256
    assert small().output_names == ("output_0", "output_1")


def test_the_key_says_everything():
    assert small().key == small().key
    x = input((2,), name="x")
    keys = {Graph(x, x + c).key for c in (1.0, 2.0, np.float32([1, 2]), np.float32([1, 3]))}
    assert len(keys) == 4


def test_arithmetic_on_nodes():
    x = input((2,), name="x")
    a = np.float32([3, 4])
    y = (1 - x) / 2 + x * a - a
    (got,) = evaluate(Graph(x, y), a)
    np.testing.assert_allclose(got, (1 - a) / 2 + a * a - a)
    assert (a * x).inputs == (constant(a), x)  # NumPy on the left gives a node too


def test_numbers_take_the_type_of_the_other_side():
    x = input((2,), "int32")
    assert str((x + 1).dtype) == "int32"
    assert str((input((2,), "float64") * 0.5).dtype) == "float64"


def test_numbers_keep_their_value_where_the_first_type_has_no_such_number():
    x, flags, whole = input((2,), name="x"), input((2,), "bool", name="flags"), input((2,), "int32", name="n")
    graph = Graph((x, flags, whole), (ops.where(flags, x, -1e30), whole * 1.5))
    first, second = evaluate(graph, np.float32([1, 2]), np.array([True, False]), np.int32([2, 3]))
    np.testing.assert_array_equal(first, np.float32([1, -1e30]))
    np.testing.assert_array_equal(second, [3.0, 4.5])


def test_nodes_are_interned_and_inputs_are_not():
    x, y = input((2,)), input((2,))
    assert x is not y
    assert ops.relu(x) is ops.relu(x)
    assert ops.relu(x) is not ops.relu(y)
    assert ops.conv2d(input((1, 1, 3, 3)), np.ones((1, 1, 1, 1), "f4"), stride=1).attrs == ()
    assert Graph((x, y), x + y).input_names == ("x", "x_1")


def test_weights_go_with_the_graph_that_held_them():
    """The tables of interned nodes must not keep the arrays of graphs that are no longer referenced."""
    x = input((3, 2))
    graph = Graph(x, ops.relu(ops.dense(x, np.full((4, 2), 8731.5, "f4")) + np.full(4, 8732.5, "f4")))
    watched = [weakref.ref(n.array) for n in graph.nodes if isinstance(n, Constant)]
    again = [weakref.ref(n.array) for n in optimize(graph).nodes if isinstance(n, Constant)]
    assert len(watched) == 2
    assert all(w() is not None for w in watched)
    del graph
    gc.collect()
    assert all(w() is None for w in (*watched, *again))


def test_nodes_are_interned_after_others_have_died():
    x = input((2,))
    for n in range(200):  # addresses are used again
        y = ops.relu(x * float(n))
        assert y is ops.relu(x * float(n))
        assert y.inputs[0].inputs[1].array == n


def test_constants_are_equal_when_their_bytes_are():
    a = np.float32([1, 2])
    c = constant(a)
    assert c is constant([1, 2], dtype="float32")
    assert c is not constant(np.int32([1, 2]))
    assert constant(np.float32(0.0)) is not constant(np.float32(-0.0))
    a[0] = 9
    assert c.array[0] == 1
    with pytest.raises(ValueError, match="read-only"):
        c.array[0] = 9


def test_attributes_have_defaults():
    x = input((1, 2, 4, 4))
    y = ops.max_pool2d(x, [2, 2])
    assert isinstance(y, Apply)
    assert y.attrs == (("kernel", (2, 2)),)
    assert (y.attr("stride"), y.attr("layout")) == (None, "NCHW")
    with pytest.raises(GraphError, match="max_pool2d has no attribute 'axis'; it has stride, padding"):
        y.attr("axis")


def test_one_value_true_is_not_one():
    x = input((2, 3))
    assert ops.sum(x, axis=1, keepdims=1) is not ops.sum(x, axis=1, keepdims=True)


# -- te functions -----------------------------------------------------------------------------------------


def test_a_function_is_traced_once():
    calls = []

    def traced(x):
        calls.append(x.shape)
        return te.compute(x.shape, lambda *i: x[i] + 1.0, name="plus")

    y = call(traced, input((3,)))
    graph = Graph(y.inputs[0], y)
    evaluate(graph, np.zeros(3, "float32"))
    assert graph.flops() == 3
    assert calls == [(3,)]


def test_functions_of_one_computation_are_one():
    x = input((3,))
    assert call(double, x) is call(lambda a: te.compute((3,), lambda j: a[j] * 2.0), x, name="double")
    assert call(double, x) is not call(double, x, name="other")


def test_kinds_of_functions(user_functions):
    kinds = [
        TeFunction.trace(f, [TensorType.of((1, 2, 3, 4))]).kind
        for f in (user_functions["swish"], user_functions["shift_channels"], user_functions["row_sums"])
    ]
    assert kinds == [Kind.ELEMENTWISE, Kind.INJECTIVE, Kind.ANCHOR]


# -- messages ---------------------------------------------------------------------------------------------


def test_messages_about_operators():
    x = input((2, 3))
    with pytest.raises(GraphError, match=r"dense\(float32\[2, 3\], float32\[4, 2\]\): dense: x of shape"):
        ops.dense(x, np.ones((4, 2), "float32"))
    with pytest.raises(GraphError, match=r"operator 'rleu' is unknown. Did you mean 'relu'"):
        ops.rleu(x)
    with pytest.raises(
        GraphError, match=r"relu: got an unexpected keyword argument 'alpha'. Its arguments are \(x"
    ):
        ops.relu(x, alpha=1)
    with pytest.raises(GraphError, match=r"str cannot be part of a graph. Give a node"):
        ops.relu("x")


def test_messages_about_graphs():
    x, y = input((2,), name="x"), input((3,), name="y")
    with pytest.raises(
        GraphError, match=r"graph 'g' reads 'y' float32\[3\], not an input of it. List it in `inputs`"
    ):
        Graph((x,), (y,), "g")
    with pytest.raises(GraphError, match="graph 'g' has 0 outputs"):
        Graph((x,), (), "g")
    with pytest.raises(GraphError, match="graph 'g' uses a name twice: x, x"):
        Graph((x,), (x,), "g", ("x",))
    named = input((2,), name="output")
    assert Graph(named, ops.relu(named)).output_names == ("output_",)
    with pytest.raises(GraphError, match="is listed as an input but is not one"):
        Graph((ops.relu(x),), (x,), "g")


def test_messages_about_functions():
    x, w = input((2,)), te.placeholder((2,), name="W")
    with pytest.raises(
        GraphError, match=r"call: function 'f' reads W, not an argument of it. Make it an argument"
    ):
        call(lambda a: te.compute((2,), lambda i: a[i] + w[i]), x, name="f")
    with pytest.raises(
        GraphError, match=r"call: function 'f' on .*: placeholder 'x1' is listed but nothing reads it"
    ):
        call(lambda a, b: te.compute((2,), lambda i: a[i] + 1.0), x, x + 1, name="f")
    with pytest.raises(
        GraphError, match=r"call: function 'f' on .*takes 1 positional argument but 2 were given"
    ):
        call(lambda a: a, x, x, name="f")
    with pytest.raises(
        GraphError, match=r"call: function 'f' returns one of its arguments\. Return computed"
    ):
        call(lambda a: a, x, name="f")
    with pytest.raises(GraphError, match=r"call: function 'f' returns a NoneType\. Return computed"):
        call(lambda a: None, x, name="f")


def test_a_missing_operand_is_named():
    with pytest.raises(GraphError, match=r"^relu\(\): missing 1 required positional argument: 'x'\.$"):
        ops.relu(None)


def test_messages_about_evaluation():
    graph = small()
    with pytest.raises(GraphError, match="graph 'small' needs its input 'image'"):
        evaluate(graph)
    with pytest.raises(GraphError, match="graph 'small' has no input 'img'; it has image"):
        evaluate(graph, img=np.zeros(1))
    with pytest.raises(
        GraphError, match=r"input 'image' of graph 'small' has shape \(1,\), expected \(1, 3, 8, 8\)"
    ):
        evaluate(graph, image=np.zeros(1))
    with pytest.raises(GraphError, match="takes 1 inputs, 2 were given"):
        evaluate(graph, 1, 2)


def test_constant_only_graphs():
    (value,) = evaluate(Graph((), constant([1.0, 2.0], dtype="float32") + 1))
    assert isinstance(constant([1.0]), Constant)
    np.testing.assert_array_equal(value, [2, 3])


def test_constants_of_bytes_are_not_copied():
    data = np.arange(12, dtype=np.float32).tobytes()
    whole = np.frombuffer(data, np.float32).reshape(3, 4)
    assert np.shares_memory(constant(whole).array, whole)
    part = np.frombuffer(data, np.float32, count=6)  # would keep all of the bytes
    assert not np.shares_memory(constant(part).array, part)


@pytest.mark.parametrize("owner", [np.arange(7.0), bytearray(np.arange(7.0).tobytes())])
def test_constants_do_not_change_with_the_array_they_were_made_of(owner):
    seen = np.frombuffer(owner, np.float64)
    seen.flags.writeable = False  # through this one, but not through its owner
    node = constant(seen)
    np.frombuffer(owner, np.float64)[:] = 100.0
    assert node.array[1] == 1.0


def test_an_operator_shows_its_name_its_arguments_and_its_text() -> None:
    assert ops.conv2d.__name__ == "conv2d"
    assert list(inspect.signature(ops.conv2d).parameters)[:3] == ["x", "w", "bias"]
    assert "NCHW" in (ops.conv2d.__doc__ or "")
    assert ops.exp.__doc__ == "`exp`, element by element; shapes are broadcast as in NumPy."
    assert ops.cumsum.__doc__ == "`cumsum` along `axis`."
    assert pickle.loads(pickle.dumps(ops.relu)) is ops.relu
    assert "object at" not in str(ops.relu(input((2, 3))))


def test_call_takes_a_function() -> None:
    x = input((4,))
    for wrong in (te.placeholder((4,)), 3, x):
        with pytest.raises(GraphError, match=f"takes a te function first, .* got {type(wrong).__name__}"):
            call(wrong, x)  # type: ignore[arg-type]
