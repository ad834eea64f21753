"""JSON lines: what cannot be understood is named by its line, and then nothing is imported."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tuning_db import StoreError, TrialStore, connect
from tuning_db.transfer import export_jsonl, import_jsonl, merge


@pytest.fixture
def exported(log: Path, tmp_path: Path) -> Path:
    with connect(log, readonly=True) as store:
        assert export_jsonl(store, tmp_path / "log.jsonl") == 40
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
    with pytest.raises(StoreError, match="export format 3; this program knows only 2"):
        import_jsonl(connect(":memory:"), tmp_path / "x.jsonl")
    with pytest.raises(StoreError, match="cannot read"):
        import_jsonl(connect(":memory:"), tmp_path / "none.jsonl")
    with pytest.raises(StoreError, match="cannot write"):
        export_jsonl(connect(":memory:"), tmp_path / "none" / "log.jsonl")


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
