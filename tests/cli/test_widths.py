"""No line is wider than the terminal, at 80 and at 40 columns; no colours; no line inside another one."""

from __future__ import annotations

import logging
import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path

import cli_verbs
import pytest
from cli_tools import ROOT, cli
from hypothesis import given
from hypothesis import strategies as st

from autotensor.base import log
from autotensor.cli.main import VERBS
from autotensor.cli.output import layout, table
from autotensor.cli.tune_report import print_report
from autotensor.insight.progress import Progress
from autotensor.insight.text_width import fold

CODE = {"show", "compile --emit c"}  # print programs, or names of files, which are to be copied
SLOW = {"models", "tune"}  # 40 columns are enough of these
WITHOUT_DATA = {"fleet"}  # asks a scheduler; its tables are those of all others


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cli_verbs.filled(tmp_path_factory.mktemp("verbs"))


@pytest.fixture(autouse=True)
def _here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli_verbs.enter(folder, monkeypatch)


def too_wide(text: str, width: int) -> list[str]:
    """Lines that could have been folded at a blank, and are wider."""
    return [line for line in text.splitlines() if len(line) > width and len(line.split()) > 1]


def test_every_verb_is_here() -> None:
    assert {name.split()[0] for name in cli_verbs.VERBS} | WITHOUT_DATA == set(VERBS)


@pytest.mark.parametrize(
    ("name", "width"), [(v, w) for v in cli_verbs.VERBS for w in (80, 40) if w == 40 or v not in SLOW]
)
@pytest.mark.sample(26)
def test_no_line_is_wider_than_the_terminal(name: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    said = cli(*cli_verbs.VERBS[name])
    assert said.code == 0, said.err
    assert not too_wide(said.err, width)
    assert name in CODE or not too_wide(said.out, width)


@pytest.mark.parametrize("width", [80, 40])
@pytest.mark.parametrize("words", [[], ["db"], ["db", "export"], ["fleet", "check"], *([v] for v in VERBS)])
def test_help_fits(words: list[str], width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = cli(*words, "--help").out.split("Examples:")  # which are to be copied
    assert not too_wide(lines[0], width)
    assert not too_wide(lines[-1], 80)


def test_an_error_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    said = cli("tune", "resnt")
    assert said.code == 1
    assert len(said.err.splitlines()) > 1
    assert not too_wide(said.err, 40)


def test_without_a_terminal_nothing_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = cli("doctor").out.splitlines()
    assert max(map(len, lines)) > 200
    assert all(re.match(r"\w+ |  |No problems", line) for line in lines)


def test_a_table_without_rows_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    table(("run", "what"), [])
    assert capsys.readouterr().out.splitlines() == ["run  what", "───  ────", "(none)"]


words = st.text("abc xé", min_size=1, max_size=30).map(str.strip).filter(bool)
cells = st.one_of(words, st.integers(0, 10**7))


@given(st.integers(2, 5).flatmap(lambda n: st.tuples(
    st.lists(st.sampled_from(["us", "of peak", "task", "made by"]), min_size=n, max_size=n),
    st.lists(st.tuples(*[cells] * n), min_size=1, max_size=6),
)), st.integers(30, 100))  # fmt: skip
def test_a_table_keeps_every_sign_of_its_cells(
    made: tuple[list[str], list[tuple[object, ...]]], width: int
) -> None:
    heads, rows = made
    lines = layout(heads, rows, width)
    assert not too_wide("\n".join(lines), width)
    signs = sorted(c for line in lines for c in line if c.isalnum())
    if lines[1].startswith("─"):
        wanted = [*heads, *(str(c) for row in rows for c in row)]
        assert signs == sorted(c for text in wanted for c in text if c.isalnum())
    else:
        assert all(set(str(c)) - {" "} <= set(signs) for row in rows for c in row)


@given(st.text("ab ", max_size=80), st.integers(8, 30))
def test_folding_keeps_every_word(text: str, width: int) -> None:
    folded = fold(text, width)
    assert folded.split() == text.split()
    assert not too_wide(folded, width)


def test_different_convolutions_never_look_alike() -> None:
    names = [f"conv2d 3x3 {n}x{n}x{c}->{c} +add+relu" for n, c in ((56, 64), (28, 128), (14, 256))]
    rows = [(name, 3, "9.1 %", "712", "531", "435.9", "185 %", 80) for name in names]
    heads = ("task", "weight", "share", "before us", "after us", "GFLOP/s", "of peak", "trials")
    for width in (80, 60, 40):
        lines = layout(heads, rows, width)
        assert all(len(line) <= width for line in lines)
        text = "".join("".join(line.split()) for line in lines)
        assert all(re.search(f"{n}x{n}x{c}->.*{c}", text) for n, c in ((56, 64), (28, 128), (14, 256)))


def test_the_report_of_a_busy_machine_compares_no_times(capsys: pytest.CaptureFixture[str]) -> None:
    task = {"name": "dense", "weight": 1, "share": 1.0, "default_s": 2e-5, "best_s": 1e-5, "flops": 1e6,
            "share_of_peak": 0.5, "trials": 8, "reason": "its space is exhausted", "raced": True}  # fmt: skip
    report = {
        "tasks": [task], "statuses": {}, "trials": 8, "reused": 0, "elapsed_s": 3.0, "seconds": {},
        "deadline": {},
        "failures": 0, "rejected": 0, "reason": "all trials are spent", "notes": [], "model": "mlp",
        "default_s": 3e-5, "tuned_s": 2e-5, "predicted_s": 1e-5, "file": "mlp.atm",
        "inputs": ["x: float32[1, 784]"], "disagreement": "the tasks add up to less",
    }  # fmt: skip
    print_report(report | {"others_cores": 0.1})
    assert "Note: the tasks add up to less." in capsys.readouterr().out
    print_report(report | {"others_cores": None})  # nothing was measured in this run
    assert "Note: " not in capsys.readouterr().out
    print_report(report | {"others_cores": 1.6})
    said = capsys.readouterr().out
    assert "the tasks add up to less" not in said
    assert "Note: other programs used 1.6 cores meanwhile," in said


def on_a_terminal(program: str, folder: Path, **environment: str) -> str:
    """The output of a Python program, standard error included, on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    env = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color"} | environment
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux: the last one has closed it
            break
        if not part:
            break
        said += part
    os.close(ours)
    process.wait()
    return said.decode().replace("\r\n", "\n")


def seen(printed: str) -> list[str]:
    """The lines as they stand on the terminal in the end: a carriage return writes over what was there."""
    lines = []
    for line in printed.split("\n"):
        shown = ""
        for part in line.split("\r"):
            shown = part + shown[len(part) :]
        lines.append(shown.rstrip())
    return lines


PROGRESS = """
from autotensor.base import log
from autotensor.insight.progress import Progress
with Progress(100, None) as p:
    log.warn("this machine is busy")
"""


def test_a_warning_and_the_bar_have_lines_of_their_own(folder: Path) -> None:
    printed = on_a_terminal(PROGRESS, folder)
    assert "0/100 trials" in printed
    assert "this machine is busy" in seen(printed)


def test_warnings_go_to_standard_error_again_afterwards(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "logger", logging.Logger("nobody has configured it"))
    lines: list[str] = []
    with log.shown_by(lines.append):
        log.warn("inside")
    with Progress(8, None):
        pass
    log.warn("outside")
    assert lines == ["inside"]
    assert capsys.readouterr().err == "outside\n"


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}])
@pytest.mark.parametrize("words", [["tasks", "mlp"], ["tune", "--help"], ["tune", "resnt"]])
def test_nothing_is_coloured(words: list[str], environment: dict[str, str], folder: Path) -> None:
    program = f"import sys; from autotensor.cli.main import main; sys.exit(main({words!r}))"
    printed = on_a_terminal(program, folder, **environment)
    assert printed
    assert "\x1b[" not in printed
