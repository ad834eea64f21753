"""The contract of a trial store, in memory, in a file and on a server."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from small_log import WRONG, Task, a_task, begin, everything, write_everything
from whole_logs import written_log

from tuning_db import Calibration, Machine, SessionKind, Status, StoreError, TrialStore, connect
from tuning_db.exchange.transfer import import_jsonl, merge


@pytest.fixture
def task(store: TrialStore) -> Task:
    return a_task(store)


class TestStoreContract:
    # --- what goes in comes out ---

    def test_trial_comes_back_as_it_was_stored(self, store: TrialStore, task: Task) -> None:
        begin(store, task, index=3)
        stored = task.trial("t1", round=3)
        assert store.add_trials([stored]) == 1
        (found,) = store.trials()
        assert found == stored
        assert found.id is not None
        assert store.trial(found.id) == stored

    def test_failure_keeps_its_whole_text_and_has_no_time(self, store: TrialStore, task: Task) -> None:
        text = "first\n" + "x" * 100_000 + "\x00\udcff é"
        store.add_trials([task.trial("t1", None, status=Status.CRASHED, error=text)])
        (found,) = store.trials(status=Status.CRASHED)
        assert found.median_s is None
        assert found.error == text.replace("\x00", "\\x00").replace("\udcff", "\\udcff")

    def test_things_referred_to_come_back(self, store: TrialStore, task: Task) -> None:
        assert [w.name for w in store.workloads()] == ["matmul"]
        assert store.targets()[0].text == '{"threads": 2}'
        assert store.machines()[0] == Machine("zen4", "Zen 4", ("avx512f", "fma"), 2, (32768, 1 << 20))
        assert store.environments()[0].versions == {"llvmlite": "0.50", "python": "3.11"}
        assert store.environments()[0].key == task.environment

    def test_ensuring_twice_is_ensuring_once(self, store: TrialStore) -> None:
        a_task(store)
        a_task(store)
        assert len(store.workloads()) == len(store.targets()) == len(store.machines()) == 1
        assert len(store.environments()) == 1
        assert len(store.sessions()) == 2

    def test_workload_with_another_text_is_refused(self, store: TrialStore, task: Task) -> None:
        with pytest.raises(StoreError, match="already holds workload 'w' with another text"):
            store.ensure_workload("w", "matmul", "{}", 1.0)

    # --- storing twice, storing wrongly ---

    def test_same_trace_in_one_session_is_stored_once(self, store: TrialStore, task: Task) -> None:
        assert store.add_trials([task.trial("a"), task.trial("b"), task.trial("a", 5e-3)]) == 2
        assert store.add_trials([task.trial("a", 9e-3), task.trial("c")]) == 1
        assert store.best(task.workload, task.target, task.machine)[0].median_s == 1e-3
        other = a_task(store)
        assert store.add_trials([other.trial("a", 2e-3)]) == 1
        assert store.count() == 4

    @pytest.mark.parametrize("field", ["session", "workload", "target", "machine", "environment"])
    def test_unknown_reference_is_named_and_nothing_stored(
        self, store: TrialStore, task: Task, field: str
    ) -> None:
        with pytest.raises(StoreError, match=f"has no {field} 'nowhere'"):
            store.add_trials([task.trial("a"), task.trial("b", **{field: "nowhere"})])
        assert store.count() == 0

    def test_unknown_round_is_named_and_nothing_stored(self, store: TrialStore, task: Task) -> None:
        begin(store, task, task.intent("a"))
        with pytest.raises(StoreError, match="has no round 9"):
            store.add_trials([task.trial("a"), task.trial("b", round=9)])
        assert store.count() == 0
        assert len(store.open_intents()) == 1

    # --- best ---

    def test_best_is_fastest_first_and_verified_only(self, store: TrialStore, task: Task) -> None:
        store.add_trials(
            [
                task.trial("slow", 3e-3),
                task.trial("unverified", 1e-9, verification=None),
                task.trial("wrong", 1e-9, verification=WRONG),
                task.trial("quick", 1e-3),
                task.trial("failed", None),
                task.trial("middle", 2e-3),
            ]
        )
        best = store.best(task.workload, task.target, task.machine, k=2)
        assert [t.trace_hash for t in best] == ["quick", "middle"]
        assert [t.trace_hash for t in store.best(task.workload, task.target, task.machine, k=9)] == [
            "quick",
            "middle",
            "slow",
        ]
        assert store.best("other", task.target, task.machine) == ()
        assert store.best(task.workload, "other", task.machine) == ()

    def test_best_gives_each_trace_once(self, store: TrialStore, task: Task) -> None:
        again = a_task(store)
        store.add_trials([task.trial("a", 2e-3), again.trial("a", 1e-3), again.trial("b", 3e-3)])
        found = store.best(task.workload, task.target, task.machine, k=5)
        assert [(t.trace_hash, t.median_s) for t in found] == [("a", 1e-3), ("b", 3e-3)]

    def test_best_never_gives_a_foreign_row(self, store: TrialStore, task: Task) -> None:
        arm, intel = a_task(store, "arm"), a_task(store, "intel")
        store.add_trials(
            [task.trial("a", 5e-3), arm.trial("b", 1e-6), arm.trial("c", 2e-6), intel.trial("d", 1e-7)]
        )
        assert [t.machine for t in store.best(task.workload, task.target, "zen4", k=10)] == ["zen4"]
        assert store.best(task.workload, task.target, "unseen", k=10) == ()
        foreign = store.best_foreign(task.workload, task.target, "zen4", k=1)
        assert [(f.machine.fingerprint, f.trial.trace_hash) for f in foreign] == [
            ("arm", "b"),
            ("intel", "d"),
        ]
        assert {f.machine.fingerprint for f in store.best_foreign(task.workload, task.target, "unseen")} == {
            "zen4",
            "arm",
            "intel",
        }

    # --- filters and summaries ---

    def test_trials_filter_and_page(self, store: TrialStore, task: Task) -> None:
        other = a_task(store, "arm", workload="w2", target="cuda")
        store.add_trials([task.trial("a"), task.trial("b", None), other.trial("c")])

        def hashes(**wanted: Any) -> str:
            return "".join(t.trace_hash for t in store.trials(**wanted))

        assert hashes() == "abc"
        assert hashes(workload_key="w2") == hashes(target_key="cuda") == hashes(machine="arm") == "c"
        assert hashes(session=task.session) == "ab"
        assert hashes(status=Status.OK) == "ac"
        assert hashes(status=[Status.RUN_TIMEOUT, Status.CRASHED]) == "b"
        assert hashes(status=[]) == ""
        assert hashes(limit=2) == "ab"
        assert hashes(after=store.trials(limit=1)[0].id) == "bc"
        assert store.count(session=task.session) == 2
        assert store.count(workload_key="w", status=Status.OK) == 1

    def test_the_newest_trials_come_in_order_of_storing(self, store: TrialStore, task: Task) -> None:
        store.add_trials([task.trial(f"t{i}") for i in range(5)])
        assert [t.trace_hash for t in store.trials(limit=2, newest=True)] == ["t3", "t4"]
        assert [t.trace_hash for t in store.trials(limit=9, newest=True)] == ["t0", "t1", "t2", "t3", "t4"]
        assert store.trials(limit=0, newest=True) == ()

    def test_what_was_known_before_an_instant(self, store: TrialStore, task: Task) -> None:
        for hour in range(4):
            made = datetime(2026, 1, 1, hour, tzinfo=UTC)
            store.add_trials([replace(task.trial(f"t{hour}"), created=made)])
        then = datetime(2026, 1, 1, 2, tzinfo=UTC)
        assert [t.trace_hash for t in store.trials(before=then)] == ["t0", "t1"]
        assert [t.trace_hash for t in store.trials(before=then, limit=1, newest=True)] == ["t1"]

    def test_last_race_is_the_latest_of_its_task_and_machine(self, store: TrialStore, task: Task) -> None:
        def race(hour: int, *hashes: str, machine: str = task.machine) -> None:
            started = datetime(2026, 1, 1, hour, tzinfo=UTC)
            session = store.start_session(
                run_key="run",
                seed=0,
                machine=machine,
                environment=task.environment,
                started=started,
                kind=SessionKind.RACE,
            )
            mine = replace(task, session=session.id, machine=machine)
            store.add_trials([mine.trial(h) for h in hashes])

        store.add_trials([task.trial("t0"), task.trial("t1")])
        assert store.last_race(task.workload, task.target, task.machine) == ()
        race(2, "t2", "t0", "t1")
        race(1, "t9")
        race(3, "t8", machine=store.ensure_machine(Machine("other")))
        found = store.last_race(task.workload, task.target, task.machine)
        assert [t.trace_hash for t in found] == ["t2", "t0", "t1"]
        assert store.last_race("elsewhere", task.target, task.machine) == ()

    def test_missing_trial_is_named(self, store: TrialStore, task: Task) -> None:
        with pytest.raises(StoreError, match="has no trial 77"):
            store.trial(77)

    def test_failures_are_grouped_by_what_they_have_in_common(self, store: TrialStore, task: Task) -> None:
        build = Status.BUILD_ERROR
        store.add_trials(
            [
                task.trial("ok"),
                task.trial("a", None, status=build, error="kernel 'k' needs 66560 bytes\nA"),
                task.trial("b", None),
                task.trial("c", None, status=build, error="kernel 'k' needs 1024 bytes\nB"),
            ]
        )
        first, second = store.failures()
        assert (first.status, first.signature, first.count) == (build, "kernel 'k' needs # bytes", 2)
        assert store.trial(first.example).trace_hash == "a"
        assert (second.status, second.count) == (Status.RUN_TIMEOUT, 1)
        assert store.failures(workload_key="other") == ()
        assert len(store.failures(session=task.session)) == 2

    def test_progress_counts_and_draws_the_curve_of_verified_bests(
        self, store: TrialStore, task: Task
    ) -> None:
        store.add_trials(
            [
                task.trial("a", 4e-3),
                task.trial("b", None),
                task.trial("c", 1e-9, verification=None),
                task.trial("d", 5e-3),
                task.trial("e", 2e-3),
            ]
        )
        (p,) = store.progress(task.session)
        assert (p.workload, p.target, p.trials, p.ok, p.failed) == (task.workload, task.target, 5, 4, 1)
        assert p.best_s == 2e-3
        assert p.curve == ((1, 4e-3), (5, 2e-3))
        assert store.progress("unknown") == ()

    # --- sessions, rounds, intents ---

    def test_session_is_found_ended_and_continued(self, store: TrialStore, task: Task) -> None:
        newer = a_task(store)
        assert store.find_session("nothing") is None
        found = store.find_session("run")
        assert found is not None
        assert (found.id, found.seed) == (newer.session, 2**70)
        assert found.options == {"trials": 64, "list": (1, (2,))}
        assert found.ended is None
        store.end_session(newer.session, "64 trials done")
        ended = store.sessions()[-1]
        assert ended.stop_reason == "64 trials done"
        assert ended.ended is not None
        assert ended.ended >= ended.started
        with pytest.raises(StoreError, match="has no session 'gone'"):
            store.end_session("gone", "")

    def test_round_keeps_its_latest_notes(self, store: TrialStore, task: Task) -> None:
        for index, notes in ((0, {"rng": [1, 2]}), (1, {}), (0, {"rng": [3]})):
            begin(store, task, index=index, notes=notes)
        assert [(r.index, r.notes) for r in store.rounds(task.session)] == [(0, {"rng": (3,)}), (1, {})]

    def test_intent_lives_until_its_trial_is_stored(self, store: TrialStore, task: Task) -> None:
        begin(store, task, task.intent("a"), task.intent("b"))
        assert [i.trace_hash for i in store.open_intents(task.session)] == ["a", "b"]
        assert store.open_intents("other") == ()
        store.add_trials([task.trial("a", None, status=Status.ABORTED)])
        assert [i.trace_hash for i in store.open_intents()] == ["b"]
        begin(store, task, task.intent("a"))  # already has a trial
        assert [i.trace_hash for i in store.open_intents()] == ["b"]

    def test_launching_again_counts_attempts(self, store: TrialStore, task: Task) -> None:
        begin(store, task, task.intent("a", worker_pid=1))
        begin(store, task, task.intent("a", worker_pid=2))
        (found,) = store.open_intents()
        assert (found.attempts, found.worker_pid) == (2, 2)

    def test_intents_can_be_dropped(self, store: TrialStore, task: Task) -> None:
        begin(store, task, *(task.intent(h) for h in "abc"))
        assert store.drop_intents(task.session, ["a", "x"]) == 1
        assert store.drop_intents("other") == 0
        assert store.drop_intents(task.session) == 2
        assert store.open_intents() == ()

    # --- calibration, applications ---

    def test_calibration_gives_the_latest_and_keeps_the_rest(self, store: TrialStore, task: Task) -> None:
        early = Calibration("peak", 1.0e11, "FLOP/s", (0.9e11, 1.1e11), datetime.now(UTC) - timedelta(days=1))
        store.put_calibration("zen4", [early])
        store.put_calibration("zen4", [early])  # known: nothing new
        store.put_calibration("zen4", {"peak": 1.2e11, "l2": 6e10})
        latest = store.calibration("zen4")
        assert {name: c.value for name, c in latest.items()} == {"peak": 1.2e11, "l2": 6e10}
        assert store.calibrations("zen4")[0] == early
        assert len(store.calibrations("zen4")) == 3
        assert store.calibration("other") == {}
        with pytest.raises(StoreError, match="has no machine 'other'"):
            store.put_calibration("other", {"peak": 1.0})

    def test_applications_of_a_trial_are_noted(self, store: TrialStore, task: Task) -> None:
        store.add_trials([task.trial("a")])
        (trial,) = store.trials()
        assert trial.id is not None
        store.record_apply(trial.id, "resnet18.atm")
        assert store.applications(trial.id) == ("resnet18.atm",)
        with pytest.raises(StoreError, match="has no trial 99"):
            store.record_apply(99, "x")

    # --- the store as a whole ---

    def test_check_of_a_healthy_log(self, store: TrialStore, task: Task) -> None:
        store.add_trials([task.trial("a")])
        report = store.check()
        assert report.ok
        assert report.trials == 1

    def test_closed_store_says_so(self, store: TrialStore, task: Task) -> None:
        store.close()
        store.close()
        with pytest.raises(StoreError, match="is closed"):
            store.count()

    def test_threads_share_a_store(self, store: TrialStore, task: Task) -> None:
        failures: list[BaseException] = []

        def work(name: int) -> None:
            try:
                for i in range(10):
                    begin(store, task, task.intent(f"{name}-{i}"))
                    store.add_trials([task.trial(f"{name}-{i}", (name + 1) * 1e-3)])
                    store.best(task.workload, task.target, task.machine)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert failures == []
        assert store.count() == 40
        assert store.open_intents() == ()

    def test_nothing_is_lost_when_a_statement_is_interrupted(
        self, store: TrialStore, task: Task, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As by Ctrl-C, which may come in any line."""
        store.add_trials([task.trial("a")])

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("sqlalchemy.engine.default.DefaultDialect.do_execute", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.add_trials([task.trial("b")])
        assert store.count() == 1
        assert store.add_trials([task.trial("c")]) == 1

    # --- moving between logs ---

    def test_export_and_import_are_inverse(self, store: TrialStore, task: Task, tmp_path: Path) -> None:
        write_everything(store, task)
        assert written_log(store, tmp_path / "log.jsonl") == 4
        with connect(":memory:") as other:
            assert import_jsonl(other, tmp_path / "log.jsonl").new == 4
            assert everything(other) == everything(store)
            again = import_jsonl(other, tmp_path / "log.jsonl")
            assert (again.new, again.known) == (0, 4)
            assert everything(other) == everything(store)
            assert written_log(other, tmp_path / "again.jsonl") == 4
        assert (tmp_path / "again.jsonl").read_text() == (tmp_path / "log.jsonl").read_text()

    def test_a_merged_log_is_the_log(self, store: TrialStore, task: Task) -> None:
        write_everything(store, task)
        with connect(":memory:") as other:
            assert merge(other, store).new == 4
            assert everything(other) == everything(store)
            assert merge(other, store).new == merge(store, other).new == 0
            assert everything(other) == everything(store)
            assert other.check().ok

    def test_merge_of_three_machines_keeps_them_apart(self, store: TrialStore) -> None:
        tasks = {}
        for place, fingerprint in enumerate(("zen4", "arm", "intel")):
            with connect(":memory:") as source:
                tasks[fingerprint] = task = a_task(source, fingerprint)
                source.add_trials(
                    [task.trial(f"{fingerprint}-{i}", 10.0**-place * (i + 1)) for i in range(5)]
                )
                assert merge(store, source).new == 5
                assert merge(store, source).new == 0
        for fingerprint, task in tasks.items():
            best = store.best(task.workload, task.target, fingerprint, k=20)
            assert {t.machine for t in best} == {fingerprint}
            assert len(best) == 5
            foreign = store.best_foreign(task.workload, task.target, fingerprint, k=20)
            assert all(f.machine.fingerprint == f.trial.machine != fingerprint for f in foreign)
            assert len(foreign) == 10
