"""Both programming styles on OpenCL: values as on the processor, and the same bits however a program is
cut."""

from __future__ import annotations

import numpy as np
import pytest

import autotensor.flow as tf
from autotensor import imperative as torch

pytestmark = pytest.mark.opencl


def test_flow() -> None:
    rng = np.random.default_rng(0)
    x = tf.placeholder(tf.float32, [4, 8])
    w = tf.constant(rng.standard_normal((8, 3)).astype(np.float32))
    product = tf.matmul(x, w)
    y = tf.nn.softmax(tf.nn.relu(product * 0.3) + 1.0)
    fed = {x: rng.standard_normal((4, 8)).astype(np.float32)}
    there, here = tf.Session("opencl"), tf.Session("cpu")
    assert there.target.kind == "opencl"
    np.testing.assert_allclose(there.run(y, fed), here.run(y, fed), rtol=1e-5, atol=1e-6)


def test_a_value_has_the_same_bits_alone_and_with_others() -> None:
    """x * y + z in one kernel, and with a product whose value was read before."""
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(64).astype(np.float32) for _ in range(2)]
    with torch.device("opencl"):
        x, y = (torch.tensor(a) for a in arrays)
        z = torch.tensor(-(arrays[0] * arrays[1]))
        fused = (x * y + z).numpy()
        product = x * y
        assert product.tolist()
        np.testing.assert_array_equal(fused, (product + z).numpy())
    np.testing.assert_array_equal(fused, np.zeros(64, np.float32))
