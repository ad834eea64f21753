"""Output that cannot be written: the stream is closed or full, its reader has ended, or its encoding lacks
some characters."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from cli_tools import ROOT

PLAIN = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


def shell(line: str, folder, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a line in bash, with `autotensor` as a command. The exit code is that of the first command of a
    pipe."""
    given = {**os.environ, "AUTOTENSOR_DB": f"{folder}/log.db", "PYTHONPATH": str(ROOT), **environment}
    function = f'set -o pipefail; autotensor() {{ "{sys.executable}" -m autotensor "$@"; }}; '
    return subprocess.run(
        ["bash", "-c", function + line], cwd=folder, env=given, capture_output=True, text=True, check=False
    )


def test_tables_in_a_locale_without_their_signs(tmp_path):
    ran = shell("autotensor models", tmp_path, **PLAIN)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.isascii()
    assert ran.stdout.splitlines()[1].startswith("------")
    assert shell("autotensor --help", tmp_path, **PLAIN).stdout.startswith(
        "Usage: autotensor VERB [OPTIONS] ...\n"
    )


def test_messages_name_files_that_have_no_ascii(tmp_path):
    ran = shell("autotensor run café.atm", tmp_path, **PLAIN)
    assert ran.returncode == 1
    assert "internal error" not in ran.stderr
    assert r"caf\udcc3\udca9.atm" in ran.stderr


@pytest.mark.parametrize("words", ["--version", "nosuch", "tasks mlp"])
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams(words, closed, tmp_path):
    ran = shell(f"autotensor {words} {closed}", tmp_path)
    assert ran.returncode == (2 if words == "nosuch" else 0), ran
    assert "internal error" not in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is full")
@pytest.mark.parametrize("words", ["models", "--help", "--version"])
def test_output_that_is_full_is_one_sentence(words, tmp_path):
    ran = shell(f"autotensor {words} >/dev/full", tmp_path)
    assert (ran.returncode, ran.stderr) == (1, "autotensor: No space left on device.\n")


@pytest.mark.parametrize("words", ["models", "--help"])
def test_a_reader_that_has_enough(words, tmp_path):
    ran = shell(f"autotensor {words} | head -c 3", tmp_path)
    assert (ran.returncode, len(ran.stdout), ran.stderr) == (0, 3, "")
