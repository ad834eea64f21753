"""The measurer with right candidates, with broken compilers, and with other measurers at the same time."""

from __future__ import annotations

import itertools
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evil_kernels import addition, evil, scaled

from autotensor import te
from autotensor.base.errors import InputError
from autotensor.base.target import Target, host
from autotensor.runtime.workers.children import Child, Reply
from autotensor.schedule.schedule import Schedule
from autotensor.schedule.trace import Trace
from autotensor.search.measuring import building, racing
from autotensor.search.measuring.building import BuildPool
from autotensor.search.measuring.measure_request import OutOfTime
from autotensor.search.measuring.measurer import LocalMeasurer, MeasureOptions
from autotensor.search.measuring.racing import Entrant, Race
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload
from tuning_db.records import Status

HERE = Path(__file__).parents[1]
TARGET = host().with_threads(1)
OPTIONS = MeasureOptions(workers=1, min_seconds=0.0005, build_timeout_s=5)


def product(m: int, n: int, k: int, dtype: str = "float32") -> Workload:
    a = te.placeholder((m, k), name="a", dtype=dtype)
    b = te.placeholder((k, n), name="b", dtype=dtype, constant=True)
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    return Workload.of(ComputeDAG.of([a, b, c]), "product")


def rows(workload: Workload, factor: int, vector: int = 0) -> Trace:
    """Rows in blocks, columns vectorized."""
    s = Schedule(workload.dag)
    stage = s["t0"]
    i, j = stage.op.axis
    r = stage.op.reduce_axis[0]
    outer, inner = stage.split(i, factor=factor)
    stage.reorder(outer, r, inner, j)
    if vector:
        _, lanes = stage.split(j, factor=vector)
        stage.vectorize(lanes)
    return s.trace


def packed(workload: Workload, width: int) -> Trace:
    """Weights in panels of `width` columns."""
    s = Schedule(workload.dag)
    s.layout("a1", [(1, width)], "1.0 0 1.1")
    return Trace((*s.trace.steps,))


@pytest.fixture(scope="module")
def measurer() -> Iterator[LocalMeasurer]:
    with LocalMeasurer(TARGET, OPTIONS) as made:
        yield made


def test_each_trace_has_its_result_in_order(measurer: LocalMeasurer) -> None:
    w = product(48, 64, 96)
    bad = Trace.from_json('{"version":1,"steps":[["Parallel","t0","nowhere"]]}')
    results = measurer.measure(w, [Trace(), rows(w, 8, 16), bad, rows(w, 5), packed(w, 16), rows(w, 8, 16)])
    assert [r.status for r in results] == [Status.OK, Status.OK, Status.INVALID_SCHEDULE, *[Status.OK] * 3]
    for r in (r for r in results if r.ok):
        assert len(r.seconds) == len(r.reference_seconds) >= 3
        assert all(0 < s < 0.1 for s in (*r.seconds, *r.reference_seconds))
        assert r.max_error is not None
        assert r.tolerance is not None
        assert r.max_error <= r.tolerance < 1e-4
        assert r.build_seconds is not None
        assert 0 < r.build_seconds < 5
        assert r.asm["instructions"] > 10
    assert results[2].seconds == ()
    assert "stage 't0' has no axis 'nowhere'" in str(results[2].error)
    assert results[1].source_sha == results[5].source_sha != results[0].source_sha
    assert results[1].seconds == results[5].seconds
    assert results[5].note == "same object code as candidate 1 of this batch; not run again"
    assert [r.prepared_bytes for r in results if r.ok] == [96 * 64 * 4] * 5


@pytest.mark.skipif(host().vector_bytes < 64, reason="tiles for 32 registers of 64 bytes")
def test_spills_of_the_innermost_loop_are_counted(measurer: LocalMeasurer) -> None:
    """The log shows that no winner spills: 16 x 4 accumulators do not fit in 32 registers."""
    w = product(64, 128, 48)

    def tile(height: int, vectors: int) -> Trace:
        s = Schedule(w.dag)
        stage = s["t0"]
        (i, j), (r,) = stage.op.axis, stage.op.reduce_axis
        io, ii = stage.split(i, factor=height)
        jo, ji = stage.split(j, factor=16 * vectors)
        jv, jl = stage.split(ji, factor=16)
        stage.reorder(io, jo, r, ii, jv, jl)
        stage.unroll(ii)
        stage.unroll(jv)
        stage.vectorize(jl)
        return s.trace

    tiles = [tile(8, 2), tile(16, 4)]
    fits, spills = measurer.measure(w, tiles)
    assert (fits.asm["spills"], fits.asm["carried"], fits.asm["fma"]) == (0, 0, 16)
    assert spills.ok, spills.error  # who must run, runs
    assert spills.asm["spills"] > 16

    ran = measurer.spent.trials
    fits, spills = measurer.measure(w, tiles, gated=[0, 1])
    assert fits.ok, fits.error
    assert measurer.spent.trials == ran + 1
    assert (spills.status, spills.seconds, spills.max_error) == (Status.REJECTED, (), None)
    assert spills.asm["carried"] > 2
    assert "the register tile does not fit" in str(spills.error)


def test_teams_of_threads() -> None:
    w = product(64, 64, 64)
    s = Schedule(w.dag, rows(w, 8, 16))
    s["t0"].parallel("i0.0")
    with LocalMeasurer(host().with_threads(3), OPTIONS) as measurer:
        (result,) = measurer.measure(w, [s.trace], repeat=4)
    assert result.ok, result.error
    assert len(result.seconds) == 4


def test_after_an_interruption_answers_belong_to_their_questions(
    measurer: LocalMeasurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = product(16, 16, 16)
    right = Child.request

    def interrupted(child: Child, text: str, timeout_s: float) -> Reply:
        if '"check"' in text:
            with monkeypatch.context() as patch:  # the request is on its way, its answer is not read
                patch.setattr(Child, "_converse", raising)
                right(child, text, timeout_s)
        return right(child, text, timeout_s)

    def raising(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Child, "request", interrupted)
        with pytest.raises(KeyboardInterrupt):
            measurer.measure(w, [Trace()])
    assert all(r.ok for r in measurer.measure(w, [Trace(), rows(w, 4)]))


def test_nothing_asked_nothing_answered(measurer: LocalMeasurer) -> None:
    assert measurer.measure(product(48, 64, 96), []) == []


@pytest.mark.parametrize("dtype", ["int8", "int32", "float16", "bfloat16", "float64"])
def test_other_types(measurer: LocalMeasurer, dtype: str) -> None:
    w = product(8, 32, 16, dtype)
    for result in measurer.measure(w, [Trace(), rows(w, 2, 16), packed(w, 8)]):
        assert result.ok, result.error
        assert result.tolerance == 0.0 if dtype.startswith("int") else result.tolerance


def test_indices_as_inputs_stay_in_bounds(measurer: LocalMeasurer) -> None:
    table = te.placeholder((50, 32), name="table", constant=True)
    which = te.placeholder((200,), dtype="int32", name="which", constant=True)
    out = te.compute((200, 32), lambda i, j: table[which[i], j], name="out")
    (result,) = measurer.measure(Workload.of(ComputeDAG.of([table, which, out])), [Trace()])
    assert result.ok, result.error


def test_logarithms_can_be_checked(measurer: LocalMeasurer) -> None:
    x = te.placeholder((64, 100), name="x")
    r = te.reduce_axis((0, 100), name="r")
    root = te.compute((64, 100), lambda i, j: te.log(x[i, j]), name="root")
    total = te.compute((64,), lambda i: te.sum(root[i, r], axis=r), name="total")
    (result,) = measurer.measure(Workload.of(ComputeDAG.of([x, total])), [Trace()])
    assert result.ok, result.error


def test_a_clearly_slow_candidate_gets_three_samples() -> None:
    w = product(256, 256, 256)
    with LocalMeasurer(TARGET, replace(OPTIONS, residency="hot", repeat=6)) as measurer:
        fast, slow = measurer.measure(w, [rows(w, 8, 64), Trace()])
        assert fast.ok
        assert slow.ok
        assert statistics.median(slow.seconds) > 3 * statistics.median(fast.seconds)
        assert (len(fast.seconds), len(slow.seconds)) == (6, 3)
        (again,) = measurer.measure(w, [Trace()])  # the incumbent is remembered
        assert len(again.seconds) == 3


def test_lost_tails_are_wrong_results() -> None:
    """A compiler with a bug in its build child: the mistake is found, although the same child built the
    oracle."""
    w = product(21, 64, 32)
    with LocalMeasurer(TARGET, OPTIONS, modules=["tail_bug"], path=[HERE]) as measurer:
        whole, cut = measurer.measure(w, [rows(w, 7, 16), rows(w, 8, 16)])
    assert whole.ok, whole.error
    assert cut.status is Status.WRONG_RESULT
    assert "nan instead of" in str(cut.error)


def test_a_compiler_that_dies_or_hangs_fails_one_candidate() -> None:
    w = product(16, 32, 8)

    def told(what: str) -> Trace:
        return Trace.from_json(
            f'{{"version":1,"steps":[["Pragma","t0","i0","auto_unroll_max_step","{what}"]]}}'
        )

    options = replace(OPTIONS, build_timeout_s=1.5, memory_bytes=8 << 30)  # 0.5 s are too few on busy cores
    with LocalMeasurer(TARGET, options, modules=["slow_build"], path=[HERE]) as measurer:
        measurer.measure(w, [Trace()])
        traces = [told("loop"), rows(w, 4), told("abort"), told("bug"), told("memory"), Trace()]
        results = measurer.measure(w, traces)
    assert [r.status for r in results] == [
        Status.BUILD_TIMEOUT,
        Status.OK,
        Status.BUILD_ERROR,
        Status.BUILD_ERROR,
        Status.OUT_OF_MEMORY,
        Status.OK,
    ]
    assert "SIGABRT" in str(results[2].error)
    assert "KeyError: 'a bug in the compiler'" in str(results[3].error)


def test_an_algorithm_may_have_its_own_tolerance(measurer: LocalMeasurer) -> None:
    strict, lax = (measurer.measure_artifacts(addition(), [evil("wrong")], t)[0] for t in (None, 1e-2))
    assert strict.status is Status.WRONG_RESULT
    assert lax.ok, lax.error
    assert lax.tolerance == 1e-2
    assert lax.max_error is not None
    assert 1e-5 < lax.max_error < 1e-2


def test_such_a_tolerance_is_of_the_largest_element(measurer: LocalMeasurer) -> None:
    """The limit for Winograd's method: 2e-5 of the output's largest element, against float64."""
    near, far = (measurer.measure_artifacts(addition(), [scaled(e)], 2e-5)[0] for e in (1e-5, 3e-5))
    assert near.ok, near.error
    assert near.max_error == pytest.approx(1e-5, rel=0.05)
    assert far.status is Status.WRONG_RESULT
    assert far.max_error == pytest.approx(3e-5, rel=0.05)
    assert "in float64: error 3e-05 of the largest element, allowed 2e-05" in str(far.error)


def test_the_judge_of_such_algorithms_is_float64() -> None:
    """A sum of 2**25 ones: the naive float32 program stops at 2**24, so it is refused like any wrong
    candidate."""
    x = te.placeholder((4096,), name="x")
    k, m = te.reduce_axis(4096), te.reduce_axis(8192)
    w = Workload.of(
        ComputeDAG.of(te.compute((1,), lambda i: te.sum(1.0 + x[k] * 1e-30, axis=[m, k]), name="ones"))
    )
    s = Schedule(w.dag)
    _, inner = s["t0"].split("r1", factor=16)
    s.rfactor("t0", inner)
    with LocalMeasurer(TARGET, OPTIONS, numerics=lambda trace: 2e-5) as measurer:
        parts, naive = measurer.measure(w, [s.trace, Trace()])
    assert parts.ok, parts.error
    assert parts.max_error == 0.0
    assert naive.status is Status.WRONG_RESULT
    assert "16777216 instead of 33554432 in float64: error 0.5 of the largest element" in str(naive.error)


def test_the_oracle_answers_once_per_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates above the peak are also verified on one common set of new inputs, not on one set each."""
    asked: list[tuple[str, int, bool]] = []
    right = Child.request

    def noted(child: Child, text: str, timeout_s: float) -> Reply:
        request = json.loads(text)
        if request.get("do") == "oracle":
            asked.append((request["kind"], request["seed"], request["wide"]))
        return right(child, text, timeout_s)

    monkeypatch.setattr(Child, "request", noted)
    with LocalMeasurer(TARGET, replace(OPTIONS, peak_flops=1e6)) as measurer:
        results = measurer.measure_artifacts(addition(), [evil("right"), scaled(1e-9)])
    assert all("verified again on fresh inputs" in r.note for r in results)
    assert not any(wide for _, _, wide in asked)  # no candidate needs float64
    assert {seed for _, seed, _ in asked} == {0, 1, 7919}


def test_what_compiled_once_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    workload, other = product(12, 16, 8), product(12, 16, 9)
    traces = [rows(workload, 2), rows(workload, 3)]
    with closing(BuildPool(TARGET, OPTIONS)) as pool:
        first = pool.build(workload, [*traces, traces[0]])
        pids = pool.pids()
        monkeypatch.setattr(pool, "build_for", lambda jobs, target: [] if not jobs else pytest.fail("built"))
        assert pool.build(workload, traces[::-1]) == first[1::-1]
        assert first[2] is first[0]
        assert pool.pids() == pids
        monkeypatch.undo()
        assert pool.build(other, [rows(other, 2)])[0] != first[0]
        pool._keep(("w", "t"), replace(first[0], artifact={"objects": ["x" * (building.KEPT_BYTES + 1)]}))
        assert (pool._kept, pool._kept_bytes) == ({}, 0)  # too large to be kept together with anything else


def test_a_reference_that_outlasts_the_deadline_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(racing, "_GRACE_S", 1e-3)
    w = product(250, 250, 250)
    left = [-1.0]
    with LocalMeasurer(TARGET, OPTIONS, left_s=lambda: left[0]) as measurer:
        with pytest.raises(OutOfTime, match="the deadline came before the reference of workload 'product'"):
            measurer.measure(w, [Trace()])
        left[0] = 100.0
        monkeypatch.undo()
        (result,) = measurer.measure(w, [Trace()])  # a new child, without the answers of the old one
    assert result.ok, result.error


def test_a_batch_that_outlasts_the_deadline_is_ended_and_a_race_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    w = product(12, 16, 8)
    traces = [Trace(), rows(w, 2), rows(w, 3)]
    left, checked = [100.0], []
    with LocalMeasurer(TARGET, OPTIONS, left_s=lambda: left[0]) as measurer:
        check_all = measurer._race._check_all

        def slow(e: Entrant, questions: Any) -> None:
            check_all(e, questions)
            checked.append(e.number)
            left[0] = -1.0

        monkeypatch.setattr(measurer._race, "_check_all", slow)
        said = "the deadline came while candidates of workload 'product' were measured"
        with pytest.raises(OutOfTime, match=said):
            measurer.measure(w, traces)
        assert len(checked) == 1
        raced = measurer.measure(w, traces, repeat=3)  # a final race was given its time before it began
        assert all(r.ok for r in raced)
        left[0] = 100.0
        monkeypatch.undo()
        assert all(r.ok for r in measurer.measure(w, traces))


def test_a_result_whose_terms_cancel(measurer: LocalMeasurer) -> None:
    """The same sum forwards and in parts: the difference is only rounding, and both are right."""
    n = 20_000
    x = te.placeholder((n,), name="x")
    k, m = te.reduce_axis(n), te.reduce_axis(n)
    one = te.compute((1,), lambda i: te.sum(x[k] + i.astype("float32"), axis=k), name="one")
    two = te.compute((1,), lambda i: te.sum(x[n - 1 - m] + i.astype("float32"), axis=m), name="two")
    w = Workload.of(ComputeDAG.of(te.compute((1,), lambda i: one[i] - two[i], name="zero")), "zero")
    s = Schedule(w.dag)
    _, inner = s["t1"].split("r0", factor=16)
    s.rfactor("t1", inner)
    (result,) = measurer.measure(w, [s.trace])
    assert result.ok, result.error
    assert result.max_error is not None
    assert result.tolerance is not None
    assert 0 < result.max_error <= result.tolerance < 1e-2


def test_what_is_too_good_to_be_true_is_verified_again() -> None:
    with LocalMeasurer(TARGET, replace(OPTIONS, peak_flops=1e6)) as measurer:
        good, bad = measurer.measure_artifacts(addition(), [evil("right"), evil("right three times")])
    assert good.ok
    assert "verified again on fresh inputs" in good.note
    assert bad.status is Status.WRONG_RESULT


@pytest.mark.parametrize(("share", "verified"), [(0.25, True), (1e-9, False)])
def test_what_counts_is_what_an_algorithm_executes(
    share: float, verified: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An algorithm with its own rounding multiplies less often than the workload counts."""
    monkeypatch.setattr(racing, "FEWEST_OPERATIONS", share)
    with LocalMeasurer(TARGET, replace(OPTIONS, peak_flops=1e6)) as measurer:
        (result,) = measurer.measure_artifacts(addition(), [evil("right")], 1e-2)
    assert result.ok, result.error
    assert ("verified again on fresh inputs" in result.note) is verified


def test_what_is_above_the_peak_at_the_deadline_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Race._ask_oracle

    def late(race: Race, question: racing.Question) -> None:
        if question[1] == 7919:
            raise OutOfTime("the deadline came")
        right(race, question)

    monkeypatch.setattr(Race, "_ask_oracle", late)
    with LocalMeasurer(TARGET, replace(OPTIONS, peak_flops=1e6)) as measurer:
        (result,) = measurer.measure_artifacts(addition(), [evil("right")])
    assert result.status is Status.RUN_TIMEOUT
    assert re.fullmatch(r"\d+ GFLOP/s is above the peak; the deadline came\.", str(result.error))


def test_the_peak_is_measured_again_once_when_something_is_above_it() -> None:
    asked: list[float] = []

    def again(peak: float) -> float:
        asked.append(peak)
        return peak

    low = replace(OPTIONS, peak_flops=1e6)
    with LocalMeasurer(TARGET, low, recalibrate=lambda: again(1e15)) as measurer:
        (good,) = measurer.measure_artifacts(addition(), [evil("right")])
    assert good.ok
    assert not good.note  # it is not above the peak that the machine really has
    with LocalMeasurer(TARGET, low, recalibrate=lambda: again(2e6)) as measurer:
        results = measurer.measure_artifacts(addition(), [evil("right"), evil("right")])
    assert "verified again on fresh inputs" in results[0].note
    assert asked == [1e15, 2e6]


@pytest.mark.slow
def test_four_measurers_take_turns() -> None:
    """Their run phases never overlap, though they are four processes."""
    script = (
        f"import sys, time; sys.path[:0] = [{str(HERE)!r}]\n"
        "from evil_kernels import TARGET, addition, evil\n"
        "from autotensor.search.measuring.measurer import LocalMeasurer, MeasureOptions\n"
        "from autotensor.search.measuring.racing import Race\n"
        "right = Race.run\n"
        "def timed(*a):\n"
        "    began = time.monotonic()\n"
        "    right(*a)\n"
        "    print(began, time.monotonic(), flush=True)\n"
        "Race.run = timed\n"
        "m = LocalMeasurer(TARGET, MeasureOptions(workers=1, residency='hot'))\n"
        "for _ in range(4): assert m.measure_artifacts(addition(), [evil('right')])[0].ok\n"
        "m.close()\n"
    )
    command = [sys.executable, "-c", script]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    spans = []
    for process in started:
        text, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        spans += [tuple(map(float, line.split())) for line in text.splitlines()]
    assert len(spans) == 16
    spans.sort()
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


def test_options_and_targets_are_checked() -> None:
    with pytest.raises(InputError, match="at least 3 samples"):
        MeasureOptions(repeat=2)
    with pytest.raises(InputError, match="no seeds"):
        MeasureOptions(seeds=())
    with pytest.raises(InputError, match="residency 'cold' is unknown"):
        MeasureOptions(residency="cold")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="run_timeout_s=0: it must be positive"):
        MeasureOptions(run_timeout_s=0)
    with pytest.raises(InputError, match="'interp' cannot be measured here"):
        LocalMeasurer(Target("interp"))
