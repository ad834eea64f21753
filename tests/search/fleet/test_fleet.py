"""Measuring on many (simulated) machines: no trial is lost or doubled, classes are separate, a worker with
wrong times is named."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import TARGET
from simulated_fleet import CODE, SimulatedEngine, class_of, crew, mistagged
from zoo import gemm

from autotensor.api.fleet import Fleet
from autotensor.base import log
from autotensor.base.deadline import Deadline
from autotensor.base.errors import InputError, MeasureError
from autotensor.resolve import safe_default
from autotensor.schedule.trace import Trace
from autotensor.search.fleet.addresses import checked_address
from autotensor.search.fleet.fleet_measurer import FleetMeasurer, joined
from autotensor.search.measuring.measure_request import MeasureOptions, MeasureResult
from autotensor.search.options import TuneOptions
from autotensor.search.report import TuneReport
from autotensor.search.run import TuningRun
from autotensor.search.task import Task
from schedules.generate import generate
from tuning_db import SessionKind, TrialStore, connect
from tuning_db.records import Calibration

SHAPES = [(32 * m, 32 * n, 64) for m in range(1, 9) for n in range(1, 9)]
HERE = Path(__file__).parent


def tuned(
    engine: SimulatedEngine,
    store: TrialStore,
    trials: int,
    tasks: int = 8,
    tag: str | None = None,
) -> TuneReport:
    fleet = Fleet(engine, tag)
    options = TuneOptions(trials=trials, model="prior", effort="full", patience=False)
    know_rates(store, fleet)
    workloads = [Task(gemm(*shape), TARGET) for shape in SHAPES[:tasks]]
    return fleet.run(TuningRun(workloads, options, store, Deadline.after(options.limit_s)))


def know_rates(store: TrialStore, fleet: Fleet) -> None:
    """Writes rates to the log, as if the class had been calibrated before."""
    from autotensor.search.machine.machine_entry import know_machine

    machine = know_machine(store, replace(fleet.machine_class.place, target=TARGET))
    rates = {"flops.core": 5e10, "bandwidth.memory.core": 1e10, "clock": 3e9}
    store.put_calibration(machine, [Calibration(n, v) for n, v in rates.items()])


def search_rows(store: TrialStore) -> list[tuple[str, str]]:
    sessions = [s.id for s in store.sessions(SessionKind.SEARCH)]
    return [(t.workload, t.trace_hash) for s in sessions for t in store.trials(session=s)]


def nothing_lost_or_doubled(store: TrialStore, trials: int) -> None:
    rows = Counter(search_rows(store))
    assert len(rows) == trials
    assert set(rows.values()) == {1}
    assert not store.open_intents()


def test_all_trials_arrive_and_say_who_measured() -> None:
    store = connect(":memory:")
    with closing(SimulatedEngine(crew(4), batch_s=0.01)) as engine:
        report = tuned(engine, store, 64)
        assert report.trials == 64
        nothing_lost_or_doubled(store, 64)
        assert {h.name for h in store.hosts()} >= {"w0", "w1", "w2", "w3"}
        assert {t.code for t in store.trials()} == {CODE.key}
        assert {w for w, _ in engine.done} == {"w0", "w1", "w2", "w3"}
        assert tuned(engine, store, 64).reused == 64


@pytest.mark.parametrize(
    ("kills", "tasks"), [(5, 8), (16, 2), *(pytest.param(50, n, marks=pytest.mark.slow) for n in (8, 2))]
)
def test_killed_workers_lose_and_double_nothing(kills: int, tasks: int) -> None:
    """Several batches of two tasks are measured at the same time."""
    store, trials = connect(":memory:"), 16 * kills
    with closing(SimulatedEngine(crew(4), batch_s=0.03, kills=kills, kill_every=2)) as engine:
        assert tuned(engine, store, trials, tasks).trials == trials
        assert engine.deaths == kills
    nothing_lost_or_doubled(store, trials)


@pytest.mark.parametrize(
    ("kills", "tasks", "each"),
    [(1, 8, 32), *(pytest.param(10, *of, marks=pytest.mark.slow) for of in ((8, 32), (2, 32)))],
)
def test_a_killed_coordinator_goes_on_from_the_log(tmp_path: Path, kills: int, tasks: int, each: int) -> None:
    trials, address = 32 + each * kills, str(tmp_path / "log.db")
    paths = os.pathsep.join([str(HERE), str(HERE.parent / "kit"), *sys.path])
    for n in range(kills):
        takes = trials - rows_in(address) - 1  # it never ends before it is killed
        program = f"import test_fleet as t; t.coordinate({address!r}, {trials}, {tasks}, {takes})"
        child = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": paths})
        wanted = (n + 1) * trials // (kills + 2)
        while child.poll() is None and rows_in(address) < wanted:
            time.sleep(0.01)
        assert child.poll() is None, "it ended before it could be killed"
        child.send_signal(signal.SIGKILL)
        child.wait()
    with connect(address) as store:
        before = len(search_rows(store))
        assert 0 < before < trials
    coordinate(address, trials, tasks)
    with connect(address) as store:
        assert len(store.sessions(SessionKind.SEARCH)) == 1
        nothing_lost_or_doubled(store, trials)


def coordinate(address: str, trials: int, tasks: int, takes: float = math.inf) -> None:
    """Runs a coordinator, which may be killed."""
    with connect(address) as store, closing(SimulatedEngine(crew(4), batch_s=0.05, takes=takes)) as engine:
        tuned(engine, store, trials, tasks)


def rows_in(address: str) -> int:
    if not Path(address).exists():
        return 0
    try:
        with connect(address) as store:
            return store.count()
    except Exception:  # another process is creating the log
        return 0


def test_two_classes_never_share_a_standing() -> None:
    """The same tasks on two classes with one log: each class has its own sessions and standings."""
    store, one, other = connect(":memory:"), class_of("one"), class_of("other")
    with closing(SimulatedEngine([*crew(2, one, "a"), *crew(2, other, "b")])) as engine:
        for of in (one, other):
            tuned(engine, store, 64, tasks=4, tag=of.tag)
    machines = {one.machine.fingerprint: "a", other.machine.fingerprint: "b"}
    names = {h.uuid: h.name for h in store.hosts()}
    assert {s.machine for s in store.sessions(SessionKind.SEARCH)} == set(machines)
    assert {t.machine for t in store.trials()} == set(machines)
    for t in store.trials():
        assert names[t.host or ""].startswith(machines[t.machine])
    for machine in machines:
        standings = store.standings(machine)
        assert len(standings) == 4
        assert all(store.trial(s.trial or 0).machine == machine for s in standings)


def test_a_class_that_nobody_named_is_asked_for() -> None:
    with closing(
        SimulatedEngine([*crew(1, class_of("one"), "a"), *crew(1, class_of("other"), "b")])
    ) as engine:
        with pytest.raises(
            InputError, match=r"has several classes: .*\. Fleet\(address, tag\) names one\..* --threads \d+"
        ):
            Fleet(engine).machine_class  # noqa: B018
        with pytest.raises(InputError, match="no worker of the fleet is of class 7;"):
            Fleet(engine, "7").machine_class  # noqa: B018


def test_another_number_of_threads_is_refused_with_two_ways_out() -> None:
    with closing(SimulatedEngine(crew(1))) as engine:
        fleet = Fleet(engine)
        has = fleet.machine_class.target.num_cores
        more = fleet.machine_class.target.with_threads(has + 6)
        said = rf"Give the run --threads {has} .*, or start the workers with --threads {has + 6}\."
        with pytest.raises(InputError, match=said):
            fleet.target(more)
        with pytest.raises(InputError, match=r"A fleet measures code for processors\."):
            fleet.target("cuda")


def test_other_code_is_another_class_and_its_rows_are_seeds() -> None:
    """Workers of two versions: a run has one of them; with the other it is a new run."""
    store, new = connect(":memory:"), replace(CODE, sources="456")
    with closing(SimulatedEngine([*crew(1, None, "a"), *crew(1, class_of(code=new), "b")])) as engine:
        first = tuned(engine, store, 64, tasks=1, tag=class_of().tag)
        second = tuned(engine, store, 64, tasks=1, tag=class_of(code=new).tag)
    assert (first.reused, second.reused) == (0, 0)
    assert len(store.sessions(SessionKind.SEARCH)) == 2


def measurer(engine: SimulatedEngine, **options: float) -> FleetMeasurer:
    return FleetMeasurer(engine, class_of(), TARGET, MeasureOptions(), **options)


WORKLOAD = gemm(*SHAPES[0])


def test_a_mistagged_worker_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(log, "warn", said.append)
    honest, liar = crew(2)
    workers = [honest, mistagged(liar, class_of("another"))]
    with closing(SimulatedEngine(workers, batch_s=0.01)) as engine, closing(measurer(engine)) as asked:
        answers = [asked.submit(WORKLOAD, [safe_default(WORKLOAD, TARGET)]) for _ in range(8)]
        assert {r.who.host.name for a in answers for r in a.result(10) if r.who} == {"w0"}
        assert class_of().tag not in engine.workers()["w1"]
    assert len(said) == 1
    assert said[0].startswith("worker w1 on w1 is of class ")


def test_a_worker_off_its_class_is_named_and_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(log, "warn", said.append)
    workers = crew(4)
    with closing(SimulatedEngine(workers, batch_s=0.002)) as engine, closing(measurer(engine)) as asked:

        def many(count: int) -> list[str]:
            answers = [asked.submit(WORKLOAD, [safe_default(WORKLOAD, TARGET)]) for _ in range(count)]
            return [r.who.host.name for a in answers for r in a.result(10) if r.who]

        assert set(many(40)) == {"w0", "w1", "w2", "w3"}
        workers[2].speed = 1.035  # from now on
        many(120)
        assert class_of().tag not in engine.workers()["w2"]
        assert "w2" not in many(40)
    assert said == ["worker w2 on w2 is 3.5% slower than its class; it gets no more work."]


def test_a_race_is_repeated_on_a_second_worker() -> None:
    traces = [safe_default(WORKLOAD, TARGET)]
    with closing(SimulatedEngine(crew(3))) as engine, closing(measurer(engine)) as asked:
        (first,) = asked.submit(WORKLOAD, traces, 9).result(10)
        again = asked.elsewhere(WORKLOAD, traces, 9)
        assert again is not None
        (second,) = again.result(10)
        assert first.who is not None
        assert second.who is not None
        assert first.who.host != second.who.host
    with closing(SimulatedEngine(crew(1))) as engine, closing(measurer(engine)) as asked:
        asked.submit(WORKLOAD, traces, 9).result(10)
        assert asked.elsewhere(WORKLOAD, traces, 9) is None


def different(count: int) -> list[Trace]:
    """This number of candidates of the workload."""
    found: dict[str, Trace] = {}
    rng = random.Random(0)
    sketches = generate(WORKLOAD.dag, TARGET)
    while len(found) < count:
        sketch = rng.choice(sketches)
        trace = sketch.fill(sketch.random(rng))
        found[trace.hash] = trace
    return list(found.values())


def test_many_candidates_are_divided_among_workers() -> None:
    """The results are in order; each part gets the list of its candidates that may be rejected."""
    traces = different(21)
    with closing(SimulatedEngine(crew(3), batch_s=0.05)) as engine, closing(measurer(engine)) as asked:
        results = asked.submit(WORKLOAD, traces, gated=[0, 7, 8, 20]).result(10)
        alone = [asked.submit(WORKLOAD, [t]).result(10)[0] for t in traces]
        assert [r.seconds for r in results] == [r.seconds for r in alone]
        parts = [b for _, b in engine.done if len(b.traces) > 1]
        parts.sort(key=lambda b: (-len(b.gated), b.gated))
        assert [(len(b.traces), b.gated) for b in parts] == [(8, (0, 7)), (8, (0,)), (5, (4,))]
        assert len({w for w, b in engine.done if len(b.traces) > 1}) == 3
        asked.submit(WORKLOAD, traces, 9).result(10)
        assert len(engine.done[-1][1].traces) == 21  # a race stays on one worker


def test_parts_are_given_up_together() -> None:
    parts: list[Future[list[MeasureResult]]] = [Future() for _ in range(3)]
    whole = joined(parts)
    assert whole.cancel()
    assert all(p.cancelled() for p in parts)
    parts = [Future() for _ in range(3)]
    whole = joined(parts)
    parts[2].set_result([])
    parts[0].set_exception(MeasureError("no worker"))
    assert not whole.done()  # the others may still be on their way
    parts[1].set_result([])
    with pytest.raises(MeasureError, match="no worker"):
        whole.result(1)


def test_one_computation_keeps_all_workers_busy() -> None:
    """A round of the computation is divided among the workers. Formerly, one worker got all its batches."""
    store = connect(":memory:")
    with closing(SimulatedEngine(crew(4), batch_s=0.05)) as engine:
        assert tuned(engine, store, 256, tasks=1).trials == 256
        search = [(w, b) for w, b in engine.done if b.repeat is None]
    assert max(len(b.traces) for _, b in search) == 8
    counts = Counter(w for w, _ in search)
    assert len(counts) == 4
    assert max(counts.values()) <= 2 * min(counts.values())
    nothing_lost_or_doubled(store, 256)


def test_both_races_are_kept() -> None:
    store = connect(":memory:")
    with closing(SimulatedEngine(crew(2))) as engine:
        tuned(engine, store, 16, tasks=1)
    races = [store.trials(session=s.id) for s in store.sessions(SessionKind.RACE)]
    assert len(races) == 2
    assert len({t.trace_hash for t in races[0]} ^ {t.trace_hash for t in races[1]}) == 0
    hosts = [{t.host for t in race} for race in races]
    assert [len(h) for h in hosts] == [1, 1]  # each whole on one worker
    assert hosts[0] != hosts[1]


def test_without_workers_it_ends_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotensor.search.fleet.fleet_measurer.LOOK_EVERY_S", 0.01)
    with closing(SimulatedEngine([])) as engine, closing(measurer(engine, patience_s=0.05)) as asked:
        answer = asked.submit(WORKLOAD, [safe_default(WORKLOAD, TARGET)])
        with pytest.raises(MeasureError, match=f"no worker has offered {class_of().tag} for 0 s"):
            answer.result(10)


def test_fifty_workers_answer_a_hundred_batches() -> None:
    """How many a second: benchmarks/fleet_throughput.py."""
    traces = [safe_default(WORKLOAD, TARGET)] * 8
    with closing(SimulatedEngine(crew(50))) as engine, closing(measurer(engine)) as asked:
        answers = [asked.submit(WORKLOAD, traces) for _ in range(100)]
        assert all(len(a.result(60)) == 8 for a in answers)


def test_four_workers_measure_at_once() -> None:
    """Batches without a search: a whole run also waits for its search, which is one process."""
    traces = [safe_default(WORKLOAD, TARGET)] * 8
    with closing(SimulatedEngine(crew(4), at_once=4)) as engine, closing(measurer(engine)) as asked:
        answers = [asked.submit(WORKLOAD, traces) for _ in range(32)]
        assert all(len(a.result(60)) == 8 for a in answers)
    assert Counter(w for w, _ in engine.done) == dict.fromkeys(("w0", "w1", "w2", "w3"), 8)


@pytest.mark.parametrize("plain", ["scheduler:8786", "tcp://10.0.0.4:8786", "tcp://[2001:db8::1]:8786"])
def test_a_plain_scheduler_elsewhere_is_refused(plain: str) -> None:
    with pytest.raises(InputError, match=r"is plain and not on this machine: .*write tls://"):
        checked_address(plain)


@pytest.mark.parametrize("wrong", ["", "scheduler", "http://localhost:80", "tls://", "tls://h:port"])
def test_what_is_no_address_is_one_sentence(wrong: str) -> None:
    with pytest.raises(InputError, match=r"is not a scheduler's address\. Write tls://HOST:PORT"):
        checked_address(wrong)


@pytest.mark.parametrize(
    "fine", ["localhost:8786", "tcp://127.0.0.1:1", "tcp://[::1]:8786", "tls://far.away:8786"]
)
def test_certificates_or_the_loopback(fine: str) -> None:
    assert checked_address(fine).endswith(fine)
