"""Quantised graphs of torch: its quantize and dequantize operators, and networks that torchao quantised."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import autotensor as at  # noqa: E402
from autotensor.base.errors import GraphError  # noqa: E402
from autotensor.graph.rules import optimize  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def decomposed():
    import torch.ao.quantization.fx._decomposed  # registers the operators

    return torch.ops.quantized_decomposed


class Function(torch.nn.Module):
    def __init__(self, compute, *buffers):
        super().__init__()
        self.compute = compute
        for n, b in enumerate(buffers):
            self.register_buffer(f"b{n}", b)
        self.count = len(buffers)

    def forward(self, x):
        return self.compute(x, *(getattr(self, f"b{n}") for n in range(self.count)))


def both(compute, x, *buffers):
    """Ours and torch's result of an exported function."""
    module = Function(compute, *buffers).eval()
    graph = at.from_torch(torch.export.export(module, (x,)))
    return graph, at.compile_model(graph)(x.numpy()), module(x).numpy()


def test_values_round_to_even_and_stay_between_the_given_ends(decomposed):
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, 300, -300, 63.7])
    for low, high in ((0, 255), (0, 127)):

        def quantised(x, low=low, high=high):
            return decomposed.quantize_per_tensor(x, 1.0, 7, low, high, torch.uint8)

        _, mine, theirs = both(quantised, x)
        assert np.array_equal(mine, theirs)


def test_scales_for_each_channel(decomposed):
    x, scales, zeros = torch.randn(4, 3, 5), torch.tensor([0.01, 0.02, 0.03]), torch.tensor([1, 0, -5])

    def there_and_back(x, s, z):
        q = decomposed.quantize_per_channel(x, s, z, 1, -128, 127, torch.int8)
        return decomposed.dequantize_per_channel(q, s, z, 1, -128, 127, torch.int8)

    _, mine, theirs = both(there_and_back, x, scales, zeros)
    steps = np.abs(mine - theirs) / scales.numpy().reshape(3, 1)
    assert (steps < 1.01).all()  # torch multiplies by 1 / scale
    assert (steps > 0.01).mean() < 0.05


def test_a_product_between_them_is_one_of_bytes(decomposed):
    w, scales, zeros = (
        torch.randint(-127, 128, (6, 16), dtype=torch.int8),
        torch.full((6,), 0.01),
        torch.zeros(6),
    )

    def product(x, w, s, z):
        q = decomposed.quantize_per_tensor(x, 0.02, 128, 0, 255, torch.uint8)
        left = decomposed.dequantize_per_tensor(q, 0.02, 128, 0, 255, torch.uint8)
        right = decomposed.dequantize_per_channel(w, s, z, 0, -128, 127, torch.int8)
        return decomposed.quantize_per_tensor(left @ right.T, 0.05, 3, -128, 127, torch.int8)

    graph, mine, theirs = both(product, torch.randn(5, 16), w, scales, zeros.to(torch.int64))
    assert [n.op_name for n in optimize(graph).applies] == ["quantize", "dense", "requantize"]
    assert np.abs(mine.astype(int) - theirs).max() <= 1


def test_a_scale_of_zero_is_named(decomposed):
    def quantised(x):
        return decomposed.quantize_per_tensor(x, 0.0, 7, 0, 255, torch.uint8)

    with pytest.raises(
        GraphError, match=r"quantized_decomposed: a scale is 0\.0; scales are positive and finite"
    ):
        both(quantised, torch.randn(3))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 16, 3, padding=1)
        self.depthwise = torch.nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.pointwise, self.last = torch.nn.Conv2d(16, 16, 1), torch.nn.Linear(16, 10)

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = torch.relu(x + self.pointwise(torch.relu(self.depthwise(x))))
        return self.last(torch.flatten(torch.nn.functional.adaptive_avg_pool2d(x, 1), 1))


def test_a_network_that_torchao_quantised_multiplies_bytes():
    pt2e = pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")
    x86 = pytest.importorskip("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer")
    torch.manual_seed(0)
    x = torch.randn(2, 3, 12, 10)
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = pt2e.prepare_pt2e(torch.export.export(Net().eval(), (x,)).module(), quantizer)
    prepared(x)
    converted = pt2e.convert_pt2e(prepared)
    graph = at.from_torch(torch.export.export(converted, (x,)))
    products = [n for n in optimize(graph).applies if n.op_name in ("conv2d", "dense")]
    assert [str(n.inputs[0].dtype) for n in products] == ["uint8"] * 4
    mine, theirs = at.compile_model(graph)(x.numpy()), converted(x).detach().numpy()
    assert np.abs(mine - theirs).max() < 0.02 * np.abs(theirs).max()


@pytest.mark.parametrize("low", [-128, 0])
def test_scale_and_zero_point_of_what_comes(decomposed, low):
    dtype = torch.int8 if low else torch.uint8

    def there_and_back(x):
        scale, zero = decomposed.choose_qparams.tensor(x, low, low + 255, 2.0**-12, dtype)
        q = decomposed.quantize_per_tensor.tensor(x, scale, zero, low, low + 255, dtype)
        y = decomposed.dequantize_per_tensor.tensor(q, scale, zero, low, low + 255, dtype)
        return torch.cat([y.sum().reshape(1), scale.float(), zero.float()]), q.float()

    module = Function(there_and_back).eval()
    x = torch.randn(5, 7)
    f = at.compile_model(at.from_torch(torch.export.export(module, (x,))))
    for x in (torch.randn(5, 7), torch.rand(5, 7) + 3.0, -torch.rand(5, 7) * 50.0, torch.zeros(5, 7)):
        (mine, q), (theirs, wanted) = f(x.numpy()), module(x)
        np.testing.assert_allclose(mine[1:], theirs[1:].numpy(), rtol=1e-6)
        assert np.abs(q - wanted.numpy()).max() <= 1  # torch multiplies by 1 / scale
        np.testing.assert_allclose(mine[0], theirs[0].numpy(), atol=2.0 * mine[1] + 1e-4 * abs(mine[0]))


def test_a_product_of_bytes_has_32_bits():
    a, b = (torch.randint(-128, 128, s, dtype=torch.int8) for s in ((17, 300), (300, 24)))
    _, mine, theirs = both(lambda a, b: torch._int_mm(a, b), a, b)
    assert mine.dtype == np.int32
    assert np.array_equal(mine, theirs)
