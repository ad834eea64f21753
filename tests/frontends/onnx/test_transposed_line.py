"""ConvTranspose of one axis: the operator that skips the zeros between elements, as from_torch uses it."""

from __future__ import annotations

import numpy as np
import pytest
from making import floats, model, node

import autotensor as at
from autotensor.graph.evaluate import evaluate


def by_hand(x, w, stride, before, after, extra, groups):
    """Every element adds its multiple of the kernel."""
    n, channels, length = x.shape
    each, outputs = channels // groups, w.shape[1]
    whole = np.zeros((n, groups * outputs, (length - 1) * stride + w.shape[2] + extra))
    for c in range(channels):
        g = c // each
        for t in range(length):
            part = x[:, c, t, None, None] * w[c]
            whole[:, g * outputs : (g + 1) * outputs, t * stride : t * stride + w.shape[2]] += part
    return whole[:, :, before : whole.shape[2] - after]


@pytest.mark.parametrize(
    ("stride", "pads", "extra", "groups", "kernel"),
    [(1, (0, 0), 0, 1, 3), (2, (1, 1), 1, 1, 4), (3, (2, 0), 0, 2, 5), (4, (0, 3), 2, 1, 2)],
)
def test_of_one_axis(stride, pads, extra, groups, kernel):
    x, w, b = floats(2, 4, 7), floats(4, 3, kernel, seed=1), floats(3 * groups, seed=2)
    attrs = {"strides": [stride], "pads": pads, "output_padding": [extra], "group": groups}
    m = model([node("ConvTranspose", ["x", "w", "b"], **attrs)], {"x": x.shape}, weights={"w": w, "b": b})
    graph = at.from_onnx(m)
    wanted = by_hand(x, w, stride, *pads, extra, groups) + b[:, None]
    np.testing.assert_allclose(evaluate(graph, x)[0], wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(at.compile_model(graph)(x), wanted, rtol=1e-4, atol=1e-5)
    assert (graph.count("conv2d_transpose"), graph.count("spread")) == (1, 0)
