"""P10: v1 = [1, 2, 3]; v2 = exp(v1); v3 = v2 + 1; v4 = v2 * v3; print(v3), in the middle."""

import numpy as np

from autotensor import imperative as torch

v1 = torch.tensor([1, 2, 3])
v2 = torch.exp(v1)
v3 = v2 + 1
v4 = v2 * v3
print("v3 =", v3)
print("v4 =", v4)
np.testing.assert_allclose(v4.numpy(), [10.107338, 61.987206, 423.514330], rtol=1e-6)
