"""P8: x = 3, y = 2, z = x - y, loss = square(z); loss.backward() leaves 2 in x.grad."""

from autotensor import imperative as torch

x = torch.tensor(3.0, requires_grad=True)
y = torch.tensor(2.0, requires_grad=True)
z = x - y
loss = torch.square(z)
loss.backward()
print("z =", z, " loss =", loss)
print("x.grad =", x.grad, " y.grad =", y.grad)
assert (float(x.grad), float(y.grad)) == (2.0, -2.0)
