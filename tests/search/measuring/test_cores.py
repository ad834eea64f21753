"""The cores that time and the cores that compile. A batch compiles while the batch before it is timed, never
on the same cores."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from zoo import gemm

from autotensor.base.target import host, parse
from autotensor.search.measuring import cores
from autotensor.search.measuring import measurer as measuring
from autotensor.search.measuring.building import BuildPool
from autotensor.search.measuring.cores import MOST_SLOWED, Cores, cores_for, divide, slowed
from autotensor.search.measuring.measure_request import MeasureOptions
from autotensor.search.measuring.measurer import LocalMeasurer
from autotensor.search.measuring.racing import Race
from schedules.generate import default_trace
from tuning_db.records import Status

TARGET = host().with_threads(1)
OPTIONS = MeasureOptions(workers=2, min_seconds=0.0005, build_timeout_s=20)
ALONE = {n: {n} for n in range(4)}
PAIRS = {n: {n % 4, n % 4 + 4} for n in range(8)}
TWO_CORES = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="one core, or a system that binds no process to any",
)


@pytest.fixture
def spare(monkeypatch: pytest.MonkeyPatch) -> Cores:
    """The last core times, and the first compiles. Speed is not tested, so they may disturb each other."""
    allowed = sorted(os.sched_getaffinity(0))
    found = Cores(frozenset(allowed[-1:]), frozenset(allowed[:1]))
    monkeypatch.setattr(measuring, "cores_for", lambda target: found)
    return found


@pytest.mark.parametrize(
    ("allowed", "siblings", "threads", "usable", "found"),
    [
        (range(4), ALONE, 1, 4, Cores(frozenset({3}), frozenset({0, 1, 2}))),
        (range(4), ALONE, 3, 4, Cores(frozenset({1, 2, 3}), frozenset({0}))),
        (range(4), ALONE, 4, 4, None),
        (range(4), ALONE, 9, 4, None),
        (range(8), PAIRS, 2, 8, Cores(frozenset({2, 3}), frozenset({0, 1, 4, 5}))),
        ((0, 4), PAIRS, 1, 2, None),  # two threads of one core
        ((4, 5, 6), PAIRS, 1, 3, Cores(frozenset({6}), frozenset({4, 5}))),  # the others are not ours
        (range(8), PAIRS, 1, 3, Cores(frozenset({3}), frozenset({0, 1}))),  # a quota of three cores' time
        (range(8), PAIRS, 1, 1, None),
    ],
)
def test_cores_are_divided(
    allowed: Sequence[int], siblings: dict[int, set[int]], threads: int, usable: int, found: Cores | None
) -> None:
    assert divide(allowed, siblings, threads, usable) == found


def test_with_a_thread_on_each_core_none_is_to_spare() -> None:
    assert cores_for(host().with_threads(len(os.sched_getaffinity(0)))) is None
    assert cores_for(parse("opencl")) is None


@TWO_CORES
def test_cores_that_slow_down_those_that_are_timed_on_are_not_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    core = max(os.sched_getaffinity(0))
    assert slowed(Cores(frozenset((core,)), frozenset((core,)))) > 1.4  # one core does the work of two
    before = threading.active_count()
    for ratio, found in ((MOST_SLOWED + 0.01, False), (MOST_SLOWED, True)):
        cores._quiet.cache_clear()
        monkeypatch.setattr(cores, "slowed", lambda asked, ratio=ratio: ratio)
        monkeypatch.setattr(cores, "_siblings", lambda core: frozenset((core,)))
        monkeypatch.setattr(cores, "usable_cores", lambda: 2)
        assert (cores_for(TARGET) is not None) is found
    cores._quiet.cache_clear()
    assert threading.active_count() <= before


@TWO_CORES
def test_a_batch_compiles_while_another_is_timed_and_never_on_its_cores(
    spare: Cores,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = gemm(16, 24, 32), gemm(24, 16, 32)
    compiles, timed = threading.Event(), threading.Event()
    seen: list[tuple[set[int], list[set[int]]]] = []
    real_run, real_build = Race.run, BuildPool.build

    def run(race: Race, workload: Any, *rest: Any) -> None:
        if workload.key == first.key:
            assert compiles.wait(30), "nothing compiles beside it"
        real_run(race, workload, *rest)
        seen.append(
            (os.sched_getaffinity(race.pids()[0]), [os.sched_getaffinity(p) for p in measurer._pool.pids()])
        )
        if workload.key == first.key:
            timed.set()

    def build(pool: BuildPool, workload: Any, traces: Any) -> Any:
        found = real_build(pool, workload, traces)
        if workload.key == second.key:
            compiles.set()
            assert timed.wait(30), "it waits for what compiles"
        return found

    monkeypatch.setattr(Race, "run", run)
    monkeypatch.setattr(BuildPool, "build", build)
    with LocalMeasurer(TARGET, OPTIONS) as measurer:
        assert measurer.in_flight == 2
        answers = [measurer.submit(w, [default_trace(w.dag, TARGET)]) for w in (first, second)]
        assert [[r.status for r in a.result(60)] for a in answers] == [[Status.OK]] * 2
    assert len(seen) == 2
    for on, compilers in seen:
        assert len(on) == 1
        assert compilers
        assert not any(on & c for c in compilers)


@TWO_CORES
def test_while_nobody_times_all_cores_compile(spare: Cores) -> None:
    pool = BuildPool(TARGET, OPTIONS, cores=spare)
    first, second = gemm(16, 24, 32), gemm(24, 16, 32)
    try:
        pool.build(first, [default_trace(first.dag, TARGET)])
        assert os.sched_getaffinity(pool.pids()[0]) == os.sched_getaffinity(0)
        with pool.aside():
            assert os.sched_getaffinity(pool.pids()[0]) == spare.spare
            pool.build(second, [default_trace(second.dag, TARGET)])
            assert os.sched_getaffinity(pool.pids()[0]) == spare.spare
    finally:
        pool.close()


def test_with_no_core_to_spare_a_batch_is_answered_in_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "cores_for", lambda target: None)
    w = gemm(16, 24, 32)
    with LocalMeasurer(TARGET, OPTIONS) as measurer:
        assert measurer.in_flight == 1
        assert measurer.submit(w, [default_trace(w.dag, TARGET)]).done()
