"""P3: constants know their types: whole numbers and fractions, in both styles."""

import autotensor.flow as tf
from autotensor import imperative as torch

static = tf.constant([[1, 2], [3, 4]])
lazy = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
print("tf.constant([[1, 2], [3, 4]])         ──▶", static)
print("torch.tensor([[1., 2.], [3., 4.]])    ──▶", lazy.dtype, lazy.shape)
print(lazy)
assert str(static.spec) == "int32[2, 2]"
assert (str(lazy.dtype), lazy.shape) == ("float32", (2, 2))
assert tf.Session().run(static).tolist() == [[1, 2], [3, 4]]
