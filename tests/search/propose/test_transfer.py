"""Schedules that were fast for other tasks, fitted to this one: families, distances, holes, and the order of
the tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from fakes import TARGET, FakeMeasurer, bowl, drive, task
from runs import CONVOLUTION, PRODUCT, RATES, SMALL_PRODUCT, run
from zoo import SMALL, batched, conv, gemm, rows

from autotensor.schedule.sketch import Sketch
from autotensor.schedule.trace import Trace
from autotensor.search.propose.transfer import MOST, refit, seeds, shape_of
from autotensor.search.propose.tuner import Tuner
from autotensor.search.score.boosted.xgb_model import XGBModel
from autotensor.search.task import Candidate
from autotensor.te.workload import Workload
from schedules.generate import generate
from tuning_db import SessionKind, connect
from tuning_db.records import Parent, Status, TrialRecord, Verification

OTHER = gemm(80, 384, 128)


def a_row(c: Candidate, seconds: float, *, right: bool = True) -> TrialRecord:
    return TrialRecord(
        session="s",
        workload="w",
        target="t",
        machine="m",
        environment="e",
        trace=c.trace.to_json(),
        trace_hash=c.trace.hash,
        status=Status.OK,
        median_s=seconds,
        verification=Verification(0.0 if right else 9.0, 1e-5, verdict=right),
    )


def best_rows(workload: Workload, count: int = 3) -> list[TrialRecord]:
    """The best candidates of a search, with times that differ by a microsecond."""
    t = Tuner(task(workload), XGBModel(), RATES)
    drive(t, bowl, 24)
    assert t.best is not None
    near = [t.best, *(c for c in t.ask(8) if c.sketch is t.best.sketch)]
    return [a_row(c, 1e-6 * (n + 1)) for n, c in enumerate(near[:count])]


def apart(found: list[TrialRecord], sketches: Sequence[Sketch]) -> list[TrialRecord]:
    """The candidates that become different candidates of these sketches."""
    first: dict[str, TrialRecord] = {}
    for row in found:
        fitted = refit(row.trace, sketches)
        assert fitted is not None
        first.setdefault(fitted.key, row)
    return list(first.values())


def test_sizes_make_no_other_family() -> None:
    shapes = [shape_of(gemm(m, n, k).text) for m, n, k in ((8, 16, 32), (8, 16, 64), (16, 32, 64))]
    assert len({s.family for s in shapes}) == 1
    assert [round(shapes[0].distance(s), 6) for s in shapes] == [0.0, 1.0, 5.0]  # the epilogue has axes, too


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (gemm(8, 16, 32), gemm(8, 16, 32, epilogue=False)),
        (gemm(8, 16, 32), gemm(8, 16, 32, constant=False)),
        (conv(9, 5, 40, 3), conv(9, 5, 40, 3, stride=2)),
        (conv(9, 24, 24, 3), conv(9, 24, 24, 3, groups=24)),
        (batched(2, 9, 17, 12), batched(2, 9, 17, 12, transpose_b=True)),
        (rows("softmax", 7, 100), rows("layer_norm", 7, 100)),
    ],
)
def test_other_computations_are_other_families(one: Workload, other: Workload) -> None:
    assert shape_of(one.text).family != shape_of(other.text).family


@pytest.mark.parametrize("workload", SMALL, ids=lambda w: w.name)
def test_a_trace_of_the_same_task_is_found_again(workload: Workload) -> None:
    t = Tuner(task(workload), XGBModel(), RATES)
    for c in t.ask(8):
        again = refit(c.trace.to_json(), t.sketches)
        assert again is not None
        assert again.trace == c.trace


@pytest.mark.parametrize(
    ("here", "there"), [(PRODUCT, OTHER), (conv(14, 32, 64, 3), conv(28, 16, 64, 3))], ids=["gemm", "conv"]
)
@pytest.mark.sample(1)
def test_what_was_fast_elsewhere_is_legal_here_and_keeps_its_tile(here: Workload, there: Workload) -> None:
    sketches = generate(here.dag, TARGET)
    for row in best_rows(there):
        fitted = refit(row.trace, sketches, parents=(Parent(row.trace_hash),))
        assert fitted is not None
        fitted.trace.replay(here.dag)
        assert (fitted.made_by, [p.trace_hash for p in fitted.parents]) == ("transfer", [row.trace_hash])
        tiles = {h.name: h.options for h in fitted.sketch.holes if h.name.endswith("/tile")}
        theirs = Tuner(task(there), XGBModel(), RATES)
        origin = refit(row.trace, theirs.sketches)
        assert origin is not None
        for name, options in tiles.items():
            if origin.decisions[name] in options:
                assert fitted.decisions[name] == origin.decisions[name]


def test_steps_of_other_rules_are_not_understood() -> None:
    sketches = generate(PRODUCT.dag, TARGET)
    assert refit(Trace().to_json(), sketches) is None
    assert refit(best_rows(CONVOLUTION, 1)[0].trace, sketches) is None


def test_the_nearest_come_first_and_the_workload_itself_before_them() -> None:
    sketches = generate(PRODUCT.dag, TARGET)
    far = gemm(12, 1536, 16)
    known = [(w, best_rows(w)) for w in (far, OTHER, PRODUCT, CONVOLUTION)]
    known[1] = OTHER, apart(best_rows(OTHER, 8), sketches)
    assert len(known[1][1]) > 1
    found = seeds(PRODUCT, sketches, known)
    assert [c.made_by for c in found] == ["log", "log", "transfer", "transfer"]
    assert len(found) == MOST
    assert [c.trace.hash for c in found[:2]] == [r.trace_hash for r in known[2][1][:2]]
    assert {p.trace_hash for c in found[2:] for p in c.parents} == {r.trace_hash for r in known[1][1][:2]}
    assert seeds(PRODUCT, sketches, known[3:]) == ()


def test_what_was_never_checked_is_no_seed() -> None:
    fast = [replace(r, verification=None) for r in best_rows(OTHER)]
    assert seeds(PRODUCT, generate(PRODUCT.dag, TARGET), [(OTHER, fast)]) == ()


def test_seeds_are_asked_right_after_the_default_once() -> None:
    t = Tuner(task(PRODUCT), XGBModel(), RATES)
    found = seeds(PRODUCT, t.sketches, [(OTHER, best_rows(OTHER))])
    t.suggest(found)
    first = t.ask(8)
    new = [c for c in found if c.key != t.default().key]
    assert [c.key for c in first[: 1 + len(new)]] == [t.default().key, *(c.key for c in new)]
    t.tell(first, [bowl(c) for c in first])
    assert {c.made_by for c in t.ask(8)}.isdisjoint({"transfer", "log"})


def test_a_run_begins_with_what_the_log_knows_of_other_sizes_and_says_so() -> None:
    store = connect(":memory:")
    run([OTHER], 24, store)
    run([PRODUCT], 16, store, fresh=True)
    made_by = [r.made_by for r in store.trials(PRODUCT.key) if r.round == 0]
    assert made_by[0] == "default"
    assert "transfer" in made_by[1 : 1 + MOST]
    run([PRODUCT], 16, store, seed=1)
    (mine,) = (s for s in store.sessions(SessionKind.SEARCH) if s.seed == 1)
    again = [r for r in store.trials(PRODUCT.key, session=mine.id) if r.round == 0]
    assert "log" in [r.made_by for r in again]  # its own best of another run is measured again
    assert all(r.samples for r in again if r.status is Status.OK)


def test_without_warm_start_the_log_suggests_nothing() -> None:
    store = connect(":memory:")
    run([OTHER], 24, store)
    run([PRODUCT], 16, store, warm_start=False)
    assert {r.made_by for r in store.trials(PRODUCT.key)}.isdisjoint({"transfer", "log"})


def test_what_is_measured_while_a_run_lies_killed_changes_nothing() -> None:
    """A run uses the contents that the log had when the run began."""
    store, whole, first, second = connect(":memory:"), FakeMeasurer(), FakeMeasurer(), FakeMeasurer()
    run([SMALL_PRODUCT], 16, store)
    other = connect(":memory:")
    run([SMALL_PRODUCT], 16, other)
    run([PRODUCT], 40, other, whole)
    run([PRODUCT], 24, store, first)
    run([OTHER], 24, store)
    run([PRODUCT], 40, store, second)
    assert first.measured + second.measured == whole.measured
