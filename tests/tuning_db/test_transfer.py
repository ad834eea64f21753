"""JSON lines: the error names the first line that is not understood, and then nothing is imported."""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from whole_logs import written_log

from tuning_db import Run, StoreError, TrialStore, connect
from tuning_db.exchange.transfer import from_version_1, import_jsonl, merge

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture
def exported(log: Path, tmp_path: Path) -> Path:
    with connect(log, readonly=True) as store:
        assert written_log(store, tmp_path / "log.jsonl") == 40
    return tmp_path / "log.jsonl"


def test_lines_are_readable_and_complete(exported: Path) -> None:
    lines = [json.loads(line) for line in exported.read_text().splitlines()]
    assert lines[0] == {"format": "autotensor tuning log", "version": 2}
    kinds = [line["kind"] for line in lines[1:]]
    assert kinds.count("trial") == 40
    assert set(kinds) == {
        "workload",
        "target",
        "machine",
        "environment",
        "calibration",
        "session",
        "round",
        "run",
        "trial",
    }
    assert not exported.with_name("log.jsonl.part").exists()


def test_unknown_fields_are_ignored(exported: Path) -> None:
    lines = [json.loads(line) for line in exported.read_text().splitlines()]
    exported.write_text("\n".join(json.dumps(line | {"of_tomorrow": 1}) for line in lines))
    assert import_jsonl(connect(":memory:"), exported).new == 40


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 5 of"),
        ('{"kind": "planet"}', "line 5 of.*planet"),
        ("[1]", "line 5 of"),
        ('{"kind": "trial"}', "line 5 of"),
        ('{"kind": "workload", "key": "", "name": "", "text": "{}", "flops": 1}', "key must be a non-empty"),
        ('{"kind": "workload", "key": "k", "name": "", "text": "{}", "flops": NaN}', "finite"),
        ("[" * 100_000, "line 5 of"),
    ],
)
def test_bad_line_is_named_and_nothing_imported(exported: Path, line: str, message: str) -> None:
    lines = exported.read_text().splitlines()
    lines[4] = line
    exported.write_text("\n".join(lines))
    store = connect(":memory:")
    with pytest.raises(StoreError, match=message):
        import_jsonl(store, exported)
    assert store.workloads() == ()


def test_other_files_are_refused(tmp_path: Path, log: Path) -> None:
    for content in (b"", b"hello\n", b'{"format": "x", "version": 1}\n', log.read_bytes(), b"\xff\xfe"):
        (tmp_path / "x.jsonl").write_bytes(content)
        with pytest.raises(StoreError, match="is not an exported tuning log"):
            import_jsonl(connect(":memory:"), tmp_path / "x.jsonl")
    (tmp_path / "x.jsonl").write_text('{"format": "autotensor tuning log", "version": 3}\n')
    with pytest.raises(StoreError, match="export format 3; this program reads only 2"):
        import_jsonl(connect(":memory:"), tmp_path / "x.jsonl")
    with pytest.raises(StoreError, match="cannot read"):
        import_jsonl(connect(":memory:"), tmp_path / "none.jsonl")


def test_mutated_exports_never_escape(exported: Path) -> None:
    rng = random.Random(0)
    whole = exported.read_bytes()
    refused = 0
    for _ in range(200):
        data = bytearray(whole)
        for _ in range(rng.choice((1, 5))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        exported.write_bytes(data)
        try:
            import_jsonl(connect(":memory:"), exported)
        except StoreError:
            refused += 1
    assert refused > 20


def test_merge_of_many_batches(tmp_path: Path, author: Any) -> None:
    def filled(fingerprint: str) -> TrialStore:
        store = connect(":memory:")
        a = author(store, fingerprint)
        store.add_trials([a.trial(f"{fingerprint}{i}", 1e-3 + i * 1e-6) for i in range(700)])
        return store

    with connect(tmp_path / "all.db") as store:
        for fingerprint in ("zen4", "arm"):
            assert merge(store, filled(fingerprint)).new == 700
        assert store.count() == 1400
        assert {t.machine for t in store.best("w", "t", "arm", k=2000)} == {"arm"}
        assert len(store.best("w", "t", "arm", k=2000)) == 700


def test_an_export_of_version_1_is_what_its_log_upgraded_is(tmp_path: Path) -> None:
    """`fixtures/v1_races.jsonl` was written by version 1 from the log in v1_races.sql."""
    with closing(sqlite3.connect(tmp_path / "old.db")) as db:
        db.executescript((FIXTURES / "v1_races.sql").read_text())
    with connect(tmp_path / "old.db") as old, connect(":memory:") as new:
        assert import_jsonl(new, FIXTURES / "v1_races.jsonl").new == old.count() == 72
        assert Counter(s.kind for s in new.sessions()) == {"search": 4, "race": 2, "model": 2, "end": 2}
        assert new.sessions() == old.sessions()
        assert sorted(r.key for r in new.runs()) == sorted(r.key for r in old.runs())
        for question in (lambda s: s.workloads(), lambda s: s.machines(), lambda s: s.environments(),
                         lambda s: s.calibrations("here"), lambda s: s.rounds("here search")):  # fmt: skip
            assert question(new) == question(old)
        assert new.trials() == old.trials()
        assert {n.race for n in new.standings()} == {o.race for o in old.standings()}
        assert any(t.parents for t in new.trials())


@pytest.mark.parametrize(
    ("run_key", "kind", "key"),
    [
        ("0a1b", "search", "0a1b"),
        ("race:0a1b", "race", "0a1b"),
        ("race:model", "model", "model"),
        ("race:models of mine", "race", "models of mine"),
        ("race:end:77", "end", "end:77"),
    ],
)
def test_run_keys_of_version_1_told_the_kind(run_key: str, kind: str, key: str) -> None:
    line = {"kind": "session", "run_key": run_key, "options": {"of": "s"}}
    assert from_version_1(line) == {**line, "run_key": key, "session_kind": kind, "of": "s"}
    assert from_version_1({**line, "options": {"of": 1}})["of"] is None


def test_an_import_leaves_what_is_known_of_a_run(tmp_path: Path) -> None:
    with connect(":memory:") as a, connect(":memory:") as b:
        a.put_run(Run("r", "theirs", tags={"x": 1}))
        b.put_run(Run("r", "mine", note="a note"))
        written_log(a, tmp_path / "a.jsonl")
        import_jsonl(b, tmp_path / "a.jsonl")
        assert b.runs() == (Run("r", "mine", tags={"x": 1}, note="a note"),)


def test_an_import_leaves_the_notes_of_a_round(tmp_path: Path, exported: Path) -> None:
    with connect(":memory:") as store:
        import_jsonl(store, exported)
        (session,) = store.sessions()
        (known,) = store.rounds(session.id)
        store.put_rounds([replace(known, notes={"rng": [9]})])
        import_jsonl(store, exported)
        assert store.rounds(session.id) == (replace(known, notes={"rng": (9,)}),)


def test_an_export_is_whole_while_others_write(
    tmp_path: Path, author: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row of it refers to a row that came too late for the export."""
    store = connect(":memory:")
    first = author(store)
    first.begin()
    store.add_trials([first.trial("early", 1e-3)])
    real = store.workloads

    def workloads() -> Any:
        monkeypatch.undo()
        late = author(store, "arm")
        store.add_trials([late.trial("late", 1e-3)])
        store.record_apply(store.trials(newest=True, limit=1)[0].id, "late.atm")
        return real()

    monkeypatch.setattr(store, "workloads", workloads)
    assert written_log(store, tmp_path / "log.jsonl") == 1
    other = connect(":memory:")
    assert import_jsonl(other, tmp_path / "log.jsonl").new == 1
    assert written_log(store, tmp_path / "log.jsonl") == 2
    assert import_jsonl(other, tmp_path / "log.jsonl").new == 1
    assert len(other.all_applications()) == 1
