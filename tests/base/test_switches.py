"""Environment variables: defaults, values, nonsense, overriding."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from autotensor.base import switches
from autotensor.base.errors import InputError


def test_defaults_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    for switch in switches.SWITCHES.values():
        monkeypatch.delenv(switch.variable, raising=False)
        assert switch() == switch.default
    monkeypatch.setenv("AUTOTENSOR_DEBUG", "4")
    monkeypatch.setenv("AUTOTENSOR_DUMP", "~/dump")
    monkeypatch.setenv("AUTOTENSOR_VERIFY", "yes")
    assert (switches.debug(), switches.dump(), switches.verify()) == (4, Path.home() / "dump", True)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        (
            "AUTOTENSOR_DEBUG",
            "loud",
            "AUTOTENSOR_DEBUG='loud' cannot be used: it must be a whole number, not negative.",
        ),
        (
            "AUTOTENSOR_DEBUG",
            "-1",
            "AUTOTENSOR_DEBUG='-1' cannot be used: it must be a whole number, not negative.",
        ),
        ("AUTOTENSOR_NUM_THREADS", "0", "AUTOTENSOR_NUM_THREADS='0' cannot be used: it must be at least 1."),
        ("AUTOTENSOR_VERIFY", "maybe", "AUTOTENSOR_VERIFY='maybe' cannot be used: it must be 0 or 1."),
    ],
)
def test_nonsense_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InputError) as caught:
        switches.SWITCHES[variable.removeprefix("AUTOTENSOR_").lower()]()
    assert caught.value.what == message


def test_override_is_nested_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTENSOR_DEBUG", "1")
    with switches.override(debug=3, db="x"):
        with switches.override(debug=5):
            assert (switches.debug(), switches.db()) == (5, "x")
        assert switches.debug() == 3
    assert switches.debug() == 1


def test_override_stays_in_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOTENSOR_DEBUG", raising=False)
    seen: list[int] = []
    with switches.override(debug=3):
        thread = threading.Thread(target=lambda: seen.append(switches.debug()))
        thread.start()
        thread.join()
    assert seen == [0]


def test_unknown_switch() -> None:
    with (
        pytest.raises(InputError, match=r"switch 'debgu' is unknown\. Known: debug, "),
        switches.override(debgu=1),
    ):
        pass


def test_every_switch_says_what_it_is_for() -> None:
    assert all(s.help.endswith(".") and s.name == name for name, s in switches.SWITCHES.items())
