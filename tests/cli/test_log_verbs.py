"""tasks, show, explain, db on a log whose trials were made up."""

from __future__ import annotations

import csv
import json
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from cli_tools import add_two_machines, cli, mlp_plan

from autotensor.base.counted import counted
from autotensor.base.target import parse
from autotensor.cli.output import IN_USE
from tuning_db import StoreError, connect


@pytest.fixture(scope="module")
def plan():
    return mlp_plan()


@pytest.fixture
def log(tmp_path, monkeypatch, plan):
    """Three trials of mlp/0 here, one of mlp/1 on another machine (which was much faster)."""
    path = tmp_path / "log.db"
    with connect(path) as store:
        add_two_machines(store, plan)
    monkeypatch.setenv("AUTOTENSOR_DB", str(path))
    monkeypatch.chdir(tmp_path)
    return path


def test_tasks(log, plan):
    found = json.loads(cli("tasks", "mlp", "--json").out)
    assert [f["task"] for f in found] == ["mlp/0", "mlp/1", "mlp/2"]
    assert [f["best_s"] for f in found] == [1e-5, None, None]
    assert [f["trials"] for f in found] == [3, 0, 0]
    assert found[0]["key"] == plan.tasks[0].workload.key
    head, _, first, *_, note = cli("tasks", "mlp").out.splitlines()
    assert first.split()[-5:] == ["0.80", "10.0", "80.4", "3", found[0]["key"][:12]]
    assert "us in use" in head
    assert note == IN_USE


def test_each_time_says_what_it_is(log):
    """A trial is faster than the schedule in use, which has the time of its race."""
    assert "us, fastest trial" in cli("db", "list").out.splitlines()[0]
    assert "`autotensor db best` has the schedules in use here" in cli("db", "list").out
    said = cli("db", "best").out.splitlines()
    assert "us in use" in said[0]
    assert said[-1] == IN_USE


@pytest.mark.parametrize(
    ("form", "expected"),
    [("te", "t0[i0: 1, i1: 512] = sum("), ("nest", " in parallel("), ("trace", 's["t0"].'), ("ir", "def "),
     ("llvm", "define "), ("asm", ".text")],
)  # fmt: skip
def test_show(log, form, expected):
    said = cli("show", "mlp/0", "--as", form, "--threads", "2")
    assert said.code == 0, said.err
    assert expected in said.out
    assert ("can be pasted back" in said.err) == (form == "trace")
    last = said.err.splitlines()[-1]  # behind a note on a machine with one core
    assert last.startswith("# dense 784->512 +add+relu (")


def test_show_finds_tasks_three_ways(log, plan):
    key = plan.tasks[0].workload.key
    by_task, by_key = cli("show", "mlp/0", "--as", "trace"), cli("show", key[:12], "--as", "trace")
    by_trial = cli("show", "2", "--as", "trace")
    assert by_task.out == by_key.out == by_trial.out
    assert "trial 2, 10.0 us" in by_task.err
    assert "trial 2, OK, 10.0 us" in by_trial.err
    assert "default schedule" in cli("show", "mlp/0", "--default").err
    assert "has no trial 99" in cli("show", "99").err
    assert "is not a task or trial" in cli("show", "ffffffffff").err
    assert "there is no tuning log at none.db" in cli("show", "3", "--db", "none.db").err


def test_compiling_notes_which_trials_a_file_holds(log, tmp_path):
    said = cli("compile", "mlp", "-o", "m.atm")
    assert "Schedules: 1 from the log, 2 default." in said.out
    with connect(log) as store:
        assert store.applications(2) == (str(tmp_path / "m.atm"),)
        assert store.applications(1) == ()
    assert cli("run", "mlp").code == 0  # it built the model, but saved no file
    with connect(log) as store:
        assert len(store.applications(2)) == 1


def test_a_file_whose_name_is_no_text_is_noted_legibly(log, tmp_path):
    said = cli("compile", "mlp", "-o", os.fsdecode(b"n\xff\xc3\xa9.atm"))
    assert said.code == 0, said.err
    with connect(log) as store:
        assert store.applications(2) == (str(tmp_path / "n\ufffdé.atm"),)


def test_compiling_from_a_log_that_may_only_be_read(log, monkeypatch):
    def refused(db):
        raise StoreError("tuning log 'log.db' cannot be written.")

    monkeypatch.setattr("autotensor.api.log.open_log", refused)
    said = cli("compile", "mlp", "-o", "m.atm")
    assert said.code == 0, said.err
    assert (
        "Note: the log does not record that this file uses its trials: tuning log 'log.db' cannot be written."
        in said.out
    )


def test_schedules_for_another_number_of_threads_are_mentioned(log):
    other = parse().num_cores + 1
    note = (
        f"the log has schedules for {counted(other - 1, 'thread')}, not for {other}; --threads N chooses the"
    )
    for words in (
        ("compile", "mlp", "-o", "m.atm"),
        ("run", "mlp"),
        ("tasks", "mlp"),
        ("explain", "mlp/0"),
        ("show", "mlp/0"),
    ):
        said = cli(*words, "--threads", other)
        assert said.code == 0, said.err
        assert note in said.out + said.err, words
    assert "None of these was tuned here yet" not in cli("tasks", "mlp", "--threads", other).err
    for words in (("compile", "mlp", "-o", "n.atm"), ("tasks", "mlp"), ("explain", "mlp/0")):
        said = cli(*words)
        assert "--threads N" not in said.out + said.err
    said = cli("compile", "mlp", "-o", "s.atm", "--numerics", "strict").out
    assert f"the log has schedules for the target {parse().key()}, not for {parse().key()}/strict." in said
    assert f"Note: n.atm has schedules for {counted(other - 1, 'thread')}; here it runs with {other}." in (
        cli("run", "n.atm", "--threads", other).err
    )
    assert "has schedules for" not in cli("run", "n.atm").err


def test_a_log_that_the_variable_names_and_that_is_not_there_is_mentioned_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("AUTOTENSOR_DB", str(tmp_path / "lost.db"))
    note = f"there is no tuning log at {tmp_path / 'lost.db'} (AUTOTENSOR_DB): an empty log is used"
    monkeypatch.chdir(tmp_path)
    for words in (("tasks", "mlp"), ("compile", "mlp")):
        assert cli(*words).code == 0
        assert caplog.text.count(note) == 1


def test_explain(log):
    said = cli("explain", "mlp/0", "--top", "2")
    assert said.code == 0, said.err
    assert said.out.splitlines()[0].endswith("3 OK")
    assert re.search(r"\bstack +spills\b", said.out)
    found = json.loads(cli("explain", "mlp/0", "--json").out)
    assert all("assembly" in t for t in found["trials"])
    assert [t["trial"] for t in found["trials"]] == [2, 3, 1]
    assert found["statuses"] == {"OK": 3}


def test_explain_never_mixes_machines(log):
    said = cli("explain", "mlp/1").out
    assert "no trials on this machine" in said
    assert "`autotensor tune` measures some; --default explains the default schedule" in said
    assert "Another machine, Faster CPU 9000: 0.00 us; never used here." in said


def test_several_logs_are_merged_at_once(log):
    for name in ("a.db", "b.db"):
        cli("db", "merge", str(log), "--db", name)
    said = cli("db", "merge", "a.db", "b.db", "a.db", "--db", "all.db")
    assert said.out == "a.db: 4 new trials, 0 known already.\nb.db: 0 new trials, 4 known already.\n"
    assert json.loads(cli("db", "merge", "a.db", "b.db", "--db", "more.db", "--json").out) == {
        "new": 4,
        "known": 4,
    }


def test_a_wrong_name_among_logs_merges_nothing(log):
    assert "no tuning log at gone.db" in cli("db", "merge", str(log), "gone.db", "--db", "all.db").err
    assert not Path("all.db").exists()


def test_db_verbs(log, tmp_path):
    assert cli("db", "path").out == f"{log}\n"
    listed = json.loads(cli("db", "list", "--json").out)
    assert [w["trials"] for w in listed["workloads"]] == [3, 1]
    assert {m["cpu"]: m["trials"] for m in listed["machines"]}["Faster CPU 9000"] == 1
    assert "dense 784->512" in cli("db", "list").out
    best = json.loads(cli("db", "best", "--json").out)
    assert [(b["trial"], b["median_s"]) for b in best] == [(2, 1e-5)]
    assert json.loads(cli("db", "failures", "--json").out) == []
    assert cli("db", "export", "all.jsonl").out == "all.jsonl: 4 trials.\n"
    assert cli("db", "import", "all.jsonl", "--db", "copy.db").out == "4 new trials, 0 known already.\n"
    assert cli("db", "merge", "copy.db").out == "0 new trials, 4 known already.\n"
    assert cli("db", "merge", "copy.db").out == "no trials that an earlier merge has not read.\n"
    assert json.loads(cli("db", "check", "--json", "--db", "copy.db").out)["problems"] == []
    assert "schema version" in cli("db", "upgrade", "--db", "copy.db").out


def test_db_check_finds_damage(log):
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(log)) as db:
        db.execute("UPDATE trial SET median_s = 'fast' WHERE id = 2")
        db.commit()
    said = cli("db", "check")
    assert said.code == 1
    assert "Traceback" not in said.err


def test_password_is_never_printed(log):
    said = cli("db", "path", "--db", "postgresql://me:secret@host/db")
    assert said.out == "postgresql://me:***@host/db\n"


def test_a_table_is_exported(log, tmp_path):
    import pyarrow.parquet as parquet

    assert cli("db", "export", "trials.parquet").out == "trials.parquet: 4 trials.\n"
    assert parquet.read_table(tmp_path / "trials.parquet").num_rows == 4
    assert cli("db", "export", "t.csv", "--table", "counts").out.endswith("rows.\n")
    assert (tmp_path / "t.csv").read_text().startswith('"workload","name","target"')
    assert cli("db", "export", "x.out", "--format", "parquet").code == 0
    told = cli("db", "export", "f.csv", "--table", "features").out.splitlines()
    document = json.loads(cli("db", "export", "f.csv", "--table", "features", "--json").out)
    assert told[0] == f"f.csv: {document['rows']} rows."
    left_out = sum(document["left_out"].values())
    assert document["rows"] + left_out == 4
    assert told[1].startswith(f"{left_out} trials left out: ")
    wrong = cli("db", "export", "t.csv", "--table", "trails")
    assert wrong.code == 1
    assert "there is no table 'trails'" in wrong.err


def test_machines(log):
    answer = json.loads(cli("db", "machines", "--json").out)
    assert answer["version"] == 1
    with connect(log) as store:
        known = {m.fingerprint: (m.cpu_model, m.cores) for m in store.machines()}
    assert {r["fingerprint"]: (r["cpu"], r["cores"]) for r in answer["rows"]} == known
    assert sorted((r["trials"], r["failed"]) for r in answer["rows"]) == [(1, 0), (3, 0)]
    heads, *lines = csv.reader(cli("db", "machines", "--csv").out.splitlines())
    assert [dict(zip(heads, line, strict=True)) for line in lines] == [
        {head: str(value) for head, value in row.items()} for row in answer["rows"]
    ]
    assert "Faster CPU 9000" in cli("db", "machines").out


def test_machines_equal_sql(log):
    rows = json.loads(cli("db", "machines", "--json").out)["rows"]
    sql = (
        "SELECT m.fingerprint, COUNT(t.id), COALESCE(SUM(t.status <> 'OK'), 0) FROM machine m "
        "LEFT JOIN trial t ON t.machine_id = m.id GROUP BY m.id"
    )
    with closing(sqlite3.connect(log)) as database:
        asked = set(database.execute(sql))
    assert {(r["fingerprint"], r["trials"], r["failed"]) for r in rows} == asked


def test_one_form_of_an_answer(log):
    for words in (["--json", "--csv"], ["--csv", "--json"]):
        said = cli("db", "machines", *words)
        assert said.code == 2
        assert "exclude each other" in said.err


def test_wrong_usage_deletes_nothing(log):
    before = cli("db", "list", "--json").out
    said = cli("db", "prune", "--yes", "--keep", "1", "--csv", "--json")
    assert (said.code, said.out) == (2, "")
    assert cli("db", "list", "--json").out == before


def test_schedules_are_exported_from_no_log_if_one_is_missing(log, tmp_path):
    said = cli("db", "export-tuned", log, tmp_path / "none.db", "--to", tmp_path / "tuned")
    assert said.code == 1
    assert "none.db" in said.err
    assert not (tmp_path / "tuned").exists()
