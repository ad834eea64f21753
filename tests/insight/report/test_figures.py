"""The figures of a report are those of the log, and its sentences agree with the figures."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from against_sql import assert_of_the_log

from autotensor.api.log_handle import log
from autotensor.base.errors import InputError
from autotensor.insight.report.chart_rows import MOST_POINTS, chart_rows
from autotensor.insight.report.figures import Figures, document
from autotensor.insight.report.findings import findings, last_gain, now_s, to_gain_s, why
from autotensor.insight.report.task_figures import TaskFigures
from autotensor.insight.search_history import Point


def as_json(f: Figures) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(document(f)))
    return found


def test_figures_are_the_logs(both, ask):
    for f in both:
        assert_of_the_log(as_json(f), ask)


def test_a_wrong_figure_is_found(both, ask):
    d = as_json(both[0])
    seconds = d["tasks"][0]["history"]["points"]["seconds"]
    wrong = next(n for n, s in enumerate(seconds) if s is not None)  # others failed
    seconds[wrong] *= 1.001
    with pytest.raises(AssertionError):
        assert_of_the_log(d, ask)


def test_runs_are_named_by_key_beginning_or_model(two_runs, both):
    first, second = both
    with log(str(two_runs)) as handle:
        assert handle.report().figures.run == second.run
        assert handle.report("mlp").figures.run == second.run
        assert handle.report(first.run[:6]).figures.run == first.run
        with pytest.raises(
            InputError, match="no run has that model, or a key or session that begins with 'vgg'"
        ):
            handle.report("vgg")


def test_a_run_ends_where_the_next_one_searched_its_tasks(both):
    first, second = both
    assert first.tuned_s != second.tuned_s  # each has the end of its own


def test_rows_of_charts_are_figures(both):
    first, _ = both
    rows = chart_rows(first)
    times = {p.trial: p.seconds for t in first.tasks for p in t.history.points}
    shown = [r for r in rows["convergence"] if r["what"] == "trial"]
    assert shown
    assert all(times[r["trial"]] == r["seconds"] for r in shown)
    assert sum(r["share"] for r in rows["shares"]) == pytest.approx(1.0)
    for r, t in zip(rows["times"], first.tasks, strict=True):
        assert (r["before_s"], r["after_s"]) == (t.before_s, t.after_s)
        assert r["low_s"] <= r["after_s"] * 1.0001
        assert r["after_s"] <= r["high_s"] * 1.0001
    assert sum(r["trials"] for r in rows["failures"]) == sum(f.count for f in first.failures)
    assert rows["fall"][0]["seconds"] == first.fall.start_s


def test_many_trials_are_thinned_and_none_that_gained(both):
    first, _ = both
    t = first.tasks[0]
    points = tuple(Point(n, 1.0 / (1 + n // 1000) + n % 7, None, "drafted") for n in range(1, 100_001))
    many = replace(first, tasks=(replace(t, history=replace(t.history, points=points)),))
    shown = [r for r in chart_rows(many)["convergence"] if r["what"] == "trial"]
    assert MOST_POINTS / 2 < len(shown) < 1.1 * MOST_POINTS
    best = [r["number"] for r in chart_rows(many)["convergence"] if r["what"] == "best"][:-1]
    assert set(best) <= {r["number"] for r in shown}


def shortest_s(f: Figures, t: TaskFigures) -> float:
    """The least time of a task in one inference, from any measurement."""
    tried = [t.weight * p.seconds for p in t.history.points if p.seconds is not None]
    return min(*tried, t.before_s, t.after_s, f.in_model[t.workload])


def test_the_task_to_tune_next_has_most_to_gain(both):
    for f in both:
        following = findings(f)[0]
        most = max(f.tasks, key=lambda t: (now_s(f, t) or 0.0) - min(t.bound_s or 0.0, shortest_s(f, t)))
        assert following.answer == most.name
        assert to_gain_s(f, most) > 0.0
        assert "gain" in following.detail


def test_an_only_task_is_not_compared_with_others(both):
    first, _ = both
    task = max(first.tasks, key=lambda t: to_gain_s(first, t))
    alone = findings(replace(first, tasks=(task,)))
    assert alone[0].detail.startswith("It is the run's only task and takes ")
    assert not any("any other" in x.detail for x in alone)


def test_a_trial_that_lost_its_race_is_not_said_to_have_gained(both):
    first, _ = both
    t = next(t for t in first.tasks if t.result and t.history.points[last_gain(t) - 1].made_by != "default")
    lost = replace(t, result=replace(t.result, winner=t.result.default), limits=None)
    detail = findings(replace(first, tasks=(lost,)))[0].detail
    assert detail.endswith("was the fastest; in the race it did not surely beat the default.")


def test_what_failed_most_leaves_out_what_was_never_run(both):
    first, _ = both
    failed = findings(first)[1]
    ran = [x for x in first.failures if x.status != "REJECTED"]
    assert failed.answer == ran[0].status
    assert f"{ran[0].count} of {sum(x.count for x in ran)} failures" in failed.detail
    assert "never ran" in failed.detail
    assert findings(replace(first, failures=()))[1].answer == "nothing"


def test_why_the_winner_wins(both):
    first, _ = both
    wins = findings(first)[2]
    saved = {t.name: (t.before_s or 0.0) - (t.after_s or 0.0) for t in first.tasks}
    assert wins.answer == max(saved, key=lambda name: saved[name])
    assert "it needs" in wins.detail
    same = [replace(t, result=replace(t.result, ratio=1.0, lower=0.99, upper=1.01)) for t in first.tasks]
    assert findings(replace(first, tasks=tuple(same)))[2].answer == "the defaults won"


def test_where_the_default_failed_no_default_won(both):
    first, _ = both
    t = next(t for t in first.tasks if t.result and t.history.points[0].made_by == "default")
    failed = replace(t.history.points[0], seconds=None)
    alone = replace(
        t,
        result=replace(t.result, default=None, default_s=None, ratio=None, lower=None, upper=None),
        history=replace(t.history, points=(failed, *t.history.points[1:])),
    )
    wins = findings(replace(first, tasks=(alone,)))[2]
    assert wins.answer == t.name
    assert wins.detail.startswith("Its default did not work. ")
    assert "is the fastest that does: " in wins.detail


def test_a_run_without_a_time_says_so(both):
    first, _ = both
    empty = [
        replace(t, result=None, history=replace(t.history, points=()), reasons=(), lineage=())
        for t in first.tasks
    ]
    f = replace(first, tasks=tuple(empty), failures=(), inside={}, default_s=None, tuned_s=None)
    assert [x.answer for x in findings(f)] == ["nothing", "there are no trials", "there is none yet"]
    assert last_gain(empty[0]) == 0
    assert chart_rows(f)["times"] == []


def test_two_runs_are_compared_as_the_log_compares_them(two_runs, both):
    first, second = both
    with log(str(two_runs)) as handle:
        told = handle.report(first.run, second.run).pairs
        known = handle.compare(first.run, second.run)
        alike = handle.report(first.run, first.run).pairs
    assert [(p.task, p.ratio, p.lower, p.upper, p.verdict) for p in told] == [
        (c.name, c.ratio.middle, c.ratio.lower, c.ratio.upper, c.verdict) for c in known
    ]
    assert [(p.a_s, p.b_s) for p in told] == [(c.first.median_s, c.second.median_s) for c in known]
    # The default wins a race if no other candidate certainly wins it. The comparison uses the fastest
    # candidate.
    winners = {t.name: t.result.winner_s for t in first.tasks}
    assert all(p.a_s <= winners[p.task] for p in told)
    assert all(p.a_s == p.b_s for p in alike)
    assert not {p.verdict for p in alike} & {"slower", "faster"}


def test_kernels_inside_a_model_do_not_take_longer_than_the_model(both):
    """In models of a few µs the clock's own time counts: it is the same for every call."""
    first, _ = both
    calls = {t.workload: t.weight for t in first.tasks}
    inside = {key: 1e-6 * (n + 1) + 5e-6 * calls[key] for n, key in enumerate(first.inside)}
    tuned_s = sum(1e-6 * (n + 1) for n in range(len(inside)))
    slow_clock = replace(first, inside=inside, tuned_s=tuned_s)
    assert list(slow_clock.in_model.values()) == pytest.approx([1e-6 * (n + 1) for n in range(len(inside))])
    assert slow_clock.kernels_s == pytest.approx(tuned_s)
    assert replace(first, inside=inside, tuned_s=1.0).in_model == pytest.approx(inside)
    # the excess is divided equally; calls that are shorter than their part leave the rest to the other calls
    short, *long = inside
    uneven = {short: 1e-9 * calls[short], **{key: 1e-3 * calls[key] for key in long}}
    assert replace(first, inside=uneven, tuned_s=5e-4).kernels_s == pytest.approx(5e-4)


def test_a_default_that_won_names_what_came_next(both):
    first, _ = both
    t = next(t for t in first.tasks if t.runner_up is not None)
    won = replace(t, result=replace(t.result, winner=1, default=1))
    assert f"trial {t.runner_up.trial} ({t.runner_up.made_by}), {t.runner_up.ratio:.3f} times" in why(won)
    assert "Nothing else that was tried worked" in why(replace(won, runner_up=None))


def test_the_first_of_a_task_is_no_new_best(both):
    """There was no other time to compare with."""
    first, _ = both
    assert not [c for c in first.makers if c.kind == "default" and c.outcome == "new best"]
