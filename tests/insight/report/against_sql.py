"""Compares the figures of a report's document with the log, by SQL."""

from __future__ import annotations

from datetime import datetime
from statistics import median
from typing import Any

import pytest

OF_RUN = """
FROM trial t JOIN session s ON s.id = t.session_id JOIN run r ON r.id = s.run_id
JOIN workload w ON w.id = t.workload_id WHERE r.key = ? AND s.kind = """


def assert_of_the_log(d: dict[str, Any], ask: Any) -> None:
    """Every figure of one run."""
    run = d["run"]
    entries = (
        "SELECT e.value ->> 'workload', e.value ->> 'name' FROM run r, json_each(r.tasks) e WHERE r.key = ?"
    )
    assert {t["workload"]: t["name"] for t in d["tasks"]} == dict(ask(entries, run))
    for t in d["tasks"]:
        assert_task(t, run, ask)
    assert_tallies(d, run, ask)
    assert_end(d, run, ask)
    of_run = "SELECT MIN(started), seed FROM session s JOIN run r ON r.id = s.run_id WHERE r.key = ?"
    started, seed = ask(of_run, run)[0]
    assert (datetime.fromisoformat(d["started"]), d["seed"]) == (datetime.fromisoformat(started), int(seed))


def assert_task(t: dict[str, Any], run: str, ask: Any) -> None:
    of_task = f"{OF_RUN}'search' AND w.key = ?"
    points = ask(
        f"SELECT t.id, t.median_s, t.predicted, t.made_by {of_task} AND t.status <> 'REJECTED' ORDER BY t.id",
        run, t["workload"],
    )  # fmt: skip
    shown = t["history"]["points"]
    names = ("trial", "seconds", "predicted_s", "made_by")
    assert list(zip(*(shown[name] for name in names), strict=True)) == points
    [(rejected,)] = ask(f"SELECT COUNT(*) {of_task} AND t.status = 'REJECTED'", run, t["workload"])
    assert t["rejected"] == rejected
    r = t["result"]
    standing = ask(
        "SELECT x.trial_id, x.seconds, x.default_s FROM standing x JOIN workload w ON w.id = x.workload_id "
        "JOIN session s ON s.id = x.race_id JOIN run r ON r.id = s.run_id WHERE w.key = ? AND r.key = ?",
        t["workload"], run,
    )  # fmt: skip
    # an older run's race is no longer what is used
    assert standing in ([], [(r["winner"], r["winner_s"], r["default_s"])])
    for trial, seconds in ((r["winner"], r["winner_s"]), (r["default"], r["default_s"])):
        samples = [s for (s,) in ask("SELECT seconds FROM sample WHERE trial_id = ?", trial)]
        assert median(samples) == seconds
    assert r["lower"] <= r["ratio"] <= r["upper"]
    for child, parent in zip(t["lineage"][1:], t["lineage"], strict=False):
        [(how, hash)] = ask("SELECT how, trace_hash FROM parent WHERE child_id = ?", child["trial"])
        assert (child["how"], [(parent["trial"],)]) == (
            how, ask(f"SELECT t.id {of_task} AND t.trace_hash = ?", run, t["workload"], hash),
        )  # fmt: skip
    for step in t["lineage"]:
        assert ask("SELECT median_s, made_by FROM trial WHERE id = ?", step["trial"]) == [
            (step["seconds"], step["made_by"])
        ]
    for reason in t["reasons"]:
        assert_reason(reason, t, run, ask)


def assert_reason(reason: dict[str, Any], t: dict[str, Any], run: str, ask: Any) -> None:
    """The best of the trials that do one thing as the default does, by SQL."""
    of_task = f"{OF_RUN}'search' AND w.key = ? AND t.verdict AND t.status = 'OK'"
    winner = t["lineage"][-1]
    [(kin, best_s)] = ask("SELECT sketch_id, median_s FROM trial WHERE id = ?", winner["trial"])
    if reason["what"] == "structure":
        default = t["history"]["points"]["trial"][0]
        alike = "t.sketch_id = (SELECT sketch_id FROM trial WHERE id = ?)"
        found = ask(f"SELECT COUNT(*), MIN(t.median_s) {of_task} AND {alike}", run, t["workload"], default)
    else:
        value = "[" + reason["default"].replace("×", ",") + "]"
        found = ask(
            f"SELECT COUNT(*), MIN(t.median_s) {of_task} AND t.sketch_id = ? "
            "AND (SELECT e.value FROM json_each(t.decisions) e WHERE e.key = ?) = ?",
            run, t["workload"], kin, reason["what"], value,
        )  # fmt: skip
    count, least = found[0]
    assert reason["trials"] == count
    assert reason["ratio"] == (None if least is None else pytest.approx(least / best_s))


def assert_tallies(d: dict[str, Any], run: str, ask: Any) -> None:
    made = ask(f"SELECT t.made_by, COUNT(*) {OF_RUN}'search' GROUP BY 1", run)
    for cells in ("makers", "rules"):
        assert sum(c["count"] for c in d[cells]) == sum(n for _, n in made)
        by_outcome: dict[str, int] = {}
        for c in d[cells]:
            outcome = "OK" if c["outcome"] == "new best" else c["outcome"]
            by_outcome[outcome] = by_outcome.get(outcome, 0) + c["count"]
        assert by_outcome == dict(ask(f"SELECT t.status, COUNT(*) {OF_RUN}'search' GROUP BY 1", run))
    by_maker: dict[str, int] = {}
    for c in d["makers"]:
        by_maker[c["kind"]] = by_maker.get(c["kind"], 0) + c["count"]
    assert by_maker == dict(made)
    best = (
        f"SELECT COUNT(*) {OF_RUN}'search' AND t.verdict AND t.status = 'OK' AND t.median_s < "
        "(SELECT MIN(o.median_s) FROM trial o WHERE o.session_id = t.session_id "
        "AND o.workload_id = t.workload_id AND o.id < t.id AND o.verdict AND o.status = 'OK')"
    )
    assert [(sum(c["count"] for c in d["makers"] if c["outcome"] == "new best"),)] == ask(best, run)
    failed = ask(
        f"SELECT t.status, t.error_signature, COUNT(*) n, MIN(t.id) {OF_RUN}'search' AND t.status <> 'OK' "
        "GROUP BY 1, 2 ORDER BY n DESC, 4",
        run,
    )
    assert [(f["status"], f["signature"], f["count"], f["example"]) for f in d["failures"]] == failed
    sampled = OF_RUN.replace("FROM trial t", "FROM trial t JOIN sample x ON x.trial_id = t.id")
    of_trial = f"{sampled}'search' AND t.median_s > 0 GROUP BY t.id"
    ends = f"SELECT MAX(x.seconds), MIN(x.seconds), t.median_s {of_trial}"
    spreads = [(most - least) / middle for most, least, middle in ask(ends, run)]
    assert d["noise"]["spread"] == pytest.approx(median(spreads))
    assert sum(d["noise"]["spreads"]) == len(spreads)


def assert_end(d: dict[str, Any], run: str, ask: Any) -> None:
    [(default_s, tuned_s)] = ask(
        "SELECT s.options ->> 'default_s', s.options ->> 'tuned_s' FROM session s "
        "JOIN run r ON r.id = s.run_id WHERE r.key = 'end:' || ?",
        run,
    )
    assert (d["default_s"], d["tuned_s"]) == (default_s, tuned_s)
