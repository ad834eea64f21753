"""Single operators through `at.from_torch`: what OpInfo's samples leave out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch_modules import Lambda  # noqa: E402

import autotensor as at  # noqa: E402
from autotensor.frontends.torch import Unsupported  # noqa: E402
from autotensor.frontends.torch.types import to_array, to_tensor  # noqa: E402
from autotensor.graph.evaluate import evaluate  # noqa: E402


def compiled(function, *inputs):
    """The results as tensors."""
    model = at.compile_model(at.from_torch(Lambda(function), inputs), db=":memory:")
    got = model(*(to_array(x) for x in inputs))
    return tuple(to_tensor(np.asarray(g)) for g in (got if isinstance(got, tuple) else (got,)))


def same(function, *inputs):
    wanted = function(*inputs)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for got, expected in zip(compiled(function, *inputs), wanted, strict=True):
        torch.testing.assert_close(got, expected, equal_nan=True, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_transposed_convolutions(rank):
    """All that stride, dilation, padding and groups do to each other, by the graph's meaning."""
    torch.manual_seed(rank)
    function = getattr(torch.nn.functional, f"conv_transpose{rank}d")
    sizes = itertools.product((1, 2, 3), (1, 2, 4), (1, 2, 3), (0, 1), (1, 2))
    for stride, dilation, kernel, padding, groups in itertools.islice(sizes, rank - 1, None, rank * rank):
        more = min(1, max(stride, dilation) - 1)
        x = torch.randn(2, 4, *(5, 4, 3)[:rank])
        w, b = torch.randn(4, 3, *(kernel,) * rank), torch.randn(3 * groups)
        attrs = (stride, padding, more, groups, dilation)
        try:
            wanted = function(x, w, b, *attrs)
        except RuntimeError:  # nothing is left of the output
            continue
        graph = at.from_torch(Lambda(lambda x, w, b, f=function, a=attrs: f(x, w, b, *a)), (x, w, b))
        (got,) = evaluate(graph, *(to_array(v) for v in (x, w, b)))
        np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-4, atol=1e-4, err_msg=str(attrs))


def test_a_transposed_convolution_over_three_axes_runs():
    torch.manual_seed(0)
    same(
        torch.nn.ConvTranspose3d(4, 2, 3, stride=2, padding=1, dilation=2).eval(), torch.randn(1, 4, 3, 4, 5)
    )


class TestNoElements:
    def test_go_in_and_come_out(self):
        same(lambda x: (x * 2, x[:0].long(), x[:0].clone()), torch.ones(3))
        same(lambda x: (x + 1, x.sum(), x.mean(1), x.amax(1), x.all()), torch.ones(0, 3))

    def test_among_others(self):
        same(lambda x, y: torch.cat([x, y, x]), torch.ones(0, 3), torch.ones(2, 3))
        same(
            lambda x, i, y: x.scatter(0, i, y), torch.ones(3), torch.ones(0, dtype=torch.int64), torch.ones(0)
        )
        same(lambda x, i, y: x.index_add(0, i, y), torch.ones(3, 2), torch.zeros(0).long(), torch.ones(0, 2))
        same(lambda x, y: x @ y, torch.ones(2, 0), torch.ones(0, 3))

    def test_alone_and_saved(self, tmp_path):
        model = at.compile_model(at.from_torch(Lambda(lambda x: x * 2), torch.ones(0, 3)), db=":memory:")
        model.save(tmp_path / "empty.atm")
        assert at.load(tmp_path / "empty.atm")(np.ones((0, 3), np.float32)).shape == (0, 3)


def test_tensors_without_axes():
    x = torch.tensor(2.5)
    same(lambda x: (x.sum(0), x.amax(0), x.argmax(0), x.softmax(0), x.cumsum(0), *x.sort(0)), x)
    same(lambda x: x.index_select(0, torch.tensor([0])), x)


def test_the_batchs_moments_come_out_of_a_norm_in_training_mode():
    x, mean, var = torch.randn(4, 3, 5), torch.randn(3), torch.rand(3)

    def norm(x, mean, var):
        op = torch.ops.aten._native_batch_norm_legit_functional
        return tuple(op(x, None, None, mean, var, True, 0.1, 1e-5))

    same(norm, x, mean, var)


class TestComplexNumbersInside:
    """Real at the ends."""

    def test_transforms(self):
        fft = torch.fft
        same(lambda x: torch.view_as_real(fft.fft2(x)), torch.randn(2, 5, 12))
        same(lambda x: fft.irfft(fft.rfft(x, norm="ortho") * 2, n=9, norm="ortho"), torch.randn(3, 9))
        same(lambda x: fft.irfft2(fft.rfft2(x), s=(6, 8)), torch.randn(2, 6, 8))
        same(lambda x: fft.ifft(fft.fft(x)).real, torch.randn(2, 210))  # 42 * 5 points
        same(lambda x: fft.fft(x, n=97).imag / 10, torch.randn(2, 97))
        same(
            lambda x: torch.stft(x, 16, window=torch.ones(16), return_complex=True).abs(), torch.randn(1, 64)
        )

    def test_rotary_positions_by_a_complex_buffer(self):
        turn = torch.polar(torch.ones(3, 4), torch.randn(3, 4))

        def rotated(x):
            z = torch.view_as_complex(x.reshape(2, 3, 4, 2))
            return torch.view_as_real(z * turn).flatten(2)

        same(rotated, torch.randn(2, 3, 8))

    def test_arithmetic(self):
        x = torch.randn(3)
        same(lambda x: torch.view_as_real(torch.polar(x, x) + 1 + 2j), x)
        same(lambda x: torch.view_as_real(torch.complex(x, x[:1]).conj() * (2 - 1j) - x), x)
        same(lambda x: (torch.complex(x, -x) / 3).angle(), x)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: torch.randint_like(x, 3), r"randint_like.default: random numbers are not drawn here"),
        (torch.nonzero, r"aten.nonzero.default gives a shape that only the data know"),
        (torch.unique, r"_unique2.default gives a shape .* Make it of a fixed"),
        (lambda x: torch.linalg.eigvals(x.reshape(2, 2)), r"linalg_eig.default: decompositions of matrices"),
        (lambda x: torch.special.airy_ai(x), r"aten.special_airy_ai.default: this operator is not supported"),
        (lambda x: (x * 1j).exp().real, r"aten.exp.default: complex numbers are not supported"),
        (lambda x: torch.fft.rfft(torch.ones(4099)).real + x[0], r"transform of 4099 points.* Pad to"),
        (lambda x: x.to_sparse(), r"sparse"),
    ],
)  # fmt: skip
def test_refusals_name_the_operator_and_the_line(function, message):
    with pytest.raises(Unsupported, match=message):
        at.from_torch(Lambda(function), (torch.randn(4),))
