"""Questions to a log: each verb's answer equals that of SQL on the same file."""

from __future__ import annotations

import csv
import json
import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_tools import add_trials, add_two_machines, cli, mlp_plan
from commits import COMMITS, add_races
from postgres_server import running

from autotensor.insight.report.run_rows import find_run
from tuning_db import StoreError, connect
from tuning_db.records import Code, Host, Opening, Parent, Run, SessionKind


@pytest.fixture(scope="module")
def plan():
    return mlp_plan()


@pytest.fixture
def log(tmp_path, monkeypatch, plan):
    """A log with two runs. One is of mlp, with three trials and a race; the other has no model, and one trial
    on another machine."""
    path = tmp_path / "log.db"
    with connect(path) as store:
        add_two_machines(store, plan)
        search = store.sessions()[0]
        store.put_run(Run(search.run_key, model="mlp", tasks=({"name": "mlp/0"},)))
        race = store.start_session(
            run_key=search.run_key, seed=0, machine=search.machine, environment=search.environment,
            kind=SessionKind.RACE, of=search.id,
        )  # fmt: skip
        store.put_host(Host("h1", "anvil", search.machine))
        store.put_code(Code("c1", "0.2", "abc"))
        for command in ("tune mlp --trials 1", "tune mlp"):
            store.put_opening(Opening(search.id, "h1", "c1", command, "ada"))
        store.end_session(search.id, "all trials are spent")
        store.end_session(race.id, "raced")
    monkeypatch.setenv("AUTOTENSOR_DB", str(path))
    monkeypatch.chdir(tmp_path)
    return path


def answer(*words: object) -> list[dict[str, Any]]:
    """The rows of a verb as JSON. Its CSV must have the same rows, and its text as many."""
    said = cli("db", *words, "--json")
    assert said.code == 0, said.err
    document = json.loads(said.out)
    assert document["version"] == 1
    heads, *lines = csv.reader(cli("db", *words, "--csv").out.splitlines())
    assert lines == [["" if row[h] is None else str(row[h]) for h in heads] for row in document["rows"]]
    assert len(cli("db", *words).out.splitlines()) == 2 + max(1, len(lines))  # "(none)" without rows
    rows: list[dict[str, Any]] = document["rows"]
    return rows


def asked(log: Path, sql: str, *values: object) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(log)) as database:
        return database.execute(sql, values).fetchall()


def test_runs(log):
    rows = answer("runs")
    sql = (
        "SELECT r.key, r.model, json_array_length(r.tasks), COUNT(DISTINCT s.id), COUNT(t.id), "
        "(SELECT stop_reason FROM session WHERE run_id = r.id ORDER BY id DESC LIMIT 1) "
        "FROM run r JOIN session s ON s.run_id = r.id LEFT JOIN trial t ON t.session_id = s.id "
        "GROUP BY r.id ORDER BY MIN(s.started)"
    )
    heads = ("run", "model", "tasks", "sessions", "trials", "stop_reason")
    assert [tuple(r[h] for h in heads) for r in rows] == asked(log, sql)
    assert [(r["model"], r["sessions"], r["trials"]) for r in rows] == [("mlp", 2, 3), ("", 1, 1)]
    assert answer("runs", "mlp") == rows[:1]
    assert "has no model 'vgg16'. Known: mlp." in cli("db", "runs", "vgg16", "--json").err
    assert rows[0]["what"] == "mlp"


def test_races_of_models_are_no_runs_of_their_own(log):
    with connect(log) as store:
        of = store.sessions()[0]
        for kind, key in ((SessionKind.MODEL, "model"), (SessionKind.END, "end:1f0c")):
            store.start_session(
                run_key=key, seed=0, machine=of.machine, environment=of.environment, kind=kind
            )
    assert {r["what"] for r in json.loads(cli("db", "runs", "--json").out)["rows"]} >= {
        "race inside a model",
        "race of whole models",
    }
    text = cli("db", "runs").out
    assert "end:" not in text
    assert len(text.splitlines()) == 2 + 2


def test_a_session_names_its_run_for_a_report(log):
    with connect(log) as store:
        search, race = (s for s in store.sessions() if s.run_key == find_run(store, "mlp").key)
        assert find_run(store, search.id) == find_run(store, race.id[:12]) == find_run(store, "mlp")


def test_run(log):
    key = answer("runs", "mlp")[0]["run"]
    rows = answer("run", key)
    sql = (
        "SELECT v.session, v.kind, v.machine, (SELECT COUNT(*) FROM trial t WHERE t.session_id = s.id), "
        "(SELECT COUNT(*) FROM trial t WHERE t.session_id = s.id AND status = 'OK'), v.stop_reason, "
        "v.host, v.user_name, v.version, v.commit_sha, v.command "
        "FROM v_runs v JOIN session s ON s.uuid = v.session WHERE v.run = ? ORDER BY s.id"
    )
    heads = (
        "session", "kind", "machine", "trials", "ok", "stop_reason", "host", "user_name", "version",
        "commit_sha", "command",
    )  # fmt: skip
    assert [tuple(r[h] for h in heads) for r in rows] == asked(log, sql, key)
    assert [(r["kind"], r["host"], r["command"]) for r in rows] == [
        ("search", "anvil", "tune mlp"),
        ("race", None, None),
    ]


def test_a_run_is_named_by_how_its_key_begins(log):
    assert answer("run", "run e") == answer("run", "run elsewhere")
    assert (
        "2 runs have keys that begin with 'run '. `autotensor db runs` lists them."
        in cli("db", "run", "run ").err
    )
    none = cli("db", "run", "walk")
    assert none.code == 1
    assert "no run has a key that begins with 'walk'." in none.err


@pytest.fixture
def family(log):
    """Trial 5 was made from the trials 1 and 2, and trial 6 from trial 5 and a trace without a trial."""
    with connect(log) as store:
        one, two, three, *_ = store.trials()
        mixed = replace(two, trace_hash="mixed", made_by="bred", median_s=9e-6)
        parents = tuple(Parent(t.trace_hash, "crossed") for t in (one, two))
        store.add_trials([replace(mixed, parents=parents)])
        parents = (Parent("mixed", "mutated"), Parent("never tried", "transplanted", one.workload))
        store.add_trials([replace(three, trace_hash="child", parents=parents)])
    return log


def test_lineage(family):
    rows = answer("lineage", 6)
    sql = (
        "WITH RECURSIVE line(trial, how, parent, number) AS ("
        "SELECT v.trial, v.how, v.parent, t.id FROM v_lineage v LEFT JOIN trial t ON t.trace_hash = v.parent "
        "WHERE v.trial = ? UNION "
        "SELECT v.trial, v.how, v.parent, t.id FROM line JOIN v_lineage v ON v.trial = line.number "
        "LEFT JOIN trial t ON t.trace_hash = v.parent) SELECT trial, how, number, parent FROM line"
    )
    made = [(r["trial"], r["how"], r["parent"], r["parent_trace"]) for r in rows if r["how"]]
    assert sorted(made, key=str) == sorted(asked(family, sql, 6), key=str)
    assert [(r["trial"], r["parent"]) for r in rows] == [
        (6, 5),
        (6, None),
        (5, 1),
        (5, 2),
        (1, None),
        (2, None),
    ]
    assert [(r["made_by"], r["median_s"]) for r in rows][2] == ("bred", 9e-6)


def test_lineage_of_a_trial_that_is_not_there(log):
    said = cli("db", "lineage", 99)
    assert said.code == 1
    assert "has no trial 99" in said.err


def test_history(log, plan):
    key = plan.tasks[0].workload.key
    by = {
        "session": "s.uuid",
        "day": "substr(t.created, 1, 10)",
        "commit": "COALESCE(c.commit_sha, '')",
        "machine": "m.fingerprint",
        "maker": "t.made_by",
        "conditions": "COALESCE(t.conditions, '')",
    }
    for name, column in by.items():
        rows = answer("history", key, "--by", name)
        sql = (
            f"SELECT {column}, m.fingerprint, g.key, t.residency, COUNT(*), MIN(t.median_s), MIN(t.created) "
            "FROM trial t JOIN session s ON s.id = t.session_id JOIN machine m ON m.id = t.machine_id "
            "JOIN target g ON g.id = t.target_id JOIN workload w ON w.id = t.workload_id "
            "LEFT JOIN code c ON c.id = t.code_id WHERE w.key = ? AND t.verdict AND t.status = 'OK' "
            "GROUP BY 1, 2, 3, 4 ORDER BY MIN(t.created)"
        )
        heads = (name, "machine", "target", "residency", "trials", "best_s", "since")
        assert [tuple(r[h] for h in heads) for r in rows] == asked(log, sql, key)
        for r in rows:
            assert asked(log, "SELECT median_s FROM trial WHERE id = ?", r["trial"]) == [(r["best_s"],)]
    assert answer("history", "mlp/0") == answer("history", key[:8])


def test_history_keeps_apart_what_cannot_be_compared(log, plan):
    """The same workload on another machine, and with the caches in another state."""
    first = plan.tasks[0].workload
    with connect(log) as store:
        add_trials(store, first, [1e-9], fingerprint="elsewhere")
        two = store.trials(first.key)[1]
        hot = tuple(replace(s, residency="graph") for s in two.samples)
        store.add_trials([replace(two, trace_hash="cold", samples=hot, made_by="test")])
    rows = answer("history", first.key, "--by", "maker")
    assert [(r["maker"], r["residency"], r["trials"]) for r in rows] == [
        ("test", "hot", 3), ("test", "graph", 1), ("test", "hot", 1),
    ]  # fmt: skip


@pytest.fixture
def commits(tmp_path, monkeypatch):
    """Three kernels raced at two commits; one became 20 % slower, one 20 % faster."""
    path = tmp_path / "commits.db"
    rng = random.Random(1)
    taken = {"u": 1e-4, "v": 1e-4, "w": 1e-4}
    with connect(path) as store:
        add_races(store, COMMITS[0], taken, rng)
        add_races(store, COMMITS[1], taken | {"v": 1.2e-4, "w": 0.8e-4}, rng)
        add_races(store, COMMITS[1], taken, rng, machine="zen5")
    monkeypatch.setenv("AUTOTENSOR_DB", str(path))
    return path


def test_compare(commits):
    rows = answer("compare", "aaaa", "bbbb")
    sql = (
        "SELECT w.key, MIN(CASE c.key WHEN 'aaaa1111' THEN t.median_s END), "
        "MIN(CASE c.key WHEN 'bbbb2222' THEN t.median_s END) "
        "FROM trial t JOIN workload w ON w.id = t.workload_id JOIN machine m ON m.id = t.machine_id "
        "JOIN code c ON c.id = t.code_id WHERE m.fingerprint = 'zen3' GROUP BY w.key"
    )
    found = {(r["workload"], r["seconds_a"], r["seconds_b"]) for r in rows}
    assert found == set(asked(commits, sql))
    assert [(r["workload"], r["verdict"]) for r in rows][::2] == [("v", "slower"), ("w", "faster")]
    assert all(r["lower"] < r["ratio"] < r["upper"] and r["same_schedule"] for r in rows)
    assert [r["verdict"] for r in answer("compare", "aaaa", "bbbb", "--at-least", "50%")] == ["even"] * 3
    assert max(map(len, cli("db", "compare", "aaaa", "bbbb").out.splitlines())) <= 80


def test_sessions_are_compared(commits):
    before, after = (id for (id,) in asked(commits, "SELECT uuid FROM session ORDER BY id LIMIT 2"))
    assert answer("compare", before, after[:12]) == answer("compare", "aaaa", "bbbb")
    said = cli("db", "compare", before, "aaaa").err
    assert f"{before!r} is a session and 'aaaa' a commit." in said


def test_regressions_are_an_error_for_who_waits_for_them(commits):
    said = cli("db", "regressions", "--json")
    assert said.code == 1
    assert [(r["workload"], r["machine"]) for r in json.loads(said.out)["rows"]] == [("v", "zen3")]
    assert cli("db", "regressions", "aaaa", "bbbb", "--json").out == said.out
    assert "v" in cli("db", "regressions", "--csv").out.splitlines()[1]
    assert answer("regressions", "--at-least", "50%") == []
    assert [r["verdict"] for r in answer("compare", "bbbb", "aaaa")].count("slower") == 1


def test_names_that_are_not_compared(commits):
    assert "no run, session, commit or machine 'cccc'." in cli("db", "compare", "aaaa", "cccc").err
    assert "'zen' may be machine zen3 or machine zen5." in cli("db", "compare", "zen", "aaaa").err
    assert "a comparison needs two names" in cli("db", "regressions", "aaaa").err
    assert cli("db", "compare", "aaaa").code == 2


def test_commits(log):
    (row,) = answer("commits")
    sql = (
        "SELECT c.commit_sha, c.version, COUNT(DISTINCT o.session_id), MIN(o.started), MAX(o.started) "
        "FROM code c JOIN opening o ON o.code_id = c.id GROUP BY c.id"
    )
    assert asked(log, sql) == [tuple(row[h] for h in ("commit", "version", "sessions", "first", "last"))]


def test_schema(log):
    rows = answer("schema", "trial")
    assert [r["column"] for r in rows] == [c[1] for c in asked(log, "PRAGMA table_info(trial)")]
    assert {
        "table": "trial",
        "column": "build_s",
        "unit": "s",
        "meaning": "time of lowering and compiling",
    } in rows
    assert len(answer("schema")) > 200
    assert "a log has no table 'trail'. Did you mean 'trial'?" in cli("db", "schema", "trail").err
    assert "| `build_s` | s | time of lowering and compiling |" in cli("db", "schema", "--markdown").out


def test_prune(log, plan):
    """Two of mlp/0's eleven trials stay, and all trials of a run that has not ended."""
    many = [1e-3 + n * 1e-6 for n in range(8)]
    with connect(log) as store:
        rows = add_trials(store, plan.tasks[0].workload, many)
        store.end_session(rows[0].session, "all trials are spent")
    before = asked(log, "SELECT id FROM trial")
    key = plan.tasks[0].workload.key
    (row, *others) = answer("prune", "--keep", 2)
    trials = asked(
        log, "SELECT COUNT(*) FROM trial t JOIN workload w ON w.id = workload_id WHERE w.key = ?", key
    )
    assert (row["workload"], row["trials"]) == (key, *trials[0])
    assert row["gone"] > 0 == sum(r["gone"] for r in others)
    assert asked(log, "SELECT id FROM trial") == before  # a dry run
    said = cli("db", "prune", "--keep", 2)
    assert (
        f"{row['gone']} of {len(before)} trials would be deleted. Nothing was deleted: that needs --yes."
        in said.err
    )
    assert max(map(len, said.out.splitlines())) <= 80
    assert cli("db", "prune", "--keep", 2, "--older", 1, "--yes").code == 0
    assert asked(log, "SELECT id FROM trial") == before  # all are younger than a day
    said = cli("db", "prune", "--keep", 2, "--yes")
    assert f"{row['gone']} of {len(before)} trials were deleted;" in said.err
    assert asked(log, "SELECT COUNT(*) FROM trial") == [(len(before) - row["gone"],)]
    assert cli("db", "check").code == 0


def test_compact(log):
    said = json.loads(cli("db", "compact", "--json").out)
    assert said["bytes"] == log.stat().st_size
    assert " before, " in cli("db", "compact").out
    with connect(log) as store:
        assert store.check().ok


def test_a_log_that_is_not_there_is_not_made(tmp_path):
    for verb in ("prune", "compact"):
        said = cli("db", verb, "--db", tmp_path / "none.db")
        assert said.code == 1
        assert "there is no tuning log at" in said.err
    assert not (tmp_path / "none.db").exists()


def test_sql(log):
    query = "SELECT id, status, median_s, trace_hash LIKE '%a%' AS has_a FROM trial ORDER BY id"
    rows = answer("sql", query + ";")
    assert [tuple(r.values()) for r in rows] == asked(log, query)
    assert list(rows[0]) == ["id", "status", "median_s", "has_a"]
    assert answer("sql", "WITH t AS (SELECT x'0aff' AS b) SELECT b FROM t") == [{"b": "0aff"}]
    assert answer("sql", "SELECT id FROM trial WHERE id < 0") == []


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("DELETE FROM trial", "the query is not a single SELECT. Write one"),
        ("SELECT 1; DELETE FROM trial", "the query is not a single SELECT. Write one"),
        ("WITH t AS (SELECT 1) DELETE FROM sketch", "is read-only."),
        ("SELECT speed FROM trial", "the database rejects the query: no such column: speed. Correct"),
        ("SELECT key FROM run WHERE key = :run", "the query has a parameter, such as :run. Write the value"),
        ("SELECT id, id FROM trial", "two columns of the result are named 'id'."),
    ],
)
def test_sql_that_is_refused(log, query, sentence):
    before = asked(log, "SELECT COUNT(*) FROM trial") + asked(log, "SELECT COUNT(*) FROM sketch")
    said = cli("db", "sql", query, "--json")
    assert said.code == 1
    assert sentence in said.err
    assert len(said.err.splitlines()) == 1
    assert asked(log, "SELECT COUNT(*) FROM trial") + asked(log, "SELECT COUNT(*) FROM sketch") == before


def test_a_log_that_can_be_written_is_not_asked_in_sql(log):
    with connect(log) as store, pytest.raises(StoreError, match="is open for writing"):
        store.ask("SELECT 1")


@pytest.mark.postgres
def test_sql_on_a_server(plan):
    with running() as server:
        with connect(server.url) as store:
            add_trials(store, plan.tasks[0].workload, [3e-5, 1e-5])
        of_it = ("--db", server.url)
        query = "SELECT id, status, median_s, status LIKE '%K' AS ok FROM trial ORDER BY id"
        assert [tuple(r.values()) for r in answer("sql", query, *of_it)] == [
            (1, "OK", 3e-5, True),
            (2, "OK", 1e-5, True),
        ]
        gone = cli(
            "db", "sql", "WITH gone AS (DELETE FROM parent RETURNING how) SELECT how FROM gone", *of_it
        )
        assert "is read-only." in gone.err
        unknown = cli("db", "sql", "SELECT speed FROM trial", *of_it)
        assert 'the database rejects the query: column "speed" does not exist.' in unknown.err
        assert [(r["model"], r["trials"]) for r in answer("runs", *of_it)] == [("", 2)]
