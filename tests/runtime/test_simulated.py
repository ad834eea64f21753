"""Functions that Python runs: the same calls, and the same words, as for compiled ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from autotensor.base.errors import ArgumentError
from autotensor.base.target import Target
from autotensor.runtime.arrays import Array
from autotensor.runtime.files.artifact import ArgSpec, Artifact
from autotensor.runtime.files.artifact_file import load as load_artifact
from autotensor.runtime.simulated import Hosted


def scaled() -> Hosted:
    specs = (("x", "input"), ("w", "constant"), ("t", "workspace"), ("y", "output"))
    args = tuple(ArgSpec(name, role, (3,), "float32") for name, role in specs)

    def run(arrays: Mapping[str, Array]) -> int:
        arrays["t"][...] = arrays["x"] * arrays["w"]
        arrays["y"][...] = arrays["t"]
        return 7

    return Hosted(Artifact("scaled", Target("toy"), "scaled", None, args, (), texts={"te": "y = x*w"}), run)


X, W = np.array([1, 2, 3], np.float32), np.array([2, 2, 3], np.float32)


def test_calls() -> None:
    f = scaled()
    assert f(X, W).tolist() == [2, 4, 9]
    assert f.report == 7
    y = np.empty(3, np.float32)
    assert f(X, W, y) is None
    assert y.tolist() == [2, 4, 9]
    assert f(X, W, out=y) is y
    assert f(w=W, x=X).tolist() == [2, 4, 9]
    assert "x: float32[3]" in repr(f)
    assert [a.name for a in f.args] == ["x", "w", "y"]
    assert "y" in str(f.signature)
    assert len(f.time([X, W], repeat=3, min_seconds=0.0)) == 3


def test_bound_and_saved(tmp_path: Path) -> None:
    g = scaled().bind(w=W)
    assert g(X).tolist() == [2, 4, 9]
    g.save(tmp_path / "k.atm")
    assert load_artifact(tmp_path / "k.atm").values["w"].tolist() == [2, 2, 3]
    with pytest.raises(ArgumentError, match="scaled has no free constant 'w'"):
        g.bind(w=W)


def test_refusals() -> None:
    f = scaled()
    with pytest.raises(ArgumentError, match=r"argument 'x' is float64\[3\]; expected float32\[3\]"):
        f(X.astype("float64"), W)
    with pytest.raises(ArgumentError, match="output 'y' shares memory with 'x'"):
        f(X, W, X)
    with pytest.raises(ArgumentError, match="keeps no text 'llvm'"):
        f.source("llvm")
