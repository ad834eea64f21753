"""run, bench and verify of an .atm file for several shapes: run-time extents, or a function for each."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from cli_tools import cli

import autotensor as at
from autotensor import te
from autotensor.cli.model_files.atm_calls import _of_count
from autotensor.runtime.call_extents import at_extents
from autotensor.runtime.extents import OpenShapes
from autotensor.runtime.files import artifact_file as artifacts
from autotensor.runtime.files.artifact import OPEN_SHAPES


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTENSOR_DB", str(tmp_path / "own.db"))


def attention(batch: int, length: int) -> object:
    """A model whose values lie in several boxes, and whose offsets depend on both extents."""
    rng = np.random.default_rng(0)
    w, v = (rng.standard_normal((16, 16)).astype(np.float32) for _ in range(2))
    x = at.input((batch, length, 16), name="x")
    rows = at.ops.reshape(x, (batch * length, 16))
    q, k = (at.ops.reshape(at.ops.dense(rows, m), (batch, 1, length, 16)) for m in (w, v))
    seen = at.ops.attention(q, k, at.ops.reshape(x, (batch, 1, length, 16)), causal=True)
    return at.ops.dense(at.ops.reshape(seen, (batch * length, 16)), w)


def written() -> None:
    """a.atm: batch from 1 to 4, length from 8 to 32 in steps of 8."""
    batch, length = te.var("batch", range=(1, 4)), te.var("length", range=(8, 32), multiple_of=8)
    at.compile_model(at.open_graph(attention, batch, length, name="a"), db=":memory:").save("a.atm")


@pytest.mark.parametrize(
    ("words", "extents"),
    [
        ((), (4, 32)),
        (("--batch", "3"), (3, 32)),
        (("--shape", "length=16", "--batch", "1"), (1, 16)),
        (("--shape", "x=2x24x16"), (2, 24)),
        (("--input", "x.npy"), (2, 8)),
        (("--input", "x=x.npy", "--batch", "2"), (2, 8)),
        (("--input", "x.npz"), (2, 8)),
    ],
)
@pytest.mark.sample(3)
def test_run_takes_the_extents_and_says_them(words, extents):
    written()
    x = np.random.default_rng(1).standard_normal((2, 8, 16)).astype(np.float32)
    np.save("x.npy", x)
    np.savez("x.npz", x=x)
    said = cli("run", "a.atm", *words, "--json", "--output", "y.npy")
    assert said.code == 0, said.err
    batch, length = extents
    assert (
        f"Run at batch = {batch}, length = {length}. a.atm takes batch from 1 to 4, length from 8" in said.err
    )
    document = json.loads(said.out)
    assert document["extents"] == {"batch": batch, "length": length}
    assert document["outputs"][0]["shape"] == [batch * length, 16]
    if "--input" in words:
        np.testing.assert_array_equal(np.load("y.npy"), at.load("a.atm")(x))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--batch", "5"), "axis 0 of argument 'x' is 5; it is compiled for batch from 1 to 4."),
        (
            ("--shape", "length=12"),
            "a is compiled for batch from 1 to 4, length from 8 to 32 in steps of 8, not",
        ),
        (("--shape", "n=1"), "a has no input or extent 'n'; it has x, batch, length."),
        (("--shape", "x=2x8"), "--shape x: a takes x: float32[batch, length, 16]."),
        (("--shape", "x=2x8x15"), "argument 'x' has shape [2, 8, 15]; expected [batch, length, 16]"),
        (
            ("--batch", "3", "--input", "x.npy"),
            "--input gives batch = 2; --batch or --shape gives batch = 3.",
        ),
        (
            ("--batch", "1..4"),
            "--batch and --shape ask for 3 calls, but this verb makes one. Give numbers, not ranges.",
        ),
        (("--weights", "w.npz"), "a.atm is compiled: --weights and --target have no effect on it."),
    ],
)
def test_what_is_said_of_shapes_that_do_not_fit(words, told):
    written()
    np.save("x.npy", np.zeros((2, 8, 16), np.float32))
    said = cli("run", "a.atm", *words)
    assert (said.code, said.out) == (1, "")
    assert told in said.err


def test_bench_times_the_least_and_the_greatest_or_the_range_that_is_asked_for():
    written()
    said = cli("bench", "a.atm", "--repeat", "3", "--json")
    assert said.code == 0, said.err
    document = json.loads(said.out)
    assert document["extents"] == {"batch": 4, "length": 32}
    least, greatest = document["calls"]
    assert (least["at"], greatest["at"]) == ("batch = 1, length = 8", "batch = 4, length = 32")
    assert least["flops"] < document["flops"] / 15 < greatest["flops"]
    said = cli("bench", "a.atm", "--repeat", "3", "--batch", "1..3", "--shape", "length=8")
    assert [line.split(": median")[0] for line in said.out.splitlines()[:3]] == [
        f"a at batch = {n}, length = 8" for n in (1, 2, 3)
    ]
    assert "Kernels at batch = 3, length = 8:" in said.out
    assert said.out.endswith("The kernels' names tell the greatest extents.\n")


def test_verify_runs_each_kernel_at_the_extents():
    written()
    said = cli("verify", "a.atm", "--against", "float64")
    assert said.code == 0, said.err
    assert [line for line in said.out.splitlines() if line.startswith("At ")] == [
        "At batch = 1, length = 8:",
        "At batch = 4, length = 32:",
    ]
    said = cli("verify", "a.atm", "--batch", "1..4", "--json")
    assert [c["extents"]["batch"] for c in json.loads(said.out)["calls"]] == [1, 1, 2, 2, 4, 4]


def test_a_kernel_that_is_wrong_at_few_rows_only_is_found():
    """The kernel's text says that it adds 1 for each missing row; the code adds nothing."""
    n = te.var("n", range=(1, 8))
    A = te.placeholder((n, 4), name="A")
    right = te.compute((n, 4), lambda i, j: A[i, j] * 2.0, name="B")
    wrong = te.compute((n, 4), lambda i, j: A[i, j] * 2.0 + (8.0 - te.cast("float32", n)), name="B")
    made, other = (at.build([A, b], target="llvm -threads=1").artifact for b in (right, wrong))
    artifacts.save("b.atm", replace(made, texts=other.texts))
    assert cli("verify", "b.atm", "--shape", "n=8").code == 0
    said = cli("verify", "b.atm")
    assert said.code == 1
    assert said.out.startswith("At n = 1:\n")
    assert "Kernel 0, B, is the first that is wrong" in said.out
    assert cli("run", "b.atm", "--input", "A=1,2,3,4,5,6,7,8").err.count("Run at n = 2.") == 1


def test_the_arena_of_a_call_is_not_left():
    """Offsets are those of the call: the values of a small call lie inside its small arena."""
    written()
    artifact = artifacts.load("a.atm")
    shapes = OpenShapes.of(artifact.meta[OPEN_SHAPES])
    small = at_extents(artifact, shapes.least())
    arena = next(n for n, a in enumerate(small.args) if a.name == "workspace.arena")
    reach = max(at for k in small.meta["kernels"] for arg, at in k["slots"] if arg == arena)
    assert 0 < reach < small.args[arena].bytes < artifact.args[arena].bytes / 8


def test_damaged_or_older_extents_are_refused():
    written()
    artifact = artifacts.load("a.atm")
    shapes = OpenShapes.of(artifact.meta[OPEN_SHAPES])
    kernels = artifact.meta["kernels"]
    older = replace(
        artifact,
        meta={**artifact.meta, "kernels": [{k: v for k, v in one.items() if k != "late"} for one in kernels]},
    )
    at_extents(older, shapes.greatest())
    with pytest.raises(at.AutotensorError, match="older version"):
        at_extents(older, shapes.least())
    far = [{**one, "late": [[arg, 10**6] for arg, _ in one["late"]]} for one in kernels]
    with pytest.raises(at.AutotensorError, match="its run-time extents are damaged"):
        at_extents(replace(artifact, meta={**artifact.meta, "kernels": far}), shapes.least())


def test_a_file_of_several_functions_is_chosen_from():
    def model(batch: int) -> at.Graph:
        x = at.input((batch, 4), name="x")
        return at.Graph((x,), (at.ops.relu(x),), "two", ("y",))

    at.by_shape([at.compile_model(model(n), db=":memory:") for n in (1, 3)]).save("two.atm")
    np.save("x.npy", np.full((3, 4), -1, np.float32))
    for words in (("--batch", "3"), ("--shape", "x=3x4"), ("--input", "x.npy")):
        said = cli("run", "two.atm", *words)
        assert said.err.startswith("Run at x: float32[3, 4]."), said.err
        assert said.out.startswith("y: float32[3, 4]")
    said = cli("run", "two.atm", "--batch", "2").err
    assert "two is not compiled for x with extent 2 on axis 0. It takes x: float32[1, 4]; x: float32" in said
    assert cli("bench", "two.atm", "--repeat", "3").out.count("median") == 2
    assert "At x: float32[3, 4]:" in cli("verify", "two.atm").out
    with pytest.raises(at.AutotensorError, match=r"2 functions, one for each set of shapes"):
        at.verify(at.load("two.atm"))


def test_verify_takes_the_code_for_this_processor_from_a_file_for_several():
    assert cli("compile", "mlp", "--for", "x86-64-v2,x86-64-v3").code == 0
    said = cli("verify", "mlp.atm")
    assert said.code == 0, said.err
    assert "All 3 kernels are right" in said.out


def test_a_photo_is_a_batch_of_one_or_fills_the_batch_that_is_asked_for():
    Image = pytest.importorskip("PIL.Image")
    Image.fromarray(np.full((9, 9, 3), 99, np.uint8)).save("p.png")

    def net(batch: int) -> object:
        return at.ops.relu(at.input((batch, 3, 8, 8), name="x"))

    batch = te.var("batch", range=(1, 4))
    at.compile_model(at.open_graph(net, batch, name="p"), db=":memory:").save("p.atm")
    assert cli("run", "p.atm", "--input", "p.png").err.startswith("Run at batch = 1.")
    said = cli("run", "p.atm", "--input", "p.png", "--batch", "3")
    assert said.code == 0, said.err
    assert said.err.startswith("Run at batch = 3.")


def test_counted_numbers_give_the_only_open_extent():
    assert _of_count(8, ["n", 4]) == (2, 4)
    assert _of_count(9, ["n", 4]) == ()
    assert _of_count(8, ["n", "m"]) == ()


@pytest.mark.parametrize(
    ("names", "message"), [("", "'' has an empty name."), ("a b", "'a b' has spaces; write commas between")]
)
def test_a_list_of_processors_that_is_none(names, message):
    said = cli("compile", "mlp", "--for", names)
    assert said.code == 2
    assert message in said.err
