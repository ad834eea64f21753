"""Verbs on .onnx files: a path where a model's name would stand."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_tools import cli

import autotensor as at


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTENSOR_DB", str(tmp_path / "own.db"))


def written(name: str, dims: list, nodes=None, scale: float = 1.0) -> np.ndarray:
    """A file of one layer, relu(x @ w); its weight."""
    from onnx import TensorProto, helper, numpy_helper

    w = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32) * np.float32(scale)
    graph = helper.make_graph(
        nodes or [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    Path(name).write_bytes(model.SerializeToString())
    return w


def test_a_file_is_no_task():
    written("layer.onnx", [2, 4])
    path = str(Path("layer.onnx").resolve())
    said = cli("show", path)
    assert said.code == 1
    assert f"{path} is a whole model. Name a task of it: {path}/0" in said.err
    assert cli("show", f"{path}/0", "--as", "trace").code == 0


def test_compile_run_and_load():
    w = written("layer.onnx", ["batch", 4])
    said = cli("compile", "layer.onnx", "--batch", "5")
    assert said.code == 0, said.err
    assert said.out.startswith("layer_b5.atm: ")
    x = np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32)
    np.testing.assert_allclose(at.load("layer_b5.atm")(x), np.maximum(x @ w, 0), rtol=1e-5, atol=1e-6)
    np.save("x.npy", x)
    said = cli("run", "layer.onnx", "--batch", "5", "--input", "x.npy", "--output", "y.npy", "--json")
    document = json.loads(said.out)
    assert document["warning"] == ""
    assert document["outputs"][0]["name"] == "y"
    np.testing.assert_allclose(np.load("y.npy"), np.maximum(x @ w, 0), rtol=1e-5, atol=1e-6)


def test_tasks_and_bench_and_show():
    written("layer.onnx", [2, 4])
    said = cli("tasks", "layer.onnx", "--json")
    assert [t["task"] for t in json.loads(said.out)] == ["layer.onnx/0"]
    assert "vectorized" in cli("show", "layer.onnx/0", "--as", "nest").out
    assert cli("bench", "layer.onnx", "--repeat", "3").out.startswith("layer: median ")


def test_an_open_dimension_is_given_by_shape():
    written("layer.onnx", [1, "seq", 4])
    said = cli("compile", "layer.onnx")
    assert said.code == 1
    assert (
        "layer.onnx: input x: float32[1, seq, 4] leaves 'seq' open. Give its shape: --shape seq=128"
        in said.err
    )
    written("wide.onnx", ["batch", "height", "width", 4])
    said = cli("compile", "wide.onnx").err
    assert "leaves 'height', 'width' open. Give its shape: --shape height=128 --shape width=128" in said
    for shape in ("seq=7", "x=1x7x4"):
        assert cli("compile", "layer.onnx", "--shape", shape).code == 0
        assert at.load("layer.atm").args[0].shape == (1, 7, 4)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["compile", "none.onnx"], "there is no model file 'none.onnx'"),
        (["compile", "layer.onnx", "--batch", "3"], "input x: float32[2, 4] takes a batch of 2, not 3"),
        (
            ["compile", "layer.onnx", "--shape", "n=1x"],
            "'n=1x' is not a shape. Write NAME=128 or NAME=1x3x224x224",
        ),
        (["compile", "layer.onnx", "--shape", "n=1"], "layer.onnx has no input or dimension 'n'; it has x."),
        (["compile", "open.onnx", "--shape", "words=1"], "no input or dimension 'words'; it has x, word."),
        (["compile", "layer.onnx", "--weights", "w.npz"], "layer.onnx holds its weights; --weights has"),
        (["tasks", "mlp", "--shape", "x=1"], "--shape is for .onnx and .pt2 files; mlp has its own shapes."),
        (["tune", "odd.onnx"], "node 'n' (ImageDecoder, opset 17) is not supported"),
        (["tune", "broken.onnx"], "broken.onnx: this is not an ONNX model"),
    ],
)
def test_messages(words, said):
    written("layer.onnx", [2, 4])
    written("open.onnx", [1, "word", 4])
    from onnx import helper

    written("odd.onnx", [2, 4], [helper.make_node("ImageDecoder", ["x"], ["y"], name="n")])
    Path("broken.onnx").write_bytes(b"hello world")
    answer = cli(*words)
    assert answer.code == 1
    assert said in answer.err


def looped(name: str) -> None:
    """y = x doubled until its sum is above 100; a first extent that is left open."""
    from onnx import TensorProto, helper, numpy_helper

    def value(name, kind=TensorProto.FLOAT, dims=()):
        return helper.make_tensor_value_info(name, kind, list(dims))

    nodes = [
        helper.make_node("Add", ["v", "v"], ["v2"]),
        helper.make_node("ReduceSum", ["v2"], ["s"], keepdims=0),
        helper.make_node("Less", ["s", "most"], ["on"]),
    ]
    body = helper.make_graph(
        nodes,
        "body",
        [value("n", TensorProto.INT64), value("go", TensorProto.BOOL), value("v", dims=("b", 4))],
        [value("on", TensorProto.BOOL), value("v2", dims=("b", 4))],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Abs", ["x"], ["a"]),
            helper.make_node("Loop", ["", "", "a"], ["y"], body=body, name="doubling"),
        ],
        "looped",
        [value("x", dims=("batch", 4))],
        [value("y", dims=("batch", 4))],
        [numpy_helper.from_array(np.float32(100), "most")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    Path(name).write_bytes(model.SerializeToString())


def test_a_model_in_parts_runs_and_is_timed():
    looped("looped.onnx")
    x = np.full((2, 4), 0.5, np.float32)
    np.save("x.npy", x)
    said = cli("run", "looped.onnx", "--batch", "2", "--input", "x.npy", "--output", "y.npy", "--json")
    assert said.code == 0, said.err
    assert "it runs in parts, compiled at the first call" in said.err
    assert json.loads(said.out)["outputs"][0]["shape"] == [2, 4]
    np.testing.assert_array_equal(np.load("y.npy"), np.full((2, 4), 16, np.float32))
    assert cli("bench", "looped.onnx", "--repeat", "3").out.startswith("looped: median ")


@pytest.mark.parametrize("verb", ["run", "bench"])
def test_results_that_are_no_tensors(verb):
    """The places of elements that are not zero, as a sequence."""
    from onnx import helper

    nodes = [helper.make_node("NonZero", ["x"], ["at"]), helper.make_node("SequenceConstruct", ["at"], ["y"])]
    written("places.onnx", [2, 4], nodes)
    said = cli(verb, "places.onnx")
    assert said.code == 1
    assert "places.onnx: its result 'y' is not a tensor. Call the model as autotensor.OnnxModel" in said.err


@pytest.mark.parametrize("verb", ["compile", "tune", "tasks"])
def test_a_model_in_parts_is_in_no_file(verb):
    looped("looped.onnx")
    said = cli(verb, "looped.onnx")
    assert said.code == 1
    assert "looped.onnx is not one program: node 'doubling' (Loop, opset 17) has more than 64 ro" in said.err
    assert "call it as autotensor.OnnxModel, or by `autotensor run` and `autotensor bench`" in said.err
    assert not Path("looped.atm").exists()


def test_without_the_package(monkeypatch):
    """The package is needed for the operators that ONNX defines by simpler ones."""
    from onnx import helper

    written("layer.onnx", [2, 4])
    written(
        "defined.onnx",
        [2, 4],
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Bernoulli", ["h"], ["y"])],
    )
    for name in [n for n in sys.modules if n.startswith(("onnx", "autotensor.frontends"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert cli("compile", "layer.onnx").code == 0
    answer = cli("compile", "defined.onnx")
    assert answer.code == 1
    assert "is in the package onnx, which is not installed. pip install 'autotensor[onnx]'" in answer.err


# -- values of inputs ------------------------------------------------------------------------------------


def scaled(name: str) -> None:
    """y = x as often as `times` says, plus `rate`. The first decides a shape: no program has it open."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Cast", ["rate"], ["r"], to=TensorProto.FLOAT),
        helper.make_node("Tile", ["x", "times"], ["t"], name="tiled"),
        helper.make_node("Add", ["t", "r"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    inputs = [
        value("x", TensorProto.FLOAT, [-1, 3]),
        value("times", TensorProto.INT64, [2]),
        value("rate", TensorProto.INT64, []),
    ]
    graph = helper.make_graph(nodes, "scaled", inputs, [value("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    Path(name).write_bytes(model.SerializeToString())


X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_an_inputs_value_at_a_call():
    scaled("scaled.onnx")
    np.save("x.npy", X)
    words = ["--batch", "2", "--input", "times=1,2", "--input", "rate=16000"]
    said = cli("run", "scaled.onnx", *words, "--input", "x=x.npy", "--output", "y.npy")
    assert said.code == 0, said.err
    np.testing.assert_array_equal(np.load("y.npy"), np.tile(X, (1, 2)) + 16000)
    assert "Note: random numbers for" not in said.err
    said = cli("run", "scaled.onnx", *words)
    assert "Note: random numbers for x." in said.err
    np.savez("rest.npz", x=X, times=np.array([2, 1]))
    said = cli("run", "scaled.onnx", "--batch", "2", "-i", "rest.npz", "-i", "rate=7", "--output", "y.npy")
    assert said.code == 0, said.err
    np.testing.assert_array_equal(np.load("y.npy"), np.tile(X, (2, 1)) + 7)


@pytest.mark.parametrize("verb", ["compile", "tasks", "bench"])
def test_an_inputs_value_once_and_for_all(verb):
    scaled("scaled.onnx")
    words = ["--batch", "2", "--input", "times=1,2", "--input", "rate=5"]
    said = cli(verb, "scaled.onnx", *words, *(["--repeat", "3"] if verb == "bench" else []))
    assert said.code == 0, said.err
    if verb == "compile":
        f = at.load("scaled_b2.atm")
        assert [a.name for a in f.args if a.role == "input"] == ["x"]
        np.testing.assert_array_equal(f(X), np.tile(X, (1, 2)) + 5)


def test_a_file_is_not_replaced_by_one_of_another_value():
    scaled("scaled.onnx")
    words = ["compile", "scaled.onnx", "--batch", "2", "--input", "times=1,2"]
    assert cli(*words, "--input", "rate=5").code == 0
    assert cli(*words, "--input", "rate=5").code == 0
    said = cli(*words, "--input", "rate=6")
    assert said.code == 1
    assert "scaled_b2.atm holds scaled with --input rate=5, times=1,2, not --input rate=6," in said.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--input", "speed=1"], "--input: scaled has no input 'speed'. Known: x, times, rate."),
        (["compile", "--input", "rat=1"], "--input: scaled.onnx has no input 'rat'. Did you mean 'rate'?"),
        (["run", "--input", "rate=0.5"], "--input rate: '0.5' is neither a file nor a number of type int64."),
        (
            ["compile", "--input", "rate=x.npy"],
            "'x.npy' is neither a file nor a number of type int64. Write NAME=",
        ),
        (
            ["run", "--input", "times=1,2,3"],
            "--input times gives 3 numbers; the model takes 2, of shape (2,).",
        ),
        (["run", "--input", f"rate={1 << 70}"], f"--input rate={1 << 70}: "),
        (["run", "--input", "rate="], "--input 'rate=' gives no value. Write NAME=16000"),
        (["run", "--input", "rate=1", "--input", "rate=2"], "--input gives 'rate' twice."),
        (["run", "--input", "none.npz"], "there is no input file 'none.npz'"),
        (["run", "--input", "empty.npz"], "input 'empty.npz' holds nothing; the model takes x, times, rate."),
        (
            ["compile", "--input", "scaled.onnx"],
            "--input scaled.onnx: the input's name is missing. Write",
        ),
    ],
)
def test_values_that_are_refused(words, said):
    scaled("scaled.onnx")
    np.savez("empty.npz")
    answer = cli(words[0], "scaled.onnx", *words[1:])
    assert answer.code == 1
    assert said in answer.err


def test_values_are_for_onnx_files():
    assert (
        "--input fixes inputs of .onnx files only; mlp is not an .onnx file."
        in cli("compile", "mlp", "--input", "x=1").err
    )
    written("layer.onnx", [2, 4])
    assert cli("compile", "layer.onnx").code == 0
    said = cli("bench", "layer.atm", "--input", "x=1").err
    assert "layer.atm is compiled: --input has no effect on it." in said


@pytest.mark.parametrize("verb", ["compile", "tune", "run", "bench", "tasks"])
def test_all_that_is_open_is_named_at_once(verb):
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info
    nodes = [helper.make_node("MatMul", ["a", "b"], ["y"])]
    inputs = [value("a", TensorProto.FLOAT, [-1, 3, -1]), value("b", TensorProto.FLOAT, ["n", "k", 5])]
    graph = helper.make_graph(nodes, "g", inputs, [value("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    Path("two.onnx").write_bytes(model.SerializeToString())
    said = cli(verb, "two.onnx")
    assert said.code == 1
    assert (
        "two.onnx: input a: float32[?, 3, ?] leaves '?' open. Give its shape: "
        "--shape a=1x3x128 --shape k=128" in said.err
    )


def test_verify_beside_the_file():
    written("layer.onnx", [2, 4])
    assert cli("compile", "layer.onnx").code == 0
    said = cli("verify", "layer.atm", "--against", "layer.onnx")
    assert said.code == 0, said.out
    assert "All 1 kernels are right, and the model as a whole (" in said.out
    changed = written("other.onnx", [2, 4])
    changed[2, 1] += 0.25
    import onnx
    from onnx import numpy_helper

    model = onnx.load("other.onnx")
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(changed, "w"))
    onnx.save(model, "other.onnx")
    said = cli("verify", "layer.atm", "--against", "other.onnx", "--json")
    document = json.loads(said.out)
    assert said.code == 1
    assert document["first_wrong"] == 0
    said = cli("verify", "layer.atm", "--against", "layer.png")
    assert "--against layer.png: this is neither float64 nor an existing .onnx file." in said.err


def test_verify_beside_a_file_that_computes_something_else():
    """No kernel is wrong, but another file was compiled."""
    from onnx import helper

    written("layer.onnx", [2, 4])
    assert cli("compile", "layer.onnx").code == 0
    written("other.onnx", [2, 4], [helper.make_node("MatMul", ["x", "w"], ["y"])])
    said = cli("verify", "layer.atm", "--against", "other.onnx", "--json")
    document = json.loads(said.out)
    assert said.code == 1
    assert document["first_wrong"] is None
    assert re.match(r"result 'y' differs from onnx.*'s result for other.onnx: ", document["complaints"][0])
    said = cli("verify", "layer.atm", "--against", "other.onnx")
    assert "\nWrong: result 'y' differs from onnx" in said.out
    assert "\nResult 'y' differs from that of onnx" in said.out
    own, other = document["distances"]
    assert own["reference"] == "float64"
    assert own["absolute"] < 1e-5
    assert other["reference"].startswith("onnx")
    assert other["absolute"] == abs(other["ours"] - other["theirs"]) > 0
    wide = [helper.make_node("Transpose", ["w"], ["y"])]
    written("wide.onnx", [2, 4], wide)
    said = cli("verify", "layer.atm", "--against", "wide.onnx", "--json")
    assert re.match(
        r"result 'y' has shape \(2, 3\); onnx.* gives \(3, 4\) for", json.loads(said.out)["complaints"][0]
    )


def test_a_range_is_compiled_as_a_whole():
    w = written("layer.onnx", ["batch", 4])
    for n, shape in enumerate((("--shape", "batch=1..6"), ("--shape", "x=n:1..6x4"), ("--batch", "1..6"))):
        said = cli("compile", "layer.onnx", *shape, "-o", f"{n}.atm")
        assert said.code == 0, said.err
        f = at.load(f"{n}.atm")
        for rows in (1, 5, 6):
            x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
            np.testing.assert_allclose(f(x), np.maximum(x @ w, 0), rtol=1e-5, atol=1e-6)
    assert json.loads(cli("run", "1.atm", "--shape", "n=5", "--json").out)["outputs"][0]["shape"] == [5, 3]
    assert cli("verify", "1.atm", "--against", "layer.onnx").code == 0
    w = written("layer.onnx", ["batch", 4], scale=1.01)
    said = cli("verify", "1.atm", "--against", "layer.onnx")
    assert said.code == 1
    assert "Kernel 0, dense" in said.out, said.out
    said = cli("compile", "layer.onnx", "--batch", "6", "-o", "0.atm")
    assert "the range batch from 1 to 6, not the range of one set of shapes" in said.err
    assert "a C library takes one set of shapes" in cli("compile", "0.atm", "--emit", "c").err


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("batch=8..1", "goes from a smaller extent, at least 1, to a greater one."),
        ("batch=1..9/8", "to a greater one, both multiples of 8."),
        ("batch=1..", "is not a shape. Write NAME=128 or NAME=1x3x224x224; for a range NAME=1..8"),
        ("x=n:1..4x4..8", "model 'layer' at n = 4, x = 8: shapes: (4, 8) does not fit the input x"),
    ],
)
def test_ranges_that_are_none(shape: str, message: str):
    written("layer.onnx", ["batch", 4])
    assert message in cli("compile", "layer.onnx", "--shape", shape).err


def test_two_inputs_agree_about_a_range():
    from autotensor.cli.model_files.onnx_files import parsed_shapes

    with pytest.raises(at.AutotensorError, match=r"n has two ranges, 1\.\.8 and 1\.\.9"):
        parsed_shapes(["x=n:1..8x3", "y=n:1..9x3"])
