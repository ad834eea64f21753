"""Products with weights of 4 and 8 bits: com.microsoft's MatMulNBits.

Source: onnxruntime, docs/ContribOperators.md, "com.microsoft.MatMulNBits".
"""

from __future__ import annotations

from math import ceil, prod

import numpy as np

from autotensor.frontends.onnx.element_types import Array
from autotensor.frontends.onnx.families.contrib import fused
from autotensor.frontends.onnx.node_call import Call, Value
from autotensor.frontends.values import as_type
from autotensor.graph.build import constant, ops

ATTRS = ("K", "N", "bits", "block_size", "accuracy_level", "weight_prepacked")


@fused("MatMulNBits", operands=6, attrs=ATTRS)
def matmul_nbits(c: Call) -> Value:
    """The product of x […, K] and weights [N, blocks, bytes]. It is computed in float32, even if
    accuracy_level allows less."""
    x, depth, n, bits, size = c[0], c.whole("K"), c.whole("N"), c.whole("bits", 4), c.whole("block_size")
    if bits not in (4, 8):
        raise c.unsupported(f"weights of {bits} bits.", fix="Known: 4 and 8.")
    if c.get(4) is not None:
        raise c.unsupported("its operand g_idx is not supported.", fix="Export without reordered columns.")
    if c.whole("weight_prepacked", 0):
        raise c.unsupported("its weights are packed for one processor.", fix="Save the model before that.")
    if size < 16 or size & (size - 1):
        raise c.malformed(f"blocks of {size} elements; a block has 16, 32, 64, … of them.")
    if x.ndim == 0 or x.shape[-1] != depth:
        raise c.malformed(f"operand 0 of shape {x.shape} does not end in K = {depth}.")
    blocks = ceil(depth / size)
    length = size * bits // 8
    for at, what, expected in ((1, "weights", n * blocks * length), (2, "scales", n * blocks)):
        if prod(c[at].shape) != expected:
            raise c.malformed(f"its {what} have shape {c[at].shape}, expected {expected} elements.")
    weights = ops.reshape(c[1], shape=(n, blocks, length))
    scales = ops.reshape(as_type(c[2], "float32"), shape=(n, blocks))
    rows = ops.reshape(as_type(x, "float32"), shape=(prod(x.shape[:-1]), depth))
    zeros = [] if c.get(3) is None else [constant(_zeros(c, n, blocks, bits))]
    y = ops.dense_nbits(rows, weights, scales, *zeros, bits=bits)
    y = ops.reshape(y, shape=(*x.shape[:-1], n))
    bias = c.get(5)
    return as_type(y if bias is None else y + as_type(bias, "float32"), x.dtype)


def _zeros(c: Call, n: int, blocks: int, bits: int) -> Array:
    """Zero points [N, blocks]. They are floats, or whole numbers that are packed row by row, like the
    weights."""
    given = c.array(3)
    if given.dtype != np.uint8:
        if given.size != n * blocks:
            raise c.malformed(f"its zero points have shape {given.shape}, expected {n * blocks} elements.")
        return given.reshape(n, blocks).astype(np.float32)
    length = ceil(blocks * bits / 8)
    if given.size != n * length:
        raise c.malformed(f"its zero points have shape {given.shape}, expected {n * length} bytes.")
    packed = given.reshape(n, length)
    if bits == 8:
        return packed
    return np.stack((packed & 15, packed >> 4), axis=-1).reshape(n, -1)[:, :blocks]
