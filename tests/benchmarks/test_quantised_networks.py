"""`quantised_networks.py` counts multiply-adds, and those of dot instructions."""

from __future__ import annotations

import numpy as np
from quantised_networks import shares

import autotensor as at
from autotensor.api.models import plan_model
from autotensor.graph.build import ops
from autotensor.graph.ir import Graph

F = np.float32


def test_products_of_bytes_are_by_dots_and_others_are_not() -> None:
    x = at.input((8, 64), "uint8", name="x")
    w = np.ones((32, 64), np.int8)
    y = ops.relu(ops.dense(ops.dequantize(x, F(0.1)), ops.dequantize(w, F(0.1))))
    y = ops.dense(y, np.ones((16, 32), F))
    plan = plan_model(Graph((x,), (y,), "m"), "llvm -mcpu=sapphirerapids -threads=1")
    found = list(shares(plan))
    assert [(total, by_dots) for _, total, by_dots in found] == [(8 * 64 * 32, 8 * 64 * 32), (8 * 32 * 16, 0)]
