"""Random models against onnxruntime; random damage to models: a right answer, or an error of ours."""

from __future__ import annotations

import contextlib
import random
import resource
import time

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, assume, given, settings
from making import floats, model, node
from random_models import Drawn, models

import autotensor as at
from autotensor.base.errors import AutotensorError

SECONDS = 5.0  # of processor time: other work on the machine does not count
GIGABYTES = 2.0


def by_onnxruntime(drawn: Drawn) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(drawn.model.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, drawn.inputs)


def assert_equal(drawn: Drawn) -> None:
    wanted = by_onnxruntime(drawn)
    assume(all(np.isfinite(w).all() and np.abs(w).max(initial=0) < 1e6 for w in wanted))
    found = at.OnnxModel(drawn.model)(**drawn.inputs)
    for f, w in zip(found, wanted, strict=True):
        assert f.dtype == w.dtype
        scale = float(np.abs(w).max(initial=1.0))
        np.testing.assert_allclose(f, w, rtol=1e-3, atol=1e-4 * scale)


QUIET = [
    HealthCheck.too_slow,
    HealthCheck.filter_too_much,
    HealthCheck.data_too_large,
    HealthCheck.large_base_example,
]


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=QUIET)
@given(models())
def test_random_models_equal_onnxruntime(drawn: Drawn):
    assert_equal(drawn)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=500, deadline=None, derandomize=True, suppress_health_check=QUIET)
@given(models(most=14))
def test_many_random_models_equal_onnxruntime(drawn: Drawn):
    assert_equal(drawn)


# -- damage ----------------------------------------------------------------------------------------------


def few() -> list[tuple[bytes, list[np.ndarray]]]:
    """Models to damage, with inputs: one of each kind of trouble."""
    x = floats(2, 3, 6, 6)
    shape = {"x": x.shape}
    conv = node("Conv", ["x", "w"], pads=[1, 1, 1, 1], group=1, strides=[1, 2])
    flat = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "i"], ["n"]),
        node("Concat", ["n", "r"], ["t"], axis=0),
        node("Reshape", ["x", "t"]),
    ]
    cut = [
        node("Slice", ["x", "i", "n", "a"], ["c"]),
        node("Pad", ["c", "p"], ["d"]),
        node("Softmax", ["d"], axis=1),
    ]
    gate = [node("LSTM", ["l", "w", "r"], ["", "y"], hidden_size=4)]
    found = [
        (model([conv], shape, weights={"w": floats(4, 3, 3, 3)}), [x]),
        (model(flat, shape, weights={"i": np.array([0]), "r": np.array([-1])}), [x]),
        (
            model(
                cut,
                shape,
                weights={
                    k: np.array(v) for k, v in {"i": [1], "n": [5], "a": [2], "p": [0, 0, 1, 1] * 2}.items()
                },
            ),
            [x],
        ),
        (
            model(gate, {"l": (3, 1, 2)}, weights={"w": floats(1, 16, 2), "r": floats(1, 16, 4)}),
            [floats(3, 1, 2)],
        ),
    ]
    return [(m.SerializeToString(), inputs) for m, inputs in found]


def many() -> list[tuple[bytes, list[np.ndarray]]]:
    """Tests of the onnx package, of all kinds."""
    from onnx_suite import node_cases

    chosen = [c for c in node_cases() if len(c.model.SerializeToString()) < 4000][::41]
    return few() + [(c.model.SerializeToString(), c.data[0][0]) for c in chosen]


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, cut out, doubled or put in; or the end cut off."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at_, size = rng.randrange(len(out) + 1), rng.choice((1, 1, 2, 8))
        match rng.randrange(6):
            case 0 | 1 if at_ < len(out):
                out[at_] = rng.choice(
                    (0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256), out[at_] ^ 1 << rng.randrange(8))
                )
            case 2:
                del out[at_ : at_ + size]
            case 3:
                out[at_:at_] = out[at_ : at_ + size]
            case 4:
                out[at_:at_] = rng.randbytes(size)
            case _ if rng.randrange(4) == 0:
                del out[at_:]
    return bytes(out)


def altered(data: bytes, rng: random.Random) -> bytes:
    """A well-formed file that says something else: another number, operator, name or type."""
    m = onnx.ModelProto.FromString(data)
    node = rng.choice(m.graph.node)
    odd = (0, -1, 2, 7, 1 << 31, -(1 << 62), (1 << 62))
    match rng.randrange(7):
        case 0 if node.attribute:
            a = rng.choice(node.attribute)
            a.i = rng.choice(odd)
            for n in range(len(a.ints)):
                if rng.random() < 0.5:
                    a.ints[n] = rng.choice(odd)
        case 1:
            node.op_type = rng.choice(
                [n.op_type for n in m.graph.node] + ["Reshape", "Conv", "Loop", "Resize", "LSTM"]
            )
        case 2 if node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice(
                [*(i.name for i in m.graph.input), "", "none", *node.output]
            )
        case 3 if m.graph.initializer:
            t = rng.choice(m.graph.initializer)
            t.dims.append(rng.choice(odd))
        case 4 if m.graph.input:
            v = rng.choice(m.graph.input)
            v.type.tensor_type.elem_type = rng.randrange(24)
        case 5:
            m.opset_import[0].version = rng.choice((1, 6, 7, 9, 11, 13, 18, 21, 99))
        case _:
            node.attribute.append(
                onnx.helper.make_attribute(
                    rng.choice(("axis", "group", "pads", "to", "perm", "mode")),
                    rng.choice([rng.choice(odd), [0, 0], "x", 0.5]),
                )
            )
    return m.SerializeToString()


def survives(count: int, seed: int, sources: list[tuple[bytes, list[np.ndarray]]]) -> None:
    rng = random.Random(seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for n in range(count):
        data, inputs = rng.choice(sources)
        data = (damaged if n % 2 else altered)(data, rng)
        began = time.process_time()
        with contextlib.suppress(AutotensorError):  # anything else fails
            at.OnnxModel(data)(*inputs)
        assert time.process_time() - began < SECONDS, f"file {n} of seed {seed} took too long"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
    assert grown < GIGABYTES


def test_damaged_files_are_refused_or_run():
    survives(50, 1, few())


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(4))
def test_many_damaged_files_are_refused_or_run(seed: int):
    survives(250, 100 + seed, many())
