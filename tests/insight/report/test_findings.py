"""The findings of a report agree with each other: one time, one bound, one count for each thing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cli_tools import mlp_plan
from made_up_runs import add_run

from autotensor import te
from autotensor.api.log_handle import log
from autotensor.insight.report.findings import (
    beaten,
    best_saved,
    explained,
    findings,
    now_s,
    seconds_text,
    to_gain_s,
    together,
    whole_gain,
    why,
)
from autotensor.insight.report.tally import Failure
from autotensor.insight.report.task_figures import Reason, TaskFigures
from autotensor.search.task import Task
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload
from tuning_db import connect


def bounded(t: TaskFigures, bound_s: float | None) -> TaskFigures:
    """The task with another bound of one call."""
    assert t.limits is not None
    return replace(t, limits=replace(t.limits, bound_s=bound_s))


def test_a_task_without_a_bound_is_not_tuned_next_where_others_have_one(both):
    first, _ = both
    most = max(first.tasks, key=lambda t: now_s(first, t) or 0.0)
    some = tuple(bounded(t, None) if t is most else t for t in first.tasks)
    following = findings(replace(first, tasks=some))[0]
    assert following.answer != most.name
    assert most.name not in following.detail
    none = replace(first, tasks=tuple(bounded(t, None) for t in first.tasks))
    assert findings(none)[0].answer == most.name
    assert "can be gained" not in findings(none)[0].detail


def test_a_transpose_has_no_bound(tmp_path):
    a = te.placeholder((64, 48), name="a")
    turned = te.compute((48, 64), lambda i, j: a[j, i], name="turned")
    workload = Workload.of(ComputeDAG.of([a, turned]), "transpose")
    target = mlp_plan().search_tasks()[0].target
    with connect(tmp_path / "log.db") as store:
        add_run(store, [Task(workload, target)], 8, "transpose")
    with log(str(tmp_path / "log.db")) as handle:
        f = handle.report().figures
    assert f.roofs
    assert [t.bound_s for t in f.tasks] == [None]
    assert "can be gained" not in findings(f)[0].detail


def test_a_bound_that_a_default_beat_is_not_what_rates_allow(both):
    """A time below the bound, from any measurement, replaces the task's bound in both findings."""
    first, _ = both
    inside = {t.workload: 2.0 * (t.after_s or 0.0) for t in first.tasks}
    least = {t.name: min(p.seconds for p in t.history.measured) for t in first.tasks}
    least = {
        t.name: t.weight * min(least[t.name], t.result.winner_s, t.result.default_s) for t in first.tasks
    }
    tasks = [
        replace(
            bounded(t, 1.5 * t.result.winner_s), result=replace(t.result, ratio=1.0, lower=1.0, upper=1.0)
        )
        for t in first.tasks
    ]
    f = replace(first, tasks=tuple(tasks), inside=inside, tuned_s=1.0, default_s=1.0)
    following, _, wins = findings(f)
    assert "rates allow" not in following.detail + wins.detail
    assert "In another measurement it took" in following.detail
    assert following.detail.startswith("Inside the model it takes ")
    for t in f.tasks:
        assert to_gain_s(f, t) == pytest.approx(inside[t.workload] - least[t.name])
    times = sum(inside.values()) / sum(least.values())
    assert (
        f"together take {times:.2f} times as long inside the model as their estimated bounds" in wins.detail
    )


def test_where_the_bounds_hold_the_rates_allow_them(both):
    first, _ = both
    tasks = tuple(bounded(t, 1e-9) for t in first.tasks)
    assert "This machine's rates allow about " in findings(replace(first, tasks=tasks))[0].detail


def with_failed_default(t: TaskFigures) -> TaskFigures:
    default = next(p for p in t.history.points if p.made_by == "default")
    points = tuple(replace(p, seconds=None) if p is default else p for p in t.history.points)
    result = replace(t.result, default=None, default_s=None, ratio=None, lower=None, upper=None)
    return replace(t, result=result, history=replace(t.history, points=points))


def test_a_default_among_the_failures_is_named(both):
    first, _ = both
    t, *others = first.tasks
    f = replace(first, tasks=(with_failed_default(t), *others))
    assert f" The default itself of {t.name} is among the failures." in findings(f)[1].detail
    assert "among the failures" not in findings(first)[1].detail
    f = replace(first, tasks=tuple(map(with_failed_default, first.tasks)))
    assert " The defaults of " in findings(f)[1].detail


def test_a_ratio_that_the_kernels_do_not_bear_out_is_not_shown(both):
    first, _ = both
    assert "times as fast" in whole_gain(first)
    saved = sum(max(0.0, t.before_s - t.after_s) for t in first.tasks)
    far = replace(first, default_s=260.0 * (first.tuned_s + saved))
    assert whole_gain(far).startswith(
        "no ratio, since by its kernels' times the untuned model would take about "
    )
    assert "260" not in findings(far)[2].detail.partition("The whole model")[2].partition(" tuned, ")[2]
    t, *others = first.tasks
    failed = replace(far, tasks=(with_failed_default(t), *others))
    assert f"(the default of {t.name} failed and has no time)" in whole_gain(failed)


def test_failures_agree_in_number_and_say_where_they_are(both):
    first, _ = both
    wrong = Failure("WRONG_RESULT", "it is #", 4, 63, ("a",))
    slow = Failure("REJECTED", "# go through the stack", 1, 70, ("a",))

    def said(*failures: Failure) -> str:
        return findings(replace(first, failures=failures))[1].detail

    assert "All of them are in a; trial 63 is the first." in said(wrong)
    assert "They are most frequent in a; trial 63" in said(replace(wrong, tasks=("a", "b")))
    assert "1 of 1 failures" in said(replace(wrong, count=1))
    assert "It is trial 63, in a." in said(replace(wrong, count=1))
    text = " 1 more never ran: its machine code showed that it would be slow (“# go through the stack”)."
    assert said(slow).endswith(text)
    assert said(wrong, slow).endswith(text)
    assert "2 more never ran: their machine code showed that they would" in said(replace(slow, count=2))
    assert "3 more never ran" in said(replace(slow, count=2), replace(slow, signature="other"))
    assert "(most often: “#" in said(replace(slow, count=2), replace(slow, signature="other"))


def test_trials_that_never_ran_have_no_load_of_the_machine(both):
    for f in both:
        assert sum(f.noise.conditions.values()) == f.trials
        assert any(t.rejected for t in f.tasks)


def test_the_default_is_not_called_a_trial_of_its_own_decision(both):
    first, _ = both
    t = best_saved(first)
    need = Reason("structure", "tile", "nest", 1.2, 1, only_default=True)
    assert "structure tile (the default itself, with nest, takes 1.20 times as long)" in why(
        replace(t, reasons=(need,))
    )
    assert "(the only trial that worked with nest takes" in why(
        replace(t, reasons=(replace(need, only_default=False),))
    )
    mild = Reason("t0/rows", "8", "4", 1.01, 3)
    only = why(replace(t, reasons=(mild,)))
    assert only.startswith(
        "The only difference that the log names is rows 8 instead of 4 (the best of 3 trials that worked "
        "with 4 takes "
    )
    assert "no trial with that worked, nor did the default" in why(
        replace(t, reasons=(replace(mild, ratio=None, trials=0),))
    )
    assert why(replace(t, reasons=(mild, mild))).startswith("No single decision explains it")


def test_the_default_counts_as_such_a_trial_only_where_it_is_one(both):
    """By the rows of the log: of one such trial, the page says whether it is the default."""
    first, second = both
    for t in (*first.tasks, *second.tasks):
        for r in t.reasons:
            assert r.only_default <= (r.trials == 1)
            if r.what == "structure" and r.trials == 1 and t.result.default is not None:
                assert r.only_default


def test_what_is_explained_is_what_the_finding_names(both):
    first, _ = both
    assert explained(first).name == findings(first)[2].answer
    assert findings(first)[2].detail.startswith("Timed alone, its winner, trial ")


def test_a_default_of_another_structure_is_not_among_the_trials_of_a_decision(both):
    first, _ = both
    t = best_saved(first)
    structure, rows = Reason("structure", "tile", "nest", 1.01, 2), Reason("t0/rows", "8", "4", 1.2, 1)
    assert "rows 8 (the only trial of its structure with 4 takes 1.20" in why(
        replace(t, reasons=(rows, structure))
    )
    assert "rows 8 (the only trial that worked with 4 takes 1.20" in why(replace(t, reasons=(rows,)))


def test_a_task_that_beat_its_bound_is_named(both):
    first, _ = both
    t, *others = (bounded(t, 1e-9) for t in first.tasks)
    assert beaten(replace(first, tasks=(t, *others))) == ""
    f = replace(first, tasks=(bounded(t, 2.0 * t.result.default_s), *others))
    assert beaten(f).startswith(f" {t.name} took less than its bound, which is an estimate: ")
    assert findings(f)[0].detail.endswith(beaten(f))
    every = tuple(bounded(t, 2.0 * t.result.default_s) for t in first.tasks)
    assert " took less than their bounds, " in beaten(replace(first, tasks=every))


def test_where_the_tasks_do_not_add_up_to_the_model_a_sentence_says_so(both):
    first, _ = both
    saved = sum(max(0.0, t.before_s - t.after_s) for t in first.tasks)
    equal = replace(first, default_s=first.tuned_s + saved)
    assert together(equal) == ""
    assert together(replace(first, default_s=None)) == ""
    more = replace(first, default_s=1.5 * (first.tuned_s + saved))
    gained = seconds_text(more.default_s - more.tuned_s)
    assert f"the winners save {seconds_text(saved)} together; the model gained {gained}:" in together(more)
    assert findings(more)[2].detail.endswith(together(more))
    assert "together; the model lost " in together(replace(first, default_s=0.5 * first.tuned_s))


def test_a_run_without_trials_had_no_right_answers(both):
    """For example because every task crashed before its first trial."""
    first, _ = both
    none = tuple(replace(t, history=replace(t.history, points=())) for t in first.tasks)
    f = replace(first, tasks=none, failures=(), stopped="the child died by SIGSEGV")
    failed = findings(f)[1]
    assert failed.answer == "there are no trials"
    assert failed.detail == "Nothing was measured in this run: it ended because the child died by SIGSEGV."
    assert "it has not ended" in findings(replace(f, stopped=""))[1].detail
