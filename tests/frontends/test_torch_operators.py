"""Single operators through `at.from_torch`: what OpInfo's samples leave out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch_modules import Lambda, compiled, same  # noqa: E402

import autotensor as at  # noqa: E402
from autotensor.frontends.torch import Unsupported  # noqa: E402
from autotensor.frontends.torch.element_types import to_array  # noqa: E402
from autotensor.graph.evaluate import evaluate  # noqa: E402


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


def test_a_multilabel_margin_loss_ends_at_the_first_minus_one():
    """Torch's own decomposition counts the places behind it as label 0."""
    x = torch.randn(3, 6)
    labels = torch.tensor([[1, -1, 0, 0, 0, 0], [3, 0, -1, 4, 5, 1], [0, 1, 2, 3, 4, 5]])
    for reduction in ("none", "sum", "mean"):
        loss = torch.nn.functional.multilabel_margin_loss
        same(lambda x, t, loss=loss, r=reduction: loss(x, t, reduction=r), x, labels)
    same(lambda x, t: loss(x, t), x[0], labels[0])


def test_running_logarithms_of_sums_of_exponentials():
    inf, nan = float("inf"), float("nan")
    edges = [[-inf, -inf, 1.0, inf, 2.0], [1, -inf, nan, 3, inf], [-3e38, 3e38, 3e38, -inf, 0]]
    same(lambda x: (x.logcumsumexp(1), x.logcumsumexp(0)), torch.tensor(edges))
    same(lambda x: x.logcumsumexp(1), torch.randn(2, 3, 40) * 100)


def test_numbers_are_rounded_as_quantised_ones_are():
    torch.manual_seed(0)
    x, scale, zero = torch.randn(3, 40) * 9, torch.tensor([0.1, 0.25, 0.3]), torch.tensor([0, 1, -2]).int()
    whole, each = torch.fake_quantize_per_tensor_affine, torch.fake_quantize_per_channel_affine
    same(lambda x: (whole(x, 0.1, 3, 0, 255), whole(x.double(), 0.3, -3, -128, 127)), x)
    same(lambda x, s, z: (each(x, s, z, 0, -128, 127), whole(x, s[1], z[2], -8, 7)), x, scale, zero)


@pytest.mark.parametrize("shape", [(4, 5), (3, 4, 5)])
def test_images_and_volumes_are_sampled_at_places_between(shape):
    torch.manual_seed(0)
    inf, nan = float("inf"), float("nan")
    x, grid = torch.randn(2, 2, *shape), torch.randn(2, *(3 for _ in shape), len(shape)) * 1.5
    nowhere = torch.tensor([[0.3, nan, inf], [inf, 0.1, -3.0], [nan, -inf, nan], [-0.5, 0.2, 1e20]])
    grid.flatten(1, -2)[0, :4] = nowhere[:, : len(shape)]
    sample = torch.nn.functional.grid_sample
    for mode in ("bilinear", "nearest", "bicubic")[: 5 - len(shape)]:
        for padding in ("zeros", "border", "reflection"):
            for align in (True, False):
                kind = {"mode": mode, "padding_mode": padding, "align_corners": align}
                graph = at.from_torch(Lambda(lambda x, g, k=kind: sample(x, g, **k)), (x, grid))
                (got,) = evaluate(graph, *(to_array(v) for v in (x, grid)))
                np.testing.assert_allclose(
                    got, sample(x, grid, **kind), rtol=1e-5, atol=1e-5, err_msg=str(kind)
                )
    same(lambda x, g: sample(x, g, align_corners=False), x, grid)


def test_places_of_grids_with_axes_of_one_element():
    torch.manual_seed(0)
    grid = torch.affine_grid_generator  # torch.nn.functional warns of one element
    for shape in ((1, 3), (4, 1, 2)):
        axes = len(shape)
        theta = torch.randn(2, axes, axes + 1)
        for align in (True, False):
            same(lambda t, a=align, s=shape: grid(t, [2, 1, *s], a), theta)


class TestWhatDependsOnNoInput:
    """Torch computes it once, if there is no converter."""

    def test_decompositions_of_weights(self):
        torch.manual_seed(0)
        w = torch.randn(4, 4)
        net = torch.nn.utils.parametrizations.orthogonal(torch.nn.Linear(4, 4)).eval()
        with torch.no_grad():
            same(lambda x: x @ torch.linalg.inv(w @ w.T + 1) + torch.slogdet(w)[1], torch.randn(3, 4))
            same(net, torch.randn(3, 4))

    def test_repeats_that_are_known(self):
        counts = torch.tensor([1, 2, 0, 3])
        same(lambda x: x.repeat_interleave(counts, 1, output_size=6), torch.randn(2, 4))

    def test_a_matrix_without_inverse_is_refused(self):
        w = torch.ones(4, 4)
        with pytest.raises(Unsupported, match=r"with_effects cannot be converted.*singular"):
            at.from_torch(Lambda(lambda x: x @ torch.linalg.inv(w)), (torch.randn(3, 4),))


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

    def test_quotients_functions_and_powers(self):
        torch.manual_seed(0)
        a, b = torch.randn(2, 5, 2), torch.randn(2, 5, 2) * 1e25  # whose squares are beyond float32

        def functions(a, b):
            x, y = torch.view_as_complex(a), torch.view_as_complex(b)
            quotients = (x / y * 1e25, 1 / x, a[..., 0] / x, x / (1 - 2j))
            return tuple(map(torch.view_as_real, (*quotients, x.exp(), x.log(), x**2, x**3)))

        same(functions, a, b)

    def test_products_of_matrices(self):
        torch.manual_seed(0)
        x = torch.randn(3, 4, 4, 2)

        def products(x):
            z = torch.view_as_complex(x)
            found = (z @ z, z[0] @ z[1], torch.einsum("bij,jk->bik", z, z[0]), z @ z[0, 0])
            return tuple(map(torch.view_as_real, found))

        same(products, x)

    def test_a_spectrum_of_which_a_part_is_written(self):
        """A layer of a Fourier neural operator."""
        torch.manual_seed(0)
        weight = torch.randn(3, 3, 5, dtype=torch.complex64)

        def layer(x):
            spectrum = torch.fft.rfft(x)
            y = torch.zeros_like(spectrum)
            y[..., :5] = torch.einsum("bix,iox->box", spectrum[..., :5], weight)
            return torch.fft.irfft(y, n=x.shape[-1])

        same(layer, torch.randn(2, 3, 24))

    def test_what_is_real_has_no_imaginary_part(self):
        x = torch.tensor([[1.0, -2.0], [3.0, float("inf")]])

        def mixed(x):
            z = torch.complex(x, x + 1)
            wide = torch.nn.functional.pad(z, (1, 1), value=3.0)
            found = (
                *(torch.cat([z, x.to(z.dtype)]), wide, torch.where(x > 0, z, 1.0), z.new_full((2,), 4)),
                *(torch.ones_like(z), torch.full((2,), 1 - 2j), x.to(torch.complex64), z.cumsum(0)),
            )
            return tuple(torch.view_as_real(v) for v in found)

        same(mixed, x)

    def test_a_real_signals_middle_frequency_is_real(self):
        x = torch.tensor([[-3.0, 1.0, -2.0, 0.5, 0.1, 7.0, 1.0, 2.0]])
        _, imaginary = compiled(lambda x: (torch.fft.rfft(x).real, torch.fft.rfft(x).imag), x)
        assert imaginary[0, [0, 4]].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: torch.randint_like(x, 3), r"randint_like.default: random numbers are not supported"),
        (torch.nonzero, r"aten.nonzero.default gives a shape that depends on data"),
        (torch.unique, r"_unique2.default gives a shape .* Give it a fixed"),
        (lambda x: torch.linalg.eigvals(x.reshape(2, 2)), r"linalg_eig.default: decompositions of matrices"),
        (lambda x: torch.special.airy_ai(x), r"aten.special_airy_ai.default: this operator is not supported"),
        (lambda x: (x * 1j).tan().real, r"aten.tan.default: complex numbers are not supported"),
        (lambda x: ((x * 1j) ** 2.5).real, r"powers of complex numbers other than 2 and 3.*torch.exp"),
        (lambda x: torch.fft.rfft(torch.ones(4099)).real + x[0], r"transform of 4099 points.* Pad to"),
        (lambda x: x.to_sparse(), r"sparse"),
    ],
)  # fmt: skip
def test_refusals_name_the_operator_and_the_line(function, message):
    with pytest.raises(Unsupported, match=message):
        at.from_torch(Lambda(function), (torch.randn(4),))
