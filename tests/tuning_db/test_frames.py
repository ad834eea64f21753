"""Tables of a log as Arrow: the rows hold all fields of the records, for pandas, polars and duckdb."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import autotensor as at
from autotensor.api.log_handle import LogHandle
from tuning_db import StoreError, TrialStore, connect
from tuning_db.exchange.frames import TABLES, export_frame, frame

pa = pytest.importorskip("pyarrow")


@pytest.fixture
def store(log: Path) -> Iterator[TrialStore]:
    with connect(log) as opened:
        yield opened


def test_a_row_says_what_its_record_does(store: TrialStore) -> None:
    found = pa.table(frame(store, "trials")).to_pylist()
    records = store.trials()
    assert len(found) == len(records) == 40
    for row, t in zip(found, records, strict=True):
        assert (row["trial"], row["session"], row["workload"], row["machine"]) == (
            t.id, t.session, t.workload, t.machine,
        )  # fmt: skip
        assert (row["status"], row["median_s"], row["error"]) == (t.status, t.median_s, t.error)
        assert (row["samples_s"] or []) == [s.seconds for s in t.samples]
        assert row["verdict"] == (t.verification and t.verification.verdict)
        assert row["created"] == t.created
        assert json.loads(row["decisions"]) == dict(t.decisions)


def test_rows_are_chosen_by_values_and_columns_by_names(store: TrialStore) -> None:
    found = frame(store, "trials", {"status": ["BUILD_ERROR"], "trial": [1, 5, 6]}, ["trial", "status"])
    assert found.columns == ("trial", "status")
    assert pa.table(found).to_pylist() == [{"trial": n, "status": "BUILD_ERROR"} for n in (1, 5)]
    assert pa.table(frame(store, "trials", {"workload": "nothing"})).num_rows == 0
    assert pa.table(frame(store, "trials", {"trial": []})).num_rows == 0


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_table_is_read_again_and_again(store: TrialStore, name: str) -> None:
    found = frame(store, name)
    assert pa.table(found) == pa.table(found)
    assert pa.table(found).schema.names == list(TABLES[name].columns)


def test_other_libraries_take_it(store: TrialStore) -> None:
    found = frame(store, "trials", columns=["trial", "status", "median_s", "created"])
    pandas = pytest.importorskip("pandas")
    assert list(pandas.DataFrame.from_arrow(found)["trial"]) == list(range(1, 41))


def test_a_wrong_name_is_one_sentence(store: TrialStore) -> None:
    with pytest.raises(StoreError, match=r"no table 'trails'\. Known: counts, parents, rates, sessions"):
        frame(store, "trails")
    with pytest.raises(
        StoreError,
        match=r"no column 'medain_s'\. Did you mean 'median_s'\? Known: trial, session",
    ):
        frame(store, "trials", columns=["medain_s"])
    with pytest.raises(StoreError, match="has no column 'x'"):
        frame(store, "trials", where={"x": 1})


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_table_is_a_file(store: TrialStore, tmp_path: Path, format: str) -> None:
    path = tmp_path / f"trials.{format}"
    with path.open("wb") as file:
        assert export_frame(frame(store, "trials"), file, format) == 40
        assert not file.closed
    if format == "parquet":
        import pyarrow.parquet as parquet

        assert parquet.read_table(path).equals(
            pa.table(frame(store, "trials")).combine_chunks().unify_dictionaries()
        )
    else:
        import csv

        rows = list(csv.DictReader(path.read_text().splitlines()))
        assert [row["trace_hash"] for row in rows] == [t.trace_hash for t in store.trials()]
        assert json.loads(rows[1]["samples_s"]) == [s.seconds for s in store.trials()[1].samples]


def test_the_handle_reads_and_does_not_write(log: Path) -> None:
    before = log.read_bytes()
    with at.log(str(log)) as handle:
        assert isinstance(handle, LogHandle)
        assert len(handle.trials(limit=3)) == 3
        assert [w.key for w in handle.workloads()] == ["w"]
        assert handle.counts()[0].machine == "zen4"
        assert handle.best("w", "t", "zen4")[0].trace_hash == "t1"
        assert handle.standing("w", "t", "zen4") is None
        (session,) = handle.sessions("search")
        assert session.started < datetime.now(UTC)
        assert pa.table(handle.frame("trials")).num_rows == 40
        with pytest.raises(at.AutotensorError, match="no table 'x'"):
            handle.frame("x")
    assert log.read_bytes() == before
    with pytest.raises(at.AutotensorError, match="there is no tuning log at"):
        at.log(str(log) + ".none")


def test_a_handle_is_for_people(log: Path) -> None:
    pandas = pytest.importorskip("pandas")
    with at.log(str(log)) as handle:
        assert repr(handle) == f"LogHandle({log}, 40 trials)"
        rows = handle.frame("trials", columns=["trial", "status"]).to_pandas()
        assert isinstance(rows, pandas.DataFrame)
        assert len(rows) == 40
        with pytest.raises(at.AutotensorError, match=r"no table 'trial'\. Did you mean 'trials'.* features"):
            handle.frame("trial")


def test_a_wrong_name_gets_the_nearest_one(store: TrialStore) -> None:
    wrong: tuple[dict[str, Any], ...] = ({"where": {"statuss": "OK"}}, {"columns": ["statuss"]})
    for asked in wrong:
        with pytest.raises(StoreError, match=r"no column 'statuss'\. Did you mean 'status'\? Known: trial, "):
            frame(store, "trials", **asked)


@pytest.mark.parametrize("asked", [{"where": "status = 'OK'"}, {"columns": "status"}])
def test_conditions_and_columns_are_no_texts(store: TrialStore, asked: dict[str, Any]) -> None:
    with pytest.raises(StoreError, match=r'wrong shape\. Write for example columns=\["median_s"\]'):
        frame(store, "trials", **asked)


def test_a_trial_that_is_not_there_is_an_error_of_ours(log: Path) -> None:
    with at.log(str(log)) as history:
        handle = history
        for ask in (handle.trial, handle.lineage):
            with pytest.raises(at.AutotensorError, match="has no trial 99999"):
                ask(99999)


def test_a_value_that_no_row_can_have_is_an_error(store: TrialStore) -> None:
    for column, wrong, meant in (
        ("status", "ok", "OK"),
        ("kind", "Race", "race"),
        ("conditions", "alne", "alone"),
    ):
        with pytest.raises(
            StoreError, match=rf"no row can have {column} '{wrong}'\. Did you mean '{meant}'\?"
        ):
            frame(store, "trials", where={column: [meant, wrong]})


QUESTIONS: dict[str, Callable[[LogHandle], Any]] = {
    "has no workload 'nope'. Known: w": lambda log: log.history("nope"),
    "has no workload 'nope'": lambda log: log.trials(workload="nope"),
    "has no machine 'zen'. Did you mean 'zen4'?": lambda log: log.standings("zen"),
    "has no session 'x'": lambda log: log.openings("x"),
    "has no model 'x'": lambda log: log.runs("x"),
    "has no target 'T'. Did you mean 't'?": lambda log: log.frame("trials", where={"target": ["t", "T"]}),
    "status 'ok' is unknown. Did you mean 'OK'?": lambda log: log.trials(status="ok"),
    "kind 'races' is unknown. Did you mean 'race'?": lambda log: log.sessions("races"),
    "by 'host' is unknown. Known: session, day": lambda log: log.history("w", "host"),
}


@pytest.mark.parametrize("said", QUESTIONS)
def test_a_name_that_the_log_lacks_is_not_answered_by_nothing(log: Path, said: str) -> None:
    with at.log(str(log)) as handle, pytest.raises(at.AutotensorError, match=re.escape(said)):
        QUESTIONS[said](handle)


def test_a_workload_can_be_meant_by_its_name(log: Path) -> None:
    with connect(log) as store:
        store.ensure_workload("af83270000", "dense", "{}", 1.0)
    for wrong in ("dense", "af83"):
        with at.log(str(log)) as handle, pytest.raises(at.AutotensorError, match="Did you mean 'af83270000'"):
            handle.history(wrong)


def test_a_frame_prints_its_columns(store: TrialStore) -> None:
    assert repr(frame(store, "trials", columns=["trial", "status"])) == "Frame(2 columns: trial, status)"
