"""Trials in short form agree with the trials, in every store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from postgres_server import running

from tuning_db import TrialStore, connect
from tuning_db.exchange.tried import parents, tried
from tuning_db.records import Parent


@pytest.fixture(params=["file", "memory", pytest.param("postgresql", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TrialStore]:
    if request.param == "postgresql":
        with running() as server, connect(server.url) as opened:
            yield opened
        return
    with connect(tmp_path / "log.db" if request.param == "file" else ":memory:") as opened:
        yield opened


def test_they_say_what_the_records_say(store: TrialStore, author: Any) -> None:
    a = author(store)
    a.begin(notes={})
    first = [a.trial(f"t{i}", 1e-3 * (i + 1) if i % 3 else None) for i in range(9)]
    store.add_trials(first)
    made = a.trial("child", 1e-3)
    object.__setattr__(made, "parents", (Parent(first[1].trace_hash, "crossed"), Parent(first[2].trace_hash)))
    store.add_trials([made])
    records = store.trials(session=made.session)
    short = tried(store, made.session)
    assert [t.id for t in short] == [r.id for r in records]
    for t, r in zip(short, records, strict=True):
        for name in (
            "workload",
            "target",
            "status",
            "median_s",
            "verified",
            "predicted",
            "made_by",
            "trace_hash",
        ):
            assert getattr(t, name) == getattr(r, name)
        seconds = [s.seconds for s in r.samples]
        references = [s.reference_s for s in r.samples if s.reference_s is not None]
        assert t.spread == (
            (max(seconds) - min(seconds)) / r.median_s if r.median_s and len(seconds) > 1 else None
        )
        assert t.reference_s == (median(references) if references else None)
    assert parents(store, made.session) == {short[-1].id: made.parents}
    assert tried(store, made.session, after=short[3].id) == short[4:]
    assert tried(store, "another") == ()
