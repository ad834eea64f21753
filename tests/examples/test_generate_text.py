"""The example that writes text, with a tiny random model: the same words however the prompt comes in."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "examples" / "generate_text.py"


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """The words that a run prints."""
    monkeypatch.chdir(tmp_path)

    def run(*how: str) -> list[str]:
        given = ["--prompt", "5 6 7 8 9", "--count", "6", "--capacity", "16", "--db", ":memory:", *how]
        monkeypatch.setattr(sys, "argv", [str(PROGRAM), *given])
        runpy.run_path(str(PROGRAM), run_name="__main__")
        text, timing = capsys.readouterr().out.splitlines()
        assert " words, " in timing
        return text.split()

    return run


def test_chunks_change_nothing(words):
    likeliest = words("--temperature", "0")
    assert likeliest[:5] == ["5", "6", "7", "8", "9"]
    assert len(likeliest) == 11
    assert words("--temperature", "0", "--chunk", "3") == likeliest


def test_drawn_words(words):
    assert words("--seed", "1") == words("--seed", "1")
    assert words("--top-p", "1e-9") == words("--temperature", "0")  # only the likeliest is left


def test_a_full_cache_ends_the_text(words):
    assert len(words("--capacity", "8", "--bits", "4", "--rounded", "8")) == 8
