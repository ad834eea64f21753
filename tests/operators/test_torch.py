"""The NumPy references agree with torch, so attributes have their usual meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autotensor as at
from autotensor.operators import OPERATORS

pytestmark = pytest.mark.torch


def draw(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def check(name: str, arrays: list[np.ndarray], expected: Any, **attrs: Any) -> None:
    found = np.asarray(OPERATORS.get(name).reference(*arrays, **attrs))
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("shapes", "attrs"),
    [
        (((2, 4, 9, 7), (6, 4, 3, 3), (6,)), {"stride": 2, "padding": 1}),
        (((1, 4, 9, 9), (6, 2, 3, 2), (6,)), {"stride": (1, 2), "padding": (2, 0), "groups": 2}),
        (((1, 3, 9, 9), (6, 1, 3, 3), (6,)), {"dilation": (2, 1), "groups": 3}),
    ],
)
def test_conv2d(torch: Any, shapes: Any, attrs: dict[str, Any]) -> None:
    arrays = draw(*shapes)
    expected = torch.nn.functional.conv2d(*map(torch.from_numpy, arrays), **attrs)
    check("conv2d", arrays, expected, **attrs)
    last = [np.ascontiguousarray(arrays[0].transpose(0, 2, 3, 1)), *arrays[1:]]
    check("conv2d", last, expected.permute(0, 2, 3, 1), layout="NHWC", **attrs)


def test_conv1d_and_conv3d(torch: Any) -> None:
    functional = torch.nn.functional
    arrays = draw((2, 4, 17), (6, 2, 3), (6,))
    attrs = {"stride": 2, "padding": 1, "groups": 2}
    check("conv1d", arrays, functional.conv1d(*map(torch.from_numpy, arrays), **attrs), **attrs)
    arrays = draw((1, 2, 5, 6, 7), (3, 2, 2, 3, 3), (3,))
    volume = {"stride": (1, 2, 1), "padding": (0, 1, 2)}
    check("conv3d", arrays, functional.conv3d(*map(torch.from_numpy, arrays), **volume), **volume)


@pytest.mark.parametrize(
    ("shapes", "attrs"),
    [
        (((1, 3, 4, 5), (3, 2, 3, 3), (2,)), {"stride": 2, "padding": 1, "output_padding": 1}),
        (((2, 4, 3, 3), (4, 3, 4, 2), (6,)), {"stride": (2, 1), "padding": (1, 0), "groups": 2}),
        (((1, 2, 3, 3), (2, 1, 2, 2), (1,)), {"stride": 3}),
    ],
)
def test_conv2d_transpose(torch: Any, shapes: Any, attrs: dict[str, Any]) -> None:
    arrays = draw(*shapes)
    expected = torch.nn.functional.conv_transpose2d(*map(torch.from_numpy, arrays), **attrs)
    check("conv2d_transpose", arrays, expected, **attrs)


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [(2, 2, 0), (3, 2, 1), (2, 3, 1), (3, 2, 0), (3, 1, 1)]
)
def test_pools(torch: Any, kernel: int, stride: int, padding: int, ceil_mode: bool) -> None:
    functional = torch.nn.functional
    for shape in ((1, 2, 7, 9), (1, 2, 6, 5)):
        (x,) = draw(shape)
        attrs = {"stride": stride, "padding": padding, "ceil_mode": ceil_mode}
        check(
            "max_pool2d",
            [x],
            functional.max_pool2d(torch.from_numpy(x), kernel, **attrs),
            kernel=kernel,
            **attrs,
        )
        for include in (True, False):
            more = {**attrs, "count_include_pad": include}
            expected = functional.avg_pool2d(torch.from_numpy(x), kernel, **more)
            check("avg_pool2d", [x], expected, kernel=kernel, **more)


def test_a_window_of_a_pool_may_be_larger_than_the_picture(torch: Any) -> None:
    functional, (x,) = torch.nn.functional, draw((1, 3, 8, 1))
    attrs = {"stride": 2, "ceil_mode": True}
    for name in ("max_pool2d", "avg_pool2d"):
        expected = getattr(functional, name)(torch.from_numpy(x), 2, **attrs)
        check(name, [x], expected, kernel=2, **attrs)
        kernel = at.compile_model(getattr(at.ops, name)(at.input(x.shape), 2, **attrs))
        np.testing.assert_array_equal(kernel(x), expected)


def test_adaptive_pool(torch: Any) -> None:
    (x,) = draw((1, 3, 6, 8))
    expected = torch.nn.functional.adaptive_avg_pool2d(torch.from_numpy(x), (3, 2))
    check("adaptive_avg_pool2d", [x], expected, output_size=(3, 2))


def test_norms(torch: Any) -> None:
    functional = torch.nn.functional
    x, gamma, beta, mean, var = draw((2, 6, 5, 7), (6,), (6,), (6,), (6,))
    var = np.abs(var) + 0.1
    t = [torch.from_numpy(a) for a in (x, mean, var, gamma, beta)]
    check("batch_norm", [x, gamma, beta, mean, var], functional.batch_norm(*t, eps=1e-3), eps=1e-3)
    check("group_norm", [x, gamma, beta], functional.group_norm(t[0], 3, t[3], t[4]), groups=3)
    gamma, beta = draw((5, 7), (5, 7))
    g, b = torch.from_numpy(gamma), torch.from_numpy(beta)
    check("layer_norm", [x, gamma, beta], functional.layer_norm(t[0], (5, 7), g, b), axis=-2)
    check("rms_norm", [x, gamma], functional.rms_norm(t[0], (5, 7), g, eps=1e-5), axis=-2)


def test_softmaxes(torch: Any) -> None:
    (x,) = draw((3, 5, 7))
    for axis in (0, -1):
        check("softmax", [x], torch.softmax(torch.from_numpy(x), axis), axis=axis)
        check("log_softmax", [x], torch.log_softmax(torch.from_numpy(x), axis), axis=axis)


@pytest.mark.parametrize(
    ("name", "attrs"),
    [
        ("gelu", {}),
        ("gelu", {"approximate": "tanh"}),
        ("silu", {}),
        ("hardswish", {}),
        ("hardsigmoid", {}),
        ("elu", {"alpha": 0.7}),
        ("softplus", {}),
        ("relu6", {}),
        ("leaky_relu", {"alpha": 0.2}),
    ],
)
def test_activations(torch: Any, name: str, attrs: dict[str, Any]) -> None:
    x = np.linspace(-8, 8, 101, dtype=np.float32)
    theirs = {"negative_slope" if (name, k) == ("leaky_relu", "alpha") else k: v for k, v in attrs.items()}
    check(name, [x], getattr(torch.nn.functional, name)(torch.from_numpy(x), **theirs), **attrs)


def test_dense(torch: Any) -> None:
    arrays = draw((7, 17), (5, 17), (5,))
    check("dense", arrays, torch.nn.functional.linear(*map(torch.from_numpy, arrays)))
