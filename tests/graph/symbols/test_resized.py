"""Models with run-time extents that resize and pool their images: one program, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import autotensor as at
from autotensor import te
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import GraphNode
from autotensor.graph.tables import nearest_places, resized, windows

Array = np.ndarray[Any, Any]
SIZES = ((6, 6), (40, 40), (7, 39), (38, 9), (18, 25))


def open_net(make: Any) -> Any:
    h, w = te.var("h", range=(6, 40)), te.var("w", range=(6, 40))
    return at.compile_model(at.open_graph(make, h, w), target="llvm -threads=1")


def torchs_nearest(count: int, wanted: int) -> Array:
    step = np.float32(count) / np.float32(wanted)
    return np.floor(np.arange(wanted, dtype=np.float32) * step).astype(int)


def test_windows_of_nearly_one_size() -> None:
    """At 39 rows, 3 windows are equal, and front ends write another operator."""

    def net(h: int, w: int) -> GraphNode:
        x = at.input((1, 2, h, w), name="x") * 2.0
        if h % 3 == 0 and w % 4 == 0:
            return at.ops.adaptive_avg_pool2d(x, (3, 4))
        return resized(x, windows(h, 3), windows(w, 4))

    f = open_net(net)
    for h, w in (*SIZES, (39, 40)):
        x = np.random.default_rng(h).standard_normal((1, 2, h, w)).astype(np.float32)
        np.testing.assert_allclose(f(x), windows(h, 3) @ (2 * x) @ windows(w, 4).T, rtol=1e-5, atol=1e-6)


def test_places_that_cannot_be_told_from_samples() -> None:
    """7 places of 14 and of 15 elements are the same places, so the number of elements must be known."""
    assert (torchs_nearest(14, 7) == torchs_nearest(15, 7)).all()

    def net(h: int, w: int) -> GraphNode:
        y = at.ops.relu(at.input((1, 2, h, w), name="x"))
        return at.ops.take(at.ops.take(y, nearest_places(h, 7), axis=2), nearest_places(w, w // 3), axis=3)

    f = open_net(net)
    for h, w in (*SIZES, (14, 15), (15, 14)):
        x = np.random.default_rng(h).standard_normal((1, 2, h, w)).astype(np.float32)
        wanted = np.maximum(x, 0)[:, :, torchs_nearest(h, 7)][..., torchs_nearest(w, w // 3)]
        np.testing.assert_array_equal(f(x), wanted)


@pytest.mark.parametrize(
    ("mode", "places", "given"),
    [
        ("linear", "half_pixel", {"s": [1, 1, 2, 1.5]}),
        ("linear", "align_corners", {"z": [1, 2, 17, 9]}),
        ("cubic", "half_pixel", {"s": [1, 1, 2, 0.75]}),
        ("cubic", "half_pixel", {"z": [1, 2, 17, 9]}),
        ("nearest", "asymmetric", {"z": [1, 2, 17, 9]}),
        ("nearest", "half_pixel", {"s": [1, 1, 1.5, 0.5]}),
    ],
)
@pytest.mark.sample(2)
def test_onnx_resizes_axes_that_are_open(mode: str, places: str, given: dict[str, list[float]]) -> None:
    kind = TensorProto.INT64 if "z" in given else TensorProto.FLOAT
    weights = [helper.make_tensor(name, kind, [4], numbers) for name, numbers in given.items()]
    read = ["x", "", "s"] if "s" in given else ["x", "", "", "z"]
    node = helper.make_node("Resize", read, ["y"], mode=mode, coordinate_transformation_mode=places)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, "h", "w"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "resize", [x], [y], weights)
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])

    extents = {n: te.var(n, range=(6, 40)) for n in "hw"}
    f = at.compile_model(at.from_onnx(m, shapes=extents), target="llvm -threads=1")
    for h, w in SIZES:
        x = np.random.default_rng(h).standard_normal((1, 2, h, w)).astype(np.float32)
        wanted = evaluate(at.from_onnx(m, shapes={"h": h, "w": w}), x)[0]
        np.testing.assert_allclose(f(x), wanted, rtol=1e-5, atol=1e-5)


def test_a_quotient_that_only_a_kernel_has() -> None:
    """Shapes do not show it, so samples lie far apart when those near the greatest extent do not tell."""
    n = te.var("n", range=(6, 40))

    def net(n: int) -> GraphNode:
        def some(x: te.Tensor) -> te.Tensor:
            k = te.reduce_axis((n + 2) // 4 + 1, "k")
            return te.compute((2,), lambda i: te.sum(x[i, k], axis=k), name="some")

        return at.call(some, at.input((2, n), name="x"))

    f = at.compile_model(at.open_graph(net, n), target="llvm -threads=1")
    for rows in (6, 7, 33, 40):
        x = np.random.default_rng(rows).standard_normal((2, rows)).astype(np.float32)
        np.testing.assert_allclose(f(x), x[:, : (rows + 2) // 4 + 1].sum(1), rtol=1e-5, atol=1e-5)


def test_the_scale_of_a_resize_is_a_quotient_of_two_extents() -> None:
    n = te.var("n", range=(6, 40))

    def net(n: int) -> list[GraphNode]:
        x = at.ops.relu(at.input((1, 2, n), name="x"))
        half = at.ops.slice(x, (0,), (n // 2,), axes=(2,))
        return [x * np.float32(n / 24), half * np.float32((n - 1) / (n // 2 - 1)), x * np.float32(24 / n)]

    f = at.compile_model(at.open_graph(net, n), target="llvm -threads=1")
    for rows in (6, 7, 33, 40):
        x = np.random.default_rng(rows).uniform(0, 1, (1, 2, rows)).astype(np.float32)
        scales = (rows / 24, (rows - 1) / (rows // 2 - 1), 24 / rows)
        for found, scale in zip(f(x), scales, strict=True):
            np.testing.assert_array_equal(found, x[..., : found.shape[2]] * np.float32(scale))


def test_a_scale_in_float64_may_be_rounded_to_float32() -> None:
    n = te.var("n", range=(6, 40))

    def net(n: int) -> GraphNode:
        x = at.input((1, 2, n), name="x", dtype="float64")
        return at.ops.pad(x * np.float64(np.float32(n / (n + 5))), ((0, 0), (0, 0), (0, 5)))

    f = at.compile_model(at.open_graph(net, n), target="llvm -threads=1")
    for rows in (6, 7, 33, 40):
        x = np.random.default_rng(rows).uniform(0, 1, (1, 2, rows))
        np.testing.assert_array_equal(f(x)[..., :rows], x * np.float64(np.float32(rows / (rows + 5))))
