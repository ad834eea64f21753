"""P11: Python's `if` on a value in the imperative style; `where` as the static alternative."""

import numpy as np

import autotensor.flow as tf
from autotensor import imperative as torch

for start in (-1.0, 1.0):
    v1 = torch.tensor(start)
    v2 = torch.exp(v1)
    v3 = v2 * 2 if v2.numpy() > 1 else v2 * 0.5
    print(f"imperative, v1 = {start}: v2 = {float(v2):.6f}, v3 = {float(v3):.6f}")

    s1 = tf.placeholder(tf.float32, [])
    s2 = tf.exp(s1)
    s3 = tf.where(s2 > 1.0, s2 * 2, s2 * 0.5)
    static = tf.Session().run(s3, {s1: start})
    print(f"static:                             v3 = {static:.6f}")
    assert np.array_equal(v3.numpy(), static), "both styles give the same bits"
    np.testing.assert_allclose(static, np.exp(start) * (2 if start > 0 else 0.5), rtol=1e-6)

try:
    bool(s2 > 1.0)
except Exception as error:
    print("static, with Python's if:", error)
