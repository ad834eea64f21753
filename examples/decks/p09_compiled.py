"""P9: the same program under @at.compile: traced once, then one native call."""

import numpy as np

import autotensor as at
from autotensor import imperative as torch


@at.compile
def program(x, y):
    z = x - y
    return torch.square(z)


x = torch.tensor(3.0, requires_grad=True)
y = torch.tensor(2.0, requires_grad=True)
for _ in range(3):
    x.grad = y.grad = None
    loss = program(x, y)
    loss.backward()
print("loss =", loss, " x.grad =", x.grad, " y.grad =", y.grad)
print("traces after three calls:", program.traces)
assert (float(x.grad), float(y.grad), program.traces) == (2.0, -2.0, 1)

array = np.arange(6, dtype=np.float32).reshape(2, 3)
print("of arrays:", program(array, array / 2).tolist(), " traces:", program.traces)
assert program.traces == 2
