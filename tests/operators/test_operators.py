"""Every operator × every sample case: its tensor expression, evaluated, equals its NumPy reference."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from operator_tools import CASES, assert_close, build, reduction_length

from autotensor.base.dtype import dtype_of
from autotensor.operators import OPERATORS, Case, Kind, Operator, TensorType
from autotensor.te import placeholder
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate
from autotensor.te.workload import Workload


def run(op: Operator, arrays: tuple[np.ndarray, ...], attrs: Any) -> np.ndarray:
    inputs, y = build(op, arrays, attrs)
    dag = ComputeDAG.of([*inputs, y])
    found = evaluate(dag, {f"x{n}": a for n, a in enumerate(arrays)})
    return found[dag.buffer_of(y).name]


@pytest.mark.parametrize(("name", "number"), CASES, ids=[f"{name}-{n}" for name, n in CASES])
def test_compute_equals_reference(name: str, number: int) -> None:
    op = OPERATORS.get(name)
    case = op.cases[number]
    arrays = case.arrays(np.random.default_rng(number))
    wanted = np.asarray(op.reference(*arrays, **case.attrs))
    _, y = build(op, arrays, case.attrs)
    assert_close(run(op, arrays, case.attrs), wanted, reduction_length(y))


@pytest.mark.parametrize("name", OPERATORS.names())
def test_types_come_from_types(name: str) -> None:
    """`types` gives the shapes and types of `reference` from shapes alone, with attributes that went through
    JSON."""
    op = OPERATORS.get(name)
    for case in op.cases:
        arrays = case.arrays(np.random.default_rng(0))
        attrs = json.loads(json.dumps(dict(case.attrs)))
        types = op.types(tuple(TensorType.of(a.shape, dtype_of(a.dtype)) for a in arrays), attrs)
        wanted = np.asarray(op.reference(*arrays, **case.attrs))
        assert [(t.shape, t.dtype.numpy) for t in types] == [(wanted.shape, wanted.dtype)]


@pytest.mark.parametrize("name", OPERATORS.names())
def test_workload_text_is_complete(name: str) -> None:
    """A computation that is read from text gives the same, as in a worker process."""
    op = OPERATORS.get(name)
    for case in op.cases[:3]:
        inputs, y = build(op, case.arrays(np.random.default_rng(0)), case.attrs)
        workload = Workload.of(ComputeDAG.of([*inputs, y]))
        assert Workload.from_text(workload.text).text == workload.text


@pytest.mark.parametrize("name", OPERATORS.names())
def test_record_is_complete(name: str) -> None:
    op = OPERATORS.get(name)
    assert len(op.cases) >= 2
    assert all(c < max(len(case.shapes) for case in op.cases) for c in op.constants)


# -- edges ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "worst"), [("argmax", -np.inf), ("argmin", np.inf)])
def test_argmax_of_equal_elements_is_the_first(name: str, worst: float) -> None:
    op = OPERATORS.get(name)
    for value in (0.0, worst):
        x = np.full((2, 5), value, np.float32)
        np.testing.assert_array_equal(run(op, (x,), {"axis": 1}), [0, 0])


def test_round_goes_to_even() -> None:
    x = np.array([-1.5, -0.5, 0.5, 1.5, 2.5], np.float32)
    np.testing.assert_array_equal(run(OPERATORS.get("round"), (x,), {}), [-2, 0, 0, 2, 2])


def test_power_of_integers_is_exact() -> None:
    x, n = np.array([3, 5], np.int64), np.array([31, 21], np.int64)
    np.testing.assert_array_equal(run(OPERATORS.get("power"), (x, n), {}), x**n)


def test_mean_of_integers_is_float32() -> None:
    y = run(OPERATORS.get("mean"), (np.array([1, 2], np.int32),), {})
    assert y.dtype == np.float32
    assert y == 1.5


def test_max_pool_ignores_its_padding() -> None:
    x = np.full((1, 1, 3, 3), -5, np.float32)
    y = run(OPERATORS.get("max_pool2d"), (x,), {"kernel": 3, "padding": 1, "stride": 2})
    np.testing.assert_array_equal(y, np.full((1, 1, 2, 2), -5))


def test_the_position_of_nan_is_that_of_the_largest() -> None:
    op = OPERATORS.get("max_positions")
    x = np.array([[[1, np.nan, 3, 2, np.nan, np.nan, -np.inf, -np.inf]]], np.float32)
    for found in (run(op, (x,), {"kernel": 2, "stride": 2}), op.reference(x, kernel=2, stride=2)):
        np.testing.assert_array_equal(found, [[[1, 2, 4, 6]]])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
@pytest.mark.parametrize(("largest", "wanted"), [(True, [2, 4, 1, 5, 3]), (False, [0, 3, 5, 1, 2])])
def test_nan_is_greatest_among_sorted_elements(dtype: str, largest: bool, wanted: list[int]) -> None:
    op = OPERATORS.get("top_positions")
    x = np.array([0, 3, np.nan, 1, np.nan, 2], np.float32).astype(dtype_of(dtype).numpy)
    for found in (run(op, (x,), {"count": 5, "largest": largest}), op.reference(x, 5, largest=largest)):
        np.testing.assert_array_equal(found, wanted)


def test_concat_of_a_tensor_with_itself() -> None:
    x = placeholder((2, 3), name="x")
    y = OPERATORS.get("concat").compute(x, x, axis=1)
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = evaluate(ComputeDAG.of([x, y]), {"x": a})
    np.testing.assert_array_equal(found["concat"], np.concatenate([a, a], 1))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", [n for n in OPERATORS.names() if n != "requantize"])  # bytes in float32
def test_floats_keep_their_width(name: str, dtype: str) -> None:
    op = OPERATORS.get(name)
    for case in op.cases:
        arrays = case.arrays(np.random.default_rng(0))
        types = [TensorType.of(a.shape, dtype_of(a.dtype)) for a in arrays]
        wider = [TensorType.of(t.shape, dtype) if str(t.dtype) == "float32" else t for t in types]
        found = [str(t.dtype) for t in op.types(tuple(wider), case.attrs)]
        plain = [str(t.dtype) for t in op.types(tuple(types), case.attrs)]
        if wider != types:
            assert found == [dtype if t == "float32" else t for t in plain], case.attrs


# -- the form of convolutions, on which schedules are built --------------------------------------------------


def stages(name: str, case: Case) -> dict[str, Any]:
    op = OPERATORS.get(name)
    inputs, y = build(op, case.arrays(np.random.default_rng(0)), case.attrs)
    return {s.name: s for s in ComputeDAG.of([*inputs, y]).stages}


def names(axes: Any) -> list[str]:
    return [a.name for a in axes]


def test_conv2d_nhwc_form() -> None:
    found = stages("conv2d", Case(((1, 8, 8, 4), (6, 4, 3, 3), (6,)), {"padding": 1, "layout": "NHWC"}))
    assert list(found) == ["pad", "conv", "bias"]
    conv = found["conv"]
    assert names(conv.axes) == ["n", "h", "w", "c"]
    assert names(conv.reduce_axes) == ["kh", "kw", "ci"]
    assert str(conv.bodies[0]) == "pad[n][h+kh][w+kw][ci] * x1[c][ci][kh][kw]"


def test_conv2d_nchw_reduces_channels_first() -> None:
    conv = stages("conv2d", Case(((1, 4, 8, 8), (6, 4, 3, 3)), {"stride": 2}))["conv"]
    assert names(conv.axes) == ["n", "c", "h", "w"]
    assert names(conv.reduce_axes) == ["ci", "kh", "kw"]
    assert str(conv.bodies[0]) == "x0[n][ci][h*2+kh][w*2+kw] * x1[c][ci][kh][kw]"


def test_one_by_one_convolution_sums_over_channels_only() -> None:
    found = stages("conv2d", Case(((1, 8, 8, 4), (6, 4, 1, 1)), {"layout": "NHWC"}))
    assert list(found) == ["conv"]
    assert str(found["conv"].bodies[0]) == "x0[n][h][w][ci] * x1[c][ci][0][0]"


def test_depthwise_has_no_ci() -> None:
    conv = stages("conv2d", Case(((1, 8, 8, 4), (4, 1, 3, 3)), {"groups": 4, "layout": "NHWC"}))["conv"]
    assert names(conv.reduce_axes) == ["kh", "kw"]
    assert str(conv.bodies[0]) == "x0[n][h+kh][w+kw][c] * x1[c][0][kh][kw]"


def test_depthwise_one_by_one_reduces_nothing() -> None:
    conv = stages("conv2d", Case(((1, 4, 4, 3), (3, 1, 1, 1)), {"groups": 3, "layout": "NHWC"}))["conv"]
    assert conv.combiner is None


def test_transposed_convolution_multiplies_no_zeros() -> None:
    """4x4 kernel, stride 2: every output element takes 2 × 2 × Cin products."""
    found = stages("conv2d_transpose", Case(((1, 3, 5, 5), (3, 2, 4, 4)), {"stride": 2, "padding": 1}))
    assert [a.extent for a in found["conv"].reduce_axes] == [3, 2, 2]


def test_reshape_keeps_axes_that_stay() -> None:
    view = stages("reshape", Case(((2, 3, 4, 5),), {"shape": (2, 12, 5)}))["reshape"]
    assert str(view.bodies[0]) == "x0[i0][i1//4][i1%4][i2]"


def test_batch_norm_prepares_its_constants() -> None:
    x = placeholder((1, 3, 3, 5), name="x")
    given = [placeholder((5,), name=n, constant=True) for n in ("gamma", "beta", "mean", "var")]
    dag = ComputeDAG.of([OPERATORS.get("batch_norm").compute(x, *given, axis=-1)])
    assert dag.constant_stages() == {"scale", "shift"}


def test_kinds() -> None:
    kinds = {k: {n for n, op in OPERATORS.items() if op.kind is k} for k in Kind}
    assert kinds[Kind.VIEW] == {
        "reshape", "flatten", "squeeze", "unsqueeze", "stop_gradient", "recomputed"
    }  # fmt: skip
    anchors = {"conv1d", "conv2d", "conv3d", "conv2d_transpose", "dense", "matmul", "batch_matmul"}
    assert anchors <= kinds[Kind.ANCHOR]
    assert {"softmax", "layer_norm", "max_pool2d", "sum"} <= kinds[Kind.REDUCTION]
    assert {"relu", "add", "batch_norm"} <= kinds[Kind.ELEMENTWISE]
    assert {"pad", "concat", "slice", "transpose", "broadcast_to"} <= kinds[Kind.INJECTIVE]


@pytest.mark.parametrize("name", [name for name, op in OPERATORS.items() if op.infer is not None])
def test_types_that_are_inferred_are_those_of_the_computation(name):
    op = OPERATORS.get(name)
    for case in op.cases:
        kinds = case.dtypes or ("float32",) * len(case.shapes)
        types = tuple(TensorType.of(s, t) for s, t in zip(case.shapes, kinds, strict=True))
        tensors = [placeholder(t.shape, t.dtype) for t in types]
        made = op.compute(*tensors, **case.attrs)
        assert op.types(types, case.attrs) == (TensorType(made.shape, made.dtype),)
