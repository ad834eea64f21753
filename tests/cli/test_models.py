"""`autotensor models`: what is listed of the built-in models."""

from __future__ import annotations

import json

from cli_tools import cli

from autotensor.models import MODELS


def test_the_table_and_its_json():
    text = cli("models").out
    line = next(row for row in text.splitlines() if row.startswith("gpt2_decode"))
    assert "124 M" in line
    assert "0.257" in line
    assert "input_ids: int64[1, 1], position: int64[1], cache: float32[12, 2, 1, 12, 256, 64]" in line
    found = {row["name"]: row for row in json.loads(cli("models", "--json").out)}
    assert set(found) == set(MODELS)
    assert found["resnet50"] == {
        "name": "resnet50",
        "about": "ResNet-50 for 224x224 images, 1000 classes",
        "parameters": 25_557_032,
        "gflop": 8.22,
        "inputs": "x: float32[1, 3, 224, 224]",
        "weights": "random, or --weights FILE",
    }
    assert found["small_cnn"]["weights"] == "come with it"
