"""A PyTorch model in two ways: through torch.compile, and as a graph, which is saved and needs no torch.

    python examples/11_torch_compile.py [--trials 64] [--width 64]

Needs torch: pip install 'autotensor[torch]'.
"""

import argparse
from statistics import median

import autotensor as at

try:
    import torch
    from torch import nn
except ImportError:
    raise SystemExit("This example needs the package torch: pip install 'autotensor[torch]'.") from None

options = argparse.ArgumentParser()
options.add_argument("--trials", type=int, default=64)
options.add_argument("--width", type=int, default=64)
asked = options.parse_args()


class Block(nn.Module):
    """A residual block, then a Python `if` on a value, so torch.compile makes two parts."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))) + x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        return y * 0.5 if y.max() > 10 else y


class Body(Block):
    forward = Block.body


torch.manual_seed(0)
x = torch.randn(1, asked.width, 28, 28)
block = Block(asked.width).eval()
with torch.no_grad():
    expected = block(x)
    fast = torch.compile(block, backend="autotensor", options={"trials": asked.trials, "quiet": True})
    assert torch.allclose(fast(x), expected, atol=1e-4)
    print("torch.compile: equal to eager mode")

body = Body(asked.width).eval()
body.load_state_dict(block.state_dict())
graph = at.from_torch(body, (x,), name="block")
print(f"graph:\n{graph}")
model = at.compile_model(graph)  # with the schedules that were found above
with torch.no_grad():
    assert torch.allclose(torch.from_dlpack(model(x)), body(x), atol=1e-4)
print(f"schedule of the last kernel: {at.plan_model(graph).tasks[-1]}")
print(f"time: {median(model.time([x])) * 1e6:.0f} us")
