"""Comparisons and regressions: a planted difference is found, and equal things have none."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from commits import COMMITS, add_races

from autotensor.api.log_comparison import Verdict, compare, regressions
from autotensor.base.errors import InputError
from tuning_db import Code, TrialStore, connect

OLD, NEW = COMMITS
TASKS = [f"w{n:02}" for n in range(21)]
PLANTED = TASKS[7]


def times(rng: random.Random) -> dict[str, float]:
    return {key: rng.uniform(1e-5, 1e-3) for key in TASKS}


def two_commits(rng: random.Random, slower: float, count: int = 15) -> TrialStore:
    """21 kernels raced at two commits. One became slower; the code of the other 20 is equally fast."""
    store = connect(":memory:")
    taken = times(rng)
    add_races(store, OLD, taken, rng, count=count)
    add_races(store, NEW, taken | {PLANTED: slower * taken[PLANTED]}, rng, count=count)
    return store


def seeds(few: int, many: int) -> list[object]:
    return [*range(few), *(pytest.param(n, marks=pytest.mark.slow) for n in range(few, many))]


@pytest.mark.parametrize("seed", seeds(3, 40))
def test_three_percent_in_one_kernel_are_found_among_twenty_that_are_equal(seed: int) -> None:
    with two_commits(random.Random(seed), 1.03) as store:
        found = [c.workload for c in regressions(store)]
        assert PLANTED in found
        assert len(found) <= 2
        assert {c.workload for c in compare(store, OLD, NEW)} == set(TASKS)


def test_few_samples_do_not_tell() -> None:
    with two_commits(random.Random(1), 1.2, count=4) as store:
        found = compare(store, OLD, NEW)
        assert {c.verdict for c in found} == {Verdict.UNSURE}
        assert regressions(store) == ()


def test_two_medians_decide_nothing() -> None:
    """Medians that differ by 5 %, with samples that vary widely."""
    rng = random.Random(5)
    with connect(":memory:") as store:
        for commit, scale in ((OLD, 1.0), (NEW, 1.05)):
            run = add_races(store, commit, {"w": scale * 1e-4}, rng)
            rows = store.finalists(run=run)
            wide = replace(rows[0].samples[0], reference_s=None)
            samples = tuple(
                replace(wide, seconds=scale * 1e-4 * rng.lognormvariate(0.0, 0.3)) for _ in range(15)
            )
            again = store.start_session(
                run_key=run, seed=0, machine=rows[0].machine, environment=rows[0].environment, kind="race"
            )
            store.add_trials([replace(rows[0], session=again.id, samples=samples, median_s=scale * 1e-4)])
        (found,) = compare(store, OLD, NEW)
        assert found.second.median_s == pytest.approx(1.05 * found.first.median_s)
        assert found.verdict is Verdict.UNSURE


def test_a_machine_that_became_slower_is_no_regression() -> None:
    with connect(":memory:") as store:
        for commit, drift in ((OLD, 1.0), (NEW, 1.2)):
            rng = random.Random(2)  # the same session once more, but for the machine's clock
            run = add_races(store, commit, {"w": 1e-4}, rng)
            (row,) = store.finalists(run=run)
            slow = tuple(
                replace(s, seconds=drift * s.seconds, reference_s=drift * s.reference_s) for s in row.samples
            )
            again = store.start_session(
                run_key=run, seed=0, machine=row.machine, environment=row.environment, kind="race"
            )
            store.add_trials([replace(row, session=again.id, samples=slow, median_s=drift * row.median_s)])
        (found,) = compare(store, OLD, NEW)
        assert found.second.median_s > 1.15 * found.first.median_s
        assert found.ratio.lower < 1.0 < found.ratio.upper


def test_the_same_object_code_has_not_become_slower() -> None:
    rng = random.Random(3)
    with connect(":memory:") as store:
        add_races(store, OLD, {"w": 1e-4}, rng, source_sha="abc")
        add_races(store, NEW, {"w": 1.1e-4}, rng, source_sha="abc")
        (found,) = compare(store, OLD, NEW)
        assert found.ratio.lower > 1.05
        assert found.verdict is Verdict.SAME_CODE
        assert found.same_schedule


def test_runs_and_machines_are_compared_alike() -> None:
    rng = random.Random(4)
    with connect(":memory:") as store:
        here = add_races(store, OLD, {"v": 1e-4, "w": 1e-4}, rng, machine="zen3")
        add_races(store, OLD, {"w": 2e-4}, rng, machine="zen5")
        (found,) = compare(store, "zen3", "zen5")
        assert (found.workload, found.verdict) == ("w", Verdict.SLOWER)
        assert found.ratio.middle == pytest.approx(2.0, rel=0.15)
        assert (
            compare(store, here, f"run of {OLD} on zen5") == ()
        )  # runs of two machines have no task in common
        assert [c.workload for c in compare(store, here, here)] == ["v", "w"]
        assert regressions(store) == ()  # one commit only


def test_what_is_compared_has_to_be_named_well() -> None:
    with two_commits(random.Random(6), 1.0) as store:
        store.put_code(Code("aaaa1112", "0.1", "aaaa1112"))
        with pytest.raises(InputError, match="no run, session, commit or machine 'dddd'"):
            compare(store, "dddd", NEW)
        with pytest.raises(InputError, match="'aaaa' may be commit aaaa1111 or commit aaaa1112"):
            compare(store, "aaaa", NEW)
        with pytest.raises(InputError, match="is a machine and 'bbbb2222' a commit"):
            compare(store, "zen3", NEW)
        with pytest.raises(InputError, match="a comparison needs two names"):
            regressions(store, NEW)


def test_changes_that_no_commit_holds_stand_for_themselves() -> None:
    assert Code("k1", "0.2", "abc").label == "abc"
    assert Code("k2", "0.2", "abc", dirty=True).label == "k2"
    assert Code("k3", "0.2").label == "0.2"
