"""Ablation: the replacement of each step, and the comparison of the times."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest

from autotensor import te
from autotensor.base.target import parse
from autotensor.insight.ablation import LEFT_OUT, Variant, ablate, variants
from autotensor.schedule import Schedule
from autotensor.schedule.trace import Trace
from autotensor.search.measuring.measure_request import AtOnce, MeasureResult
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload
from schedules.generate import generate
from tuning_db.records import Status

TARGET = parse("llvm -mcpu=x86-64-v4 -threads=2")


def workload() -> Workload:
    a = te.placeholder((64, 48), name="A")
    b = te.placeholder((48, 128), name="B", constant=True)
    k = te.reduce_axis(48, name="k")
    c = te.compute((64, 128), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return Workload.of(ComputeDAG.of([a, b, c]), "gemm")


def by_hand(w: Workload) -> Trace:
    s = Schedule(w.dag)
    i, j = s["t0"].op.axis
    s["t0"].split(j, factor=16)
    s["t0"].reorder("i1.0", i)
    s["t0"].vectorize("i1.1")
    s["t0"].parallel("i1.0")
    return s.trace


def test_steps_are_left_out_or_made_small() -> None:
    w = workload()
    split, reorder, vectorize, parallel = variants(w.dag, by_hand(w))
    assert split.how == "factors of 1"  # the others name its halves
    assert split.trace is not None
    assert split.trace.steps[0].factors == (1,)  # type: ignore[attr-defined]
    assert [v.how for v in (reorder, vectorize, parallel)] == [LEFT_OUT] * 3
    assert [v.steps for v in (split, reorder, vectorize, parallel)] == [(1,), (2,), (3,), (4,)]
    assert reorder.trace is not None
    assert len(reorder.trace.steps) == 3


def test_a_step_that_others_need_says_why() -> None:
    w = workload()
    s = Schedule(w.dag)
    fused = s["t0"].fuse(*s["t0"].op.axis)
    s["t0"].parallel(fused)
    fuse, parallel = variants(w.dag, s.trace)
    assert fuse.trace is None
    assert "stage 't0' has no axis '(i0*i1)'" in fuse.reason
    assert parallel.how == LEFT_OUT


def test_holes_take_the_default_or_the_smallest() -> None:
    w = workload()
    sketch = generate(w.dag, TARGET)[0]
    tile = next(h for h in sketch.holes if h.name.endswith("/tile"))
    chosen = next(o for o in tile.options if o != tile.default)
    decisions = {**sketch.defaults(), tile.name: chosen}
    whole = sketch.fill(decisions)
    found = variants(w.dag, whole, sketch, decisions)
    assert sorted(n for v in found for n in v.steps) == list(range(1, 1 + len(whole.steps)))
    filled = [v for v in found if tile.name in v.how]
    assert filled
    usual = sketch.fill({**decisions, tile.name: tile.default})
    assert filled[0].how.endswith("(the default's)")
    assert filled[0].trace == usual
    assert all(v.trace != whole for v in found)
    smallest = variants(w.dag, sketch.fill(sketch.defaults()), sketch, sketch.defaults())
    assert any(v.how.endswith("(the smallest)") for v in smallest)


def test_equal_variants_are_measured_once() -> None:
    w = workload()
    sketch = generate(w.dag, TARGET)[0]
    traces = [v.trace for v in variants(w.dag, sketch.fill(sketch.defaults()), sketch, sketch.defaults())]
    known = [t.hash for t in traces if t is not None]
    assert len(known) == len(set(known))


class Known(AtOnce):
    """A measurer with a planned result for each trace."""

    def __init__(self, answers: dict[str, MeasureResult]) -> None:
        self.answers = answers
        self.calls: list[int] = []

    def measure(
        self, workload: Workload, traces: Sequence[Trace], repeat: int | None = None,
        gated: Collection[int] = (),
    ) -> list[MeasureResult]:  # fmt: skip
        self.calls.append(len(traces))
        assert not gated  # everything is run, whatever it compiles to
        return [self.answers[t.hash] for t in traces]

    def close(self) -> None: ...


def timed(*seconds: float) -> MeasureResult:
    return MeasureResult(Status.OK, seconds)


def test_ratios_are_of_times_taken_side_by_side() -> None:
    w = workload()
    whole = by_hand(w)
    found = variants(w.dag, whole)
    split, reorder, vectorize, parallel = (v.trace.hash for v in found if v.trace is not None)
    measurer = Known(
        {
            whole.hash: timed(1.0, 2.0, 1.0, 2.0),  # the machine changes its mind all the time
            split: timed(3.0, 6.0, 3.0),
            reorder: timed(1.0, 2.0, 1.001, 2.0),
            vectorize: MeasureResult(Status.RUN_TIMEOUT, error="ran 10 s"),
            parallel: timed(0.5, 1.0, 0.5, 1.0),
        }
    )
    own, results = ablate(w, whole, found, measurer)
    assert measurer.calls == [5]  # one batch
    assert own.seconds == (1.0, 2.0, 1.0, 2.0)
    assert [r.times and r.times.middle for r in results] == [3.0, pytest.approx(1.0, abs=1e-3), None, 0.5]
    assert [r.same for r in results] == [False, True, False, False]
    assert (results[2].status, results[2].reason) == ("RUN_TIMEOUT", "ran 10 s")


def test_a_schedule_that_fails_has_no_ratios() -> None:
    w = workload()
    whole = by_hand(w)
    found = variants(w.dag, whole)
    failing = MeasureResult(Status.CRASHED, error="signal 11")
    answers = {v.trace.hash: timed(1.0, 1.0, 1.0) for v in found if v.trace is not None}
    own, results = ablate(w, whole, found, Known({**answers, whole.hash: failing}))
    assert not own.ok
    assert {r.reason for r in results} == {"the whole schedule has no time"}


def test_what_is_no_schedule_is_not_measured() -> None:
    w = workload()
    lost = Variant((1,), ("s.x()",), "", None, "others need it")
    own, (result,) = ablate(w, Trace(), [lost], Known({Trace().hash: timed(1.0, 1.0, 1.0)}))
    assert own.ok
    assert (result.status, result.times, result.reason) == ("", None, "others need it")
