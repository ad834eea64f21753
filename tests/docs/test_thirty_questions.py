"""The thirty questions of docs/tuning-log.md: each verb answers what its SQL does, on one made-up log."""

from __future__ import annotations

import json
import random
import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from cli_tools import add_trials, add_two_machines, cli, mlp_plan
from commits import COMMITS, add_races

from autotensor.base.machine import host_machine
from autotensor.base.target import parse
from tuning_db import TrialStore, connect
from tuning_db.records import Code, Conditions, Host, Opening, Parent, Run, SessionKind, Standing, Status

PAGE = Path(__file__).parents[2] / "docs" / "tuning-log.md"
QUESTION = re.compile(r"\*\*(\d+)\. (.+?)\*\* `autotensor db (.+?)`\n\n```sql\n(.+?)```", re.DOTALL)


@dataclass(frozen=True)
class Question:
    number: int
    text: str
    verb: str
    sql: str


QUESTIONS = [Question(int(n), *rest) for n, *rest in QUESTION.findall(PAGE.read_text())]


@dataclass(frozen=True)
class Log:
    path: Path
    names: dict[str, Any]  # RUN, TASK, …: what stands for them


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Two machines, two runs of two models, a race; children, failures; three kernels at two commits."""
    path = tmp_path_factory.mktemp("questions") / "log.db"
    plan = mlp_plan()
    first = plan.tasks[0].workload
    rng = random.Random(1)
    taken = {"u": 1e-4, "v": 1e-4, "w": 1e-4}
    target = (parse().key(), parse().to_json())
    with connect(path) as store:
        add_two_machines(store, plan)
        add_trials(store, first, [5e-5], fingerprint="elsewhere")
        run = an_mlp_run(store)
        child = made_from_others(store, first.key)
        runs = [
            add_races(store, commit, taken | {"v": 1e-4 * f}, rng, target=target)
            for commit, f in zip(COMMITS, (1.0, 1.2), strict=True)
        ]
        add_races(store, COMMITS[1], taken, rng, machine="zen5", target=target)
        for n, commit in enumerate(COMMITS):
            store.put_host(Host(f"h{n}", f"anvil{n}", "zen3"))
            last = [s for s in store.sessions() if s.run_key == runs[n]][-1]
            store.put_opening(Opening(last.id, f"h{n}", commit, f"tune {commit}", "ada"))
    names = {
        "RUN": run, "MODEL": "mlp", "TASK": first.key, "TRIAL": child, "MACHINE": "zen3",
        "OTHER_MACHINE": "zen5", "COMMIT": COMMITS[0], "OTHER_COMMIT": COMMITS[1],
    }  # fmt: skip
    return Log(path, names | {"RUNS": runs})


def an_mlp_run(store: TrialStore) -> str:
    """The first run is of mlp, by a command that was given twice, and raced; gives its key."""
    search = store.sessions()[0]
    store.put_run(Run(search.run_key, model="mlp", tasks=({"name": "mlp/0"},)))
    store.put_host(Host("h", "forge", search.machine))
    store.put_code(Code("c", "0.2", "abc"))
    for command in ("tune mlp --trials 1", "tune mlp"):
        store.put_opening(Opening(search.id, "h", "c", command, "ada"))
    race = store.start_session(
        run_key=search.run_key, seed=0, machine=search.machine, environment=search.environment,
        kind=SessionKind.RACE, of=search.id,
    )  # fmt: skip
    best = store.trials(session=search.id)[1]
    raced = replace(best, session=race.id, code="c", conditions=Conditions.ALONE, id=None)
    store.add_trials([raced, replace(raced, trace_hash="slower", median_s=3e-5, made_by="default")])
    winner = store.trial_id(race.id, best.workload, best.target, best.trace_hash)
    store.put_standing(Standing(best.workload, best.target, best.machine, race.id, winner, 1e-5, 3e-5))
    store.end_session(search.id, "all trials are spent")
    store.end_session(race.id, "raced")
    return search.run_key


def made_from_others(store: TrialStore, workload: str) -> int:
    """Failures of two kinds, and a child of a child of two trials; gives its number."""
    one, two, *_ = store.trials(workload)
    crossed = (Parent(one.trace_hash, "crossed"), Parent(two.trace_hash, "crossed"))
    bred = replace(one, trace_hash="bred", made_by="bred", median_s=4e-5, parents=crossed, id=None)
    mutated = (Parent("bred", "mutated"), Parent("never tried", "transplanted"))
    child = replace(bred, trace_hash="child", parents=mutated, conditions=Conditions.BESIDE)
    failed = replace(
        one, status=Status.CRASHED, median_s=None, samples=(), verification=None, error="signal 11", id=None
    )
    late = replace(failed, status=Status.RUN_TIMEOUT, error="kernel 'k' ran 31.5 s", trace_hash="late")
    crashes = [replace(failed, trace_hash=f"crash {n}", error=f"signal {n}") for n in range(3)]
    store.add_trials([bred, child, late, *crashes])
    found = store.trial_id(child.session, workload, child.target, "child")
    assert found is not None
    return found


def test_there_are_thirty() -> None:
    assert [q.number for q in QUESTIONS] == list(range(1, 31))
    assert len({q.text for q in QUESTIONS}) == 30


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: str(q.number))
@pytest.mark.sample(12)
def test_the_verb_and_the_sql_agree(question: Question, log: Log) -> None:
    names = dict(log.names)
    if "OTHER_RUN" in question.verb:
        names["RUN"], names["OTHER_RUN"] = names["RUNS"]
    words = [names.get(word, word) for word in question.verb.split()]
    values = {name.lower(): value for name, value in names.items() if name != "RUNS"}
    if question.verb == "best":
        values["machine"] = host_machine().fingerprint
    by_sql = asked(log.path, question.sql, values)
    by_verb = told(words, log.path)
    assert by_sql, "a question that nothing answers shows nothing"
    heads = list(by_sql[0])
    mine = [{head: row[head] for head in heads} for row in by_verb]
    if "ORDER BY" not in question.sql.splitlines()[-1]:
        mine, by_sql = sorted(mine, key=str), sorted(by_sql, key=str)
    assert mine == by_sql


def asked(path: Path, sql: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as database:
        found = database.execute(sql, {name: v for name, v in values.items() if f":{name}" in sql})
        heads = [column[0] for column in found.description]
        return [dict(zip(heads, row, strict=True)) for row in found]


def told(words: list[object], path: Path) -> list[dict[str, Any]]:
    """The rows of a verb, whatever its document is like."""
    said = cli("db", *words, "--db", path, "--json")
    assert said.code == (words[0] == "regressions"), said.err
    document = json.loads(said.out)
    if isinstance(document, list):
        return document
    return document["workloads" if words[0] == "list" else "rows"]
