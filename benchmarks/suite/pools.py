"""Pooling of images: the largest of every window, and the mean of the whole image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from suite.case import Array, Case


@dataclass
class Pool(Case):
    """x: [1, channels, extent, extent]; kernel 0: the mean over the image, else the maximum of windows."""

    name: str
    extent: int
    channels: int
    kernel: int = 0
    stride: int = 1
    padding: int = 0

    channels_last = 2

    @property
    def output_shape(self) -> tuple[int, ...]:
        side = (self.extent + 2 * self.padding - self.kernel) // self.stride + 1 if self.kernel else 1
        return (1, self.channels, side, side)

    @property
    def flops(self) -> int:
        side = self.output_shape[-1]
        return self.channels * side * side * (self.kernel or self.extent) ** 2

    def make(self, rng: np.random.Generator) -> tuple[list[Array], dict[str, Array]]:
        shape = (1, self.channels, self.extent, self.extent)
        return [rng.standard_normal(shape, dtype=np.float32)], {}

    def compute(self, *tensors: Any) -> Any:
        import torch.nn.functional as F

        if self.kernel:
            return F.max_pool2d(*tensors, self.kernel, self.stride, self.padding)
        return F.adaptive_avg_pool2d(*tensors, 1)

    def nodes(self) -> list[Any]:
        from onnx import helper

        if not self.kernel:
            return [helper.make_node("GlobalAveragePool", ["in0"], ["out"])]
        return [
            helper.make_node(
                "MaxPool",
                ["in0"],
                ["out"],
                kernel_shape=[self.kernel] * 2,
                strides=[self.stride] * 2,
                pads=[self.padding] * 4,
            )
        ]

    def tensors(self) -> list[Any]:
        from autotensor import te
        from autotensor.operators import OPERATORS

        x = te.placeholder((1, self.extent, self.extent, self.channels), name="x")
        if not self.kernel:
            return [x, OPERATORS.get("global_avg_pool2d").compute(x, layout="NHWC")]
        windows = {"kernel": self.kernel, "stride": self.stride, "padding": self.padding, "layout": "NHWC"}
        return [x, OPERATORS.get("max_pool2d").compute(x, **windows)]

    def to_ours(self, array: Array) -> Array:
        return np.ascontiguousarray(np.moveaxis(array, 1, -1))

    def from_ours(self, array: Array) -> Array:
        return np.ascontiguousarray(np.moveaxis(array, -1, 1))


def pools() -> dict[str, Callable[[], Case]]:
    """The two pools of ResNet and the first pool of VGG, by name."""
    return {
        "maxpool_112x64": partial(Pool, "maxpool_112x64", 112, 64, 3, 2, 1),
        "maxpool_224x64": partial(Pool, "maxpool_224x64", 224, 64, 2, 2),
        "avgpool_7x2048": partial(Pool, "avgpool_7x2048", 7, 2048),
    }
