"""The result of tuning a model: as JSON data, and as text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from autotensor.api.log import log_name
from autotensor.api.model_prediction import disagreement
from autotensor.api.model_tuning import ModelReport
from autotensor.base.counted import counted
from autotensor.base.deadline import Deadline
from autotensor.base.doors import name_of
from autotensor.base.target import Target
from autotensor.cli.output import code, say, table
from autotensor.cli.rates import measured_peak
from autotensor.insight.units import gflops, micros, millis, percent
from autotensor.ir.printer import identifier
from autotensor.resolve import gain
from autotensor.search.options import TuneOptions
from autotensor.search.report import LATE, TaskReport
from autotensor.search.task_ends import ended_tasks

HEADS = (
    "task",
    "weight",
    "share",
    "before us",
    "after us",
    "GFLOP/s",
    "of peak",
    "trials",
)
BUSY = 0.25  # if other programs used this many cores on average, times are not compared


def describe(
    report: ModelReport,
    model: str,
    target: Target,
    db: str | None,
    statuses: Mapping[str, int],
    options: TuneOptions,
    interrupted: bool,
    others_cores: float,
    until: Deadline,
) -> dict[str, Any]:
    """The whole result as JSON data, in seconds and operations per second.

    others_cores: cores that other programs used during the run, on average.
    """
    tuning = report.tuning
    peak = measured_peak(db, target)
    inside = {t.key: t.inside_s for t in report.times}
    return {
        "model": model,
        "file": None if report.path is None else str(report.path),
        "log": log_name(db),
        "target": target.key(),
        "seed": options.seed,
        "effort": options.effort,
        "until_gain_below": options.least_gain,
        "metric": name_of(options.metric),
        "default_s": report.default_s,
        "tuned_s": report.tuned_s,
        "predicted_s": report.predicted_s,
        "disagreement": disagreement(report.times, report.tuned_s),
        "others_cores": others_cores if tuning.trials > tuning.reused else None,
        "trials": tuning.trials,
        "reused": tuning.reused,
        "failures": sum(t.failures for t in tuning.tasks),
        "rejected": sum(t.rejected for t in tuning.tasks),
        "statuses": dict(statuses),
        "elapsed_s": tuning.elapsed_s,
        "seconds": tuning.shares,
        "deadline": _time_of(report, until),
        "reason": "it was interrupted" if interrupted else tuning.reason,
        "notes": list(report.notes),
        "peak_flops": peak,
        "inputs": [report.module.signature.text(a) for a in report.module.args if a.role != "output"],
        "tasks": sorted((_task(t, inside, peak) for t in tuning.tasks), key=lambda t: -t["share"]),
        "interrupted": interrupted,
    }


def _time_of(report: ModelReport, until: Deadline) -> dict[str, float]:
    """Seconds of a deadline by their use; empty without a deadline."""
    if not until.is_set:
        return {}
    search, left = report.tuning.elapsed_s, until.left_s()
    before = until.given_s - left - search - report.after_s
    return {"given": until.given_s, "before": before, "search": search, "after": report.after_s, "left": left}


def of_deadline(seconds: Mapping[str, float]) -> str:
    """Where the time of a deadline went, in a sentence.

    >>> of_deadline({"given": 60.0, "before": 14.2, "search": 21.0, "after": 9.0, "left": 15.8})[:51]
    'Of the 60 s of the deadline, 14 s passed before the'
    """
    given, before, search, after, left = seconds.values()
    return (
        f"Of the {given:.0f} s of the deadline, {before:.0f} s passed before the first trial (compiling, "
        f"calibration, waiting for other programs), {search:.0f} s in the search, and {after:.0f} s in races "
        f"in the model and linking; of the reserve for these, {max(0.0, left):.0f} s were left."
    )


def _task(t: TaskReport, inside: Mapping[str, float], peak: float | None) -> dict[str, Any]:
    flops = float(t.task.workload.dag.flops())
    rate = flops / t.best_s if t.best_s else None
    return {
        "name": t.task.label,
        "key": t.task.workload.key,
        "weight": t.task.weight,
        "share": inside.get(t.task.workload.key, 0.0) / (sum(inside.values()) or 1.0),
        "default_s": t.default_s,
        "best_s": t.best_s,
        "flops": flops,
        "flops_per_s": rate,
        "share_of_peak": rate / peak if rate and peak else None,
        "trials": t.trials,
        "failures": t.failures,
        "rejected": t.rejected,
        "reason": t.reason,
        "raced": t.raced,
    }


def print_report(d: Mapping[str, Any]) -> None:
    searched = bool(d["tasks"])  # a lock has the schedules of all tasks
    if searched:
        _print_search(d)
    for note in d["notes"]:
        say(f"Note: {note}.")
    say(f"{d['model']}: {latency(d['default_s'], d['tuned_s']) if searched else millis(d['tuned_s'])}.")
    if searched:
        say(
            f"That is a whole call. Its tasks, timed alone, add up to {millis(d['predicted_s'])}; launches "
            "and the call itself come on top."
        )
    if note := _comparability(d):
        say(f"Note: {note}.")
    say(f"Use it ({'; '.join(d['inputs'])}):")
    code(use(d["file"], d["inputs"]))


def _print_search(d: Mapping[str, Any]) -> None:
    """The tasks, and what the search of their schedules took."""
    table(HEADS, [_row(t) for t in d["tasks"]])
    say(times(d["tasks"]))
    say()
    for line in ended_tasks([t["reason"] for t in d["tasks"]], len(d["tasks"])):
        say(line)
    failed = ", ".join(
        f"{n} {status}" for status, n in sorted(d["statuses"].items()) if status not in ("OK", "REJECTED")
    )
    trials = f"{d['trials']} trial{'s' * (d['trials'] != 1)}"
    say(
        f"{trials} ({d['reused']} from the log) in {d['elapsed_s']:.0f} s{_shares(d)}; "
        f"{d['failures']} failed{f' (now: {failed})' if failed else ''}, {d['rejected']} rejected unrun; "
        f"stopped because {d['reason']}."
    )
    if d["deadline"] and d["reason"] == LATE:
        say(of_deadline(d["deadline"]))


def use(file: str, inputs: Sequence[str]) -> str:
    """Python code that loads and calls a file. inputs: texts like `x: float32[1, 784]`."""
    names = ", ".join(identifier(i.split(":")[0]) for i in inputs)
    return f"import autotensor as at\ny = at.load({json.dumps(file, ensure_ascii=False)})({names})"


def _comparability(d: Mapping[str, Any]) -> str:
    """How the tasks' times and the model's differ; on a busy machine, only a warning that it was busy."""
    others = d["others_cores"]
    if others is None:  # nothing was measured now; the run that measured has warned
        return ""
    if others > BUSY:
        return (
            f"other programs used {others:.1f} cores meanwhile, so the times above are too long, and not "
            "equally so. Measure again when nothing else runs"
        )
    return str(d["disagreement"])


def times(tasks: Sequence[Mapping[str, Any]]) -> str:
    """Says where the times of the table come from."""
    apart = sum(not t["raced"] for t in tasks)
    raced = "timed side by side in the task's last race" if apart < len(tasks) else "timed in the search"
    search = f" ({counted(apart, 'task')} without a race: in the search)" if 0 < apart < len(tasks) else ""
    above = any((t["share_of_peak"] or 0.0) > 1.0 for t in tasks)
    peak = (
        " Above 100 % of peak: the method (Winograd) has fewer operations than the direct method, whose "
        "operations are counted, or the machine was busy when its peak was measured."
    )
    return (
        f"before, after: the default and the schedule in the file, {raced}{search}. If both are equal, the "
        "file holds the default: nothing was faster beyond the noise. The fastest trials, which progress "
        f"lines show, were partly lucky.{peak * above}"
    )


def latency(default_s: float, tuned_s: float) -> str:
    """The gain in words; if the times are equal, the default schedules were kept."""
    if default_s == tuned_s:
        return f"{millis(default_s)} with the default schedules"
    return f"{millis(default_s)} untuned, {millis(tuned_s)} tuned ({gain(default_s, tuned_s)})"


def _row(t: Mapping[str, Any]) -> Sequence[str]:
    return (
        t["name"],
        f"{t['weight']:g}",
        percent(t["share"]),
        micros(t["default_s"]),
        micros(t["best_s"]),
        gflops(t["flops"], t["best_s"]),
        percent(t["share_of_peak"] or None),
        str(t["trials"]),
    )


def _shares(d: Mapping[str, Any]) -> str:
    if not d["elapsed_s"] or d["trials"] == d["reused"]:
        return ""
    return " (" + ", ".join(f"{k} {percent(v / d['elapsed_s'])}" for k, v in d["seconds"].items()) + ")"
