"""Trains the small network for 8x8 digits that comes with autotensor, and writes its weights.

    python examples/train_small_cnn.py          ~ 20 s; needs torch and scikit-learn

Training uses 1437 of scikit-learn's 1797 digits. The printed accuracy is for the other 360 digits
(`small_cnn.split`).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from autotensor.models import small_cnn
from autotensor.models.weights import shapes_of

try:
    import torch
    from sklearn.datasets import load_digits
    from torch import nn
except ImportError as error:
    install = "pip install 'autotensor[torch]' scikit-learn"
    raise SystemExit(f"This example needs the package {error.name}: {install}.") from None

EPOCHS, BATCH, RATE, SEED = 60, 64, 3e-3, 0
REQUIRED = 0.97


def network() -> nn.ModuleDict:
    """The layers, with the names of `small_cnn`'s weights."""
    layers: dict[str, nn.Module] = {}
    for n, (depth, width) in enumerate(pairwise(small_cnn.CHANNELS), start=1):
        layers[f"conv{n}"] = nn.Conv2d(depth, width, 3, padding=1, bias=False)
        layers[f"bn{n}"] = nn.BatchNorm2d(width)
    layers["fc"] = nn.Linear(shapes_of(small_cnn.build)["fc.weight"][1], small_cnn.CLASSES)
    return nn.ModuleDict(layers)


def forward(net: nn.ModuleDict, x: torch.Tensor) -> torch.Tensor:
    """x: [batch, 1, 8, 8] ──▶ [batch, 10]"""
    for n in range(1, len(small_cnn.CHANNELS)):
        x = torch.relu(net[f"bn{n}"](net[f"conv{n}"](x)))
        x = torch.max_pool2d(x, 2) if n in small_cnn.POOLED else x
    return net["fc"](x.flatten(1))


def main() -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    digits = load_digits()
    x = torch.tensor((digits.images / 16).astype(np.float32)[:, None])  # [1797, 1, 8, 8] in [0, 1]
    y = torch.tensor(digits.target)
    train, test = (torch.tensor(part) for part in small_cnn.split(len(y)))
    net = network()
    optimiser = torch.optim.AdamW(net.parameters(), RATE, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS)
    for _ in range(EPOCHS):
        net.train()
        for rows in train[torch.randperm(len(train))].split(BATCH):
            optimiser.zero_grad()
            nn.functional.cross_entropy(forward(net, x[rows]), y[rows], label_smoothing=0.05).backward()
            optimiser.step()
        schedule.step()
    net.eval()
    with torch.no_grad():
        accuracy = (forward(net, x[test]).argmax(1) == y[test]).double().mean().item()
    print(f"accuracy on {len(test)} digits that were not trained on: {accuracy:.4f}")
    if accuracy < REQUIRED:
        raise SystemExit(f"that is below {REQUIRED}; the weights are not written.")
    wanted = shapes_of(small_cnn.build)
    state = {name: value.numpy() for name, value in net.state_dict().items() if name in wanted}
    small_cnn.DATA.parent.mkdir(exist_ok=True)
    np.savez(small_cnn.DATA, **state)
    print(f"{sum(v.size for v in state.values())} numbers written to {small_cnn.DATA}")


if __name__ == "__main__":
    main()
