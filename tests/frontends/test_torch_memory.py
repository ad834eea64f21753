"""`as_strided`: views that say where in memory their elements lie."""

from __future__ import annotations

import random

import numpy as np
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch_modules import Lambda  # noqa: E402

import autotensor as at  # noqa: E402
from autotensor.frontends.torch import Unsupported  # noqa: E402
from autotensor.frontends.torch.element_types import to_array  # noqa: E402
from autotensor.graph.evaluate import evaluate  # noqa: E402

VIEWS = {
    "plain": lambda x: x * 1,
    "transposed": lambda x: (x * 1).transpose(0, -1),
    "part": lambda x: (x * 1)[1:],
    "every second": lambda x: (x * 1)[..., ::2],
    "of a row": lambda x: (x * 1).flatten()[1:].unsqueeze(0),
}


def same(module: nn.Module, *inputs: torch.Tensor) -> at.Graph:
    graph = at.from_torch(module, inputs)
    np.testing.assert_array_equal(
        evaluate(graph, *(to_array(x) for x in inputs))[0], module(*inputs).detach().numpy()
    )
    return graph


def cases(count: int) -> list[tuple[str, tuple[int, ...], list[int], list[int], int | None]]:
    """Views of shapes with sizes, strides and offsets that lie in their memory."""
    chance, found = random.Random(5), []
    while len(found) < count:
        name, shape = chance.choice(list(VIEWS)), chance.choice([(3, 4, 5), (2, 3, 4, 5), (7,), (2, 6)])
        axes = chance.randrange(5)
        size = [chance.choice([1, 2, 3, 4]) for _ in range(axes)]
        stride = [chance.choice([0, 1, 2, 3, 4, 5, 12, 20, 60]) for _ in range(axes)]
        offset = chance.choice([0, 1, 2, 5, None])
        try:
            VIEWS[name](torch.ones(shape)).as_strided(size, stride, offset)
        except RuntimeError:  # outside its memory
            continue
        found.append((name, shape, size, stride, offset))
    return found


@pytest.mark.parametrize(("name", "shape", "size", "stride", "offset"), cases(30))
def test_any_strides_over_any_view(name, shape, size, stride, offset):
    same(Lambda(lambda x: VIEWS[name](x).as_strided(size, stride, offset)), torch.randn(shape))


def test_strides_of_a_kernel_cost_nothing():
    """An adaptive pool of channels-last data: torch's decomposition gives its result the kernel's strides."""
    x = torch.randn(2, 8, 6, 6).to(memory_format=torch.channels_last)
    net = nn.Sequential(nn.Conv2d(8, 4, 1), nn.AdaptiveAvgPool2d(1)).to(memory_format=torch.channels_last)
    graph = at.from_torch(net, (x,))
    assert graph.count("take") == graph.count("pad") == 0
    np.testing.assert_allclose(evaluate(graph, to_array(x))[0], net(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_nested_strides_are_no_gather():
    graph = same(Lambda(lambda x: (x * 1).as_strided((4, 2), (1, 12), 4)), torch.randn(24))
    assert graph.count("take") == 0
    overlapping = same(Lambda(lambda x: (x * 1).as_strided((5, 3), (1, 1))), torch.randn(7))
    assert overlapping.count("take") == 1


def test_writing_through_strides():
    x, y = torch.randn(3, 4), torch.randn(2, 3)
    same(Lambda(lambda x, y: torch.as_strided_scatter(x * 1, y, (2, 3), (4, 1), 1)), x, y)
    same(Lambda(lambda x, y: torch.as_strided_scatter((x * 1).t(), y, (2, 3), (1, 4))), x, y)


def test_memory_outside_the_tensor_is_refused():
    x = torch.randn(10)[2:5]  # of an input only its own elements are known
    with pytest.raises(Unsupported, match=r"as_strided.default: it reads memory outside the tensor .*Index"):
        at.from_torch(Lambda(lambda x: x.as_strided((2,), (1,), 7)), (x,))
