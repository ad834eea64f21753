"""Weights of models: they are in the file once, the first process that loads it prepares them, and later ones
share them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import autotensor as at
from autotensor.base import switches
from autotensor.base.errors import ArgumentError, ArtifactError
from autotensor.runtime.files import artifact_file as artifacts
from autotensor.runtime.module import Module

X = np.random.default_rng(1).standard_normal((1, 16, 14, 14)).astype(np.float32)


def net() -> at.Graph:
    """Convolutions, two of them with equal weights, and a product that reads its weights in their own
    layout."""
    rng = np.random.default_rng(0)
    x = at.input((1, 16, 14, 14), name="x")
    w = rng.standard_normal((16, 16, 3, 3)).astype(np.float32)
    y = at.ops.conv2d(at.ops.conv2d(x, w, padding=1), w, padding=1)
    y = at.ops.relu(at.ops.conv2d(y, rng.standard_normal((64, 16, 3, 3)).astype(np.float32), padding=1))
    y = at.ops.flatten(at.ops.global_avg_pool2d(y))
    return at.Graph((x,), (at.ops.dense(y, rng.standard_normal((40, 64)).astype(np.float32)),), "net")


@pytest.fixture(scope="module")
def model() -> Module:
    found = at.compile_model(net())
    assert isinstance(found, Module)
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of prepared weights."""
    monkeypatch.setenv("AUTOTENSOR_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "prepared"


def entries(folder: Path) -> list[Path]:
    return [p for p in folder.glob("*/*/*") if p.is_file()]


def test_every_weight_is_kept_once_as_it_is(model: Module) -> None:
    constants = net().constants
    kept = model.artifact.values
    assert sum(v.nbytes for v in kept.values()) == sum(c.array.nbytes for c in constants)
    assert {v.tobytes() for v in kept.values()} == {c.array.tobytes() for c in constants}
    equal = [k["slots"] for k in model.artifact.meta["kernels"] if k["name"].startswith("conv2d")][:2]
    prepared = {n for n, a in enumerate(model.artifact.args) if a.role == "prepared"}
    assert [n for n, _ in equal[0] if n in prepared] == [n for n, _ in equal[1] if n in prepared] != []


def test_all_ways_to_the_same_bits(model: Module, folder: Path, tmp_path: Path) -> None:
    want = model(X)
    model.save(tmp_path / "plain.atm")
    model.save(tmp_path / "prepared.atm", store="prepared")
    assert (at.load(tmp_path / "prepared.atm")(X) == want).all()
    assert not entries(folder)
    first = at.load(tmp_path / "plain.atm")
    (entry,) = entries(folder)
    written = entry.stat().st_ino
    again = at.load(tmp_path / "plain.atm")
    assert entries(folder) == [entry]
    assert entry.stat().st_ino == written
    for f in (first, again):
        assert (f(X) == want).all()
    data = bytearray(entry.read_bytes())
    data[5000] ^= 1
    entry.write_bytes(data)
    assert (at.load(tmp_path / "plain.atm")(X) == want).all()
    with switches.override(prepared_bytes=0):
        assert (at.load(tmp_path / "plain.atm")(X) == want).all()


def test_what_was_saved_is_saved_again(model: Module, folder: Path, tmp_path: Path) -> None:
    model.save(tmp_path / "a.atm")
    model.save(tmp_path / "b.atm", store="prepared")
    at.load(tmp_path / "a.atm").save(tmp_path / "c.atm")
    assert (tmp_path / "a.atm").read_bytes() == (tmp_path / "c.atm").read_bytes()
    at.load(tmp_path / "a.atm").save(tmp_path / "d.atm", store="prepared")
    at.load(tmp_path / "b.atm").save(tmp_path / "e.atm")
    same = (tmp_path / "b.atm").read_bytes()
    assert (tmp_path / "d.atm").read_bytes() == (tmp_path / "e.atm").read_bytes() == same
    with pytest.raises(ArgumentError, match="net keeps only its prepared constants"):
        at.load(tmp_path / "b.atm").save(tmp_path / "f.atm", store="plain")
    with pytest.raises(ArgumentError, match="store is 'packed'"):
        model.save(tmp_path / "f.atm", store="packed")  # type: ignore[arg-type]


def test_another_file_has_its_own_entry(model: Module, folder: Path, tmp_path: Path) -> None:
    model.save(tmp_path / "a.atm")
    values = {n: v * 2 for n, v in model.artifact.values.items()}
    artifacts.save(tmp_path / "b.atm", replace(model.artifact, values=values))
    for name in ("a", "b"):
        at.load(tmp_path / f"{name}.atm")
    assert len(entries(folder)) == 2
    assert not (at.load(tmp_path / "b.atm")(X) == model(X)).all()


def test_processes_that_begin_at_once(model: Module, folder: Path, tmp_path: Path) -> None:
    model.save(tmp_path / "net.atm")
    np.save(tmp_path / "x.npy", X)
    script = (
        "import sys, numpy as np, autotensor as at\n"
        f"print(at.load({str(tmp_path / 'net.atm')!r})(np.load({str(tmp_path / 'x.npy')!r})).tobytes().hex())"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    told = {p.communicate(timeout=120)[0].strip() for p in running}
    assert told == {model(X).tobytes().hex()}
    assert len(entries(folder)) == 1


def test_a_model_without_a_weight_is_none(model: Module, tmp_path: Path) -> None:
    values = dict(model.artifact.values)
    missing = min(values)
    del values[missing]
    artifacts.save(tmp_path / "net.atm", replace(model.artifact, values=values))
    with pytest.raises(ArtifactError, match="it is a model and has no value for"):
        at.load(tmp_path / "net.atm")
