"""MatMulNBits: weights of 4 and 8 bits with scales by blocks, against onnxruntime and NumPy in float64."""

from __future__ import annotations

from math import ceil

import numpy as np
import onnx
import pytest
from making import floats, model, node

import autotensor as at
from autotensor.frontends.errors import Unsupported
from autotensor.frontends.onnx.errors import Malformed

pytestmark = pytest.mark.onnx
onnxruntime = pytest.importorskip("onnxruntime")


def weights(n: int, k: int, bits: int, size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bytes [n, blocks, bytes], scales [n, blocks], zero points [n, blocks]."""
    rng, blocks = np.random.default_rng(seed), ceil(k / size)
    q = rng.integers(0, 256, (n, blocks, size * bits // 8)).astype(np.uint8)
    return q, rng.uniform(0.01, 0.1, (n, blocks)).astype(np.float32), rng.integers(0, 1 << bits, (n, blocks))


def packed(zero: np.ndarray, bits: int) -> np.ndarray:
    """Zero points in the operator's form: two in a byte, and each row in bytes of its own."""
    if bits == 8:
        return zero.astype(np.uint8)
    even = np.pad(zero, ((0, 0), (0, zero.shape[1] % 2)))
    return (even[:, ::2] | even[:, 1::2] << 4).astype(np.uint8)


def exact(x: np.ndarray, q: np.ndarray, scale: np.ndarray, zero: np.ndarray, bits: int) -> np.ndarray:
    """The product in float64, of weights written out one by one."""
    n, blocks, length = q.shape
    each = np.zeros((n, blocks, length * 8 // bits))
    for i in range(each.shape[2]):
        each[:, :, i] = q.astype(int)[:, :, i * bits // 8] // (1 << i * bits % 8) % (1 << bits)
    each = (each - zero[:, :, None]) * scale[:, :, None].astype(np.float64)
    return x.astype(np.float64) @ each.reshape(n, -1)[:, : x.shape[-1]].T


def one(x_shape: tuple[int, ...], given: dict[str, np.ndarray | None], **attrs: int) -> onnx.ModelProto:
    names = ["x", *(name if a is not None else "" for name, a in given.items())]
    while not names[-1]:
        names.pop()
    made = model(
        [node("MatMulNBits", names, domain="com.microsoft", **attrs)],
        {"x": x_shape},
        weights={name: a for name, a in given.items() if a is not None},
        domains=("com.microsoft",),
    )
    made.graph.output[0].ClearField("type")
    return made


def by_onnxruntime(m: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(m.SerializeToString(), options, ["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": x})
    return y


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(
    ("shape", "n", "size", "zeros", "bias"),
    [
        ((1, 64), 40, 16, "none", False),
        ((3, 96), 33, 32, "packed", False),
        ((2, 3, 200), 17, 64, "packed", True),  # the last block is not whole
        ((1, 128), 64, 128, "none", True),
        ((5, 512), 24, 256, "floats", False),
    ],
)
def test_as_onnxruntime(bits, shape, n, size, zeros, bias):
    q, scale, zero = weights(n, shape[-1], bits, size)
    forms = {"none": None, "packed": packed(zero, bits), "floats": zero.astype(np.float32)}
    shift = floats(n, seed=4) if bias else None
    given = {"q": q, "scale": scale, "zero": forms[zeros], "index": None, "bias": shift}
    m = one(shape, given, K=shape[-1], N=n, bits=bits, block_size=size)
    x = floats(*shape, seed=2)
    (found,) = at.OnnxModel(m)(x=x)
    wanted = exact(x, q, scale, zero if zeros != "none" else np.full_like(zero, 1 << bits - 1), bits)
    wanted = wanted + (0 if shift is None else shift)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-6 * np.abs(wanted).max())
    if (bits, zeros) == (8, "floats"):
        return  # onnxruntime accepts floats as zero points only for 4 bits
    np.testing.assert_allclose(found, by_onnxruntime(m, x), rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def test_flat_operands():
    """Weights, scales and zero points as vectors, as onnxruntime's own tools have written them."""
    q, scale, zero = weights(12, 96, 4, 32)
    m = one(
        (2, 96),
        {"q": q, "scale": scale.reshape(-1), "zero": packed(zero, 4).reshape(-1)},
        K=96, N=12, bits=4, block_size=32, accuracy_level=4,
    )  # fmt: skip
    x = floats(2, 96)
    (found,) = at.OnnxModel(m)(x=x)
    np.testing.assert_allclose(found, exact(x, q, scale, zero, 4), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("attrs", "change", "error", "said"),
    [
        ({"bits": 2}, {}, Unsupported, "weights of 2 bits. Known: 4 and 8."),
        ({"block_size": 24}, {}, Malformed, "blocks of 24 elements"),
        ({"K": 63}, {}, Malformed, r"operand 0 of shape \(1, 64\) does not end in K = 63"),
        ({"N": 9}, {}, Malformed, "its weights have shape .*, expected 288 elements"),
        ({}, {"scale": np.ones(3, np.float32)}, Malformed, r"its scales have shape \(3,\), expected 16"),
        ({}, {"zero": np.ones(3, np.uint8)}, Malformed, r"its zero points have shape \(3,\), expected 8 b"),
        ({}, {"index": np.zeros(64, np.int32)}, Unsupported, "its operand g_idx is not supported"),
    ],
)
def test_what_is_refused(attrs, change, error, said):
    q, scale, _ = weights(8, 64, 4, 32)
    given = {"q": q, "scale": scale, "zero": None, "index": None, **change}
    m = one((1, 64), given, **{"K": 64, "N": 8, "bits": 4, "block_size": 32, **attrs})
    with pytest.raises(error, match=said):
        at.OnnxModel(m)(x=floats(1, 64))
