"""Three sentences on top of a report: which task to tune next, what failed most, why the winner wins.

    Figures ──▶ Finding("Tune next", "conv2d 3x3 …", "It takes 24 % of the model's time, …"), …

Each answer is a rule that can be said in a sentence, and every number in it is a figure of the report.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotensor.insight.report.figures import Figures
from autotensor.insight.report.tally import Failure
from autotensor.insight.report.task_figures import Reason, TaskFigures, short
from autotensor.insight.search_history import best_so_far
from autotensor.insight.units import percent
from autotensor.resolve import DEFAULT, gain
from tuning_db.records import Status

STILL = 0.5  # share of a task's trials without a gain, from which on it stands still
FEWEST = 16  # trials, for that to mean anything
WEIGHTY = 1.03  # times the winner's time: a smaller loss by the default's decision is not why it wins


@dataclass(frozen=True, slots=True)
class Finding:
    """One question that the page answers first."""

    question: str
    answer: str
    detail: str


def findings(f: Figures) -> tuple[Finding, ...]:
    """The findings that a reader needs first."""
    return _next(f), _failed(f), _why(f)


# --- which task to tune next: where most time lies above what the machine allows ---


def now_s(f: Figures, t: TaskFigures) -> float | None:
    """Seconds that a task takes in an inference: inside the model, if that was timed."""
    return f.inside.get(t.workload, t.after_s)


def to_gain_s(f: Figures, t: TaskFigures) -> float:
    """Seconds of an inference that a task takes beyond its bound; all of them where no bound is known."""
    return max(0.0, (now_s(f, t) or 0.0) - (t.bound_s or 0.0))


def _next(f: Figures) -> Finding:
    question = "Tune next"
    task = max(f.tasks, key=lambda t: to_gain_s(f, t), default=None)
    if task is None or to_gain_s(f, task) == 0.0:
        return Finding(question, "nothing", "No task takes longer than its bound.")
    time, share = now_s(f, task), f.share(task)
    text = f"It takes {seconds_text(time)} of an inference"
    text += f", {percent(share)} of all kernels." if share is not None else "."
    if task.bound_s:
        text += (
            f" No schedule can take less than {seconds_text(task.bound_s)}, so up to "
            f"{seconds_text(to_gain_s(f, task))} can be gained, more than in any other task."
        )
    return Finding(question, task.name, f"{text} {_effort(task)}")


def _effort(t: TaskFigures) -> str:
    """The trials of a task, and whether the last ones still helped."""
    count, last = len(t.history.points), last_gain(t)
    if count == 0:
        return "Nothing of it was tried yet."
    trials = f"{count} trial{'s' * (count != 1)}"
    if last == 0:
        return f"None of its {trials} worked."
    if count >= FEWEST and count - last >= STILL * count:
        return f"Of its {trials} the last {count - last} gained nothing: it may need another structure."
    return f"Of its {trials} number {last} was the last to gain something."


def last_gain(t: TaskFigures) -> int:
    """Which trial was the last to be faster than all before it, from 1; 0 if none worked."""
    best = best_so_far([p.seconds for p in t.history.points])
    return best.index(best[-1]) + 1 if best and best[-1] is not None else 0


# --- what failed most ---


def _failed(f: Figures) -> Finding:
    question = "Failed most"
    ran = [x for x in f.failures if x.status != Status.REJECTED]
    refused = sum(x.count for x in f.failures) - sum(x.count for x in ran)
    unrun = f" {refused} more were rejected unrun, for what their machine code shows." if refused else ""
    if not ran:
        return Finding(question, "nothing", f"All {f.trials} trials that ran gave right answers.{unrun}")
    first, count = ran[0], sum(x.count for x in ran)
    said = f"{first.count} of {count} failures (of {f.trials} trials) are such: “{signature_text(first)}”."
    text = f"{said} Most of them in {first.tasks[0]}; trial {first.example} is the first.{unrun}"
    return Finding(question, first.status, text)


def signature_text(x: Failure) -> str:
    return x.signature or "no text was kept"


# --- why the winner wins ---


def best_saved(f: Figures) -> TaskFigures | None:
    """The task whose tuning saved most time, surely; None where no default was beaten."""
    sure = [t for t in f.tasks if t.result and t.result.upper is not None and t.result.upper < 1.0]
    return max(sure, key=lambda t: (t.before_s or 0.0) - (t.after_s or 0.0), default=None)


def _why(f: Figures) -> Finding:
    question = "Why the winner wins"
    whole = ""
    if f.default_s is not None and f.tuned_s is not None:
        times = f"{seconds_text(f.default_s)} untuned, {seconds_text(f.tuned_s)} tuned"
        whole = f" The whole model: {times}, {gain(f.default_s, f.tuned_s)}."
    task = best_saved(f)
    if task is None or task.result is None:
        if not any(t.result for t in f.tasks):
            return Finding(question, "there is none yet", "No trial worked.")
        text = "No schedule that was tried is surely faster than the default, so the defaults won."
        return Finding(question, "the defaults won", text + whole)
    r = task.result
    saved = seconds_text((task.before_s or 0.0) - (task.after_s or 0.0))
    text = (
        f"Its winner, trial {r.winner}, {_born(task)}, takes {seconds_text(r.winner_s)} where the default "
        f"takes {seconds_text(r.default_s)} ({gain(r.default_s or 0.0, r.winner_s)}); that saves {saved} of "
        f"an inference, more than any other. {why(task)}"
    )
    return Finding(question, task.name, text + whole)


def _born(t: TaskFigures) -> str:
    if len(t.lineage) > 1:
        return f"made by {t.lineage[-1].made_by} from trial {t.lineage[-2].trial}"
    return f"made by {t.lineage[-1].made_by}" if t.lineage else "of an earlier run"


def why(t: TaskFigures) -> str:
    """The differences between a task's winner and the default, and those that matter.

    Evidence are the trials that do one thing as the default does: if the best of them is slower than the
    winner, the winner needs that thing.
    """
    if t.result is not None and t.result.winner == t.result.default:
        return "The default itself won."
    if t.lineage and t.lineage[-1].made_by == DEFAULT:
        return "The default itself won."
    needed = [r for r in t.reasons if r.ratio is not None and r.ratio >= WEIGHTY]
    other = [r for r in t.reasons if r not in needed]
    sentences = []
    if needed:
        sentences.append(f"It needs {_listed([_need(r) for r in needed[:2]])}.")
    elif other:
        mild = [f"{short(r.what)} {r.winner} instead of {r.default}" for r in other[:3]]
        sentences.append(f"No single decision carries it; it has {_listed(mild)}.")
    if t.code:
        counts = [f"{_words(name)} {usual:,.0f} → {mine:,.0f}" for name, (usual, mine) in t.code.items()]
        sentences.append(f"Its machine code, next to the default's: {', '.join(counts[:4])}.")
    return " ".join(sentences) or "It differs from the default in nothing that the log names."


def _need(r: Reason) -> str:
    those = "the only trial" if r.trials == 1 else f"the best of {r.trials} trials"
    return f"{short(r.what)} {r.winner} ({those} with {r.default} takes {r.ratio:.2f} times as long)"


def _words(name: str) -> str:
    """The name of a figure of the machine code."""
    known = {"fma": "FMAs", "carried": "vectors on the stack", "longest_loop": "longest loop"}
    return known.get(name, name)


def _listed(parts: list[str]) -> str:
    """
    >>> _listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def seconds_text(seconds: float | None) -> str:
    """
    >>> seconds_text(1.2345), seconds_text(0.0123), seconds_text(4.5e-6), seconds_text(None)
    ('1.23 s', '12.3 ms', '4.5 µs', '-')
    """
    if seconds is None:
        return "-"
    unit, scale = ("s", 1.0) if seconds >= 1.0 else ("ms", 1e3) if seconds >= 1e-3 else ("µs", 1e6)
    return f"{seconds * scale:.3g} {unit}"


__all__ = ["Finding", "best_saved", "findings", "last_gain", "now_s", "seconds_text", "why"]
