"""The sixty tasks on which the search is judged, and a way to draw some of them.

    TASKS["ffn"]()            the case: its computation for autotensor, torch, ONNX and NumPy
    workload("ffn")           autotensor's workload, as the search gets it
    chosen("conv,ffn", None)  names by family or by name;  chosen("", 7) draws twenty tasks by seed

Families: gemm 15, conv 20, depthwise 7, attention 5, rows 8, unknown 5. About half of the shapes occur in
well-known networks or benchmarks, the others nowhere. Weights are constants if they are weights in a network.
If an operator is followed by others in a network, these are part of the task.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from suite.attention import Attention
from suite.case import Case
from suite.conv import Conv
from suite.fused import Fused
from suite.matmul import Dense, Product
from suite.pools import Pool
from suite.row_operators import Rows
from suite.written_in_te import Diffusion, LogCoshPool, Pairs

from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload

Make = Callable[[], Case]
DRAWN = 20


def _product(name: str, m: int, n: int, k: int, batch: int = 0) -> Make:
    return partial(Product, name, m, n, k, batch)


def _dense(name: str, m: int, n: int, k: int, *tail: str) -> Make:
    return _followed(partial(Dense, name, m, n, k), tail)


def _conv(
    name: str,
    extent: int | tuple[int, ...],
    cin: int,
    cout: int,
    kernel: int,
    *tail: str,
    stride: int = 1,
    dilation: int = 1,
    groups: int = 1,
) -> Make:
    """A convolution, padded so that stride 1 keeps the extents. An `extent` that is not a tuple stands for
    two equal extents."""
    extents = extent if isinstance(extent, tuple) else (extent, extent)
    padding = dilation * (kernel // 2)
    make = partial(Conv, name, 1, extents, cin, cout, kernel, stride, padding, dilation, groups)
    return _followed(make, tail)


def _depthwise(name: str, extent: int, channels: int, kernel: int, stride: int = 1, *tail: str) -> Make:
    return _conv(name, extent, channels, channels, kernel, *tail, stride=stride, groups=channels)


def _upward(name: str, extent: int, cin: int, cout: int) -> Make:
    return partial(Conv, name, 1, (extent, extent), cin, cout, 4, 2, 1, transposed=True)


def _followed(head: Make, tail: tuple[str, ...]) -> Make:
    return (lambda: Fused(head(), tail)) if tail else head


FAMILIES: Mapping[str, Mapping[str, Make]] = MappingProxyType(
    {
        "gemm": {
            "square": _product("square", 512, 512, 512),
            "odd": _product("odd", 251, 387, 513),
            "prime": _product("prime", 127, 131, 1031),
            "tall": _product("tall", 4096, 32, 512),
            "deep": _product("deep", 48, 80, 12288),
            "batched": _product("batched", 128, 128, 64, batch=12),
            "bert_qkv": _dense("bert_qkv", 128, 2304, 768, "bias"),
            "ffn": _dense("ffn", 128, 3072, 768, "bias", "gelu"),
            "projection": _dense("projection", 128, 768, 3072, "bias", "add"),
            "vit": _dense("vit", 197, 576, 192, "bias"),
            "diffusion_qk": _dense("diffusion_qk", 77, 640, 768),
            "gpt_token": _dense("gpt_token", 1, 3072, 768, "bias", "gelu"),
            "gpt_batch": _dense("gpt_batch", 6, 2560, 1280, "bias"),
            "classifier": _dense("classifier", 16, 1000, 2048, "bias"),
            "recommender": _dense("recommender", 2048, 256, 479, "bias", "relu"),
        },
        "conv": {
            "expand": _conv("expand", 56, 64, 256, 1, "bias", "add", "relu"),
            "reduce": _conv("reduce", 14, 1024, 256, 1, "bias", "relu"),
            "narrow_1x1": _conv("narrow_1x1", 28, 192, 48, 1, "bias"),
            "squeeze": _conv("squeeze", 55, 96, 16, 1, "bias", "relu"),
            "shortcut": _conv("shortcut", 56, 256, 512, 1, "bias", stride=2),
            "layer1": _conv("layer1", 56, 64, 64, 3, "bias", "relu"),
            "layer2": _conv("layer2", 28, 128, 128, 3, "bias", "relu"),
            "layer3": _conv("layer3", 14, 256, 256, 3, "bias", "add", "relu"),
            "layer4": _conv("layer4", 7, 512, 512, 3, "bias", "relu"),
            "inception": _conv("inception", 35, 96, 96, 3, "bias", "relu"),
            "alexnet": _conv("alexnet", 13, 192, 384, 3, "bias", "relu"),
            "downward": _conv("downward", 56, 128, 128, 3, "bias", "relu", stride=2),
            "first_7x7": _conv("first_7x7", 224, 3, 64, 7, "bias", "relu", stride=2),
            "first_3x3": _conv("first_3x3", 192, 3, 24, 3, "bias", "relu6", stride=2),
            "grouped": _conv("grouped", 28, 256, 256, 3, "bias", "relu", groups=32),
            "four_groups": _conv("four_groups", 14, 256, 256, 3, groups=4),
            "dilated": _conv("dilated", 33, 160, 160, 3, "bias", "relu", dilation=2),
            "speech": _conv("speech", (750,), 80, 384, 3, "bias", "gelu"),
            "video": _conv("video", (8, 28, 28), 32, 64, 3, "bias", "relu"),
            "upward": _upward("upward", 16, 128, 64),
        },
        "depthwise": {
            "dw_112": _depthwise("dw_112", 112, 32, 3, 1, "bias", "relu6"),
            "dw_112s2": _depthwise("dw_112s2", 112, 96, 3, 2, "bias", "relu6"),
            "dw_56": _depthwise("dw_56", 56, 144, 3, 1, "bias", "relu6"),
            "dw_28k5": _depthwise("dw_28k5", 28, 120, 5, 1, "bias", "relu"),
            "dw_14": _depthwise("dw_14", 14, 576, 3, 1, "bias", "relu6"),
            "dw_14k5": _depthwise("dw_14k5", 14, 672, 5, 2, "bias"),
            "dw_7k7": _depthwise("dw_7k7", 7, 768, 7),
        },
        "attention": {
            "bert_heads": partial(Attention, "bert_heads", 12, 128, 128, 64),
            "vit_heads": partial(Attention, "vit_heads", 3, 197, 197, 64),
            "causal": partial(Attention, "causal", 12, 256, 256, 64, causal=True),
            "cross": partial(Attention, "cross", 8, 576, 77, 40),
            "one_query": partial(Attention, "one_query", 12, 1, 1024, 64),
        },
        "rows": {
            "softmax": partial(Rows, "softmax", "softmax", (512, 1000)),
            "softmax_heads": partial(Rows, "softmax_heads", "softmax", (2364, 197)),
            "layer_norm": partial(Rows, "layer_norm", "layer_norm", (128, 768)),
            "layer_norm_192": partial(Rows, "layer_norm_192", "layer_norm", (788, 192)),
            "sum": partial(Rows, "sum", "sum", (1000, 1280)),
            "norm": partial(Rows, "norm", "norm2", (3, 480, 640)),
            "max_pool": partial(Pool, "max_pool", 112, 64, 3, 2, 1),
            "mean": partial(Pool, "mean", 7, 1280),
        },
        "unknown": {
            "log_cosh_pool": partial(LogCoshPool, "log_cosh_pool", 28, 64, 64),
            "distances": partial(Pairs, "distances", "distance", 192, 256, 64),
            "tropical": partial(Pairs, "tropical", "tropical", 160, 224, 96),
            "gauss": partial(Pairs, "gauss", "kernel", 256, 200, 48),
            "diffusion": partial(Diffusion, "diffusion", 600, 800),
        },
    }
)
TASKS: Mapping[str, Make] = MappingProxyType({n: m for tasks in FAMILIES.values() for n, m in tasks.items()})
# one task of each of five families, for quick tests
SAMPLE = ("odd", "dw_56", "softmax", "layer2", "log_cosh_pool")


def workload(name: str) -> Workload:
    """The task's workload, as the search gets it."""
    return Workload.of(ComputeDAG.of(TASKS[name]().tensors()), name)


def family(name: str) -> str:
    """
    >>> family("ffn")
    'gemm'
    """
    return next(f for f, tasks in FAMILIES.items() if name in tasks)


def chosen(text: str, seed: int | None, count: int = DRAWN) -> tuple[str, ...]:
    """The tasks that `text` names (families or tasks, by commas; "": all), and with a seed `count` of them.

    Raises SystemExit for an unknown name.
    """
    words: Sequence[str] = [w for w in text.split(",") if w] or list(FAMILIES)
    if wrong := [w for w in words if w not in FAMILIES and w not in TASKS]:
        known = f"{', '.join(FAMILIES)}; {', '.join(TASKS)}"
        raise SystemExit(f"no task or family is called {wrong[0]!r}. Known: {known}.")
    names = list(dict.fromkeys(n for w in words for n in FAMILIES.get(w, (w,))))
    if seed is None or count >= len(names):
        return tuple(names)
    drawn = set(random.Random(seed).sample(names, count))
    return tuple(n for n in names if n in drawn)
