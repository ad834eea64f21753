"""Every message for inputs that do not fit an operator."""

from __future__ import annotations

from typing import Any

import pytest

from autotensor.base.errors import InputError, TensorError
from autotensor.operators import OPERATORS, TensorType

Shapes = tuple[tuple[int, ...], ...]

MESSAGES: tuple[tuple[str, Shapes, dict[str, Any], str], ...] = (
    # convolutions
    (
        "conv2d",
        ((1, 8, 8, 3), (16, 4, 3, 3)),
        {"layout": "NHWC"},
        "conv2d: x of shape (1, 8, 8, 3) has 3 channels (NHWC) in 1 group(s), but w of shape "
        "(16, 4, 3, 3) takes 4 per group, expected 3. "
        "Weights are [Cout, Cin/groups, KH, KW] in every layout.",
    ),
    ("conv2d", ((8, 8, 3), (16, 3, 3, 3)), {}, "conv2d: x has shape (8, 8, 3), expected 4 axes (NCHW)."),
    (
        "conv2d",
        ((1, 3, 8, 8), (16, 27)),
        {},
        "conv2d: w has shape (16, 27), expected 4 axes [Cout, Cin/groups, KH, KW].",
    ),
    (
        "conv2d",
        ((1, 3, 8, 8), (16, 3, 3, 3), (3,)),
        {},
        "conv2d: bias has shape (3,), expected (16,).",
    ),
    (
        "conv2d",
        ((1, 3, 4, 4), (2, 3, 5, 5)),
        {},
        "conv2d: the kernel (5, 5) reaches over (5, 5) elements but the padded input has (4, 4). "
        "Add padding, or use a smaller kernel or dilation.",
    ),
    (
        "conv2d",
        ((1, 3, 4, 4), (2, 3, 3, 3)),
        {"groups": 2},
        "conv2d: groups=2 must divide both the 3 input channels of x (1, 3, 4, 4) (NCHW) and the 2 output "
        "channels of w (2, 3, 3, 3).",
    ),
    ("conv2d", ((1, 3, 4, 4), (2, 3, 3, 3)), {"groups": 0}, "conv2d: groups=0 must be an integer >= 1."),
    (
        "conv2d",
        ((1, 3, 4, 4), (2, 3, 3, 3)),
        {"layout": "CHWN"},
        "conv2d: layout 'CHWN' is unknown. Known: NCHW, NHWC.",
    ),
    (
        "conv2d",
        ((1, 3, 4, 4), (2, 3, 3, 3)),
        {"stride": 0},
        "conv2d: stride=0 must be an integer >= 1, or 2 of them.",
    ),
    (
        "conv2d",
        ((1, 3, 4, 4), (2, 3, 3, 3)),
        {"padding": (1, 2, 3)},
        "conv2d: padding=(1, 2, 3) must be an integer >= 0, 2 of them (one per axis), "
        "or 4 (all befores, then all afters).",
    ),
    (
        "conv2d_transpose",
        ((1, 3, 4, 4), (2, 3, 3, 3)),
        {},
        "conv2d_transpose: x of shape (1, 3, 4, 4) has 3 channels (NCHW) but w of shape (2, 3, 3, 3) takes "
        "2. Weights are [Cin, Cout/groups, KH, KW] in every layout.",
    ),
    (
        "conv2d_transpose",
        ((1, 3, 4, 4), (3, 2, 3, 3)),
        {"output_padding": 1},
        "conv2d_transpose: output_padding=1 must be smaller than stride=1.",
    ),
    (
        "conv2d_transpose",
        ((1, 3, 1, 1), (3, 2, 2, 2)),
        {"padding": 1},
        "conv2d_transpose: padding=1 leaves nothing: the output has extents (0, 0).",
    ),
    # products
    (
        "dense",
        ((7, 17), (17, 33)),
        {},
        "dense: x of shape (7, 17) and w of shape (17, 33) disagree on k (17 and 33). "
        "w is [n, k], as in torch's Linear.",
    ),
    ("dense", ((2, 7, 17), (33, 17)), {}, "dense: x has shape (2, 7, 17), expected 2 axes [m, k]."),
    ("dense", ((7, 17), (33, 17), (17,)), {}, "dense: bias has shape (17,), expected (33,)."),
    (
        "matmul",
        ((7, 17), (33, 7)),
        {"transpose_a": True},
        "matmul: a of shape (7, 17) (transposed) and b of shape (33, 7) disagree on k (7 and 33).",
    ),
    ("batch_matmul", ((2, 3, 4), (5, 4, 6)), {}, "batch_matmul: shapes (2,) and (5,) do not broadcast."),
    ("batch_matmul", ((3,), (3, 4)), {}, "batch_matmul: a has shape (3,), expected at least 2 axes."),
    # pools
    (
        "max_pool2d",
        ((1, 1, 4, 4),),
        {"kernel": 5},
        "max_pool2d: kernel=5 is larger than x of shape (1, 1, 4, 4) (NCHW) with padding=0.",
    ),
    (
        "avg_pool2d",
        ((1, 1, 4, 4),),
        {"kernel": 2, "padding": 2},
        "avg_pool2d: padding=2 must be smaller than kernel=2, or a window would lie outside x.",
    ),
    (
        "adaptive_avg_pool2d",
        ((1, 1, 7, 7),),
        {"output_size": 3},
        "adaptive_avg_pool2d: output_size=3 does not divide the extents (7, 7) of x (1, 1, 7, 7) (NCHW).",
    ),
    ("global_avg_pool2d", ((1, 4),), {}, "global_avg_pool2d: x has shape (1, 4), expected 4 axes (NCHW)."),
    # norms, reductions
    (
        "batch_norm",
        ((1, 3, 4, 4), (3,), (3,), (4,), (3,)),
        {},
        "batch_norm: mean has shape (4,), expected (3,) for x of shape (1, 3, 4, 4).",
    ),
    (
        "layer_norm",
        ((2, 5, 7), (7,), (7,)),
        {"axis": 1},
        "layer_norm: gamma has shape (7,), expected (5, 7) for x of shape (2, 5, 7).",
    ),
    (
        "group_norm",
        ((2, 5, 7), (5,), (5,)),
        {"groups": 2},
        "group_norm: groups=2 must divide the 5 channels of x (2, 5, 7).",
    ),
    ("group_norm", ((2, 5), (2,), (2,)), {"groups": 1, "axis": 0}, "group_norm: axis 0 is the batch;"),
    ("softmax", ((2, 5),), {"axis": 2}, "softmax: axis 2 does not exist; the input has 2 axes."),
    ("sum", ((2, 5),), {"axis": (0, -2)}, "sum: axis (0, -2) names one axis twice."),
    ("sum", ((2, 5),), {"axis": 0.5}, "sum: axis 0.5 is not an integer."),
    (
        "max",
        ((2, 0),),
        {"axis": 1},
        "max: x of shape (2, 0) has no elements along axis 1; max of nothing is undefined.",
    ),
    ("argmax", ((),), {}, "argmax: x is a scalar; it has no axis."),
    # elementwise
    (
        "add",
        ((2, 5), (4, 5)),
        {},
        "add: shapes (2, 5) and (4, 5) do not broadcast. Aligned at the right, extents must be equal or 1.",
    ),
    ("where", ((2,), (3,), ()), {}, "where: shapes (2,) and (3,) and () do not broadcast."),
    ("gelu", ((2,),), {"approximate": "fast"}, "gelu: approximate='fast' is unknown. Known: 'none', 'tanh'."),
    ("clip", ((2,),), {"min": 2, "max": 1}, "clip: min=2 is greater than max=1."),
    ("cast", ((2,),), {"dtype": "float8"}, "dtype 'float8' is not supported."),
    ("logical_and", ((2,), (2,)), {}, "logical_and: inputs are float32 and float32, expected bool."),
    ("logical_not", ((2,),), {}, "logical_not: x is float32, expected bool."),
    ("bias_add", ((2, 5), (2,)), {}, "bias_add: b has shape (2,), expected (5,) for axis -1 of x (2, 5)."),
    # shapes
    (
        "pad",
        ((2, 5),),
        {"pads": ((1, 1),)},
        "pad: pads=((1, 1),) must be one (before, after) for each of the 2 axes of x (2, 5).",
    ),
    ("pad", ((2,),), {"pads": ((-3, 0),)}, "pad: pads=((-3, 0),) cut more than there is of x (2,)."),
    ("pad", ((2,),), {"pads": ((1, 0),), "mode": "reflect"}, "pad: mode 'reflect' is not supported."),
    ("concat", ((2, 5), (2, 4)), {}, "concat: shapes (2, 5) and (2, 4) differ outside axis 0."),
    ("concat", ((2, 5), (2,)), {}, "concat: shapes (2, 5) and (2,) differ outside axis 0."),
    ("concat", (), {}, "concat: there is nothing to concatenate."),
    (
        "slice",
        ((4,),),
        {"begin": (0, 0), "end": (1, 1)},
        "slice: begin=(0, 0), end=(1, 1), stride=(), axes=() must",
    ),
    ("slice", ((4,),), {"begin": (0,), "end": (1,), "stride": (0,)}, "slice: stride=(0,) holds a zero."),
    (
        "transpose",
        ((2, 5),),
        {"axes": (0, 0)},
        "transpose: axes=(0, 0) must name each of the 2 axes of x (2, 5) once.",
    ),
    ("broadcast_to", ((2, 5),), {"shape": (5,)}, "broadcast_to: x of shape (2, 5) does not fit into (5,)."),
    ("broadcast_to", ((2,),), {"shape": (5,)}, "broadcast_to: shapes (2,) and (5,) do not broadcast."),
    ("tile", ((2, 5),), {"reps": (2,)}, "tile: reps=(2,) must be an integer >= 1, or 2 of them."),
    ("take", ((2, 5), (2,)), {}, "take: indices are float32, expected integers."),
    (
        "upsample_nearest",
        ((2, 5),),
        {"scale": 2},
        "upsample_nearest: x has shape (2, 5), expected 4 axes (NCHW).",
    ),
    (
        "reshape",
        ((2, 5),),
        {"shape": (3, 4)},
        "reshape: x of shape (2, 5) has 10 elements, shape (3, 4) has 12.",
    ),
    (
        "reshape",
        ((2, 5),),
        {"shape": (3, -1)},
        "reshape: x of shape (2, 5) has 10 elements, which do not fill (3, -1).",
    ),
    (
        "reshape",
        ((2, 5),),
        {"shape": (-1, -1)},
        "reshape: shape (-1, -1) must be non-negative integers and at most one",
    ),
    # attention
    ("attention", ((3, 4, 5),) * 3, {}, "attention: q has shape (3, 4, 5), expected 4 axes (BHND)."),
    (
        "attention",
        ((1, 2, 5, 4), (1, 2, 7, 3), (1, 2, 7, 4)),
        {},
        "attention: q (1, 2, 5, 4), k (1, 2, 7, 3) and v (1, 2, 7, 4) (BHND) do not fit together. "
        "Batch and heads are the same for all; depth for q and k; tokens for k and v.",
    ),
    (
        "attention",
        ((1, 2, 5, 4),) * 3 + ((5, 4),),
        {},
        "attention: shapes (5, 4) and (1, 2, 5, 5) do not broadcast.",
    ),
    (
        "attention",
        ((1, 2, 5, 4),) * 3 + ((3, 1, 2, 5, 5),),
        {},
        "attention: mask of shape (3, 1, 2, 5, 5) does not broadcast to (1, 2, 5, 5) "
        "(batch, heads, queries, keys).",
    ),
    (
        "attention",
        ((1, 2, 5, 4),) * 3,
        {"layout": "NHBD"},
        "attention: layout 'NHBD' is unknown. Known: BHND, BNHD.",
    ),
    (
        "self_attention",
        ((1, 7, 2, 2, 4),),
        {},
        "self_attention: qkv has shape (1, 7, 2, 2, 4); its third axis is queries, keys, values.",
    ),
    (
        "cached_attention",
        ((1, 2, 4, 8), (1, 2, 3, 8), (1, 2, 3, 8), (1, 2, 9, 8), (1, 2, 9, 8), (1,)),
        {},
        "cached_attention: q (1, 2, 4, 8), k (1, 2, 3, 8), v (1, 2, 3, 8), keys (1, 2, 9, 8) and values "
        "(1, 2, 9, 8) do not fit together. Batch, groups and depth are the same for all; the rows of q are a "
        "multiple of the tokens.",
    ),
    (
        "cached_attention",
        ((1, 2, 1, 8),) * 3 + ((1, 2, 9, 8),) * 2 + ((1,),),
        {},
        "cached_attention: position is float32 of shape (1,), expected a whole number, [1].",
    ),
    (
        "rotary",
        ((2, 3, 8), (3, 4), (3, 8)),
        {},
        "rotary: sin has shape (3, 8), x (2, 3, 8); expected (3, 4).",
    ),
    ("squeeze", ((2, 1),), {"axes": (0,)}, "squeeze: axis 0 of x (2, 1) has extent 2, expected 1."),
    ("unsqueeze", ((2,),), {"axes": (3,)}, "unsqueeze: axis 3 does not exist; the input has 2 axes."),
)


@pytest.mark.parametrize(
    ("name", "shapes", "attrs", "message"), MESSAGES, ids=[f"{m[0]}-{n}" for n, m in enumerate(MESSAGES)]
)
def test_message(name: str, shapes: Shapes, attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(TensorError) as caught:
        OPERATORS.get(name).types(tuple(TensorType.of(s) for s in shapes), attrs)
    assert str(caught.value).startswith(message)


def test_attention_of_other_types() -> None:
    x, n = TensorType.of((1, 2, 5, 4)), TensorType.of((1, 2, 5, 4), "int32")
    with pytest.raises(TensorError, match=r"attention: k is int32, expected floats\."):
        OPERATORS.get("attention").types((x, n, x), {})
    mask = TensorType.of((5, 5), "int64")
    with pytest.raises(
        TensorError, match=r"attention: mask is int64, expected bool .*\. Cast it to bool first"
    ):
        OPERATORS.get("attention").types((x, x, x, mask), {})


def test_unknown_operator() -> None:
    with pytest.raises(InputError, match=r"operator 'conv2' is unknown\. Did you mean 'conv2d'\?"):
        OPERATORS.get("conv2")
