"""The advice for an object that from_torch does not take, or that torch cannot export."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import autotensor as at  # noqa: E402

pytestmark = pytest.mark.torch


class Decides(nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x


@pytest.mark.parametrize(
    ("module", "fix"),
    [
        (lambda: nn.Linear(4, 3).state_dict(), "load them into the module, module.load_state_dict(weights)"),
        (lambda: "net.pt2", "Read the file: torch.export.load('net.pt2')."),
        (lambda: torch.sin, "Wrap a function in a module."),
        (lambda: torch.jit.script(nn.Linear(4, 3)), "as it was before torch.jit.script"),
        (lambda: nn.Linear(5, 3), "The module itself does not run on these inputs: mat1 and mat2"),
        (lambda: nn.Linear(4, 3, device="meta"), "Its weights have no values"),
        (Decides, 'Python decides in it: torch.compile(model, backend="autotensor") splits it there.'),
    ],
)
def test_the_advice_fits_what_is_wrong(module, fix):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = module()
    with pytest.raises(at.AutotensorError) as found:
        at.from_torch(given, (torch.ones(1, 4),))
    assert fix in str(found.value)


class Four(nn.Module):
    def forward(self, x):
        return x.reshape(4, -1) if x.shape[0] == 4 else x


def test_a_violated_constraint_is_said_with_its_reason():
    batch = torch.export.Dim("batch", min=1, max=8)
    with pytest.raises(at.AutotensorError) as found:
        at.from_torch(Four(), (torch.ones(4, 8),), dynamic_shapes=({0: batch},))
    said = str(found.value)
    assert "Constraints violated (batch)! You marked batch as dynamic but your code specialized it" in said
    assert "torch suggests batch = 4: give the example inputs, or dynamic_shapes, accordingly." in said
    assert "TORCH_LOGS" not in said
