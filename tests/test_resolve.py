"""Workload and target → trace: the log of this machine, then what is shipped, then the rules' default."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cli_tools import add_trials
from shelves import product, put, record, traces, use

import autotensor.resolve as resolve_module
from autotensor import te
from autotensor.base.errors import LoweringError
from autotensor.base.machine import host_machine
from autotensor.base.target import parse
from autotensor.resolve import resolve
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload
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
    """Otherwise the first trial of a run, the default, would make a model slower."""
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


def test_a_default_that_cannot_be_used_is_plain_loops_and_a_warning(monkeypatch, caplog) -> None:
    """Plain loops are many times as slow, so a message must say that they are used."""
    n = te.var("n", range=(1, 512))
    A = te.placeholder((n, 16), name="A")
    B = te.compute((n, 16), lambda i, j: A[i, j] + 1.0, name="B")
    workload = Workload.of(ComputeDAG.of([A, B]), "rows of run-time number")
    target = parse("llvm -mcpu=x86-64-v3")
    assert resolve_module.safe_default(workload, target).steps

    def refuse(*what: object) -> None:
        raise LoweringError("loop 'i' has no bound.")

    resolve_module._plain_loops.cache_clear()
    for name in ("obstacle", "default_trace"):  # it cannot be lowered with symbols; rules raise
        says = {"obstacle": lambda *what: "LoweringError: loop 'i' has no bound.", "default_trace": refuse}
        with monkeypatch.context() as m, caplog.at_level("WARNING"):
            m.setattr(resolve_module, name, says[name])
            for _ in range(2):
                assert resolve_module.safe_default(workload, target).steps == ()
        assert [r.getMessage() for r in caplog.records] == [
            "The default schedule of 'rows of run-time number' cannot be used (LoweringError: loop 'i' has "
            "no bound.); the kernel gets plain loops, which are right, and slower. Please report this."
        ]
