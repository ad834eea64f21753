"""The log returns the results that the search wrote; and their later use."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fakes import TARGET, FakeMeasurer, task
from zoo import gemm

from autotensor.base.deadline import NEVER
from autotensor.base.machine import host_machine
from autotensor.resolve import race_order, ranked, relative_time, resolve
from autotensor.search.journal import Journal, Proposed, opened_journal, retell, run_key
from autotensor.search.loop import tune
from autotensor.search.measuring.measure_request import MeasureResult
from autotensor.search.options import TuneOptions
from autotensor.search.propose.tuner import Tuner
from autotensor.search.run import TuningRun
from autotensor.search.score.boosted.xgb_model import XGBModel
from schedules.generate import default_trace
from schedules.prior.rates import Rates
from tuning_db import TrialStore, connect
from tuning_db.records import Machine, Sample, Status, TrialRecord, Verification
from tuning_db.store import SqlStore

PRODUCT = gemm(96, 192, 64)
TASK = task(PRODUCT)
RATES = Rates.guess(TARGET)
DEFAULT = default_trace(PRODUCT.dag, TARGET).hash
RIGHT = Verification(0.0, 1e-5, (0, 1), verdict=True)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> TrialStore:
    return connect(":memory:") if request.param == "memory" else connect(tmp_path / "log.db")


def journal_in(store: TrialStore, fresh: bool = False) -> AbstractContextManager[Journal]:
    asked = TuningRun([TASK], TuneOptions(fresh=fresh), store, NEVER, residency="hot")
    return opened_journal(asked, run_key([TASK], TARGET.key(), {}, 0), RATES)


def tuner() -> Tuner:
    return Tuner(TASK, XGBModel(), RATES)


def test_a_batch_survives_the_log(store: TrialStore) -> None:
    first = tuner()
    results = [
        MeasureResult(Status.OK, (3e-4, 1e-4, 2e-4), 0.1, max_error=1e-7, tolerance=1e-5, asm={"fma": 8})
    ] * 7
    results.append(MeasureResult(Status.WRONG_RESULT, error="y[0] is 7", max_error=0.5, tolerance=1e-5))
    batch = first.ask(8)
    with journal_in(store) as journal:
        journal.begin([Proposed(TASK, 0, batch)])
        assert {i.trace_hash for i in store.open_intents()} == {c.trace.hash for c in batch}
        assert [len(rows) for rows in journal.finish([Proposed(TASK, 0, batch)], [results])] == [8]
    assert store.open_intents() == ()
    first.tell(batch, [2e-4] * 7 + [None])
    rows = store.trials()
    assert [r.decisions for r in rows] == [dict(c.decisions) for c in batch]
    assert [r.median_s for r in rows] == [2e-4] * 7 + [None]
    assert rows[0].samples == (Sample(3e-4, "hot"), Sample(1e-4, "hot"), Sample(2e-4, "hot"))
    assert rows[0].verification == Verification(1e-7, 1e-5, (0, 1), verdict=True)
    assert rows[7].verification == Verification(0.5, 1e-5, (0, 1), verdict=False)
    assert rows[7].error == "y[0] is 7"
    second = tuner()
    assert retell(second, rows) == 8
    second.skip_round()
    assert second.best_seconds == first.best_seconds
    assert [c.key for c in first.ask(8)] == [c.key for c in second.ask(8)]


def test_a_run_key_names_what_is_asked_and_not_how_much() -> None:
    key = run_key([TASK], "t", {"model": "xgb"}, 0)
    assert key == run_key([TASK], "t", {"model": "xgb"}, 0)
    others = [
        run_key([task(PRODUCT, 2.0)], "t", {"model": "xgb"}, 0),
        run_key([TASK], "u", {"model": "xgb"}, 0),
        run_key([TASK], "t", {"model": "prior"}, 0),
        run_key([TASK], "t", {"model": "xgb"}, 1),
    ]
    assert len({key, *others}) == 5


def test_a_session_is_continued_unless_fresh_is_asked_for(store: TrialStore) -> None:
    with journal_in(store) as first:
        first.end("all trials are spent")
    with journal_in(store) as second:
        assert second.session.id == first.session.id
        assert second.session.ended is None
        assert second.ended_before == "all trials are spent"
    with journal_in(store, fresh=True) as third:
        assert third.session.id != first.session.id


def test_a_session_of_another_machine_is_not_continued(store: TrialStore) -> None:
    key = run_key([TASK], TARGET.key(), {}, 0)
    store.ensure_machine(Machine("elsewhere"))
    environment = store.ensure_environment({"python": "3.11"})
    foreign = store.start_session(run_key=key, seed=0, machine="elsewhere", environment=environment)
    with journal_in(store) as journal:
        assert journal.session.id != foreign.id


def test_rows_of_rules_that_are_gone_say_nothing() -> None:
    store = connect(":memory:")
    tune(TuningRun([TASK], TuneOptions(trials=16), store, NEVER), FakeMeasurer(), RATES)
    rows = [replace(r, sketch_hash="gone") for r in store.trials(limit=16)]
    assert retell(tuner(), rows) == 0


# -- which schedule is used ---------------------------------------------------------------------------------


def record(trace_hash: str, *seconds: float, verified: bool = True, hour: int = 0) -> TrialRecord:
    middle = sorted(seconds)[len(seconds) // 2]
    return TrialRecord(
        session="s",
        workload=PRODUCT.key,
        target=TARGET.key(),
        machine="m",
        environment="e",
        trace="{}",
        trace_hash=trace_hash,
        status=Status.OK,
        median_s=middle,
        samples=tuple(Sample(s) for s in seconds),
        verification=RIGHT if verified else None,
        created=datetime(2026, 1, 1, hour, tzinfo=UTC),
    )


def hashes(rows: list[TrialRecord]) -> list[str]:
    return [r.trace_hash for r in rows]


def test_a_challenger_must_win_beyond_the_noise() -> None:
    default = record("default", *[1.0, 1.1, 0.9, 1.0, 1.05])
    clear = record("clear", *[0.9, 0.99, 0.81, 0.9, 0.945])  # a tenth faster in every round
    lucky = record("lucky", *[1.2, 0.8, 1.0, 0.97, 0.99])
    assert hashes(race_order([default, lucky, clear], "default")) == ["clear", "default", "lucky"]
    assert hashes(race_order([lucky, default], "default")) == ["default", "lucky"]
    found = relative_time(clear, default)
    assert (found.lower, found.middle, found.upper) == pytest.approx((0.9, 0.9, 0.9))


def test_equal_times_are_a_tie() -> None:
    default, same = record("default", 1.0, 1.0, 1.0), record("same", 0.999, 0.999, 0.999)
    assert hashes(race_order([same, default], "default")) == ["default", "same"]


def test_what_is_not_verified_never_wins() -> None:
    default, wrong = record("default", 1.0, 1.0, 1.0), record("wrong", 0.1, 0.1, 0.1, verified=False)
    assert hashes(race_order([default, wrong], "default")) == ["default"]
    assert race_order([wrong], "default") == []


def test_without_a_working_default_the_fastest_wins() -> None:
    a, b = record("a", 2.0, 2.0, 2.0), record("b", 1.0, 1.0, 1.0)
    assert hashes(race_order([a, b], "default")) == ["b", "a"]


class Rows(SqlStore):
    """A log that holds given rows."""

    def __init__(self, rows: list[TrialRecord], race: list[TrialRecord]) -> None:
        super().__init__(":memory:")
        self.rows, self.race = rows, race

    def best(
        self, workload_key: str, target_key: str, machine_fingerprint: str, k: int = 1
    ) -> tuple[TrialRecord, ...]:
        return tuple(sorted(self.rows, key=lambda r: r.median_s or 0.0)[:k])

    def trials(self, *args: object, **kwargs: object) -> tuple[TrialRecord, ...]:  # type: ignore[override]
        wanted = kwargs.get("trace_hash")
        return tuple(r for r in self.rows if wanted in (None, r.trace_hash))

    def last_race(
        self, workload_key: str, target_key: str, machine_fingerprint: str
    ) -> tuple[TrialRecord, ...]:
        return tuple(self.race)


def used(rows: list[TrialRecord], race: list[TrialRecord]) -> str:
    found = ranked(Rows(rows, race), (PRODUCT.key, TARGET.key(), "m"), "default")
    return found[0].trace_hash if found else "none"


def test_before_a_race_the_best_must_be_clearly_faster_than_the_default() -> None:
    default = record("default", 1.0, 1.0, 1.0)
    assert used([default, record("a", 0.98, 0.98, 0.98)], []) == "default"
    assert used([default, record("a", 0.9, 0.9, 0.9)], []) == "a"
    assert used([record("a", 0.9, 0.9, 0.9)], []) == "a"
    assert used([], []) == "none"


def test_after_a_race_only_what_is_newer_and_clearly_faster_counts() -> None:
    race = [record("default", 1.0, 1.0, 1.0, hour=5), record("a", 0.9, 0.9, 0.9, hour=5)]
    lucky = record("lucky", 0.5, 0.5, 0.5, hour=4)  # before the race, and did not qualify
    assert used([lucky, *race], race) == "a"
    assert used([record("newer", 0.89, 0.89, 0.89, hour=6), *race], race) == "a"
    assert used([record("newer", 0.7, 0.7, 0.7, hour=6), *race], race) == "newer"


def test_resolving_takes_the_winner_and_says_where_it_is_from(store: TrialStore) -> None:
    assert resolve(PRODUCT, TARGET, store).source == "default"
    report = tune(TuningRun([TASK], TuneOptions(trials=40), store, NEVER), FakeMeasurer(), RATES)
    found = resolve(PRODUCT, TARGET, store)
    assert found.source == "log"
    assert found.seconds == report.tasks[0].best_s
    (best,) = [
        t
        for t in store.last_race(PRODUCT.key, TARGET.key(), host_machine().fingerprint)
        if t.id == found.trial
    ]
    assert best.trace == found.trace.to_json()


def test_a_winner_that_no_longer_applies_is_passed_over(store: TrialStore) -> None:
    c = tuner().ask(1)[0]
    with journal_in(store) as journal:
        journal.begin([Proposed(TASK, 0, [c])])
        result = MeasureResult(Status.OK, (1e-3,) * 3, max_error=0.0, tolerance=1e-5)
        journal.finish([Proposed(TASK, 0, [c])], [[result]])
    (row,) = store.trials()
    broken = '{"version":1,"steps":[["Parallel","t0","nowhere"]]}'
    store.add_trials([replace(row, trace=broken, trace_hash="broken", median_s=1e-4, round=None, id=None)])
    found = resolve(PRODUCT, TARGET, store)
    assert found.trace.hash == DEFAULT
    assert found.source == "log"
