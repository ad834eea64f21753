"""Spelling of options: durations, targets; units in tables."""

from __future__ import annotations

import ast
import inspect

import pytest
import typer

from autotensor.base import switches
from autotensor.base.target import usable_cores
from autotensor.cli.options import (
    FixedSource,
    Log,
    ModelName,
    NumericMachine,
    Seed,
    Source,
    duration_s,
    grouped,
    new_app,
    share_of,
    target_of,
)
from autotensor.cli.output import layout
from autotensor.cli.tune_report import use
from autotensor.cli.verbs.tune import again
from autotensor.insight.units import clock, gflops, micros, percent, size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("3m", 180), ("1h30m", 5400), ("2.5m", 150), (" 1 h ", 3600)],
)
def test_duration(text, seconds):
    assert duration_s(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "m", "-3m", "3 parsecs", "1e9999", "0", "0m", "3m5", "90", "2.5", "nan", "inf"]
)
def test_no_duration(text):
    with pytest.raises(typer.BadParameter):
        duration_s(text)


@pytest.mark.parametrize(
    ("text", "share"), [("1%", 0.01), ("0.5 %", 0.005), ("0.01", 0.01), (".5", 0.5), ("0", 0.0)]
)
def test_share(text, share):
    assert share_of(text, "'--until-gain-below'") == pytest.approx(share)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("little", "'little' is not a share. Write 1% or 0.01."),
        ("-1%", "'-1%' is not a share. Write 1% or 0.01."),
        ("", "'' is not a share. Write 1% or 0.01."),
        ("1e-3", "'1e-3' is not a share. Write 1% or 0.01."),
        ("1", "'1' is not below 100 %. Write 1% for 1 percent."),
        ("150%", "'150%' is not below 100 %."),
    ],
)
def test_no_share(text, said):
    with pytest.raises(typer.BadParameter) as caught:
        share_of(text, "'--until-gain-below'")
    assert caught.value.message == said


def test_more_threads_than_cores_are_remarked_upon(capsys):
    cores = usable_cores()
    target_of(None, cores)
    assert capsys.readouterr().err == ""
    assert target_of(None, cores + 97).num_cores == cores + 97
    said = capsys.readouterr().err
    assert said.startswith(f"Note: --threads {cores + 97} on {cores} usable core")
    assert said.endswith(f": they take turns, which is slower than --threads {cores}.\n")
    target_of("llvm -mcpu=znver4", cores + 97)  # may be another machine
    assert capsys.readouterr().err == ""


def test_threads_of_a_target():
    assert target_of(None, 3).num_cores == 3
    assert target_of("llvm -threads=5", None).num_cores == 5
    assert target_of("llvm -threads=5", 2).num_cores == 2
    with switches.override(num_threads=7):
        assert target_of(None, None).num_cores == 7
        assert target_of("llvm -threads=5", None).num_cores == 5


def test_units():
    assert [micros(s) for s in (None, 1e-7, 12.3e-6, 0.5)] == ["-", "0.10", "12.3", "500,000"]
    assert [gflops(2e9, s) for s in (None, 0.0, 1.0, 0.01)] == ["-", "-", "2.00", "200.0"]
    assert [percent(s) for s in (None, 0.0, 0.012, 0.5)] == ["-", "0 %", "1.2 %", "50 %"]
    assert [size(s) for s in (7, 4096, 102e6, 1.5e9)] == ["7 B", "4.1 kB", "102 MB", "1.5 GB"]
    assert [clock(s) for s in (0, 61, 7322)] == ["0:00", "1:01", "2:02:02"]


def test_tables_fold_texts_and_never_numbers():
    rows = [("convolution 3x3", 123456), ("dense", 7)]
    wide = ["what               us", "───────────────  ────"]
    assert layout(("what", "us"), [("convolution 3x3", 1234), ("dense", 7)], None)[:2] == wide
    assert layout(("what", "us"), rows, 21)[2:] == ["convolution    123456", "3x3", "dense               7"]
    assert layout(("what", "us"), rows, 12) == ["convolution", "    3x3", "  us: 123456", "dense", "  us: 7"]
    assert layout(("what",), [], 80) == ["what", "────"]


def test_the_line_to_paste_is_python():
    """ONNX names inputs as it likes."""
    line = use('a "b".atm', ["input.1: float32[1, 3]", "lambda: int64[1]", "x: float32[]"])
    assert line == ('import autotensor as at\ny = at.load("a \\"b\\".atm")(input_1, lambda_, x)')
    ast.parse(line)


def called(words: list[str]) -> dict[str, object]:
    """The arguments of a verb with groups."""
    got: dict[str, object] = {}
    app = new_app()

    @app.command()
    @grouped
    def verb(ctx: typer.Context, model: ModelName, *, source: FixedSource, seed: Seed = 3, log: Log) -> None:
        got.update(model=model, source=source, seed=seed, log=log, again=again(ctx))

    with typer.main.get_command(app).make_context("verb", words) as context:
        context.command.invoke(context)
    return got


def test_groups_are_filled_from_the_words() -> None:
    got = called(["mlp", "--batch", "4", "--shape", "x=1x2", "--shape", "y=3", "--db", "a.db"])
    source = got["source"]
    assert isinstance(source, FixedSource)
    assert (got["model"], got["seed"], got["log"]) == ("mlp", 3, Log("a.db"))
    assert (source.weights, source.batch, source.shape, source.fixed) == (None, 4, ["x=1x2", "y=3"], ())
    assert called(["mlp"])["log"] == Log()


def test_groups_stand_in_their_places_with_their_own_defaults() -> None:
    def verb(*, source: Source, seed: Seed = 3, machine: NumericMachine) -> None: ...

    options = inspect.signature(grouped(verb)).parameters
    assert list(options) == [
        "weights",
        "batch",
        "shape",
        "seed",
        "threads",
        "target",
        "numerics",
        "keep_float32",
    ]
    assert [o.default for o in options.values()] == [None, None, None, 3, None, None, None, None]


def test_the_command_that_continues_repeats_every_word() -> None:
    words = ["mlp", "--shape", "x=1x2", "--shape", "y=3", "--db", "a b.db"]
    assert called(words)["again"] == "autotensor tune mlp --shape x=1x2 --shape y=3 --db 'a b.db'"
    assert called(["mlp"])["again"] == "autotensor tune mlp"
