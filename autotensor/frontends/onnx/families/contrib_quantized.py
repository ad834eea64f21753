"""Quantised operators of com.microsoft that onnxruntime.quantization writes.

QLinearAdd: real(a) + real(b) ─▶ quantised          likewise Mul, Concat, pools, activations, softmax, Gemm
MatMulIntegerToFloat, DynamicQuantizeMatMul         sums of integers, then floats
DynamicQuantizeLSTM, QAttention                     the same, inside a layer
QEmbedLayerNormalization                            floats from quantised tables

Each operator becomes its float operator between quantised tensors. The graph's rules then compute it in
integers. Source: onnxruntime, docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autotensor.frontends.onnx.families.contrib import attended, embedded, fused
from autotensor.frontends.onnx.families.elementwise import ACTIVATIONS
from autotensor.frontends.onnx.families.quantize import (
    checked,
    dynamic_range,
    in_rows,
    integer_product,
    on_axis,
    quantised,
    real,
)
from autotensor.frontends.onnx.families.recurrent import LSTM, recurrent
from autotensor.frontends.onnx.families.shape import joined
from autotensor.frontends.onnx.families.windows import pool
from autotensor.frontends.onnx.node_call import Call, Value
from autotensor.frontends.values import as_type, row
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode


def _real(c: Call, n: int) -> GraphNode:
    """The floats of operands n, n + 1 and n + 2: a tensor, its scale and its zero point."""
    return real(c, c[n], c[n + 1], c.get(n + 2), on_axis(c, 0, c[n].shape))


def _back(c: Call, y: GraphNode, n: int) -> GraphNode:
    """y, quantised with operands n and n + 1 as scale and zero point."""
    return quantised(c, y, c[n], c.get(n + 1), on_axis(c, 0, y.shape), c[0].dtype)


def _binary(compute: Callable[[GraphNode, GraphNode], GraphNode]) -> Callable[[Call], Value]:
    return lambda c: _back(c, compute(_real(c, 0), _real(c, 3)), 6)


fused("QLinearAdd", operands=8)(_binary(lambda a, b: a + b))
fused("QLinearMul", operands=8)(_binary(lambda a, b: a * b))


@fused("QLinearSigmoid", operands=5)
def qlinear_sigmoid(c: Call) -> Value:
    return _back(c, ops.sigmoid(_real(c, 0)), 3)


@fused("QLinearLeakyRelu", operands=5, attrs=("alpha",))
def qlinear_leaky_relu(c: Call) -> Value:
    return _back(c, ACTIVATIONS["LeakyRelu"](_real(c, 0), c.attr("alpha", 0.01)), 3)


@fused("QLinearSoftmax", operands=5, attrs=("axis", "opset"))
def qlinear_softmax(c: Call) -> Value:
    """The attribute `opset` is that of the replaced Softmax. Before opset 13, Softmax is over all axes from
    `axis` on."""
    x, axis = _real(c, 0), c.axis(-1)
    if c.whole("opset") >= 13:
        return _back(c, ops.softmax(x, axis=axis), 3)
    flat = ops.softmax(ops.reshape(x, shape=(*x.shape[:axis], -1)), axis=axis)
    return _back(c, ops.reshape(flat, shape=x.shape), 3)


@fused("QLinearConcat", operands=1 << 16, attrs=("axis",))
def qlinear_concat(c: Call) -> Value:
    """The result's scale and zero point come first, then three operands for each tensor."""
    if len(c.inputs) < 5 or len(c.inputs) % 3 != 2:
        raise c.malformed(f"it has {len(c.inputs)} operands; two, and three for each tensor, are expected.")
    parts = [_real(c, n) for n in range(2, len(c.inputs), 3)]
    y = joined(parts, c.axis(0, rank=parts[0].ndim))
    return quantised(c, y, c[0], c.get(1), on_axis(c, 0, y.shape), c[2].dtype)


# -- pools -----------------------------------------------------------------------------------------------


def _first(c: Call, x: GraphNode) -> GraphNode:
    """x with its channels as the first axis after the batch; with `channels_last` they are the last axis."""
    last = c.flag("channels_last")
    return ops.transpose(x, axes=(0, x.ndim - 1, *range(1, x.ndim - 1))) if last else x


def _as_given(c: Call, y: GraphNode) -> GraphNode:
    last = c.flag("channels_last")
    return ops.transpose(y, axes=(0, *range(2, y.ndim), 1)) if last else y


@fused("QLinearGlobalAveragePool", operands=5, attrs=("channels_last",))
def qlinear_global_average_pool(c: Call) -> Value:
    x = _first(c, _real(c, 0))
    return _back(c, _as_given(c, ops.mean(x, axis=tuple(range(2, x.ndim)), keepdims=True)), 3)


@fused(
    "QLinearAveragePool",
    operands=5,
    attrs=(
        *("auto_pad", "ceil_mode", "channels_last", "count_include_pad"),
        *("kernel_shape", "pads", "strides"),
    ),
)
def qlinear_average_pool(c: Call) -> Value:
    return _back(c, _as_given(c, pool(c, _first(c, _real(c, 0)), "average")), 3)


# -- products --------------------------------------------------------------------------------------------


@fused("QGemm", operands=9, attrs=("alpha", "transA", "transB"))
def qgemm(c: Call) -> Value:
    """alpha * A · B + C; C is int32, in steps of alpha * a_scale * b_scale. Without y_scale the result is in
    floats."""
    turned = c.flag("transB")
    a = _real(c, 0)
    b = real(c, c[3], c[4], c.get(5), on_axis(c, 0 if turned else 1, c[3].shape))
    y = ops.matmul(a, b, transpose_a=c.flag("transA"), transpose_b=turned)
    alpha = c.attr("alpha", 1.0)
    y = y if alpha == 1.0 else y * alpha
    if (bias := c.get(6)) is not None:
        steps = ops.reshape(c[1], shape=()) * (
            c[4] if c[4].shape == y.shape[1:] else ops.reshape(c[4], shape=())
        )
        y = y + ops.dequantize(bias, checked(c, steps if alpha == 1.0 else steps * alpha))
    return y if c.get(7) is None else quantised(c, y, c[7], c.get(8), on_axis(c, 1, y.shape), c[0].dtype)


@fused("MatMulIntegerToFloat", operands=7)
def matmul_integer_to_float(c: Call) -> Value:
    total = integer_product(c, c[0], c[1], c.get(4), c.get(5))
    return _scaled(c, total, c[2], c[3], c.get(6))


@fused("DynamicQuantizeMatMul", operands=5)
def dynamic_quantize_matmul(c: Call) -> Value:
    a, scale, zero = dynamic_range(c, c[0])
    return _scaled(c, integer_product(c, a, c[1], zero, c.get(3)), scale, c[2], c.get(4))


def _scaled(
    c: Call, total: GraphNode, a_scale: GraphNode, b_scale: GraphNode, bias: GraphNode | None
) -> GraphNode:
    """Sums of integers, scaled to floats."""
    left = in_rows(c, -2, total.shape)(checked(c, a_scale))
    right = in_rows(c, -1, total.shape)(checked(c, b_scale))
    y = as_type(total, "float32") * (left * right)
    return y if bias is None else y + bias


# -- parts of transformers -------------------------------------------------------------------------------


@fused(
    "QAttention",
    operands=9,
    results=2,
    attrs=(
        *("num_heads", "unidirectional", "scale", "mask_filter_value"),
        *("past_present_share_buffer", "do_rotary"),
    ),
)
def qattention(c: Call) -> Value:
    """Queries, keys and values are sums of integers. Attention then computes in floats."""

    def columns() -> GraphNode:
        return _scaled(c, integer_product(c, c[0], c[1], c.get(6), c.get(7)), c[3], c[4], None)

    return attended(c, columns, c.get(5), c.get(8))


@fused("QEmbedLayerNormalization", operands=18, results=2, attrs=("epsilon", "mask_index_type"))
def qembed_layer_norm(c: Call) -> Value:
    """Table n of the five has its scale as operand n + 6, and its zero point as operand n + 11."""

    def table(n: int) -> GraphNode | None:
        t = c.get(n)
        return None if t is None else real(c, t, c[n + 6], c.get(n + 11), on_axis(c, 0, t.shape))

    return embedded(c, [table(n) for n in range(2, 7)], c.get(7), None)[:2]


# -- recurrent layers ------------------------------------------------------------------------------------


def _rounded_product(c: Call, n: int, d: int, rows: GraphNode, bias: GraphNode | None) -> GraphNode:
    """The product of rows and the weights [input, columns] of direction d. The rows are quantised by the
    range of their values in this step."""
    x, scale, zero = dynamic_range(c, rows)
    w_scale, w_zero = (None if c.get(m) is None else row(c[m], 0, d) for m in (2 * n + 6, 2 * n + 7))
    if w_scale is None:
        raise c.malformed(f"the scale of operand {n} is missing.")
    return _scaled(c, integer_product(c, x, row(c[n], 0, d), zero, w_zero), scale, w_scale, bias)


fused(
    "DynamicQuantizeLSTM",
    operands=12,
    results=3,
    attrs=(
        *("activation_alpha", "activation_beta", "activations", "clip"),
        *("direction", "hidden_size", "input_forget"),
    ),
)(recurrent(replace(LSTM, product=_rounded_product, turned=True)))
