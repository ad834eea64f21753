"""Operators with nonsensical or huge attributes; each is one node, and a kind in `KINDS`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hostile import HUGE, IMAGE, KINDS, LARGEST, X, file
from making import floats, model, node


def op(
    name: str,
    kind: str,
    operands: Sequence[Any],
    inputs: Any = X,
    outputs: Sequence[str] = ("y",),
    opset: int = 18,
    **attrs: Any,
) -> None:
    """One node; arrays among its operands are weights."""
    names = [o if isinstance(o, str) else f"w{n}" for n, o in enumerate(operands)]
    weights = {n: np.asarray(o) for n, o in zip(names, operands, strict=True) if not isinstance(o, str)}
    file(
        name, lambda: model([node(kind, names, outputs, **attrs)], inputs, outputs[:1], weights, opset=opset)
    )


ONE = np.float32(1)
op("Concat along no axis", "Concat", ["x", "x"])
op("Expand to 1e12", "Expand", ["x", [HUGE, 2, 3]])
op("Expand to 2^64", "Expand", ["x", [1 << 32, 1 << 32, 2, 3]])
op("Expand to less than nothing", "Expand", ["x", [-5, 2, 3]])
op("Expand of 2 GB of a constant", "Expand", [ONE, [1 << 29]])
op("Tile by 1e12", "Tile", ["x", [HUGE, 1]])
op("Tile by -1", "Tile", ["x", [-1, 1]])
op("Tile by three of two axes", "Tile", ["x", [1, 1, 1]])
op("ConstantOfShape of 1e12", "ConstantOfShape", [[HUGE]])
op("ConstantOfShape of 2^63", "ConstantOfShape", [[1 << 21] * 3])
op("ConstantOfShape of 2 GB", "ConstantOfShape", [[1 << 29]])
op("ConstantOfShape below zero", "ConstantOfShape", [[-2]])
op("Range of 1e12", "Range", [np.int64(0), np.int64(HUGE), np.int64(1)])
op("Range of 2^31 floats", "Range", [np.float32(0), np.float32(2**31), ONE])
op("Range by zero", "Range", [np.int64(0), np.int64(9), np.int64(0)])
op("Range by NaN", "Range", [np.float32(0), np.float32(9), np.float32("nan")])
op("Range to infinity", "Range", [np.float32(0), np.float32("inf"), ONE])
op("Reshape to other sizes", "Reshape", ["x", [7, 7]])
op("Reshape with two unknowns", "Reshape", ["x", [-1, -1]])
op("Reshape below -1", "Reshape", ["x", [-2, 3]])
op("Reshape to 1e12", "Reshape", ["x", [HUGE]])
op("Reshape by floats", "Reshape", ["x", np.float32([6])])
op("Reshape of an axis that is not there", "Reshape", ["x", [2, 3, 0]])
op("Pad by 1e12", "Pad", ["x", [0, 0, 0, HUGE]])
op("Pad by the largest number", "Pad", ["x", [LARGEST] * 4])
op("Pad by the smallest number", "Pad", ["x", [-LARGEST] * 4])
op("Pad of three numbers", "Pad", ["x", [1, 1, 1]])
op("Pad by nonsense", "Pad", ["x", [1] * 4], mode="mirror")
op("Resize by 1e9", "Resize", ["x", "", np.float32([1e9, 1e9])])
op("Resize by NaN", "Resize", ["x", "", np.float32([np.nan, 1])])
op("Resize by infinity", "Resize", ["x", "", np.float32([np.inf, 1])])
op("Resize by less than zero", "Resize", ["x", "", np.float32([-1, 1])])
op("Resize by zero", "Resize", ["x", "", np.float32([0, 1])])
op("Resize to 1e12", "Resize", ["x", "", "", [HUGE, 3]])
op("Resize to less than nothing", "Resize", ["x", "", "", [-2, 3]])
op("Resize by nothing", "Resize", ["x"])
op("Upsample by 1e9", "Upsample", ["x", np.float32([1e9, 1])], opset=9)
op("OneHot of 1e12", "OneHot", ["x", np.int64(HUGE), np.float32([0, 1])])
op("OneHot of 2^30", "OneHot", ["x", np.int64(1 << 30), np.float32([0, 1])])
op("OneHot of -3", "OneHot", ["x", np.int64(-3), np.float32([0, 1])])
op("Transpose by a wrong order", "Transpose", ["x"], perm=[0, 0])
op("Transpose of an axis too many", "Transpose", ["x"], perm=[0, 1, 2])
op("Transpose by huge axes", "Transpose", ["x"], perm=[LARGEST, 0])
op("Concat along axis 2^62", "Concat", ["x", "x"], axis=1 << 62)
op("Concat of other shapes", "Concat", ["x", floats(3, 3)], axis=1)
op("Slice by step 0", "Slice", ["x", [0], [2], [0], [0]])
op("Slice of an axis twice", "Slice", ["x", [0, 0], [2, 2], [0, 0]])
op("Slice of axis 7", "Slice", ["x", [0], [2], [7]])
op("Slice by two starts and one end", "Slice", ["x", [0, 0], [2]])
op("Gather behind the end", "Gather", ["x", np.int64([5])])
op("Gather by floats", "Gather", ["x", np.float32([0])])
op("Gather along axis 9", "Gather", ["x", np.int64([0])], axis=9)
op("Split into a negative part", "Split", ["x", [-1, 4]], outputs=("y", "z"), axis=1)
op("Split into 1e12", "Split", ["x"], outputs=("y",), num_outputs=HUGE)
op("Split into other sizes", "Split", ["x", [5, 5]], outputs=("y", "z"))
op("Squeeze of a wide axis", "Squeeze", ["x", [0]])
op("Unsqueeze twice at one place", "Unsqueeze", ["x", [0, 0]])
op("Unsqueeze at 2^62", "Unsqueeze", ["x", [1 << 62]])
op("Flatten at 2^62", "Flatten", ["x"], axis=1 << 62)
op("Softmax along axis 99", "Softmax", ["x"], axis=99)
op("ReduceSum along axis 99", "ReduceSum", ["x", [99]])
op("ArgMax along axis -99", "ArgMax", ["x"], axis=-99)
op("CumSum along axis 5", "CumSum", ["x", np.int64(5)])
op("TopK of 1e12", "TopK", ["x", np.int64([HUGE])], outputs=("y", "i"))
op("TopK of -1", "TopK", ["x", np.int64([-1])], outputs=("y", "i"))
op("Cast to 99", "Cast", ["x"], to=99)
op("Cast to strings", "Cast", ["x"], to=8)
op("Add of other shapes", "Add", ["x", floats(5)])
op("Add of other types", "Add", ["x", np.int64([1, 2, 3])])
op("MatMul of other sizes", "MatMul", ["x", floats(4, 4)])
op("Gemm of three axes", "Gemm", ["x", floats(1, 3, 4)])
op("Einsum of nonsense", "Einsum", ["x"], equation="ij,->(k")
op("Einsum of other ranks", "Einsum", ["x", "x"], equation="ijk,jk->i")
op("Where of other types", "Where", ["x", "x", "x"])
op("Not of floats", "Not", ["x"])
op("EyeLike of 40 axes", "EyeLike", ["x"], inputs={"x": (1,) * 40})
op("HannWindow of 1e12", "HannWindow", [np.int64(HUGE)])
op(
    "MelWeightMatrix of 1e12",
    "MelWeightMatrix",
    [np.int64(HUGE), np.int64(HUGE), np.int64(8000), ONE, ONE * 9],
)
op("STFT by steps of 0", "STFT", ["x", np.int64(0), "", np.int64(4)], inputs={"x": (1, 16, 1)})
op("DFT of 1e12", "DFT", ["x", np.int64(HUGE)], inputs={"x": (1, 16, 1)})
op("RandomNormal", "RandomNormal", [], shape=[HUGE])
op("StringNormalizer", "StringNormalizer", ["x"])
op("Constant of strings", "Constant", [], value_string="abc")
op("Constant of everything", "Constant", [], value_int=3, value_float=2.0)
op("DepthToSpace by 0", "DepthToSpace", ["x"], inputs=IMAGE, blocksize=0)
op("DepthToSpace by 2^40", "DepthToSpace", ["x"], inputs=IMAGE, blocksize=1 << 40)
op("SpaceToDepth by -2", "SpaceToDepth", ["x"], inputs=IMAGE, blocksize=-2)
W33 = floats(5, 4, 3, 3)
op("Conv with strides of 0", "Conv", ["x", W33], inputs=IMAGE, strides=[0, 0])
op("Conv with strides below 0", "Conv", ["x", W33], inputs=IMAGE, strides=[-1, 1])
op("Conv with pads of 1e12", "Conv", ["x", W33], inputs=IMAGE, pads=[HUGE] * 4)
op("Conv with pads of 2^63", "Conv", ["x", W33], inputs=IMAGE, pads=[LARGEST] * 4)
op("Conv with dilations of 2^62", "Conv", ["x", W33], inputs=IMAGE, dilations=[1 << 62] * 2)
op("Conv in 0 groups", "Conv", ["x", W33], inputs=IMAGE, group=0)
op("Conv in 3 groups", "Conv", ["x", W33], inputs=IMAGE, group=3)
op("Conv in 2^62 groups", "Conv", ["x", W33], inputs=IMAGE, group=1 << 62)
op("Conv with another kernel", "Conv", ["x", W33], inputs=IMAGE, kernel_shape=[5, 5])
op("Conv with auto_pad of nonsense", "Conv", ["x", W33], inputs=IMAGE, auto_pad="ROUND")
op("Conv larger than the image", "Conv", ["x", floats(5, 4, 9, 9)], inputs=IMAGE)
op("Conv of other channels", "Conv", ["x", floats(5, 3, 3, 3)], inputs=IMAGE)
op("Conv with a bias of other size", "Conv", ["x", W33, floats(7)], inputs=IMAGE)
op(
    "ConvTranspose with strides of 1e9",
    "ConvTranspose",
    ["x", floats(4, 5, 3, 3)],
    inputs=IMAGE,
    strides=[10**9] * 2,
)
op(
    "ConvTranspose to 1e12",
    "ConvTranspose",
    ["x", floats(4, 5, 3, 3)],
    inputs=IMAGE,
    output_shape=[HUGE, HUGE],
)
op(
    "ConvTranspose of pads that leave nothing",
    "ConvTranspose",
    ["x", floats(4, 5, 3, 3)],
    inputs=IMAGE,
    pads=[99] * 4,
)
op("MaxPool of 1e9", "MaxPool", ["x"], inputs=IMAGE, kernel_shape=[10**9] * 2)
op("MaxPool of 0", "MaxPool", ["x"], inputs=IMAGE, kernel_shape=[0, 0])
op("MaxPool with pads of 1e12", "MaxPool", ["x"], inputs=IMAGE, kernel_shape=[2, 2], pads=[HUGE] * 4)
op("AveragePool of three axes", "AveragePool", ["x"], inputs=IMAGE, kernel_shape=[2, 2, 2])
op("AveragePool without a kernel", "AveragePool", ["x"], inputs=IMAGE)
op("BatchNormalization of other channels", "BatchNormalization", ["x", *[floats(3)] * 4], inputs=IMAGE)
op("LayerNormalization along axis 9", "LayerNormalization", ["x", floats(3)], axis=9)
op(
    "GroupNormalization in 3 groups",
    "GroupNormalization",
    ["x", floats(3), floats(3)],
    inputs=IMAGE,
    num_groups=3,
)
op(
    "GroupNormalization in 0 groups",
    "GroupNormalization",
    ["x", floats(4), floats(4)],
    inputs=IMAGE,
    num_groups=0,
)
op("LRN of size 0", "LRN", ["x"], inputs=IMAGE, size=0)
op(
    "LSTM of 1e12",
    "LSTM",
    ["x", floats(1, 16, 2), floats(1, 16, 4)],
    inputs={"x": (3, 1, 2)},
    hidden_size=HUGE,
)
op(
    "LSTM in no direction",
    "LSTM",
    ["x", floats(1, 16, 2), floats(1, 16, 4)],
    inputs={"x": (3, 1, 2)},
    hidden_size=4,
    direction="up",
)
op(
    "GRU of other sizes",
    "GRU",
    ["x", floats(1, 16, 2), floats(1, 16, 4)],
    inputs={"x": (3, 1, 2)},
    hidden_size=4,
)
op(
    "LSTM with nonsense for activation",
    "LSTM",
    ["x", floats(1, 16, 2), floats(1, 16, 4)],
    inputs={"x": (3, 1, 2)},
    hidden_size=4,
    activations=["Boom"] * 3,
)
op("ScatterND outside", "ScatterND", ["x", np.int64([[9]]), floats(1, 3)])
op("GatherND of too many axes", "GatherND", ["x", np.int64([[0, 0, 0]])])
op("QuantizeLinear by nothing", "QuantizeLinear", ["x"])
op(
    "Attention of heads that do not divide",
    "Attention",
    ["x"] * 3,
    inputs={"x": (1, 4, 10)},
    opset=23,
    q_num_heads=3,
    kv_num_heads=3,
)
op("Trilu of one axis", "Trilu", ["x", np.int64(0)], inputs={"x": (3,)})
op("SequenceAt behind the end", "SequenceAt", ["x", np.int64(3)])


def none(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


CELL = [none(2, 1, 3), none(1, 16, 3), none(1, 16, 4)]
op("GridSample of other batches", "GridSample", [none(1, 3, 8, 8), none(2, 4, 4, 2)], opset=20)
op("GridSample by nonsense", "GridSample", [none(1, 3, 8, 8), none(1, 4, 4, 2)], opset=20, mode="mirror")
op("AffineGrid to 1e12", "AffineGrid", [none(1, 2, 3), [1, 3, HUGE, 4]], opset=20)
op(
    "RoiAlign to less than nothing",
    "RoiAlign",
    [none(1, 3, 8, 8), none(1, 4), np.zeros(1, np.int64)],
    output_height=-2,
    output_width=3,
)
op(
    "RoiAlign of another image",
    "RoiAlign",
    [none(1, 3, 8, 8), np.full((1, 4), np.nan, np.float32), np.full(1, 7, np.int64)],
    output_height=2,
    output_width=3,
)
op(
    "DeformConv in 0 groups",
    "DeformConv",
    [none(1, 3, 8, 8), none(4, 3, 3, 3), none(1, 18, 6, 6)],
    opset=19,
    offset_group=0,
)
op("Col2Im of blocks 0", "Col2Im", [none(1, 4, 4), [5, 5], [0, 2]])
op("Col2Im by strides of 0", "Col2Im", [none(1, 4, 16), [5, 5], [2, 2]], strides=[0, 1])
op("Col2Im to 1e12", "Col2Im", [none(1, 4, 16), [HUGE, 5], [2, 2]])
op("LpPool of power -1", "LpPool", [none(1, 3, 8, 8)], kernel_shape=[2, 2], p=-1)
op("GlobalLpPool of power 0", "GlobalLpPool", [none(1, 3, 8, 8)], p=0)
op(
    "MaxUnpool by 1e9",
    "MaxUnpool",
    [none(1, 3, 8, 8), np.zeros((1, 3, 8, 8), np.int64)],
    kernel_shape=[1_000_000_000, 2],
    strides=[1_000_000_000, 2],
)
op("STFT of frames of 1e9", "STFT", [none(1, 8, 1), np.int64(2), "", np.int64(1_000_000_000)])
op(
    "MelWeightMatrix at no rate",
    "MelWeightMatrix",
    [np.int64(8), np.int64(16), np.int64(0), np.float32(0), np.float32(4000)],
)
op(
    "MelWeightMatrix from NaN",
    "MelWeightMatrix",
    [np.int64(8), np.int64(16), np.int64(8000), np.float32(np.nan), np.float32(4000)],
)
op(
    "MelWeightMatrix to infinity",
    "MelWeightMatrix",
    [np.int64(8), np.int64(16), np.int64(8000), np.float32(0), np.float32(np.inf)],
)
op("ScatterElements outside", "ScatterElements", ["x", np.full((1, 1), 99, np.int64), none(1, 1)])
op("GatherND outside", "GatherND", ["x", np.full((1, 2), 77, np.int64)])
op(
    "ReverseSequence of -9 elements",
    "ReverseSequence",
    ["x", np.array([-9, 0, 1])],
    time_axis=0,
    batch_axis=1,
)
op("ReverseSequence of too few lines", "ReverseSequence", ["x", np.array([1])], time_axis=0, batch_axis=1)
op("ReverseSequence along axis 5", "ReverseSequence", ["x", np.array([1, 1])], time_axis=5, batch_axis=1)
op("ReverseSequence of one axis twice", "ReverseSequence", ["x", np.array([1, 1])], time_axis=0, batch_axis=0)
op("Compress behind the end", "Compress", ["x", np.ones(9, bool)], axis=0)
op("Compress by a matrix", "Compress", ["x", np.ones((2, 2), bool)], axis=0)
op("Unique along axis 7", "Unique", ["x"], axis=7)
op("NonMaxSuppression of vectors", "NonMaxSuppression", ["x", none(1, 1, 2)])
op(
    "NonMaxSuppression of a third kind of boxes",
    "NonMaxSuppression",
    [none(1, 2, 4), none(1, 1, 2), np.int64(3)],
    center_point_box=3,
)
op("NonMaxSuppression of other boxes", "NonMaxSuppression", [none(1, 5, 4), none(1, 1, 2), np.int64(3)])
op("Det of no square", "Det", ["x"])
op(
    "DequantizeLinear in blocks of -2",
    "DequantizeLinear",
    [np.zeros((2, 3), np.uint8), none(2, 3)],
    axis=1,
    block_size=-2,
    opset=21,
)
op("BitShift upwards", "BitShift", [np.zeros(3, np.uint8), np.zeros(3, np.uint8)], direction="UP")
op(
    "Resize of no region",
    "Resize",
    ["x", "", np.float32([2, 2])],
    coordinate_transformation_mode="tf_crop_and_resize",
)
op("Einsum to a new letter", "Einsum", ["x"], equation="ij->k")
op("Clip by a vector", "Clip", ["x", np.float32([0, 1, 2])])
op("Mod of floats", "Mod", ["x", ONE])
op("LSTM in layout 7", "LSTM", CELL, hidden_size=4, layout=7)
op("LSTM of 99 steps of 2", "LSTM", [*CELL, "", np.array([99], np.int32)], hidden_size=4)
op("LSTM of -9 steps", "LSTM", [*CELL, "", np.array([-9], np.int32)], hidden_size=4)

__all__ = ["KINDS"]
