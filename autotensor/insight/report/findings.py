"""Three sentences at the top of a report: which task to tune next, what failed most, why the winner wins.

    Figures ──▶ Finding("Tune next", "conv2d 3x3 …", "It takes 24 % of the model's time, …"), …

Each answer comes from a rule that one sentence can describe, and every number in it is a figure of the
report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from autotensor.insight.report.figures import Figures
from autotensor.insight.report.tally import Failure
from autotensor.insight.report.task_figures import Reason, TaskFigures, short
from autotensor.insight.search_history import best_so_far
from autotensor.insight.units import percent
from autotensor.resolve import DEFAULT, gain
from tuning_db.records import Status

STILL = 0.5  # a task stands still if this share of its trials, the last ones, gained nothing
FEWEST = 16  # least number of trials for this judgement
# a decision explains the win if the default's option takes at least this many times the winner's time
WEIGHTY = 1.03
# the untuned model's time is not trusted if it is more than this many times the prediction from its kernels
FAR = 3.0
MISFIT = 0.02  # of the model's time; by less, the tasks' savings and the model's agree
MOST_NAMES = 3  # a sentence lists at most this many tasks
TAKEN = {
    "in the model": "Raced inside the model (the ratio is from there, the seconds are of the kernel alone)",
    "alone": "Timed alone",
    "": "By the search's times",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One question that the page answers at its top."""

    question: str
    answer: str
    detail: str


def findings(f: Figures) -> tuple[Finding, ...]:
    """The findings that a reader needs first."""
    return _next(f), _failed(f), _why(f)


# --- which task to tune next: the one with most time above its limit on this machine ---


def now_s(f: Figures, t: TaskFigures) -> float | None:
    """Seconds that a task takes in an inference; measured inside the model, if that was timed."""
    return f.in_model.get(t.workload, t.after_s)


def least_s(f: Figures, t: TaskFigures) -> float:
    """Seconds of an inference that a task needs: its bound, or its fastest time if that is less.

    The bound is an estimate, so a schedule may beat it. The result is 0 if no bound is known.
    """
    return min(t.bound_s or 0.0, fastest_s(f, t))


def fastest_s(f: Figures, t: TaskFigures) -> float:
    """The fewest seconds that a task took per inference in any measurement; infinite without one."""
    tried = (t.weight * p.seconds for p in t.history.points if p.seconds is not None)
    return min((*tried, *(s for s in (t.before_s, t.after_s, now_s(f, t)) if s is not None)), default=inf)


def to_gain_s(f: Figures, t: TaskFigures) -> float:
    """Seconds of an inference that a task takes beyond what it needs; all of them if no bound is known."""
    return max(0.0, (now_s(f, t) or 0.0) - least_s(f, t))


def _next(f: Figures) -> Finding:
    """The task with most to gain. Tasks without a bound are left out if other tasks have one."""
    question = "Tune next"
    bounded = [t for t in f.tasks if t.bound_s is not None]
    order = sorted(bounded or f.tasks, key=lambda t: -to_gain_s(f, t))
    if not order or to_gain_s(f, order[0]) == 0.0:
        return Finding(question, "nothing", f"Every task with a known bound reaches its bound.{beaten(f)}")
    task, share = order[0], f.share(order[0])
    time, inside = seconds_text(now_s(f, task)), task.workload in f.in_model
    text = f"It is the run's only task and takes {time}{' inside the model' * inside}"
    if len(f.tasks) > 1:
        text = f"{'Inside the model it' if inside else 'It'} takes {time} of an inference"
        text += f", {percent(share)} of all kernels" if share else ""
    if task.bound_s is not None:
        text += f". {_allowed(f, task)}, so up to {seconds_text(to_gain_s(f, task))} can be gained"
        if len(order) > 1:
            second = f"{order[1].name}, {seconds_text(to_gain_s(f, order[1]))}"
            text += f", more than in any other task with a bound (next: {second})"
    return Finding(question, task.name, f"{text}. {_effort(task)}{beaten(f)}")


def _allowed(f: Figures, t: TaskFigures) -> str:
    """The number of seconds that a task needs, and where that number comes from."""
    least, bound = seconds_text(least_s(f, t)), seconds_text(t.bound_s)
    if least_s(f, t) < (t.bound_s or 0.0):
        return f"In another measurement it took {least}, less than its estimated bound of {bound}"
    return f"This machine's rates allow about {least}"


def beaten(f: Figures) -> str:
    """The tasks that were faster than their bounds, as a sentence; "" if there are none."""
    names = [t.name for t in f.tasks if least_s(f, t) < (t.bound_s or 0.0)]
    if not names:
        return ""
    whose = "its bound, which is an estimate" if len(names) == 1 else "their bounds, which are estimates"
    return (
        f" {_some(names)} took less than {whose}: the machine may have been busy when its rates were "
        "measured (`autotensor doctor --calibrate` measures them again)."
    )


def _effort(t: TaskFigures) -> str:
    """The number of trials of a task, and whether the last trials still gained something."""
    count, last = len(t.history.points), last_gain(t)
    if count == 0:
        return "None of its candidates was tried yet."
    trials = f"{count} trial{'s' * (count != 1)}"
    if last == 0:
        return f"None of its {trials} worked."
    if t.history.points[last - 1].made_by == DEFAULT:
        return f"The default was the fastest of its {trials}."
    if default_won(t):
        return (
            f"Number {last} of its {trials} was the fastest; in the race it did not surely beat the default."
        )
    if count >= FEWEST and count - last >= STILL * count:
        return f"The last {count - last} of its {trials} gained nothing: it may need another structure."
    return f"Number {last} of its {trials} was the last to gain something."


def last_gain(t: TaskFigures) -> int:
    """The position (from 1) of the last trial that was faster than all before it; 0 if no trial worked."""
    best = best_so_far([p.seconds for p in t.history.points])
    return best.index(best[-1]) + 1 if best and best[-1] is not None else 0


# --- what failed most ---


def _failed(f: Figures) -> Finding:
    question = "Failed most"
    ran = [x for x in f.failures if x.status != Status.REJECTED]
    unrun = _unrun(f)
    if not f.trials:
        why_not = f"it ended because {f.stopped}" if f.stopped else "it has not ended"
        return Finding(
            question, "there are no trials", f"Nothing was measured in this run: {why_not}.{unrun}"
        )
    if not ran:
        return Finding(question, "nothing", f"All {f.trials} trials that ran gave right answers.{unrun}")
    first, count = ran[0], sum(x.count for x in ran)
    such = "is such" if first.count == 1 else "are such"
    said = f"{first.count} of {count} failures (of {f.trials} trials) {such}: “{signature_text(first)}”."
    text = f"{said} {_places(first)}{_failed_defaults(f)}{unrun}"
    return Finding(question, first.status, text)


def _places(x: Failure) -> str:
    """The tasks in which a failure occurs, as a sentence."""
    if x.count == 1:
        return f"It is trial {x.example}, in {x.tasks[0]}."
    where = "All of them are in" if len(x.tasks) == 1 else "They are most frequent in"
    return f"{where} {x.tasks[0]}; trial {x.example} is the first."


def _unrun(f: Figures) -> str:
    """The trials that were rejected, and the most frequent message."""
    refused = [x for x in f.failures if x.status == Status.REJECTED]
    if not refused:
        return ""
    count, most = sum(x.count for x in refused), "most often: " if len(refused) > 1 else ""
    showed = "its machine code showed that it" if count == 1 else "their machine code showed that they"
    return f" {count} more never ran: {showed} would be slow ({most}“{signature_text(refused[0])}”)."


def default_failed(t: TaskFigures) -> bool:
    """Whether the default was tried and did not work."""
    return any(p.made_by == DEFAULT and p.seconds is None for p in t.history.points)


def _failed_defaults(f: Figures) -> str:
    names = [t.name for t in f.tasks if default_failed(t)]
    if not names:
        return ""
    if len(names) == 1:
        return f" The default itself of {names[0]} is among the failures."
    return f" The defaults of {_some(names)} are among the failures."


def signature_text(x: Failure) -> str:
    return x.signature.rstrip(".") or "no text was kept"


# --- why the winner wins ---


def best_saved(f: Figures) -> TaskFigures | None:
    """The task whose tuning surely saved most time; None if no default was beaten."""
    sure = [t for t in f.tasks if t.result and t.result.upper is not None and t.result.upper < 1.0]
    return max(sure, key=lambda t: (t.before_s or 0.0) - (t.after_s or 0.0), default=None)


def explained(f: Figures) -> TaskFigures | None:
    """The task that the finding is about; None if there is no such task."""
    return best_saved(f) or _without_default(f)


def whole_gain(f: Figures) -> str:
    """How the tuned model compares with the untuned one, or why the two measured times cannot be compared.

    The models differ in their kernels alone. So the untuned model should take as long as the tuned one, plus
    the time that the winners save. A time far above that is noise, or is due to a default that failed and has
    no time.
    """
    if f.default_s is None or f.tuned_s is None:
        return "not timed"
    due = _due_s(f)
    if f.default_s <= FAR * due:
        return gain(f.default_s, f.tuned_s)
    text = f"no ratio, since by its kernels' times the untuned model would take about {seconds_text(due)}"
    failed = [t.name for t in f.tasks if default_failed(t)]
    return f"{text} (the default of {_some(failed)} failed and has no time)" if failed else text


def together(f: Figures) -> str:
    """The seconds that the winners save alone, next to the gain of the whole model; "" if both agree."""
    if f.default_s is None or f.tuned_s is None or f.default_s > FAR * _due_s(f):
        return ""
    saved, whole = _due_s(f) - f.tuned_s, f.default_s - f.tuned_s
    if abs(saved - whole) <= MISFIT * f.default_s:
        return ""
    models = f"gained {seconds_text(whole)}" if whole >= 0.0 else f"lost {seconds_text(-whole)}"
    return (
        f" Timed alone, the winners save {seconds_text(saved)} together; the model {models}: inside the "
        "model, a kernel finds other data in the caches, and the model was timed at another time."
    )


def _due_s(f: Figures) -> float:
    """The untuned model's seconds, if it takes as long as the tuned one plus what the winners save."""
    known = [t for t in f.tasks if t.before_s is not None]
    return (f.tuned_s or 0.0) + sum(max(0.0, (t.before_s or 0.0) - (t.after_s or 0.0)) for t in known)


def _why(f: Figures) -> Finding:
    question = "Why the winner wins"
    whole = ""
    if f.default_s is not None and f.tuned_s is not None:
        times = f"{seconds_text(f.default_s)} untuned, {seconds_text(f.tuned_s)} tuned"
        whole = f" The whole model: {times}, {whole_gain(f)}.{together(f)}"
    task = best_saved(f)
    if task is None or task.result is None:
        if not any(t.result for t in f.tasks):
            return Finding(question, "there is none yet", "No trial worked.")
        if (alone := _without_default(f)) is not None and alone.result is not None:
            text = (
                f"Its default did not work. {_born(alone)[:1].upper()}{_born(alone)[1:]} is the fastest that "
                f"does: {seconds_text(alone.result.winner_s)}."
            )
            return Finding(question, alone.name, text + whole)
        text = "No schedule that was tried is surely faster than its default."
        return Finding(question, "the defaults won", text + _near(f) + whole)
    r = task.result
    saved = seconds_text((task.before_s or 0.0) - (task.after_s or 0.0))
    of_all = "" if len(f.tasks) == 1 else " of an inference, more than any other"
    text = (
        f"{TAKEN[r.raced]}, its winner, {_born(task)}, takes {seconds_text(r.winner_s)} where the default "
        f"takes {seconds_text(r.default_s)} ({gain(r.default_s or 0.0, r.winner_s)}); that saves {saved}"
        f"{of_all}. {why(task)}"
    )
    return Finding(question, task.name, text + whole)


def _without_default(f: Figures) -> TaskFigures | None:
    """The longest-running task whose default failed while another schedule works; None if there is none."""
    found = [t for t in f.tasks if t.result and t.result.default is None and default_failed(t)]
    return max(found, key=lambda t: t.after_s or 0.0, default=None)


def _near(f: Figures) -> str:
    """How near the tried tasks are to their bounds, with the times that the first finding uses."""
    tried = [t for t in f.tasks if t.history.measured and now_s(f, t) and t.bound_s]
    if not tried:
        return ""
    times = sum(now_s(f, t) or 0.0 for t in tried) / sum(least_s(f, t) for t in tried)
    where = " inside the model" if f.in_model else ""
    beaten = any(least_s(f, t) < (t.bound_s or 0.0) for t in tried)
    bounds = "their estimated bounds" + (", or their fastest times where these are less" if beaten else "")
    return f" The tried tasks together take {times:.2f} times as long{where} as {bounds}."


def _born(t: TaskFigures) -> str:
    """The search's trial of the winner, and the maker that proposed it."""
    if not t.lineage:
        return "from an earlier run"
    last = t.lineage[-1]
    parent = f" from trial {t.lineage[-2].trial}" if len(t.lineage) > 1 else ""
    return f"trial {last.trial} ({last.made_by}{parent})"


def why(t: TaskFigures) -> str:
    """The differences between a task's winner and the default, and which of them matter.

    The evidence comes from trials that agree with the default in one decision. If the best of these trials is
    slower than the winner, the winner needs its own decision there.
    """
    if default_won(t):
        return f"The default itself won. {_rival(t)}"
    needed = [r for r in t.reasons if r.ratio is not None and r.ratio >= WEIGHTY]
    other = [r for r in t.reasons if r not in needed]
    sentences = []
    if needed:
        parts = _listed([f"{short(r.what)} {r.winner} ({_otherwise(t, r)})" for r in needed[:2]])
        sentences.append(f"By the search's times it needs {parts}.")
    elif len(other) == 1:
        sentences.append(_only(t, other[0]))
    elif other:
        mild = [f"{short(r.what)} {r.winner} instead of {r.default}" for r in other[:3]]
        sentences.append(f"No single decision explains it; it has {_listed(mild)}.")
    if t.code:
        counts = [f"{_words(name)} {usual:,.0f} → {mine:,.0f}" for name, (usual, mine) in t.code.items()]
        sentences.append(f"In its machine code, default → winner: {', '.join(counts[:4])}.")
    return " ".join(sentences) or "It differs from the default in nothing that the log names."


def default_won(t: TaskFigures) -> bool:
    same = t.result is not None and t.result.winner == t.result.default
    return same or bool(t.lineage and t.lineage[-1].made_by == DEFAULT)


def _rival(t: TaskFigures) -> str:
    """The runner-up in a task whose default won, as a sentence."""
    r = t.runner_up
    if r is None:
        return "Nothing else that was tried worked."
    where = "in the race" if t.result is not None and t.result.raced else "in the search"
    bounds = f"{r.lower:.3f} to {r.upper:.3f}"
    return f"Next {where} came trial {r.trial} ({r.made_by}), {r.ratio:.3f} times as long ({bounds})."


def _only(t: TaskFigures, r: Reason) -> str:
    """The only difference between winner and default, as a sentence."""
    said = f"The only difference that the log names is {short(r.what)} {r.winner} instead of {r.default}"
    if r.ratio is None:
        return f"{said}; no trial with that worked, nor did the default."
    return f"{said} ({_otherwise(t, r)})."


def _otherwise(t: TaskFigures, r: Reason) -> str:
    """The least time of the trials that agree with the default in one decision."""
    those = "the only trial" if r.trials == 1 else f"the best of {r.trials} trials"
    those += " of its structure" if of_other_structure(t, r) else " that worked"
    those = f"the default itself, with {r.default}," if r.only_default else f"{those} with {r.default}"
    return f"{those} takes {r.ratio:.2f} times as long"


def of_other_structure(t: TaskFigures, r: Reason) -> bool:
    """Whether the default makes the decision in another structure, so that it is not among the trials."""
    return r.what != "structure" and any(other.what == "structure" for other in t.reasons)


def _words(name: str) -> str:
    """The name of a count of the machine code, in words."""
    known = {
        "fma": "FMAs",
        "carried": "vectors on the stack",
        "longest_loop": "instructions of the longest innermost loop",
    }
    return known.get(name, name)


def _listed(parts: list[str]) -> str:
    """
    >>> _listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _some(names: Sequence[str]) -> str:
    """
    >>> _some(["a", "b"]), _some(["a", "b", "c", "d", "e"])
    ('a and b', 'a, b, c and 2 more')
    """
    rest = len(names) - MOST_NAMES
    return _listed([*names[:MOST_NAMES], *([f"{rest} more"] if rest > 0 else [])])


def seconds_text(seconds: float | None) -> str:
    """
    >>> seconds_text(1.2345), seconds_text(0.0123), seconds_text(4.5e-6), seconds_text(None)
    ('1.23 s', '12.3 ms', '4.5 µs', '-')
    """
    if seconds is None:
        return "-"
    unit, scale = ("s", 1.0) if seconds >= 1.0 else ("ms", 1e3) if seconds >= 1e-3 else ("µs", 1e6)
    return f"{seconds * scale:.3g} {unit}"


__all__ = [
    "Finding", "beaten", "best_saved", "default_won", "explained", "findings", "last_gain", "now_s",
    "of_other_structure", "seconds_text", "together", "whole_gain", "why",
]  # fmt: skip
