"""Reading files: what is refused, and that nothing outside the model's directory is read."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from making import floats, model, node

import autotensor as at
from autotensor.base.errors import ArtifactError, InputError
from autotensor.frontends.errors import Unsupported
from autotensor.frontends.onnx.errors import Malformed
from autotensor.graph.evaluate import evaluate


def external(directory, entries, shape=(2, 3)):
    """A model whose weight is said to lie elsewhere."""
    m = model([node("Add", ["x", "w"])], {"x": shape}, weights={"w": np.zeros(shape, np.float32)})
    tensor = m.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    path = directory / "m.onnx"
    path.write_bytes(m.SerializeToString())
    return path


def test_tensors_beside_the_model_are_read(tmp_path):
    values = floats(2, 3)
    (tmp_path / "w.bin").write_bytes(b"8 bytes!" + values.tobytes())
    path = external(tmp_path, {"location": "w.bin", "offset": 8, "length": 24})
    np.testing.assert_array_equal(evaluate(at.from_onnx(path), np.zeros((2, 3), np.float32))[0], values)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"location": "../w.bin"}, "tensor 'w' points at '../w.bin', outside the model's directory"),
        ({"location": "/etc/hostname"}, "outside the model's directory"),
        ({"location": "link.bin"}, "outside the model's directory"),
        ({"location": ""}, "outside the model's directory"),
        ({"location": "none.bin"}, "'none.bin', which is not next to the model"),
        (
            {"location": "w.bin", "offset": 1},
            r"needs 24 bytes; .* at 24 bytes from 1 in 'w.bin', which has 24",
        ),
        ({"location": "w.bin", "length": 8}, "needs 24 bytes; the model points at 8"),
        ({"location": "w.bin", "offset": -4}, "'-4' is not a position in a file"),
    ],
)
def test_external_data_that_is_refused(tmp_path, entries, said):
    inside = tmp_path / "models"
    inside.mkdir()
    for place in (tmp_path, inside):
        (place / "w.bin").write_bytes(bytes(24))
    (inside / "link.bin").symlink_to(tmp_path / "w.bin")
    with pytest.raises(Malformed, match=said):
        at.from_onnx(external(inside, entries))


def test_external_data_needs_a_directory(tmp_path):
    data = external(tmp_path, {"location": "w.bin"}).read_bytes()
    with pytest.raises(InputError, match=r"given as bytes has no directory\. Give the path"):
        at.from_onnx(data)


def test_bytes_and_protos_and_paths_are_one_model(tmp_path):
    m = model([node("Relu", ["x"])], {"x": (3,)})
    path = tmp_path / "m.onnx"
    path.write_bytes(m.SerializeToString())
    keys = {at.from_onnx(s).key for s in (m, m.SerializeToString(), path, str(path))}
    assert len(keys) == 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "holds no graph"),
        (b"hello world", "is not an ONNX model"),
        (b"\x00" * 100, "is not an ONNX model"),
    ],
)
def test_other_bytes(data, said):
    with pytest.raises(Malformed, match=said):
        at.from_onnx(data)


def test_an_empty_file(tmp_path):
    path = tmp_path / "m.onnx"
    path.touch()
    with pytest.raises(Malformed, match=r"m\.onnx is empty\."):
        at.from_onnx(path)


def test_a_model_is_no_compiled_file(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(model([node("Relu", ["x"])], {"x": (2,)}).SerializeToString())
    with pytest.raises(
        ArtifactError, match=r"m.onnx is an ONNX model, not a compiled one. at.OnnxModel calls"
    ):
        at.load(path)


@pytest.mark.parametrize("source", [None, 3, onnx.GraphProto()])
def test_what_is_no_model(source):
    with pytest.raises(InputError, match=r"this is a \w+. onnx.helper.make_model makes one of a graph"):
        at.from_onnx(source)


def test_a_model_has_outputs_and_inputs_of_different_names():
    m = model([node("Relu", ["x"])], {"x": (3,)})
    m.graph.input.append(m.graph.input[0])
    with pytest.raises(Malformed, match="model 'g' has several inputs that are called 'x'"):
        at.from_onnx(m)
    with pytest.raises(Malformed, match="model 'g' has no outputs"):
        at.from_onnx(model([node("Relu", ["x"])], {"x": (3,)}, outputs=()))


def test_no_file():
    with pytest.raises(InputError, match=r"there is no model file 'none\.onnx'"):
        at.from_onnx("none.onnx")


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda t: t.dims.append(-1), Malformed, r"tensor 'w' has the shape \[3, -1\]"),
        (lambda t: t.dims.append(1 << 40), Malformed, "is larger than"),
        (lambda t: t.dims.append(2), Malformed, "cannot be read"),
        (
            lambda t: setattr(t, "data_type", 99),
            Malformed,
            "has element type number 99, which does not exist",
        ),
        (lambda t: setattr(t, "data_type", 8), Unsupported, "holds strings"),
    ],
)
def test_tensors_that_are_refused(change, error, said):
    m = model([node("Add", ["x", "w"])], {"x": (3,)}, weights={"w": np.zeros(3, np.float32)})
    change(m.graph.initializer[0])
    with pytest.raises(error, match=said):
        at.from_onnx(m)


def test_extents_below_zero_are_open():
    """PaddleOCR writes -1 where it means any."""
    m = model([node("Relu", ["x"])], {"x": (-1, 3, -1)})
    x = floats(2, 3, 5)
    np.testing.assert_array_equal(at.OnnxModel(m)(x)[0], np.maximum(x, 0))
    assert at.from_onnx(m, shapes={"x": x.shape}).inputs[0].shape == x.shape
    with pytest.raises(InputError, match=r"input x: float32\[\?, 3, \?\] leaves '\?' open"):
        at.from_onnx(m)


def test_an_extent_of_zero_is_none_unless_said():
    m = model([node("Relu", ["x"])], {"x": (0, 3)})
    x = floats(2, 3)
    np.testing.assert_array_equal(at.OnnxModel(m)(x)[0], np.maximum(x, 0))
    assert at.from_onnx(m, shapes={"x": x.shape}).inputs[0].shape == x.shape
    assert at.from_onnx(m).inputs[0].shape == (0, 3)
