"""Hostile files: each is refused in a sentence, in little memory, and none ends the process (hostile.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile import HARMLESS, Write, body, looped, waiting
from hostile_child import GIGABYTES, SECONDS
from hostile_operators import KINDS
from onnx import helper

import autotensor as at
from autotensor.frontends.errors import Unsupported
from autotensor.frontends.onnx.families import control

CHILD = Path(__file__).with_name("hostile_child.py")
SLOW = [n for n in KINDS if "stays true" in n]  # many rounds are run
QUICK = [n for n in KINDS if n not in SLOW]


def answers(files: Mapping[str, Write], directory: Path) -> dict[str, dict[str, Any]]:
    """What `autotensor run` says of each file, by name."""
    listed = []
    for n, (name, write) in enumerate(files.items()):
        own = directory / str(n)
        own.mkdir()
        listed.append({"name": name, "path": str(write(own))})
    (directory / "files.json").write_text(json.dumps(listed))
    words = [sys.executable, str(CHILD), str(directory / "files.json"), str(directory / "answers.json")]
    subprocess.run(words, check=True)
    found = json.loads((directory / "answers.json").read_text())
    assert [f["name"] for f in found] == list(files)
    return {f["name"]: f for f in found}


def check_refused(names: list[str], directory: Path) -> None:
    wrong = {}
    for name, a in answers({n: KINDS[n] for n in names}, directory).items():
        said = a["said"].strip()
        last = said.splitlines()[-1] if said else ""
        is_sentence = last.startswith("autotensor: ")
        is_raw = "internal error" in said or "Traceback" in said
        if a["code"] not in (1, 2) or not is_sentence or is_raw or a["gigabytes"] > GIGABYTES:
            wrong[name] = a
        assert a["seconds"] < SECONDS, name
    assert not wrong


def check_runs(names: list[str], directory: Path) -> None:
    found = answers({n: HARMLESS[n] for n in names}, directory)
    assert not {n: a for n, a in found.items() if a["code"] or a["gigabytes"] > GIGABYTES}


def test_there_are_enough_of_them():
    assert len(KINDS) >= 300
    assert len(HARMLESS) >= 40


def test_a_sample_is_refused(tmp_path):
    check_refused(QUICK[::7], tmp_path)


def test_a_sample_of_what_only_looks_bad_runs(tmp_path):
    check_runs(list(HARMLESS)[::6], tmp_path)


SAID = {
    "an attribute twice": "it has several attributes 'pads'",
    "a reference outside a function": "its attribute 'hidden_size' is a function's, and it is in none",
    "a weight of 10,000 axes": "tensor 'w' has 10000 axes; at most 64 are supported",
    "external data behind a link to itself": "points at 'self.bin', which is not a file (",
    "external data at a very long place": f"points at {'a' * 80!r}, which is not a file (File name too long)",
    "ConstantOfShape of 2 GB": "float32[536870912] depends on no input and is larger than 536870912 bytes",
    "Loop of 1e18 rounds": "1000000000000000000 rounds; at most 262144 are run",
    "Loop without an end": "endless rounds; at most 262144 are run",
    "Split into 1e12": "1000000000000 parts are to be made, and 1 are named",
    "Slice of an axis twice": "axes (0, 0) name one twice",
    "Flatten at 2^62": "axis 4611686018427387904 does not exist; there are 2",
    "Constant of everything": "a constant given several times, by value_float, value_int",
    "LSTM in no direction": "direction 'up' and hidden_size 4; the weights r (1, 16, 4) have 4 states",
    "ScatterND outside": "some places lie outside of x (2, 3)",
    "OneHot of -3": "-3 classes are wanted",
    "OneHot of 2^30": "1073741824 classes are wanted",
    "Concat along no axis": "attribute 'axis' is missing",
    "Col2Im to 1e12": "an image (1000000000000, 5), more than 16777216 elements",
    "AffineGrid to 1e12": "images of size (1, 3, 1000000000000, 4), more than 16777216 points",
    "Col2Im by strides of 0": "strides (0, 1), dilations (1, 1), pads (0, 0, 0, 0)",
    "RoiAlign of another image": "region 0 is [nan, nan, nan, nan] of image 7 of 1",
    "ReverseSequence of too few lines": "lengths (1,) of lines along axis 0 of (2, 3), batch axis 1",
    "ReverseSequence of -9 elements": "lengths from -9 to 1 of lines of 2 elements",
    "Compress behind the end": "a condition (9,) on 2 elements",
    "NonMaxSuppression of other boxes": "boxes (1, 5, 4) and scores (1, 1, 2)",
    "LSTM of 99 steps of 2": "sequences of 99 to 99 steps; there are 2",
    "LpPool of power -1": "p is -1; a norm's is 1 or more",
    "BitShift upwards": "direction 'UP' is neither LEFT nor RIGHT",
    "an input that is a sequence": "input 'x' is not a tensor. Call the model through autotensor.OnnxModel",
}


def test_what_is_said(tmp_path):
    found = answers({n: KINDS[n] for n in SAID}, tmp_path)
    assert {n: found[n]["said"] for n, text in SAID.items() if text not in found[n]["said"]} == {}


def grown() -> bytes:
    """A Loop whose state doubles at each of a hundred rounds."""
    twice = body([helper.make_node("Concat", ["v", "v"], ["v2"], axis=0)])
    return looped(100, twice).SerializeToString()


def test_a_loop_that_grows(monkeypatch):
    monkeypatch.setattr(control, "ROOM", 1 << 12)
    with pytest.raises(Unsupported, match="what it hands on has grown to more than 65536 bytes in 12 rounds"):
        at.OnnxModel(grown())(np.ones((2, 3), np.float32))


def test_a_loop_that_does_not_end(monkeypatch):
    monkeypatch.setattr(control, "MOST_ROUNDS", 100)
    with pytest.raises(Unsupported, match="it has not ended after 100 rounds"):
        at.OnnxModel(waiting(""))(np.ones((2, 3), np.float32))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_are_refused(tmp_path):
    check_refused(QUICK, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SLOW)
def test_endless_ones_are_refused(name, tmp_path):
    check_refused([name], tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_that_only_look_bad_run(tmp_path):
    check_runs(list(HARMLESS), tmp_path)
