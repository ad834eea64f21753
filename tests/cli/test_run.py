"""run, bench, compile: the results of a model, and photos as input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_tools import cli

import autotensor as at
from autotensor.base.errors import InputError
from autotensor.cli.images import MEAN, STD, imagenet_classes, read_input
from autotensor.models import MODELS


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTENSOR_DB", str(tmp_path / "own.db"))


def test_compile_then_run_says_that_weights_are_random(tmp_path):
    said = cli("compile", "mlp")
    assert said.code == 0
    assert "Schedules: 0 from the log, 3 default." in said.out
    for words in (["run", "mlp.atm"], ["run", "mlp"]):
        said = cli(*words)
        assert said.out.startswith("The weights are random, so the answers mean nothing")
        assert len(said.out.splitlines()) == 3 + 5
    assert at.load("mlp.atm").artifact.meta["weights"] == "random"


def test_an_answer_before_the_model_is_compiled(monkeypatch):
    from autotensor.api import model_compiling, models

    assert model_compiling.linked is models.linked  # imported before that is another one
    usual = json.loads(cli("run", "mlp", "--json").out)
    monkeypatch.setattr(models, "linked", lambda *args, **options: pytest.fail("nothing is compiled"))
    said = json.loads(cli("run", "mlp", "--instant", "--json").out)
    assert said["warning"] == usual["warning"]
    best = [[c["class"] for c in x["outputs"][0]["top"][0]] for x in (said, usual)]
    assert best[0] == best[1]
    assert cli("compile", "mlp").code == 0
    assert "mlp.atm is compiled, and needs no --instant" in cli("run", "mlp.atm", "--instant").err


def test_compile_for_c_of_a_model_and_of_a_file():
    assert cli("compile", "mlp", "--emit", "c").out.startswith("mlp: mlp.h ")
    assert cli("compile", "mlp").code == 0
    said = json.loads(cli("compile", "mlp.atm", "--emit", "c", "-o", "a/b", "--name", "net", "--json").out)
    assert {"net.h", "net.o", "net.weights", "net_example.c"} <= set(said["bytes"])
    assert Path("mlp/mlp.weights").read_bytes() == Path("a/b/net.weights").read_bytes()
    said = cli("compile", "mlp.atm", "--emit", "c", "--batch", "2").err
    assert "is compiled: --batch and --shape have no effect on it" in said


def test_own_weights_are_remembered(tmp_path):
    rng = np.random.default_rng(3)
    shapes = {"fc1": (512, 784), "fc2": (256, 512), "fc3": (10, 256)}
    weights = {f"{n}.weight": rng.standard_normal(s, dtype=np.float32) * 0.05 for n, s in shapes.items()}
    weights |= {f"{n}.bias": np.zeros(s[0], np.float32) for n, s in shapes.items()}
    np.savez("w.npz", **weights)
    x = rng.standard_normal((1, 784), dtype=np.float32)
    np.save("x.npy", x)
    said = cli("run", "mlp", "--weights", "w.npz", "--input", "x.npy", "--output", "y.npy", "--json")
    document = json.loads(said.out)
    assert document["warning"] == ""
    y = x
    for n in ("fc1", "fc2", "fc3"):
        y = y @ weights[f"{n}.weight"].T
        y = np.maximum(y, 0) if n != "fc3" else y
    np.testing.assert_allclose(np.load("y.npy"), y, rtol=1e-4, atol=1e-5)
    top = document["outputs"][0]["top"][0]
    assert [t["class"] for t in top] == list(np.argsort(-y[0])[:5])
    assert top[0]["name"] == f"class {top[0]['class']}"


def test_batch_has_its_own_file():
    assert cli("compile", "mlp", "--batch", "2").out.startswith("mlp_b2.atm: ")
    assert "row 1" in cli("run", "mlp_b2.atm").out


def test_input_that_does_not_fit(tmp_path):
    np.save("x.npy", np.zeros((3, 3), np.float32))
    said = cli("run", "mlp", "--input", "x.npy")
    assert said.code == 1
    assert "'x.npy' has shape (3, 3); the model takes (1, 784)" in said.err
    np.save("x.npy", np.zeros((1, 784)))
    said = cli("run", "mlp", "--input", "x.npy")
    assert (said.code, said.out) == (1, "")
    assert said.err.strip().endswith(
        "input 'x.npy' is float64; the model takes float32. "
        "Convert it before it is saved: .astype('float32')."
    )
    np.save("x.npy", np.zeros((1, 784), ">f4"))  # float32 all the same
    assert cli("run", "mlp", "--input", "x.npy").code == 0
    (tmp_path / "p.jpg").write_bytes(b"no photo")
    assert "which is not an image. Give it a .npy file." in cli("run", "mlp", "--input", "p.jpg").err
    (tmp_path / "x.wav").write_bytes(b"")
    assert "has an unknown ending. Known: .npy, .npz, .jpg" in cli("run", "mlp", "--input", "x.wav").err


def pair() -> None:
    """pair.atm: the sum and, as `file`, the difference of x[2, 3] and n[3]."""
    x, n = at.input((2, 3), name="x"), at.input((3,), "int32", name="n")
    f = at.ops.cast(n, "float32")
    graph = at.Graph((x, n), (x + f, x - f), "pair", ("sum", "file"))
    at.compile_model(graph, db=":memory:").save("pair.atm")


def test_several_inputs_and_results_are_files_of_names():
    pair()
    x, n = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, 2, 3], np.int32)
    np.savez("in.npz", n=n, x=x)
    said = cli("run", "pair.atm", "--input", "in.npz", "--output", "out.npz")
    assert said.code == 0, said.err
    assert said.out.splitlines() == [
        "sum: float32[2, 3], from 1 to 8, mean 4.5",  # rows of two results are no classes
        "file: float32[2, 3], from -1 to 2, mean 0.5",
    ]
    out = np.load("out.npz")
    assert set(out) == {"sum", "file"}
    np.testing.assert_array_equal(out["sum"], x + n)
    np.testing.assert_array_equal(out["file"], x - n)


def test_rows_without_a_largest_number_are_no_classes():
    x = at.input((1, 3), name="x")
    at.compile_model(at.Graph((x,), (x * 2.0,), "double", ("y",)), db=":memory:").save("double.atm")
    assert "class 2" in cli("run", "double.atm", "--input", "x=-inf,1,2").out
    for value in ("nan", "inf"):
        said = cli("run", "double.atm", "--input", f"x=0,1,{value}")
        assert (said.code, said.err) == (0, "")
        least = "0" if value == "inf" else "nan"
        assert said.out == f"y: float32[1, 3], from {least} to {value}, mean {value}\n"


def test_results_that_are_shares_already_are_printed_as_they_are():
    x = at.input((1, 3), name="x")
    at.compile_model(at.Graph((x,), (x * 1.0,), "same", ("y",)), db=":memory:").save("same.atm")
    said = cli("run", "same.atm", "--input", "x=0.1,0.7,0.2").out
    assert "softmax" not in said
    assert " 70.00 %  class 1" in said
    said = cli("run", "same.atm", "--input", "x=-1,0,2").out
    assert said.splitlines()[:2] == [
        "y: float32[1, 3], from -1 to 2, mean 0.3333",
        "As a classifier's scores (softmax):",
    ]


def test_files_that_hold_too_little_are_refused():
    pair()
    x = np.zeros((2, 3), np.float32)
    np.save("x.npy", x)
    np.savez("x.npz", x=x)
    np.savez("flat.npz", x=x, n=np.zeros(4, np.int32))
    np.savez("wide.npz", x=x, n=np.zeros(3, np.int64))
    Path("text.npz").write_text("hello")
    Path("torn.npz").write_bytes(Path("x.npz").read_bytes()[:-30])
    for file, expected in {
        "x.npy": "pair takes 2 inputs (x, n); 'x.npy' gives one. Give all inputs in one .npz file, by name",
        "x.npz": "input 'x.npz' holds x; the model takes x, n.",
        "flat.npz": "'n' of 'flat.npz' has shape (4,); the model takes (3,).",
        "wide.npz": "'n' of 'wide.npz' is int64; the model takes int32. Convert it before it is saved",
        "torn.npz": "input 'torn.npz' cannot be read: ",
        "text.npz": "input 'text.npz' cannot be read: it holds no plain arrays.",
    }.items():
        said = cli("run", "pair.atm", "--input", file)
        assert (said.code, said.out) == (1, "")
        assert expected in said.err
    said = cli("run", "pair.atm", "--output", "y.npy")
    assert said.code == 1
    assert "pair has 2 results (sum, file); 'y.npy' holds one. Write all of them, by name" in said.err


def test_trained_digits():
    sklearn = pytest.importorskip("sklearn.datasets", reason="digits come with scikit-learn")
    digits = sklearn.load_digits()
    np.save("x.npy", (digits.images[:1, None] / 16).astype(np.float32))
    top = json.loads(cli("run", "small_cnn", "--input", "x.npy", "--json").out)["outputs"][0]["top"][0]
    assert top[0]["class"] == digits.target[0]


def test_bench_counts_kernels():
    cli("compile", "mlp")
    found = json.loads(cli("bench", "mlp.atm", "--repeat", "5", "--threads", "1", "--json").out)
    assert len(found["samples_s"]) == 5
    assert found["threads"] == 1
    assert 0 < found["p10_s"] <= found["median_s"] <= found["p90_s"]
    assert sum(k["count"] for k in found["kernels"]) == 3
    assert all(k["total_s"] > 0 for k in found["kernels"])
    assert "dense 784->512" in cli("bench", "mlp.atm", "--repeat", "3", "--threads", "1").out


def test_models_lists_all():
    assert [m["name"] for m in json.loads(cli("models", "--json").out)] == list(MODELS.names())


# -- photos ----------------------------------------------------------------------------------------------


def test_class_names():
    names = imagenet_classes()
    assert len(names) == len(set(names)) == 1000
    spots = {
        0: "tench", 151: "Chihuahua", 207: "golden retriever", 285: "Egyptian cat", 340: "zebra",
        388: "giant panda", 463: "bucket", 546: "electric guitar", 661: "Model T", 717: "pickup",
        817: "sports car", 920: "traffic light", 954: "banana", 963: "pizza", 999: "toilet tissue",
    }  # fmt: skip
    assert {n: names[n] for n in spots} == spots


def photo(path, values):
    image = pytest.importorskip("PIL.Image", reason="photos need Pillow")
    image.fromarray(values).save(path)
    return path


def test_photo_is_normalised(tmp_path):
    path = photo(tmp_path / "grey.png", np.full((300, 400, 3), 51, np.uint8))
    x = read_input(path, (2, 3, 224, 224), "float32")
    assert x.shape == (2, 3, 224, 224)
    assert x.dtype == np.float32
    for c in range(3):
        np.testing.assert_allclose(x[:, c], (0.2 - MEAN[c]) / STD[c], atol=1e-6)


def test_photo_is_cropped_in_the_middle(tmp_path):
    values = np.zeros((256, 512, 3), np.uint8)
    values[:, 144:368] = 255  # exactly the middle 224 columns
    x = read_input(photo(tmp_path / "wide.png", values), (1, 3, 224, 224), "float32")
    np.testing.assert_allclose(x[0, 0], (1 - MEAN[0]) / STD[0], atol=1e-6)


def test_photo_equals_torchvisions_steps(tmp_path):
    """Shorter side to 256, bilinear, middle 224x224: what torchvision.transforms does with Pillow images."""
    image = pytest.importorskip("PIL.Image", reason="photos need Pillow")
    rng = np.random.default_rng(0)
    path = photo(tmp_path / "noise.png", rng.integers(0, 256, (333, 500, 3), np.uint8))
    resized = image.open(path).resize((int(256 * 500 / 333), 256), image.Resampling.BILINEAR)
    left, top = round((resized.width - 224) / 2), round((256 - 224) / 2)
    cropped = np.asarray(resized.crop((left, top, left + 224, top + 224)), np.float32) / 255
    expected = ((cropped - np.float32(MEAN)) / np.float32(STD)).transpose(2, 0, 1)
    np.testing.assert_allclose(read_input(path, (1, 3, 224, 224), "float32")[0], expected, atol=1e-5)


def test_grey_photo_for_digits(tmp_path):
    path = photo(tmp_path / "digit.png", np.full((80, 80), 128, np.uint8))
    np.testing.assert_allclose(read_input(path, (1, 1, 8, 8), "float32"), 128 / 255, atol=1e-6)


def test_broken_photo(tmp_path):
    pytest.importorskip("PIL.Image", reason="photos need Pillow")
    (tmp_path / "p.jpg").write_bytes(b"\xff\xd8\xff\xe0 but no photo")
    with pytest.raises(InputError, match=r"photo '.*p\.jpg' cannot be read: "):
        read_input(tmp_path / "p.jpg", (1, 3, 224, 224), "float32")


def test_without_pillow(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    (tmp_path / "p.jpg").write_bytes(b"")
    with pytest.raises(InputError, match=r"reading photos needs Pillow. Install it: pip install pillow"):
        read_input(tmp_path / "p.jpg", (1, 3, 224, 224), "float32")
