"""compare: the output for a quantised file and its file in floats."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_tools import cli

FILES = Path(__file__).parents[1] / "api" / "quantised"
FLOATS, QUANTISED = str(FILES / "float.onnx"), str(FILES / "qoperator.onnx")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTENSOR_DB", str(tmp_path / "own.db"))
    x = np.random.default_rng(2).standard_normal((8, 3, 12, 12)).astype(np.float32)
    np.savez("x.npz", x=x)
    np.save("x.npy", x)


def test_tables():
    said = cli("compare", FLOATS, QUANTISED, "--data", "x.npz")
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert lines[0].split() == ["layer", "operator", "shape", "cosine", "largest", "error", "signal/noise"]
    assert [line.split()[:3] for line in lines[2:7]] == [
        ["c1", "Conv", "4x8x12x12"],
        ["c2", "Conv", "4x8x12x12"],
        ["s", "Add", "4x8x12x12"],
        ["p", "GlobalAveragePool", "4x8x1x1"],
        ["y", "MatMul", "4x5"],
    ]
    assert lines[8].split()[-2:] == ["same", "class"]
    assert lines[10].endswith(" %")
    assert lines[12] == "Most noise: c2 (Conv)."
    assert "times as fast (timed alternately, medians)." in lines[13]


def test_json():
    found = json.loads(cli("compare", FLOATS, QUANTISED, "--data", "x.npz", "--json").out)
    assert found["batches"] == 2
    assert found["worst"] == "c2"
    assert found["layers"][0].keys() == {"name", "op", "shape", "cosine", "max_abs", "snr_db", "top1"}
    assert found["results"][0]["top1"] > 0.8
    assert found["speedup"] > 0
    same = json.loads(cli("compare", FLOATS, FLOATS, "--data", "x.npz", "--json").out)
    assert same["results"][0]["snr_db"] is None
    assert same["results"][0]["max_abs"] == 0


def test_one_file_in_16_bits():
    said = cli("compare", FLOATS, "--data", "x.npz", "--numerics", "bf16")
    assert said.code == 0, said.err
    assert said.out.split()[:2] == ["result", "shape"]
    found = json.loads(cli("compare", FLOATS, "--data", "x.npz", "--numerics", "fp16", "--json").out)
    assert found["layers"] == []
    assert 0.9999 < found["results"][0]["cosine"] <= 1
    assert found["results"][0]["max_abs"] > 0


def test_layers_of_one_file_stay_in_float32():
    words = ("compare", FLOATS, "--data", "x.npz", "--numerics", "bf16", "--keep-float32")
    found = json.loads(cli(*words, "w1,w[23]", "--json").out)
    assert found["results"][0]["max_abs"] == 0
    said = cli(*words, "w4")
    assert said.code != 0
    assert "keep-float32: 'w4' is the name of no layer of model" in " ".join(said.err.split())


def test_one_file_needs_numerics():
    said = " ".join(cli("compare", FLOATS, "--data", "x.npz").err.split())
    assert "is compared with itself under numerics 'fast'. Give a second model, or --numerics bf16" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((FLOATS, "no.onnx", "--data", "x.npz"), "there is no model file 'no.onnx'."),
        (
            (FLOATS, "resnet50", "--data", "x.npz"),
            "'resnet50' is not an .onnx file. Both models are given as",
        ),
        ((FLOATS, QUANTISED, "--data", "no.npz"), "there is no input file 'no.npz'."),
        ((FLOATS, QUANTISED, "--data", FLOATS), "cannot be read"),
        ((FLOATS, QUANTISED, "--data", "x.npy"), "--data 'x.npy' holds one array without a name. np.savez"),
    ],
)
def test_bad_input(words, said):
    ran = cli("compare", *words)
    assert ran.code == 1
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
