"""From ONNX nodes to graphs: names, shapes, folding, functions, and what is said when it cannot be done."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from making import floats, model, node
from onnx import TensorProto, helper, numpy_helper

import autotensor as at
from autotensor.base.errors import InputError
from autotensor.frontends.onnx import NeedsValue, Unsupported
from autotensor.frontends.onnx.errors import Malformed
from autotensor.graph.evaluate import evaluate


def run(m, *arrays, **kwargs):
    """By the operators' references: what the graph means."""
    return evaluate(at.from_onnx(m, **kwargs), *arrays)


# -- graphs ----------------------------------------------------------------------------------------------


def test_a_graph_has_the_models_names():
    m = model(
        [node("Conv", ["image", "w"], pads=[1, 1, 1, 1])],
        {"image": (1, 3, 8, 8)},
        weights={"w": floats(4, 3, 3, 3)},
    )
    graph = at.from_onnx(m)
    assert graph.input_names == ("image",)
    assert graph.output_names == ("y",)
    assert graph.outputs[0].shape == (1, 4, 8, 8)
    assert [n.op_name for n in graph.applies] == ["conv2d"]


def test_symbolic_dimensions_are_bound_by_name_or_by_shape():
    m = model([node("Relu", ["x"])], {"x": ("batch", 3)})
    for shapes in ({"batch": 7}, {"x": (7, 3)}):
        assert at.from_onnx(m, shapes=shapes).outputs[0].shape == (7, 3)


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({}, r"input x: float32\[batch, 3\] leaves 'batch' open. Give it: shapes=\{'batch': 1\}"),
        ({"batch": 1}, r"leaves 'n', 'm' open. Give it: shapes=\{'n': 1, 'm': 1\}"),
        ({"x": (2, 4)}, r"shapes: \(2, 4\) does not fit the input x: float32\[batch, 3\]"),
        ({"btach": 1}, "the model has no input and no dimension 'btach'. Did you mean 'batch'"),
        ({"batch": "two"}, "shapes: 'batch' is 'two', which is neither a size nor a shape. Write"),
        ({"batch": 1.5}, r"shapes: 'batch' is 1\.5, which is neither a size"),
        ({"batch": -1}, "shapes: 'batch' is -1, which is neither a size"),
        ({"x": "2x3"}, "shapes: 'x' is '2x3', which is neither a size nor a shape"),
        ({"x": (None, 3)}, r"shapes: 'x' is \(None, 3\), which is neither a size"),
        ((2, 3), "shapes is a tuple, not a dictionary. Write"),
    ],
)
def test_shapes_that_do_not_fit(shapes, said):
    with pytest.raises(InputError, match=said):
        at.from_onnx(model([node("Relu", ["x"])], {"x": ("batch", 3), "z": ("n", "m")}), shapes=shapes)


def test_sizes_may_be_of_numpy():
    m = model([node("Relu", ["x"])], {"x": ("batch", 3)})
    for shapes in ({"batch": np.int64(7)}, {"x": np.array([7, 3])}):
        assert at.from_onnx(m, shapes=shapes).outputs[0].shape == (7, 3)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1], "values is a list, not a dictionary of inputs by name"),
        ({"x": ["a"]}, r"values: no array for the input x: float32\[batch, 3\]: could not convert"),
    ],
)
def test_values_that_are_none(values, said):
    with pytest.raises(InputError, match=said):
        at.from_onnx(model([node("Relu", ["x"])], {"x": ("batch", 3)}), values=values)


def test_a_shape_bound_twice_must_agree():
    m = model([node("Add", ["a", "b"])], {"a": ("n",), "b": ("n",)})
    with pytest.raises(InputError, match="does not fit"):
        at.from_onnx(m, shapes={"a": (3,), "b": (4,)})


def test_shape_arithmetic_leaves_nothing_in_the_graph():
    """The way exporters write x.flatten(1)."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Unsqueeze", ["n", "axes"], ["n1"]),
        node("Concat", ["n1", "rest"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"]),
    ]
    weights = {"zero": np.int64(0), "axes": np.array([0]), "rest": np.array([-1])}
    graph = at.from_onnx(model(nodes, {"x": ("n", 3, 5)}, weights=weights), shapes={"n": 2})
    assert [n.op_name for n in graph.applies] == ["reshape"]
    assert graph.outputs[0].shape == (2, 15)


def test_an_input_that_decides_a_shape_can_be_given_a_value():
    m = model(
        [node("Reshape", ["x", "shape"])], {"x": (6,), "shape": (2,)}, types={"shape": onnx.TensorProto.INT64}
    )
    with pytest.raises(
        NeedsValue,
        match=r"'the_Reshape' \(Reshape, opset 18\) needs numbers .* 'shape'. Give those with values",
    ):
        at.from_onnx(m)
    graph = at.from_onnx(m, values={"shape": [2, 3]})
    assert graph.input_names == ("x",)
    assert graph.outputs[0].shape == (2, 3)


def test_outputs_that_are_inputs_or_one_another():
    m = model([node("Relu", ["x"], ["y"])], {"x": (3,)}, outputs=["x", "y"])
    x = floats(3)
    again, y = run(m, x)
    np.testing.assert_array_equal(again, x)
    np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_a_function_of_the_model_is_inlined_with_its_attributes():
    body = onnx.helper.make_node("LeakyRelu", ["a"], ["b"])
    named = onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    body.attribute.append(named)
    function = onnx.helper.make_function(
        "own", "Leak", ["a"], ["b"], [body], [onnx.helper.make_opsetid("", 18)], ["slope"]
    )
    m = model(
        [node("Leak", ["x"], domain="own", slope=0.5)], {"x": (3,)}, functions=[function], domains=["own"]
    )
    np.testing.assert_allclose(run(m, np.array([-2, 0, 2], np.float32))[0], [-1, 0, 2])


def test_an_operator_defined_by_others_is_imported_by_its_definition():
    m = model([node("MeanVarianceNormalization", ["x"])], {"x": (2, 3, 4, 5)})
    x = floats(2, 3, 4, 5)
    y = run(m, x)[0]
    np.testing.assert_allclose(y.mean((0, 2, 3)), 0, atol=1e-5)
    m = model([node("CenterCropPad", ["x", "shape"])], {"x": (5,)}, weights={"shape": np.array([3])})
    np.testing.assert_array_equal(run(m, np.arange(5, dtype=np.float32))[0], [1, 2, 3])


def test_an_unused_result_costs_nothing():
    m = model([node("MaxPool", ["x"], ["y", "at"], kernel_shape=[2], strides=[2])], {"x": (1, 1, 6)})
    assert [n.op_name for n in at.from_onnx(m).applies] == ["pool"]


# -- opsets ----------------------------------------------------------------------------------------------


def test_softmax_before_opset_13_takes_the_axes_behind_as_one():
    x = floats(2, 3, 4)
    old = run(model([node("Softmax", ["x"])], {"x": (2, 3, 4)}, opset=11), x)[0]
    new = run(model([node("Softmax", ["x"])], {"x": (2, 3, 4)}, opset=13), x)[0]
    np.testing.assert_allclose(old.sum((1, 2)), 1, rtol=1e-5)
    np.testing.assert_allclose(new.sum(2), 1, rtol=1e-5)


@pytest.mark.parametrize("opset", [9, 18])
def test_axes_are_attributes_first_and_operands_later(opset):
    if opset == 9:
        m = model([node("Unsqueeze", ["x"], axes=[0])], {"x": (3,)}, opset=9)
    else:
        m = model([node("Unsqueeze", ["x", "axes"])], {"x": (3,)}, weights={"axes": np.array([0])})
    assert at.from_onnx(m).outputs[0].shape == (1, 3)


def test_operators_that_meant_something_else_are_refused():
    m = model([node("Relu", ["x"])], {"x": (3,)}, opset=5)
    with pytest.raises(Unsupported, match=r"had another meaning before opset 6\. onnx\.version_converter"):
        at.from_onnx(m)
    assert at.from_onnx(model([node("Softmax", ["x"])], {"x": (3, 4)}, opset=5)).count("softmax") == 1


@pytest.mark.parametrize("opset", [0, 999])
def test_opsets_that_nobody_knows_are_refused(opset):
    m = model([node("Relu", ["x"])], {"x": (3,)}, opset=opset)
    with pytest.raises(Unsupported, match=f"uses opset {opset}; 1 to [0-9]+ are read"):
        at.from_onnx(m)


# -- order ---------------------------------------------------------------------------------------------


def test_nodes_that_stand_behind_their_readers_are_sorted():
    """As converters to float16 leave them: casts at the end, of inputs, of results, and inside branches."""
    inner = [node("Neg", ["late"], ["o"]), node("Add", ["b", "x"], ["late"])]
    made = helper.make_tensor_value_info("o", TensorProto.FLOAT, [2])
    branch = helper.make_graph(inner, "branch", [], [made])
    nodes = [
        node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch),
        node("Mul", ["a", "a"], ["b"]),
        node("Exp", ["x"], ["a"]),
        node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True))),
    ]
    m = model(nodes, {"x": [2]})
    before = m.SerializeToString()
    x = floats(2)
    (found,) = evaluate(at.from_onnx(m), x)
    np.testing.assert_allclose(found, -(np.exp(x) ** 2 + x), rtol=1e-6)
    assert m.SerializeToString() == before  # the caller's model is left as it is


def test_nodes_that_read_in_a_circle_are_refused():
    nodes = [node("Add", ["x", "b"], ["a"]), node("Neg", ["a"], ["b"]), node("Relu", ["a"])]
    with pytest.raises(Malformed, match=r"\(Add\) reads 'b', which no node before it computes"):
        at.from_onnx(model(nodes, {"x": [2]}))


# -- messages --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "error", "said"),
    [
        ([node("ImageDecoder", ["x"])], Unsupported, r"'the_ImageDecoder' \(ImageDecoder, opset 20\) is not"),
        ([node("Nonsense", ["x"])], Unsupported, r"'the_Nonsense' \(Nonsense, opset 20\) is not"),
        ([node("Rela", ["x"])], Unsupported, "is not supported. Did you mean 'Relu'"),
        ([node("Softmax", ["x"], axis="last")], Malformed, "'axis' is STRING; the standard says INT"),
        ([node("Relu", ["x"]), node("Neg", ["x"])], Malformed, r"\(Neg, .*its result 'y' is made already"),
        ([node("Relu", ["x"], ["x"])], Malformed, "its result 'x' is made already"),
        ([node("Relu", ["z"])], Malformed, "node 'the_Relu' .* reads 'z', which no node before it computes"),
        ([node("Relu", ["x"], ["a"])], Malformed, "output 'y' is not computed by any node"),
        ([node("Add", ["x", ""])], Malformed, r"'the_Add' \(Add, opset 20\): operand 1 is missing"),
        ([node("Transpose", ["x"], perm=[0, 0])], Malformed, r"'the_Transpose' .*axes=\(0, 0\)"),
        ([node("Concat", ["x"], axis=7)], Malformed, "axis 7 does not exist; there are 2"),
        ([node("MaxPool", ["x"], kernel_shape=[2])], Malformed, r"x has shape \(2, 3\)"),
        ([node("Relu", ["x"], alpha=1.0)], Malformed, "it has no attribute 'alpha' in this opset"),
        (
            [node("Relu", ["x", "x"])],
            Malformed,
            "it has 2 operands and 1 results; at most 1 and 1 are allowed",
        ),
        (
            [node("MatMul", ["x", "d"])],
            Malformed,
            "operands 0 and 1 are float32 and float64; they must be of one",
        ),
        ([node("Concat", ["x", "d"], axis=0)], Malformed, "operands 0 and 1 are float32 and float64"),
        ([node("Cast", ["x"], to=17)], Unsupported, "element type FLOAT8E4M3FN is not supported"),
        ([node("Dropout", ["x", "r", "t"])], Unsupported, "training_mode is on"),
    ],
)
def test_messages_name_the_node(nodes, error, said):
    m = model(
        nodes,
        {"x": (2, 3)},
        opset=20,
        weights={"r": np.float32(0.5), "t": np.array(True), "d": np.zeros((3, 3))},
    )
    with pytest.raises(error, match=said):
        at.from_onnx(m)


def test_classical_machine_learning_is_refused():
    m = model([node("Scaler", ["x"], domain="ai.onnx.ml")], {"x": (3,)}, domains=["ai.onnx.ml"])
    with pytest.raises(
        Unsupported,
        match=r"\(ai.onnx.ml.Scaler, opset 1\) is not supported: operators such as trees.*onnxruntime",
    ):
        at.from_onnx(m)


def test_a_result_that_is_too_large_is_refused():
    m = model([node("Expand", ["x", "shape"])], {"x": (1,)}, weights={"shape": np.array([1 << 40])})
    with pytest.raises(Malformed, match="is larger than"):
        at.from_onnx(m)


def test_operators_of_others_are_refused_with_a_way_out():
    m = model([node("CropAndResize", ["x"], domain="com.microsoft")], {"x": (3,)}, domains=["com.microsoft"])
    with pytest.raises(
        Unsupported, match=r"\(com.microsoft.CropAndResize, opset 1\) is not .* optimiser writes"
    ):
        at.from_onnx(m)


def test_files_laid_out_for_one_processor_are_refused_with_a_way_out():
    domain = "com.microsoft.nchwc"
    m = model([node("Conv", ["x"], domain=domain)], {"x": (3,)}, domains=[domain])
    with pytest.raises(
        Unsupported, match=r"optimised the model for one processor\. .* at most at ORT_ENABLE_EXTENDED"
    ):
        at.from_onnx(m)


def test_functions_that_call_themselves_are_refused():
    inner = onnx.helper.make_node("Again", ["a"], ["b"], domain="own")
    function = onnx.helper.make_function(
        "own", "Again", ["a"], ["b"], [inner], [onnx.helper.make_opsetid("own", 1)]
    )
    m = model([node("Again", ["x"], domain="own")], {"x": (3,)}, functions=[function], domains=["own"])
    with pytest.raises(Malformed, match="more than 24 levels deep"):
        at.from_onnx(m)


def test_types_that_the_standard_does_not_allow():
    m = model([node("Where", ["x", "x", "x"])], {"x": (3,)})
    with pytest.raises(
        Malformed, match=r"\(Where, opset 18\): operand 0 is float32; in this opset it may be bool"
    ):
        at.from_onnx(m)
