"""P14: LinearLayer and FullBasicModel, and relu fused into the kernel before it.

The slide passes the convolution's result directly to a linear layer with 128 inputs. The shapes do not fit
(26×26 images, 128 channels), and one slide passes t1 where another one passes t2. In this program, the image
is first averaged to one number for each channel, and relu's result is passed on.
"""

import numpy as np

import autotensor as at
from autotensor import imperative as torch
from autotensor.imperative import nn


class LinearLayer(nn.Module):
    def __init__(self, in_sz, out_sz):
        self.w = nn.Parameter(torch.randn(in_sz, out_sz, seed=1))
        self.b = nn.Parameter(torch.randn(out_sz, seed=2))

    def forward(self, activations):
        t = torch.mm(activations, self.w)
        return t + self.b


class FullBasicModel(nn.Module):
    def __init__(self):
        self.conv = nn.Conv2d(1, 128, 3, seed=3)
        self.fc = LinearLayer(128, 10)

    def forward(self, x):
        t1 = self.conv(x)
        t2 = t1.relu()
        t3 = self.fc(t2.mean(axis=(2, 3)))
        return torch.softmax(t3)


model = FullBasicModel()
images = np.random.default_rng(0).random((2, 1, 28, 28), dtype=np.float32)
shares = model(torch.tensor(images))
print("softmax:", shares.shape, "rows sum to", shares.numpy().sum(axis=1).tolist())
np.testing.assert_allclose(shares.numpy().sum(axis=1), 1, rtol=1e-5)

loss = -torch.log(shares)[0, 3]
loss.backward()
print("parameters:", ", ".join(f"{n} {p.shape}" for n, p in model.named_parameters()))
assert all(p.grad is not None and np.isfinite(p.grad.numpy()).all() for p in model.parameters())

# The slide says that PyTorch "cannot directly fuse relu and matmul". Here:
x, w, b = at.input((2, 128), name="x"), at.input((128, 10), name="w"), at.input((10,), name="b")
fused = at.Graph((x, w, b), (at.ops.relu(at.ops.matmul(x, w) + b),), "linear_relu").explain()
print(fused)
assert len(fused.groups) == 1
