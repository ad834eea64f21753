"""The help is complete and has examples. It is quick, because no heavy module is imported."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from cli_tools import cli

from autotensor import __version__
from autotensor.cli.main import VERBS

HEAVY = ("numpy", "llvmlite", "sqlalchemy", "xgboost", "tqdm", "psutil", "rich.table", "PIL", "torch")
DB_VERBS = (
    "path",
    "list",
    "best",
    "failures",
    "machines",
    "runs",
    "run",
    "lineage",
    "sql",
    "export",
    "import",
    "merge",
    "check",
    "upgrade",
    "export-tuned",
    "shipped",
)


def test_overview_names_every_verb():
    said = cli("--help")
    assert said.code == 0
    assert all(f"  {verb} " in said.out for verb in VERBS)
    assert "autotensor tune resnet --trials 2000" in said.out


def test_no_words_is_help():
    assert cli().out == cli("--help").out


def test_version():
    assert cli("--version").out == f"autotensor {__version__}\n"


@pytest.mark.parametrize("width", [80, 40])
@pytest.mark.parametrize("verb", ["db", "fleet"])
def test_lists_of_verbs_cut_no_sentence(verb, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    said = cli(verb, "--help").out
    assert "..." not in said.partition("Commands:")[2]
    assert all(len(line) <= width for line in said.splitlines())


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb):
    said = cli(verb, "--help")
    assert said.code == 0
    assert said.out.startswith(f"Usage: autotensor {verb}")
    if verb not in ("db", "fleet"):
        assert f"Examples:\n    autotensor {verb}" in said.out
        assert "--json" in said.out


@pytest.mark.parametrize("words", [[verb] for verb in VERBS] + [["db", verb] for verb in DB_VERBS])
def test_parameters_have_plain_names(words):
    said = cli(*words, "--help").out
    usage, _, below = said.partition("\n")
    assert not re.search(r"[{}]|\[\[|<", usage), usage
    assert not re.search(r"<(str|int|float|path|list)|<\w+\||x>=|<=x", below), below


def test_a_line_of_usage_says_what_may_be_left_out_and_repeated():
    assert "autotensor db merge [OPTIONS] FILE|URL…\n" in cli("db", "merge", "--help").out
    assert "autotensor db export-tuned [OPTIONS] [LOG…]\n" in cli("db", "export-tuned", "--help").out
    assert "--by session|day|commit" in cli("db", "history", "--help").out
    assert "[default: 30; at least 3]" in " ".join(cli("bench", "--help").out.split())


@pytest.mark.parametrize("verb", ["worker", "status", "check"])
def test_every_fleet_verb_has_help(verb):
    said = cli("fleet", verb, "--help")
    assert said.code == 0
    assert f"Examples:\n    autotensor fleet {verb}" in said.out


@pytest.mark.parametrize("verb", DB_VERBS)
def test_every_db_verb_has_help(verb):
    said = cli("db", verb, "--help")
    assert said.code == 0
    assert f"Examples:\n    autotensor db {verb}" in said.out


@pytest.mark.parametrize("words", [["--help"], ["tune", "--help"], ["db", "list", "--help"]])
def test_help_imports_nothing_heavy(words):
    code = (
        "import sys; from autotensor.cli.main import main; "
        f"main({words!r}); print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("autotensor ver", ["verify"]),
        ("autotensor verify --ag", ["--against"]),
        ("autotensor db export-", ["export-tuned"]),
    ],
)
def test_a_shell_completes_verbs_and_options(typed, offered):
    words = {
        "COMP_WORDS": typed,
        "COMP_CWORD": str(typed.count(" ")),
        "_AUTOTENSOR_COMPLETE": "complete_bash",
    }
    done = run_autotensor([], words)
    assert (done.stdout.split(), done.returncode) == (offered, 0)


def test_the_script_of_a_shell_calls_autotensor():
    done = run_autotensor(["--show-completion", "bash"], {})
    assert "complete -o default -F _autotensor_completion autotensor" in done.stdout
    assert done.returncode == 0


def run_autotensor(words, variables):
    return subprocess.run(
        [sys.executable, "-m", "autotensor", *words],
        env=os.environ | variables,
        capture_output=True,
        text=True,
    )
