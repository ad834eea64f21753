"""Ctrl-C is reported in one sentence whenever it comes. It ends the command at once, unless something must be
finished."""

from __future__ import annotations

import signal

import pytest
from cli_tools import cli

from autotensor.cli.interrupts import Interrupts


@pytest.fixture(autouse=True)
def heard():
    """A shell makes its background processes ignore SIGINT. These tests must receive it there, too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def ctrl_c(*args: object, **kwargs: object) -> None:
    signal.raise_signal(signal.SIGINT)  # in this thread; a signal to the process may come a moment later


def test_it_ends_at_once_until_somebody_asks(monkeypatch) -> None:
    monkeypatch.setattr("threading.Timer.start", lambda self: None)  # would end this process
    with pytest.raises(KeyboardInterrupt), Interrupts() as stop:
        ctrl_c()
    assert stop.code == 130


def test_who_asked_may_finish(capsys) -> None:
    with Interrupts() as stop:
        assert not stop.asked()
        ctrl_c()
        assert stop.asked()
    assert "Stopping after this batch; once more stops at once." in capsys.readouterr().err


def test_under_nohup_a_closed_terminal_stops_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as stop:
            assert not stop.asked()
            signal.raise_signal(signal.SIGHUP)
            assert not stop.asked()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_verb_is_interrupted(monkeypatch) -> None:
    monkeypatch.setattr("autotensor.cli.inputs.build_graph", ctrl_c)
    said = cli("tasks", "mlp")
    assert (said.code, said.err) == (130, "autotensor: interrupted.\n")


def test_tune_is_interrupted_before_its_search(monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("threading.Timer.start", lambda self: None)
    monkeypatch.setattr("autotensor.api.model_tuning.tune_model", ctrl_c)
    said = cli("tune", "mlp", "--db", "log.db")
    assert (said.code, said.err) == (
        130,
        "Compiling 3 tasks with the best known schedules; then mlp.atm can be run.\n"
        "\nStopped at once; mlp.atm was not written.\n",
    )
