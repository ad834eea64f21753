"""The logger: silent below its level; on standard error by default; through `logging` if that has a
handler."""

from __future__ import annotations

import logging

import pytest

from autotensor.base import log, switches


def test_what_is_not_wanted_is_not_computed() -> None:
    with switches.override(debug=2):
        log.at(3, lambda: pytest.fail("computed"))


def test_lines_reach_the_application(caplog: pytest.LogCaptureFixture) -> None:
    with switches.override(debug=3):
        log.at(3, lambda: "loops")
        log.at(1, "kernel")
    log.warn("careful")
    levels = [(r.levelname, r.getMessage()) for r in caplog.records]
    assert levels == [("DEBUG", "loops"), ("INFO", "kernel"), ("WARNING", "careful")]


def test_lines_go_to_standard_error_without_logging(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.Logger, "hasHandlers", lambda self: False)
    with switches.override(debug=1):
        log.at(1, "100 % of peak")
    assert capsys.readouterr().err == "100 % of peak\n"
