"""Models called with arrays: compiled per shape, in parts where values decide, and only once for each."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from making import floats, model, node
from onnx import TensorProto, helper

import autotensor as at
from autotensor.api import model_compiling
from autotensor.base.errors import ArgumentError
from autotensor.graph import steps as step_loops

INT64, BOOL = TensorProto.INT64, TensorProto.BOOL


@pytest.fixture
def compiled(monkeypatch):
    """How many parts have been compiled, counted."""
    graphs = []
    real = model_compiling.compile_model

    def counting(graph, **kwargs):
        graphs.append(graph)
        return real(graph, **kwargs)

    monkeypatch.setattr(model_compiling, "compile_model", counting)
    return graphs


def test_one_compilation_for_each_shape(compiled):
    f = at.OnnxModel(model([node("Relu", ["x"])], {"x": ("n", 3)}))
    for n in (2, 5, 2, 5):
        x = floats(n, 3)
        np.testing.assert_array_equal(f(x)[0], np.maximum(x, 0))
    assert f.specialisations == len(compiled) == 2


def test_a_shape_given_as_an_input_is_kept_by_value(compiled):
    f = at.OnnxModel(
        model(
            [node("Reshape", ["x", "s"], ["r"]), node("Relu", ["r"])],
            {"x": (6,), "s": (2,)},
            types={"s": INT64},
        )
    )
    for shape in ((2, 3), (3, 2), (2, 3), (6, 1)):
        assert f(floats(6), np.array(shape))[0].shape == shape
    assert len(compiled) == 3


def test_what_depends_on_large_values_is_compiled_in_two_parts(compiled):
    """NonZero has as many results as the data say; the products before and after it are compiled."""
    nodes = [
        node("Mul", ["x", "x"], ["sq"]),
        node("Relu", ["x"], ["r"]),
        node("NonZero", ["r"], ["at"]),
        node("Transpose", ["at"], ["places"]),
        node("GatherND", ["sq", "places"], ["picked"]),
        node("Neg", ["picked"]),
    ]
    f = at.OnnxModel(model(nodes, {"x": (100, 80)}))
    for seed in (0, 0, 1):
        x = floats(100, 80, seed=seed)
        np.testing.assert_allclose(f(x)[0], -(x * x)[x > 0], rtol=1e-6)
    assert len(compiled) == 1 + 2  # the part before once, the part after for each number of places


def branches(then: str, otherwise: str):
    graphs = [
        helper.make_graph(
            [helper.make_node(op, ["x"], ["r"])], op, [], [helper.make_tensor_value_info("r", 1, None)]
        )
        for op in (then, otherwise)
    ]
    return {"then_branch": graphs[0], "else_branch": graphs[1]}


def test_if_takes_one_branch(compiled):
    f = at.OnnxModel(
        model([node("If", ["c"], **branches("Relu", "Neg"))], {"c": (), "x": (3,)}, types={"c": BOOL})
    )
    x = floats(3)
    for c in (True, False, True, False):
        np.testing.assert_array_equal(f(np.array(c), x)[0], np.maximum(x, 0) if c else -x)
    assert len(compiled) == 2


def test_if_on_a_computed_condition(compiled):
    nodes = [
        node("ReduceSum", ["x"], ["t"], keepdims=0),
        node("Greater", ["t", "zero"], ["c"]),
        node("If", ["c"], **branches("Relu", "Neg")),
    ]
    f = at.OnnxModel(model(nodes, {"x": (200, 100)}, weights={"zero": np.float32(0)}))
    for sign in (1, -1, 1, -1):
        x = sign * np.abs(floats(200, 100))
        np.testing.assert_array_equal(f(x)[0], np.maximum(x, 0) if sign > 0 else -x)
    assert len(compiled) == 3


def loop_body():
    """state * 2 while it is below 100; gives each state as a row."""
    nodes = [
        helper.make_node("Add", ["s", "s"], ["s2"]),
        helper.make_node("ReduceMax", ["s2"], ["m"], keepdims=0),
        helper.make_node("Less", ["m", "limit"], ["go"]),
        helper.make_node("Identity", ["s2"], ["row"]),
    ]
    info = helper.make_tensor_value_info
    return helper.make_graph(
        nodes,
        "body",
        [info("i", INT64, ()), info("c", BOOL, ()), info("s", 1, (3,))],
        [info("go", BOOL, ()), info("s2", 1, (3,)), info("row", 1, (3,))],
    )


def test_a_loop_that_ends_by_its_condition(compiled):
    f = at.OnnxModel(
        model(
            [node("Loop", ["", "", "x"], ["last", "y"], body=loop_body())],
            {"x": (3,), "limit": ()},
            outputs=["last", "y"],
        )
    )
    for start in (1.0, 30.0, 1.0):
        last, rows = f(np.full(3, start, np.float32), np.float32(100))
        wanted = []
        while not wanted or wanted[-1] < 100:
            wanted.append((wanted[-1] if wanted else start) * 2)
        assert last[0] == wanted[-1]
        np.testing.assert_array_equal(rows[:, 0], wanted)
    assert len(compiled) == 1  # the body, once for all rounds and calls


def test_a_loop_of_a_known_length_is_unrolled():
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "x"], ["t"]), helper.make_node("Identity", ["c"], ["d"])],
        "body",
        [info("i", INT64, ()), info("c", BOOL, ()), info("s", 1, None)],
        [info("d", BOOL, ()), info("t", 1, None)],
    )
    m = model([node("Loop", ["n", "", "x"], body=body)], {"x": (3,)}, weights={"n": np.int64(4)})
    assert [n.op_name for n in at.from_onnx(m).applies] == ["add"] * 4
    np.testing.assert_allclose(at.OnnxModel(m)(np.ones(3, np.float32))[0], 5.0)


def counting_body(*nodes):
    """(i, c, s, k) ──▶ (d, s2, k2, row): the nodes make s2 and row."""
    info = helper.make_tensor_value_info
    own = [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Add", ["k", "i"], ["k2"])]
    return helper.make_graph(
        [*own, *nodes],
        "body",
        [info("i", INT64, ()), info("c", BOOL, ()), info("s", 1, (3,)), info("k", INT64, ())],
        [
            info("d", BOOL, ()),
            info("s2", 1, None),
            info("k2", INT64, ()),
            info("row", 1, None),
        ],
    )


def counted_loop(body, rounds: int):
    weights: dict = {"n": np.int64(rounds), "zero": np.int64(0), "fifty": np.int64(50)}
    weights |= {"half": np.float32(0.5), "more": np.full(1, 0.5, np.float32)}
    nodes = [node("Loop", ["n", "", "x", "zero"], ["last", "k", "rows"], body=body)]
    kinds = {"k": INT64}
    return model(nodes, {"x": (3,), "w": (50,)}, ["last", "k", "rows"], weights=weights, types=kinds)


def test_a_long_loop_of_a_known_length_is_a_loop_of_the_program(compiled):
    """States of two types, the number of the round, and a row of a table that is read at it."""
    body = counting_body(
        helper.make_node("Gather", ["w", "at"], ["v"]),
        helper.make_node("Mod", ["i", "fifty"], ["at"]),
        helper.make_node("Mul", ["s", "half"], ["h"]),
        helper.make_node("Add", ["h", "v"], ["s2"]),
        helper.make_node("Sub", ["s2", "s"], ["row"]),
    )
    m = counted_loop(body, 300)
    assert len(at.from_onnx(m).applies) < 20
    x, w = floats(3), floats(50, seed=1)
    last, k, rows = at.OnnxModel(m)(x, w)
    state, wanted = x, []
    for n in range(300):
        before, state = state, state * np.float32(0.5) + w[n % 50]
        wanted.append(state - before)
    np.testing.assert_allclose(last, state, rtol=1e-5)
    np.testing.assert_allclose(rows, wanted, rtol=1e-5, atol=1e-6)
    assert k == sum(range(300))
    assert len(compiled) == 1


def test_a_long_loop_whose_state_grows_is_called():
    body = counting_body(
        helper.make_node("Concat", ["s", "more"], ["s2"], axis=0),
        helper.make_node("ReduceSum", ["s"], ["row"], keepdims=0),
    )
    last, _, rows = at.OnnxModel(counted_loop(body, 100))(np.ones(3, np.float32), floats(50))
    np.testing.assert_allclose(last, [1] * 3 + [0.5] * 100)
    np.testing.assert_allclose(rows, 3 + 0.5 * np.arange(100))


@pytest.mark.parametrize("back", [0, 1])
def test_a_long_scan_is_a_loop_of_the_program(back, monkeypatch):
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["s", "a"], ["sa"]),
            helper.make_node("Add", ["sa", "b"], ["s2"]),
            helper.make_node("ReduceSum", ["s2"], ["row"], keepdims=0),
            helper.make_node("Neg", ["s"], ["other"]),
        ],
        "body",
        [info("s", 1, (3,)), info("a", 1, (3,)), info("b", 1, (3,))],
        [info(o, 1, None) for o in ("s2", "row", "other")],
    )
    attrs = {
        "num_scan_inputs": 2,
        "scan_input_axes": [0, 1],
        "scan_input_directions": [0, back],
        "scan_output_axes": [0, 1],
        "scan_output_directions": [back, 1],
    }
    outputs = ["last", "rows", "others"]
    nodes = [node("Scan", ["x", "p", "q"], outputs, body=body, **attrs)]
    m = model(nodes, {"x": (3,), "p": (70, 3), "q": (3, 70)}, outputs)
    arrays = floats(3), floats(70, 3, seed=1), floats(3, 70, seed=2)
    looped = at.OnnxModel(m)(*arrays)
    assert len(at.from_onnx(m).applies) < 20
    monkeypatch.setattr(step_loops, "MOST_WRITTEN_OUT", 100)
    for mine, want in zip(looped, at.OnnxModel(m)(*arrays), strict=True):
        np.testing.assert_allclose(mine, want, rtol=1e-4, atol=1e-5)


def test_sequences_and_optionals_come_and_go():
    sequence = helper.make_tensor_sequence_value_info("s", 1, None)
    m = model(
        [node("SequenceAt", ["s", "one"], ["a"]), node("SequenceConstruct", ["a", "a"])],
        {},
        weights={"one": np.int64(1)},
    )
    m.graph.input.append(sequence)
    m.graph.output[0].CopyFrom(helper.make_tensor_sequence_value_info("y", 1, None))
    x = floats(3)
    (got,) = at.OnnxModel(m)([np.zeros(2, np.float32), x])
    assert isinstance(got, list)
    np.testing.assert_array_equal(got, [x, x])


def test_any_number_of_threads_may_call():
    f = at.OnnxModel(model([node("Relu", ["x"])], {"x": ("n",)}))
    wrong = []

    def call(n: int) -> None:
        for _ in range(10):
            x = floats(n % 3 + 1, seed=n)
            if not np.array_equal(f(x)[0], np.maximum(x, 0)):
                wrong.append(n)

    threads = [threading.Thread(target=call, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []
    assert f.specialisations == 3


def test_inputs_may_be_named_and_strided():
    f = at.OnnxModel(model([node("Sub", ["a", "b"])], {"a": (2, 3), "b": (2, 3)}))
    a, b = floats(3, 2).T, floats(2, 3)
    np.testing.assert_array_equal(f(b=b, a=a)[0], a - b)


def test_compiled_code_knows_the_model_and_its_inputs_by_name():
    m = model([node("Gather", ["x", "places"])], {"x": (2, 3), "places": (1,)}, types={"places": INT64})
    with pytest.raises(ArgumentError, match=r"g: argument 'places' holds .* from -2 to 1; places\[0\] is 7"):
        at.OnnxModel(m)(floats(2, 3), np.array([7]))


@pytest.mark.parametrize(
    ("args", "named", "said"),
    [
        ((), {}, "g needs its input 'x'"),
        ((1, 2), {}, "g takes x; 2 were given"),
        ((), {"z": 1}, "g has no input 'z'. Did you|g has no input 'z'. Known: x"),
        ((np.zeros((2, 3)),), {}, r"g: got float64\[2, 3\] for its input x: float32\[n, 3\]"),
        ((np.zeros((2, 4), np.float32),), {}, r"g: got float32\[2, 4\] for its input x: float32\[n, 3\]"),
        ((None,), {}, r"g needs its input x: float32\[n, 3\]; it got None"),
        (([[1.0, 2.0], [3.0]],), {}, r"g: no array for its input x: float32\[n, 3\]: .*inhomogeneous"),
        ((np.zeros((2, 3), np.float32),), {"x": 1}, "g got its input 'x' twice: by place and by name"),
    ],
)
def test_arguments_that_do_not_fit(args, named, said):
    f = at.OnnxModel(model([node("Relu", ["x"])], {"x": ("n", 3)}))
    with pytest.raises(ArgumentError, match=said):
        f(*args, **named)
