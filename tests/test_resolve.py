"""Workload and target → trace: the log of this machine, then what is shipped, then the rules' default."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cli_tools import add_trials
from shelves import product, put, record, traces, use

from autotensor.base.machine import host_machine
from autotensor.base.target import parse
from autotensor.resolve import resolve
from tuning_db import TrialStore, connect

WORKLOAD, TARGET = product(), parse()
DEFAULT, FAST, OTHER = traces(WORKLOAD, TARGET)


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """One record: FAST is twice as fast as the default, on this class of machines."""
    use(monkeypatch, tmp_path)
    put(tmp_path, record(WORKLOAD, TARGET, FAST, DEFAULT, seconds=3e-5))
    return tmp_path


def log_of(*seconds: tuple[object, float | None]) -> TrialStore:
    """A log of this machine with these traces and times; None is a wrong answer."""
    store, made = connect(":memory:"), connect(":memory:")
    base = add_trials(made, WORKLOAD, [1e-5], target=TARGET)[0]
    add_trials(store, WORKLOAD, [], target=TARGET)
    for trace, s in seconds:
        row = replace(base, trace=trace.to_json(), trace_hash=trace.hash)
        if s is None:
            row = replace(row, status="WRONG_RESULT", median_s=None, samples=(), verification=None)
        else:
            row = replace(row, median_s=s, samples=tuple(replace(x, seconds=s) for x in row.samples))
        session = store.sessions()[0]
        store.add_trials([replace(row, session=session.id)])
    return store


def test_without_a_log_what_is_shipped_is_used(shelf):
    found = resolve(WORKLOAD, TARGET)
    assert (found.source, found.trace, found.seconds, found.trial) == ("shipped", FAST, 3e-5, None)


def test_without_anything_the_default_is_used(tmp_path, monkeypatch):
    use(monkeypatch, tmp_path)
    assert resolve(WORKLOAD, TARGET).source == "default"


def test_on_another_machine_the_default_is_used(tmp_path, monkeypatch):
    use(monkeypatch, tmp_path)
    other = replace(host_machine(), cpu_model="Another CPU (1/2/3)")
    put(tmp_path, record(WORKLOAD, TARGET, FAST, DEFAULT), machine=other)
    found = resolve(WORKLOAD, TARGET)
    assert (found.source, found.trace) == ("default", DEFAULT)


def test_what_was_measured_here_goes_before_what_is_shipped(shelf):
    found = resolve(WORKLOAD, TARGET, log_of((DEFAULT, 1e-5), (OTHER, 8e-6)))
    assert (found.source, found.trace) == ("log", OTHER)


def test_a_log_that_never_met_it_does_not_speak_against_it(shelf):
    """Or the first trial of a run, the default, would make a model slower than it was."""
    found = resolve(WORKLOAD, TARGET, log_of((DEFAULT, 1e-5)))
    assert (found.source, found.trace) == ("shipped", FAST)


@pytest.mark.parametrize("seconds", [2e-5, None])
def test_a_log_that_met_it_decides(shelf, seconds):
    """It was slower here, or wrong."""
    found = resolve(WORKLOAD, TARGET, log_of((DEFAULT, 1e-5), (FAST, seconds)))
    assert (found.source, found.trace) == ("log", DEFAULT)


def test_what_was_wrong_here_is_not_used_without_other_rows_either(shelf):
    found = resolve(WORKLOAD, TARGET, log_of((FAST, None)))
    assert (found.source, found.trace) == ("default", DEFAULT)


def test_times_of_another_machine_are_not_noted_when_there_is_something_to_use(shelf):
    store = connect(":memory:")
    add_trials(store, WORKLOAD, [1e-6], target=TARGET, fingerprint="elsewhere", cpu="Faster CPU")
    found = resolve(WORKLOAD, TARGET, store)
    assert (found.source, found.note) == ("shipped", "")
