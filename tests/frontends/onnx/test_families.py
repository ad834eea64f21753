"""Converters in cases that the onnx package's own tests lack: older opsets, graphs, large and odd cases."""

from __future__ import annotations

import numpy as np
import pytest
from making import floats, model, node
from onnx import TensorProto

import autotensor as at
from autotensor.frontends.onnx import NeedsValue, Unsupported
from autotensor.frontends.onnx.errors import Malformed
from autotensor.graph import steps as step_loops
from autotensor.graph.evaluate import evaluate

INT32, INT64, UINT8, INT8 = TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8, TensorProto.INT8


def graph_of(nodes, inputs, outputs=("y",), **more):
    return at.from_onnx(model(nodes, inputs, outputs, **more))


def run(op, *arrays, opset=18, weights=None, **attrs):
    """One operator, by the meaning of its graph."""
    names = [f"x{n}" for n in range(len(arrays))]
    kinds = {np.dtype(np.int64): INT64, np.dtype(np.int32): INT32}
    kinds |= {np.dtype(np.bool_): TensorProto.BOOL, np.dtype(np.float64): TensorProto.DOUBLE}
    types = {n: kinds.get(a.dtype, TensorProto.FLOAT) for n, a in zip(names, arrays, strict=True)}
    shapes = {n: a.shape for n, a in zip(names, arrays, strict=True)}
    m = model(
        [node(op, [*names, *(weights or {})], **attrs)], shapes, weights=weights, types=types, opset=opset
    )
    return evaluate(at.from_onnx(m), *arrays)[0]


# -- before opset 7 --------------------------------------------------------------------------------------


def test_older_broadcasting_lays_the_second_operand_along_an_axis():
    a, b = floats(2, 3, 4), floats(3)
    found = run("Add", a, b, opset=6, broadcast=1, axis=1)
    np.testing.assert_allclose(found, a + b[:, None])
    np.testing.assert_allclose(run("Mul", a, floats(4), opset=6, broadcast=1), a * floats(4))
    with pytest.raises(Malformed, match="broadcast is off"):
        run("Add", a, b, opset=6)


def test_older_slopes_are_one_for_each_channel():
    x, slope = floats(2, 3, 4, 5), np.array([0.1, 0.2, 0.3], np.float32)
    found = run("PRelu", x, slope, opset=6)
    np.testing.assert_allclose(found, np.where(x < 0, x * slope[:, None, None], x), rtol=1e-6)


@pytest.mark.parametrize(("op", "count"), [("Dropout", 1), ("BatchNormalization", 5)])
def test_older_operators_in_training_are_refused(op, count):
    arrays = [floats(2, 3), *(np.ones(3, np.float32) for _ in range(count - 1))]
    with pytest.raises(Unsupported, match=r"is_test is off; models are run, not trained\."):
        run(op, *arrays, opset=6)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64])
def test_logarithms_of_sums_keep_their_type(dtype):
    x = np.array([[1, 2], [700, 3], [2**30, 2**30]], dtype)
    if dtype is np.float64:
        x[2] = 1e300
    found = run("ReduceLogSumExp", x, opset=13, axes=[1], keepdims=0)
    np.testing.assert_allclose(found, np.logaddexp(*x.T.astype(np.float64)).astype(dtype), rtol=1e-12)
    assert found.dtype == dtype


# -- indices and shapes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [
        (-1, -(1 << 63), -1),
        (1 << 62, 0, -2),
        (3, 1 << 62, 1),
        (-100, 2, 1),
        (5, 1, 1),
        (-100, 3, -1),
        (0, -(1 << 63), -1),
        (-100, -(1 << 63), -1),
        (-8, -9, -2),
        (-2, 100, 3),
    ],
)
def test_slices_reach_as_far_as_there_is(start, end, step):
    x = np.arange(7, dtype=np.float32)
    found = run(
        "Slice", x, weights={k: np.array([v]) for k, v in {"s": start, "e": end, "a": 0, "t": step}.items()}
    )
    n, stop = 7, end
    first = start + n if start < 0 else start
    stop = stop + n if stop < 0 else stop
    low, high = (0, n) if step > 0 else (-1, n - 1)
    first, stop = min(max(first, 0), high), min(max(stop, low), high)
    np.testing.assert_array_equal(found, x[[i for i in range(first, stop, step) if 0 <= i < n]])


def test_a_concatenation_of_many_parts():
    names = [f"x{n}" for n in range(60)]
    graph = graph_of([node("Concat", names, axis=0)], {n: (2,) for n in names})
    arrays = [np.full(2, n, np.float32) for n in range(60)]
    np.testing.assert_array_equal(at.compile_model(graph)(*arrays), np.concatenate(arrays))


def test_a_clip_whose_limits_cross_gives_the_upper_one():
    found = run("Clip", floats(5), weights={"low": np.float32(2), "high": np.float32(1)})
    np.testing.assert_array_equal(found, np.ones(5, np.float32))


@pytest.mark.parametrize("equation", ["ij,jk", "ij,jk->ki", "...ij,jk->...ik", "ii->i", "bij -> b"])
def test_einsum(equation):
    arrays = {"ii->i": [floats(4, 4)], "bij -> b": [floats(2, 3, 4)]}.get(
        equation, [floats(3, 4), floats(4, 5)]
    )
    if "..." in equation:
        arrays = [floats(2, 3, 4), floats(4, 5)]
    np.testing.assert_allclose(
        run("Einsum", *arrays, equation=equation), np.einsum(equation, *arrays), rtol=1e-4, atol=1e-5
    )


def test_pads_of_every_kind_cut_and_grow():
    x = floats(4, 5)
    for mode in ("edge", "reflect", "wrap"):
        found = run("Pad", x, weights={"p": np.array([1, 2, 0, 1])}, opset=19, mode=mode)
        np.testing.assert_array_equal(found, np.pad(x, ((1, 0), (2, 1)), mode))
    found = run("Pad", x, weights={"p": np.array([-1, 2, 0, -2]), "v": np.float32(7)})
    np.testing.assert_array_equal(found, np.pad(x[1:, :3], ((0, 0), (2, 0)), constant_values=7))


# -- signals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("length", [None, 5, 12])
def test_a_transform_in_a_graph_is_a_product_of_matrices(inverse, length):
    x = floats(2, 8, 2)
    weights = {"n": np.int64(8 if length is None else length)}
    m = model([node("DFT", ["x", "n"], axis=1, inverse=inverse)], {"x": x.shape}, weights=weights, opset=19)
    graph = at.from_onnx(m)
    assert "matmul" in [n.op_name for n in graph.applies]
    transform = np.fft.ifft if inverse else np.fft.fft
    wanted = transform(x[..., 0] + 1j * x[..., 1], int(weights["n"]), axis=1)
    wanted = np.stack([wanted.real, wanted.imag], -1)
    np.testing.assert_allclose(evaluate(graph, x)[0], wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(at.OnnxModel(m)(x)[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [7, 8])
def test_half_a_spectrum_goes_there_and_back(n):
    x = floats(3, n, 1)
    there = graph_of([node("DFT", ["x"], axis=1, onesided=1)], {"x": x.shape}, opset=19)
    half = evaluate(there, x)[0]
    assert half.shape == (3, n // 2 + 1, 2)
    m = model(
        [node("DFT", ["x", "n"], axis=1, onesided=1, inverse=1)],
        {"x": half.shape},
        weights={"n": np.int64(n)},
        opset=19,
    )
    np.testing.assert_allclose(evaluate(at.from_onnx(m), half)[0], x, rtol=1e-4, atol=1e-5)


# -- what the host computes ------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["NonZero", "Unique", "Det"])
def test_a_graph_cannot_hold_what_the_host_computes(op):
    m = model([node(op, ["x"])], {"x": (3, 3)})
    with pytest.raises(NeedsValue, match=rf"'the_{op}' .*Call the model through autotensor\.OnnxModel"):
        at.from_onnx(m)
    x = floats(3, 3)
    found = at.OnnxModel(m)(x)[0]
    wanted = {"NonZero": lambda v: np.asarray(np.nonzero(v)), "Unique": np.unique, "Det": np.linalg.det}[op](
        x
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


REGIONS = {"x": (1, 3, 8, 8), "rois": (1, 4), "image": (1,)}


@pytest.mark.parametrize(
    ("region", "image", "said"),
    [
        ([0, 0, 1e7, 1e6], 0, r"region 0 is \[0.0, 0.0, 10000000.0, 1000000.0\] of image 0 of 1"),
        ([np.nan] * 4, 0, "region 0 is .nan, nan, nan, nan. of image 0 of 1"),
        ([0, 0, 4, 4], 7, r"region 0 is \[0.0, 0.0, 4.0, 4.0\] of image 7 of 1"),
    ],
)
def test_a_region_outside_of_reason_is_refused_when_it_comes(region, image, said):
    m = model(
        [node("RoiAlign", list(REGIONS), output_height=2, output_width=2)], REGIONS, types={"image": INT64}
    )
    with pytest.raises(Malformed, match=said):
        at.OnnxModel(m)(floats(1, 3, 8, 8), np.array([region], np.float32), np.array([image]))


def test_what_the_host_computes_of_constants_is_a_constant():
    m = model(
        [node("NonZero", ["w"], ["at"]), node("Cast", ["at"], to=1)],
        {},
        weights={"w": np.array([0, 3, 0, 5])},
    )
    np.testing.assert_array_equal(evaluate(at.from_onnx(m))[0], [[1, 3]])


def overlap_of(a, b):
    """Of two boxes y1, x1, y2, x2."""
    height, width = (min(a[n + 2], b[n + 2]) - max(a[n], b[n]) for n in (0, 1))
    common = max(height, 0.0) * max(width, 0.0)
    return common / (sum((c[2] - c[0]) * (c[3] - c[1]) for c in (a, b)) - common)


def test_suppression_takes_the_best_that_overlaps_none_before_it():
    rng = np.random.default_rng(0)
    corners = np.sort(rng.random((2, 40, 2, 2)), axis=2).reshape(2, 40, 4).astype(np.float32)
    scores = np.round(rng.random((2, 3, 40)), 1).astype(np.float32)  # many are equal: the first goes first
    most, least, limit = 6, 0.3, 0.25
    expected = []
    for b, c in np.ndindex(2, 3):
        taken: list[int] = []
        for n in sorted(range(40), key=lambda n: (-scores[b, c, n], n)):
            alone = all(overlap_of(corners[b, n], corners[b, m]) <= limit for m in taken)
            if scores[b, c, n] > np.float32(least) and alone and len(taken) < most:
                taken.append(n)
        expected += [(b, c, n) for n in taken]
    weights = {"most": np.int64(most), "limit": np.float32(limit), "least": np.float32(least)}
    nms = node("NonMaxSuppression", ["boxes", "scores", *weights])
    m = model([nms], {"boxes": corners.shape, "scores": scores.shape}, weights=weights, types={"y": INT64})
    assert len(expected) > 20
    np.testing.assert_array_equal(at.OnnxModel(m)(corners, scores)[0], expected)


# -- quantised -------------------------------------------------------------------------------------------


def test_quantised_values_round_to_even_and_stay_inside():
    x = np.array([0.5, 1.5, 2.5, -0.5, 300, -300, 127.5], np.float32)
    found = run("QuantizeLinear", x, weights={"s": np.float32(1), "z": np.uint8(128)})
    np.testing.assert_array_equal(found, np.clip(np.rint(x) + 128, 0, 255).astype(np.uint8))


def test_quantised_convolution_with_a_scale_for_each_channel():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, (1, 3, 6, 6)).astype(np.uint8)
    w = rng.integers(-100, 100, (4, 3, 3, 3)).astype(np.int8)
    bias = rng.integers(-500, 500, 4).astype(np.int32)
    scales = np.array([0.01, 0.02, 0.005, 0.03], np.float32)
    weights = {
        **{"xs": np.float32(0.02), "xz": np.uint8(120), "w": w, "ws": scales, "wz": np.zeros(4, np.int8)},
        **{"ys": np.float32(0.5), "yz": np.uint8(100), "b": bias},
    }
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    m = model(
        [node("QLinearConv", names, pads=[1, 1, 1, 1])],
        {"x": x.shape},
        weights=weights,
        types={"x": UINT8, "y": UINT8},
    )
    padded = np.pad(x.astype(np.int64) - 120, ((0, 0), (0, 0), (1, 1), (1, 1)))
    total = np.zeros((1, 4, 6, 6), np.int64)
    for i, j in np.ndindex(3, 3):
        total += np.einsum(
            "nchw,oc->nohw", padded[:, :, i : i + 6, j : j + 6], w[:, :, i, j].astype(np.int64)
        )
    total += bias[:, None, None]
    exact = total * (0.02 * scales / 0.5)[:, None, None]
    wanted = np.clip(np.rint(exact) + 100, 0, 255)
    near_half = np.abs(np.abs(exact - np.trunc(exact)) - 0.5) < 1e-3  # float32 may round those otherwise
    found = at.OnnxModel(m)(x)[0]
    assert found.dtype == np.uint8
    assert np.abs(found.astype(int) - wanted)[~near_half].max() == 0
    assert np.abs(found.astype(int) - wanted).max() <= 1


# -- recurrent -------------------------------------------------------------------------------------------


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


def test_a_bidirectional_lstm_stops_with_each_sequence():
    steps, batch, depth, hidden = 4, 3, 5, 6
    x, w, r = (
        floats(steps, batch, depth),
        floats(2, 4 * hidden, depth, seed=1),
        floats(2, 4 * hidden, hidden, seed=2),
    )
    b, lengths = floats(2, 8 * hidden, seed=3), np.array([4, 2, 1], np.int32)
    m = model(
        [
            node(
                "LSTM",
                ["x", "w", "r", "b", "n"],
                ["y", "h", "c"],
                hidden_size=hidden,
                direction="bidirectional",
            )
        ],
        {"x": x.shape, "n": (batch,)},
        ["y", "h", "c"],
        weights={"w": w, "r": r, "b": b},
        types={"n": INT32},
    )
    y, h, c = at.OnnxModel(m)(x, lengths)
    for d in range(2):
        for k, n in enumerate(lengths):
            state, cell = np.zeros(hidden), np.zeros(hidden)
            for t in range(n)[::-1] if d else range(n):
                gates = w[d] @ x[t, k] + r[d] @ state + b[d, : 4 * hidden] + b[d, 4 * hidden :]
                i, o, f, g = np.split(gates, 4)
                cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
                state = sigmoid(o) * np.tanh(cell)
                np.testing.assert_allclose(y[t, d, k], state, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(h[d, k], state, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(c[d, k], cell, rtol=1e-4, atol=1e-5)
            assert not y[n:, d, k].any()


def test_a_long_sequence_is_one_loop():
    weights = {"w": floats(1, 16, 8), "r": floats(1, 16, 4)}
    m = model([node("LSTM", ["x", "w", "r"], hidden_size=4)], {"x": (600, 1, 8)}, weights=weights)
    assert len(at.plan_model(at.from_onnx(m)).tasks) <= 3


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("layout", [0, 1])
def test_a_loop_over_steps_equals_steps_written_out(op, layout, monkeypatch):
    """Both directions, lengths, initial states: the same as written out."""
    steps, batch, depth, hidden = 11, 3, 4, 5
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    weights = {
        "w": floats(2, gates * hidden, depth, seed=1),
        "r": floats(2, gates * hidden, hidden, seed=2),
        "b": floats(2, 2 * gates * hidden, seed=3),
    }
    states = ["h0", "c0"][: 2 if op == "LSTM" else 1]
    outputs = ["y", "h", "c"][: 1 + len(states)]
    turned = (lambda a: a.swapaxes(0, 1)) if layout else (lambda a: a)
    given = {
        "x": turned(floats(steps, batch, depth)),
        "n": np.array([11, 6, 1], np.int32),
        **{s: turned(floats(2, batch, hidden, seed=4 + k)) for k, s in enumerate(states)},
    }
    m = model(
        [
            node(
                op, ["x", "w", "r", "b", "n", *states], outputs,
                hidden_size=hidden, direction="bidirectional", layout=layout,
            )
        ],
        {k: a.shape for k, a in given.items()},
        outputs,
        weights=weights,
        types={"n": INT32},
    )  # fmt: skip
    whole = at.OnnxModel(m)(**given)
    monkeypatch.setattr(step_loops, "MOST_WRITTEN_OUT", 4)
    for a, b in zip(whole, at.OnnxModel(m)(**given), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_weights_that_are_inputs_reach_every_step(monkeypatch):
    monkeypatch.setattr(step_loops, "MOST_WRITTEN_OUT", 4)
    arrays = {"x": floats(5, 1, 3), "w": floats(1, 2, 3, seed=1), "r": floats(1, 2, 2, seed=2)}
    m = model([node("RNN", ["x", "w", "r"], hidden_size=2)], {n: a.shape for n, a in arrays.items()})
    (y,) = at.OnnxModel(m)(**arrays)
    h = np.zeros(2)
    for t in range(5):
        h = np.tanh(arrays["w"][0] @ arrays["x"][t, 0] + arrays["r"][0] @ h)
        np.testing.assert_allclose(y[t, 0, 0], h, rtol=1e-5, atol=1e-6)


# -- windows ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
def test_transposed_convolutions_are_gradients_of_convolutions(rank, dilation):
    """<conv(a), b> = <a, transposed(b)> for all a, b."""
    extents, kernel = (7, 6, 5)[:rank], (3, 2, 2)[:rank]
    w = floats(4, 3, *kernel, seed=1)
    attrs = {"strides": [2] * rank, "dilations": [dilation] * rank, "pads": [1] * rank + [0] * rank}
    a = floats(1, 3, *extents)
    forward = run("Conv", a, w, **attrs)
    b = floats(*forward.shape, seed=2)
    short = [n - m for n, m in zip(extents, run("ConvTranspose", b, w, **attrs).shape[2:], strict=True)]
    back = run("ConvTranspose", b, w, **attrs, output_padding=short)
    assert back.shape == a.shape
    np.testing.assert_allclose((forward * b).sum(), (a * back).sum(), rtol=1e-3)


def test_a_pool_with_positions_over_several_images():
    x = floats(2, 3, 4, 6)
    m = model(
        [node("MaxPool", ["x"], ["y", "at"], kernel_shape=[2, 3], strides=[2, 3])],
        {"x": x.shape},
        ["y", "at"],
    )
    m.graph.output[1].type.tensor_type.elem_type = INT64
    y, places = evaluate(at.from_onnx(m), x)
    np.testing.assert_array_equal(x.reshape(-1)[places], y)


def test_sixteen_bits_are_rounded_after_every_operator_if_asked():
    """1 + 2⁻¹¹ is 1 in float16, and more in float32."""
    tiny = np.array([2.0**-11], np.float16)
    nodes = [node("Add", ["x0", "one"], ["s"]), node("Sub", ["s", "one"])]
    m = model(
        nodes,
        {"x0": (1,)},
        weights={"one": np.ones(1, np.float16)},
        types=dict.fromkeys(("x0", "y"), TensorProto.FLOAT16),
    )
    assert at.OnnxModel(m)(tiny)[0] == tiny
    assert at.OnnxModel(m, rounded=True)(tiny)[0] == 0


@pytest.mark.parametrize("corners", [0, 1])
def test_cubic_samples_outside_have_weights_of_their_own(corners):
    """As in torch and onnxruntime: what is read outside is the border, and places stay where they are."""
    x, n = floats(1, 1, 1, 6), 6
    at_x = np.array([-1.7, -0.4, -0.01, 0.3, 5.2, 6.9])
    scaled = 2 * at_x / (n - 1) - 1 if corners else (2 * at_x + 1) / n - 1
    grid = np.stack([scaled, np.full(n, 0.0 if not corners else -1.0)], -1)[None, None].astype(np.float32)
    found = run("GridSample", x, grid, opset=20, mode="cubic", padding_mode="border", align_corners=corners)

    def weight(d, a=-0.75):
        d = abs(d)
        if d <= 1:
            return ((a + 2) * d - (a + 3)) * d * d + 1
        return ((d - 5) * d + 8) * d * a - 4 * a if d < 2 else 0.0

    taps = [[(int(np.floor(v)) + k, v - np.floor(v) - k) for k in (-1, 0, 1, 2)] for v in at_x]
    wanted = [sum(x[0, 0, 0, min(max(p, 0), n - 1)] * weight(d) for p, d in row) for row in taps]
    np.testing.assert_allclose(found[0, 0, 0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("size", [(1, 3, 4, 5), (2, 1, 1, 3), (1, 2, 2, 3, 4)])
def test_grids_of_affine_maps(size, corners):
    """By the formula: where -1 and 1 are the borders of the image, or the middles of its outer elements."""
    rank = len(size) - 2
    theta = floats(size[0], rank, rank + 1)
    found = run("AffineGrid", theta, weights={"size": np.array(size)}, opset=20, align_corners=corners)
    assert found.shape == (size[0], *size[2:], rank)
    for n, *place in np.ndindex(size[0], *size[2:]):
        at_axis = [
            2 * p / (e - 1) - 1 if corners and e > 1 else (2 * p + 1) / e - 1
            for p, e in zip(place, size[2:], strict=True)
        ]
        wanted = theta[n] @ np.array([*reversed(at_axis), 1.0])
        np.testing.assert_allclose(found[(n, *place)], wanted, rtol=1e-5, atol=1e-6)


def test_an_lstm_clips_what_its_gates_take_after_their_peepholes():
    """The standard: clipping "is applied to the input of activations"; a peephole's part belongs to it."""
    rng = np.random.default_rng(0)
    steps, rows, wide, hidden, limit = 4, 2, 3, 5, 0.5
    x, w = rng.standard_normal((steps, rows, wide)), rng.standard_normal((4 * hidden, wide))
    r, p = rng.standard_normal((4 * hidden, hidden)), rng.standard_normal((3, hidden))

    def gate(z):
        return 1 / (1 + np.exp(-np.clip(z, -limit, limit)))

    h, c, wanted = np.zeros((rows, hidden)), np.zeros((rows, hidden)), []
    for step in x:
        i, o, f, g = np.split(step @ w.T + h @ r.T, 4, axis=1)
        c = gate(f + p[2] * c) * c + gate(i + p[0] * c) * np.tanh(np.clip(g, -limit, limit))
        h = gate(o + p[1] * c) * np.tanh(c)
        wanted.append(h)
    arrays = [a.astype(np.float32) for a in (x, w[None], r[None], np.zeros((1, 8 * hidden)))]
    weights = {"none": np.full(rows, steps, np.int32), "start": np.zeros((1, rows, hidden), np.float32)}
    weights |= {"again": weights["start"], "p": p.reshape(1, -1).astype(np.float32)}
    found = run("LSTM", *arrays, weights=weights, hidden_size=hidden, clip=limit)
    np.testing.assert_allclose(found[:, 0], wanted, rtol=1e-5, atol=1e-6)


def test_a_transposed_convolution_larger_than_its_windows_has_more_at_its_end():
    x, w = np.array([[[1, 2]]], np.float32), np.ones((1, 1, 1), np.float32)
    for size, wanted in ((3, [1, 0, 2]), (5, [1, 0, 2, 0, 0])):
        for pads in ("NOTSET", "SAME_UPPER", "SAME_LOWER"):
            found = run("ConvTranspose", x, w, strides=[2], output_shape=[size], auto_pad=pads)
            np.testing.assert_array_equal(found, [[wanted]])
    found = run("ConvTranspose", x, w, strides=[3], auto_pad="SAME_UPPER")
    np.testing.assert_array_equal(found, [[[1, 0, 0, 2, 0, 0]]])


def test_places_of_a_symmetric_resize_are_not_rounded_up():
    """(7 - 3/0.5)/2 + 0.5/0.5 - 0.5 is 1; with 7/2*(1 - 3/3.5) it was a bit more."""
    how = {"coordinate_transformation_mode": "half_pixel_symmetric", "mode": "nearest"}
    x, scales = np.arange(7, dtype=np.float32).reshape(1, 7), {"s": np.array([1, 0.5], np.float32)}
    m = model([node("Resize", ["x", "", "s"], nearest_mode="ceil", **how)], {"x": x.shape}, weights=scales)
    np.testing.assert_array_equal(evaluate(at.from_onnx(m), x)[0], [[1, 3, 5]])
