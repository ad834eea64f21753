"""Exporting: winners of races become records. Schedules that lost, or that are defaults now, are removed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cli_tools import add_trials, cli
from shelves import product, traces, use

from autotensor.api.shipping import class_name, export_tuned
from autotensor.base.errors import InputError
from autotensor.base.machine import host_machine
from autotensor.base.target import parse
from autotensor.resolve import resolve
from schedules.records import SCHEDULES, read_class
from tuning_db import SessionKind, TrialStore, connect
from tuning_db.records import Sample

WORKLOAD, TARGET = product(), parse()
DEFAULT, FAST, OTHER = traces(WORKLOAD, TARGET)


def raced(store: TrialStore, *seconds: float) -> TrialStore:
    """Adds a race of DEFAULT, FAST, OTHER, or the first of these, with nine samples each."""
    rows = add_trials(store, WORKLOAD, [1e-3], target=TARGET)
    race = store.start_session(
        run_key="x", seed=0, machine=rows[0].machine, environment=rows[0].environment, kind=SessionKind.RACE
    )
    contestants = zip((DEFAULT, FAST, OTHER), seconds, strict=False)
    store.add_trials(
        [
            replace(rows[0], session=race.id, trace=t.to_json(), trace_hash=t.hash, median_s=s,
                    samples=(Sample(s, "graph"),) * 9, made_by="drafted")
            for t, s in contestants
        ]
    )  # fmt: skip
    return store


def exported(store: TrialStore, folder):
    (done,) = export_tuned(store, folder)
    return done, read_class(done.path).records


def test_the_winner_of_a_race_becomes_a_record(tmp_path, monkeypatch):
    done, (record,) = exported(raced(connect(":memory:"), 2e-5, 1e-5, 3e-5), tmp_path)
    assert (done.new, done.kept, done.dropped) == (1, 0, 0)
    assert done.path == tmp_path / class_name(host_machine()) / SCHEDULES
    assert (record.trace_hash, record.default) == (FAST.hash, DEFAULT.hash)
    assert (record.seconds, record.default_s, record.ratio) == (1e-5, 2e-5, 0.5)
    assert (record.samples, record.residency, record.seeds) == (9, "graph", (0, 1))
    use(monkeypatch, tmp_path)
    assert resolve(WORKLOAD, TARGET).trace == FAST


def test_a_default_that_stands_and_trials_without_a_race_are_no_records(tmp_path):
    assert export_tuned(raced(connect(":memory:"), 2e-5, 1.999e-5), tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    unraced = connect(":memory:")
    add_trials(unraced, WORKLOAD, [2e-5, 1e-5], target=TARGET)
    assert export_tuned(unraced, tmp_path) == []


def test_exporting_twice_is_exporting_once(tmp_path):
    store = raced(connect(":memory:"), 2e-5, 1e-5)
    done, _ = exported(store, tmp_path)
    before = done.path.read_bytes()
    done, _ = exported(store, tmp_path)
    assert (done.new, done.kept, done.dropped) == (0, 1, 0)
    assert done.path.read_bytes() == before


def test_of_two_logs_the_greater_gain_is_kept(tmp_path):
    exported(raced(connect(":memory:"), 2e-5, 1e-5), tmp_path)
    slow_day = raced(connect(":memory:"), 4e-5)  # only the default was timed, so the record stays as it was
    assert exported(slow_day, tmp_path)[1][0].trace_hash == FAST.hash
    other = connect(":memory:")
    raced(other, 9e-5)
    rows = other.trials()
    faster = replace(rows[-1], trace=OTHER.to_json(), trace_hash=OTHER.hash, median_s=9e-6,
                     samples=(Sample(9e-6, "graph"),) * 9, id=None)  # fmt: skip
    other.add_trials([faster])
    done, (record,) = exported(other, tmp_path)
    assert (record.trace_hash, record.ratio) == (OTHER.hash, 0.1)
    assert (done.new, done.kept, done.dropped) == (1, 0, 0)


def test_what_was_measured_again_and_lost_is_dropped(tmp_path):
    exported(raced(connect(":memory:"), 2e-5, 1e-5), tmp_path)
    done, records = exported(raced(connect(":memory:"), 2e-5, 3e-5), tmp_path)
    assert records == ()
    assert done.dropped == 1


def test_what_the_rules_make_by_now_is_dropped(tmp_path, monkeypatch):
    exported(raced(connect(":memory:"), 2e-5, 1e-5), tmp_path)
    monkeypatch.setattr("autotensor.api.shipping.safe_default", lambda workload, target: FAST)
    store = connect(":memory:")
    add_trials(store, WORKLOAD, [1e-3], target=TARGET)
    session = store.start_session(
        run_key="y", seed=0, machine=host_machine().fingerprint, kind=SessionKind.RACE,
        environment=store.environments()[0].key,
    )  # fmt: skip
    store.add_trials([replace(store.trials()[0], session=session.id, id=None)])
    assert exported(store, tmp_path)[0].dropped == 1


def test_the_same_class_of_machines_has_one_file(tmp_path, monkeypatch):
    """The same processor under another name by its hypervisor is the same class."""
    exported(raced(connect(":memory:"), 2e-5, 1e-5), tmp_path)
    here = host_machine()
    renamed = replace(here, cpu_model="Renamed " + here.cpu_model, features=(*here.features, "shstk2"))
    assert renamed.fingerprint != here.fingerprint
    monkeypatch.setattr("cli_tools.host_machine", lambda: renamed)
    _, records = exported(raced(connect(":memory:"), 2e-5, 3e-5, 5e-6), tmp_path)
    if "(" in here.cpu_model:  # family and model are known
        assert len(list(tmp_path.iterdir())) == 1
        assert [r.trace_hash for r in records] == [OTHER.hash]


def test_the_verb_and_its_refusals(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    use(monkeypatch, tmp_path / "tuned")
    from tuning_db import connect

    with connect("log.db") as store:
        raced(store, 2e-5, 1e-5)
    said = cli("db", "export-tuned", "log.db", "--to", "tuned")
    assert said.code == 1
    assert said.err == "autotensor: there is no directory tuned for the schedules. Create it first.\n"
    assert cli("db", "shipped").out == "This version ships no schedules.\n"
    (tmp_path / "tuned").mkdir()
    said = cli("db", "export-tuned", "log.db", "--to", "tuned")
    assert said.code == 0, said.err
    assert said.out.endswith(": 1 new, 0 as before, 0 dropped.\n")
    assert "exact" in cli("db", "shipped").out
    with pytest.raises(InputError):
        export_tuned(connect(":memory:"), tmp_path / "nowhere")
