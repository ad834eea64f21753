"""P23: h = θ2ᵀ ReLU(θ1ᵀ X), cross entropy, mini-batch SGD with η/b: written in NumPy, and
compared with ours at every step."""

import numpy as np

from autotensor import imperative as torch
from autotensor.flow.datasets import get_mnist

mnist = get_mnist(flatten=True, onehot=True)
rng = np.random.default_rng(0)
theta1 = (rng.standard_normal((784, 32)) * 0.05).astype(np.float32)
theta2 = (rng.standard_normal((32, 10)) * 0.1).astype(np.float32)
rate, size, steps = 0.5, 50, 40


def by_hand(a, b, x, y):
    """One step; the gradients as the slide derives them."""
    hidden = np.maximum(x @ a, 0)
    scores = hidden @ b
    shares = np.exp(scores - scores.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    loss = -np.mean(np.log(shares[y == 1]))
    d_scores = shares - y
    d_hidden = (d_scores @ b.T) * (hidden > 0)
    return loss, a - rate / size * x.T @ d_hidden, b - rate / size * hidden.T @ d_scores


a, b = theta1.astype(np.float64), theta2.astype(np.float64)
ours1, ours2 = torch.tensor(theta1, requires_grad=True), torch.tensor(theta2, requires_grad=True)
for n in range(steps):
    x, y = mnist.train.next_batch(size)
    expected, a, b = by_hand(a, b, x.astype(np.float64), y)
    loss = torch.cross_entropy(torch.relu(torch.tensor(x) @ ours1) @ ours2, y)
    loss.backward()
    with torch.no_grad():
        for theta in (ours1, ours2):
            theta -= rate * theta.grad
            theta.grad = None
    assert abs(float(loss) - expected) < 1e-3, (n, float(loss), expected)
    if n % 10 == 0:
        print(f"step {n:2}: by hand {expected:.5f}, ours {float(loss):.5f}")
np.testing.assert_allclose(ours2.numpy(), b, rtol=1e-2, atol=1e-3)
