"""Verbs on programs of torch.export: a .pt2 file where a model's name would stand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_tools import cli

import autotensor as at

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTENSOR_DB", str(tmp_path / "own.db"))


def written(name: str, batch: object = None) -> torch.nn.Module:
    """A program of one layer; its module."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
    shapes = None if batch is None else ({0: batch},)
    torch.export.save(torch.export.export(net, (torch.randn(2, 4),), dynamic_shapes=shapes), name)
    return net


def test_compile_run_tune_and_bench():
    net = written("net.pt2")
    said = cli("compile", "net.pt2")
    assert said.code == 0, said.err
    x = np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32)
    wanted = net(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(at.load("net.atm")(x), wanted, rtol=1e-5, atol=1e-6)
    np.save("x.npy", x)
    assert cli("run", "net.pt2", "--input", "x.npy", "--output", "y.npy").code == 0
    np.testing.assert_allclose(np.load("y.npy"), wanted, rtol=1e-5, atol=1e-6)
    said = cli("tune", "net.pt2", "--trials", "2", "-o", "tuned.atm")
    assert said.code == 0, said.err
    np.testing.assert_allclose(at.load("tuned.atm")(x), wanted, rtol=1e-5, atol=1e-6)
    assert [t["task"] for t in json.loads(cli("tasks", "net.pt2", "--json").out)] == ["net.pt2/0"]


def test_open_extents():
    written("net.pt2", torch.export.Dim("batch", max=9))
    assert cli("compile", "net.pt2", "--batch", "5").code == 0
    assert at.load("net_b5.atm").signature.inputs[0].shape == (5, 4)
    assert cli("compile", "net.pt2", "--shape", "input=7x4", "-o", "seven.atm").code == 0
    assert at.load("seven.atm").signature.inputs[0].shape == (7, 4)
    said = cli("compile", "net.pt2", "--batch", "12")
    assert (said.code, "axis 0 of input 'input' is 12; it takes 0 to 9." in said.err) == (1, True), said.err
    said = cli("compile", "net.pt2", "--batch", "1..12", "--force")
    assert (said.code, "axis 0 of input 'input' is 1 to 12; it takes 0 to 9." in said.err) == (1, True), (
        said.err
    )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ((), "batch"),
        (("--batch", "1..8"), "batch"),
        (("--shape", "batch=1..8"), "batch"),
        (("--shape", "input=rows:1..8x4"), "rows"),
    ],
)
def test_a_dim_stays_open(options, named):
    net = written("net.pt2", torch.export.Dim("b", min=1, max=8))
    said = cli("compile", "net.pt2", *options)
    assert said.code == 0, said.err
    f = at.load("net.atm")
    assert f.open_shapes.ranges() == f"{named} from 1 to 8"
    for rows in (1, 3, 8):
        x = torch.randn(rows, 4)
        np.testing.assert_allclose(f(x.numpy()), net(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_two_dims_of_two_inputs():
    class Masked(torch.nn.Module):
        def forward(self, ids, mask):
            return (ids.float() * mask).relu()

    b, n = torch.export.Dim("b", min=1, max=8), torch.export.Dim("len", min=2)
    example = (torch.ones(2, 5, dtype=torch.long), torch.ones(2, 5))
    program = torch.export.export(Masked(), example, dynamic_shapes=({0: b, 1: n}, {0: b, 1: n}))
    torch.export.save(program, "net.pt2")
    said = cli("compile", "net.pt2")
    assert said.code == 1
    wanted = "ids_1 (axis 1 of ids) has no greatest extent. Give a number or a range: --shape ids_1=128"
    assert wanted in " ".join(said.err.split())
    said = cli("compile", "net.pt2", "--shape", "ids=b:1..8xn:2..16")
    assert said.code == 0, said.err
    assert at.load("net.atm")(np.full((3, 7), 2), np.ones((3, 7), np.float32)).shape == (3, 7)
    said = cli("compile", "net.pt2", "--batch", "4", "--shape", "ids_1=2..16", "-o", "four.atm")
    assert said.code == 0, said.err
    assert at.load("four.atm").open_shapes.ranges() == "ids_1 from 2 to 16"


def test_a_batch_without_end_is_one_and_a_note_says_so():
    written("net.pt2", torch.export.Dim("batch"))
    said = cli("compile", "net.pt2")
    assert "Note: batch has no greatest extent; net.pt2 is compiled for batch = 1" in said.err
    assert at.load("net.atm").signature.inputs[0].shape == (1, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("compile", "net.pt2", "--batch", "3"),
            "has fixed shapes; --batch and --shape have no effect on it.",
        ),
        (("compile", "net.pt2", "--weights", "w.npz"), "holds its weights; --weights has no effect on it."),
        (
            ("compile", "open.pt2", "--shape", "y=3"),
            "no input or open dimension 'y'; it has input; open: batch (axis 0 of input).",
        ),
        (("compile", "open.pt2", "--shape", "input=1..3x5"), "axis 1 of input 'input' is 5; it takes 4."),
        (("compile", "open.pt2", "--shape", "input=3x1..5"), "axis 1 of input 'input' is always 4."),
        (("compile", "open.pt2", "--shape", "input=3"), "input 'input' has 2 axes, not 1."),
        (("compile", "open.pt2", "--shape", "input=3x4", "--shape", "batch=2"), "batch is 3 and 2."),
        (("compile", "none.pt2"), "there is no file none.pt2."),
        (("compile", "bad.pt2"), "bad.pt2 is not a program of torch.export: "),
        (("compile", "net.pt2", "-o", "m.pt2"), "m.pt2 would be taken for a torch program. Name it m.atm."),
        (
            ("tune", "net.pth"),
            "there is no file net.pth. Export the module: torch.export.save(torch.export.export(net,",
        ),
    ],
)
def test_what_does_not_fit_is_one_sentence(arguments, message):
    written("net.pt2")
    written("open.pt2", torch.export.Dim("batch"))
    Path("bad.pt2").write_bytes(b"PK no archive")
    Path("w.npz").write_bytes(b"")
    said = cli(*arguments)
    assert said.code == 1
    assert message in " ".join(said.err.split())
    assert "Traceback" not in said.err
