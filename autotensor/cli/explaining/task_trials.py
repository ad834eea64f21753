"""The output of `autotensor explain TASK`: fastest trials, failures, other machines, shipped schedules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from autotensor.base.target import Target
from autotensor.cli.find import Found
from autotensor.cli.output import paragraph, put_json, say, table
from autotensor.insight.explained_schedule import sketches_of
from autotensor.insight.units import gflops, micros, percent
from autotensor.resolve import LEAST_GAIN_APART, in_use, relative_time, tuned_for_others
from autotensor.runtime.place import here
from schedules.shipped import offers
from tuning_db import TrialStore
from tuning_db.records import TrialRecord

UNSOUND = 1.0  # spread of samples, as a share of the fastest: above it, the trial was disturbed
SHIPPED = {  # how a schedule that comes with the package is used here
    "exact": "from this class of machines",
    "compatible": "a tuning run measures it here",
    "refused": "not used here",
}


def trial_document(t: TrialRecord) -> dict[str, Any]:
    """A trial as JSON data."""
    return {
        "trial": t.id,
        "status": t.status.value,
        "median_s": t.median_s,
        "samples_s": [s.seconds for s in t.samples],
        "verified": t.verified,
        "predicted_s": t.predicted,
        "made_by": t.made_by,
        "sketch": t.sketch_hash,
        "decisions": {k: list(v) for k, v in t.decisions.items()},
        "assembly": dict(t.assembly),
        "error": t.error,
    }


def explain_task(found: Found, top: int, target: Target, store: TrialStore, json: bool) -> None:
    """Prints the `top` fastest trials of a task on this machine, then failures and other sources."""
    task = here(target).task(found.workload.key)
    key, where, _ = task
    statuses: Counter[str] = Counter()
    for n in store.task_counts(*task):
        statuses[n.status.value] += n.count
    used = in_use(store, task)
    failures = store.failures(workload_key=key)
    foreign = store.best_foreign(*task)
    fast = store.best(*task, k=top)
    raced = store.last_race(*task)
    document: dict[str, Any] = {
        "name": found.workload.name,
        "key": key,
        "target": where,
        "flops": float(found.workload.dag.flops()),
        "statuses": dict(statuses),
        "in_use": None if used is None else used.id,
        "why_not_fastest": _why_not(fast[0], used, raced) if fast and used else "",
        "trials": [
            {
                "rank": n,
                **trial_document(r),
                "max_error": r.verification.max_error if r.verification else None,
            }
            for n, r in enumerate(fast, start=1)
        ],
        "failures": [
            {"status": f.status.value, "error": f.signature, "count": f.count, "trial": f.example}
            for f in failures
        ],
        "foreign": [
            {"machine": f.machine.cpu_model, "median_s": f.trial.median_s, "trial": f.trial.id}
            for f in foreign
        ],
        "shipped": [
            {"origin": o.origin, "fit": o.verdict.fit.value, "reason": o.verdict.reason,
             "median_s": o.record.seconds}
            for o in offers(key, target, refused=True)
        ],
    }  # fmt: skip
    if json:
        put_json(document)
        return
    _print_task(document, _sketch_names(found, target) if fast else {})
    if note := tuned_for_others(store, task):
        say(f"Note: {note}.")


def _sketch_names(found: Found, target: Target) -> dict[str, str]:
    """For each sketch that the rules make today, by its hash: "sketch 2"."""
    sketches = sketches_of(found.workload, target)
    return {s.hash: f"sketch {n}" for n, s in enumerate(sketches, start=1)}


def _print_task(d: dict[str, Any], sketches: Mapping[str, str]) -> None:
    """sketches: the names of sketches by their hashes."""
    counts = (
        ", ".join(f"{n} {status}" for status, n in sorted(d["statuses"].items()))
        or "no trials on this machine"
    )
    paragraph(f"{d['name']} ({d['key'][:12]}, {d['target']}): {counts}")
    if not d["statuses"]:
        paragraph("`autotensor tune` measures some; --default explains the default schedule without them.")
    if d["trials"]:
        first = d["trials"][0]
        best = first["median_s"]
        say()
        table(
            ("trial", "us", "of best", "predicted", "spread", "stack", "spills", "made by",
             "decided otherwise"),
            [
                (t["trial"], micros(t["median_s"]), f"{t['median_s'] / best:.2f}",
                 micros(t["predicted_s"]), _spread_text(t["samples_s"]),
                 t["assembly"].get("carried", "-"), t["assembly"].get("spills", "-"),
                 t["made_by"],
                 "" if t is first else _differences(t, first, sketches))
                for t in d["trials"]
            ],
        )  # fmt: skip
        say()
        rate = gflops(d["flops"], best)
        paragraph(
            f"Trial {first['trial']}{f', {rate} GFLOP/s,' if rate != '-' else ''} decided "
            f"{_decisions(first['decisions'])}. `autotensor explain {first['trial']}` says why it takes its "
            "time.",
        )
        if any(_is_unsound(t["samples_s"]) for t in d["trials"]):
            say("?: the samples of this trial differ by more than its time; other programs disturbed them.")
        say(" ".join([f"In use here: the schedule of trial {d['in_use']}.", d["why_not_fastest"]]).strip())
    for f in d["failures"]:
        paragraph(f"{f['count']} × {f['status']} (trial {f['trial']}): {f['error'] or 'no text'}")
    for f in d["foreign"]:
        say(f"Another machine, {f['machine']}: {micros(f['median_s'])} us; never used here.")
    for o in d["shipped"]:
        why = f"{SHIPPED[o['fit']]}{': ' if o['reason'] else ''}{o['reason']}"
        paragraph(f"Shipped with autotensor, {o['origin']}: {micros(o['median_s'])} us there; {why}.")


def _why_not(fastest: TrialRecord, used: TrialRecord, raced: Sequence[TrialRecord]) -> str:
    """Why the fastest trial is not the one in use; "" if it is. raced: the task's last race."""
    if fastest.trace_hash == used.trace_hash:
        return ""
    rows = {r.trace_hash: r for r in raced}
    mine, theirs = rows.get(fastest.trace_hash), rows.get(used.trace_hash)
    if mine is None or theirs is None:
        sure = percent(LEAST_GAIN_APART)
        return (
            f"Trial {fastest.id} has not raced against it; without a race it must be {sure} faster."
            if not rows
            else f"Trial {fastest.id} was not in the task's last race, which trial {used.id} won."
        )
    r = relative_time(mine, theirs)
    how = "it lost" if r.lower >= 1.0 else "undecided"
    return (
        f"In the task's last race, side by side, trial {fastest.id} took {r.middle:.2f} times as long "
        f"({r.lower:.2f} to {r.upper:.2f}): {how}."
    )


def _is_unsound(samples: Sequence[float]) -> bool:
    return (_spread(samples) or 0.0) > UNSOUND


def _spread_text(samples: Sequence[float]) -> str:
    """The spread; "> 100 % ?" if the trial was disturbed so much that its time says little.

    >>> _spread_text([1.0, 1.1]), _spread_text([1.0, 73.0])
    ('10 %', '> 100 % ?')
    """
    return f"> {percent(UNSOUND)} ?" if _is_unsound(samples) else percent(_spread(samples))


def _spread(samples: Sequence[float]) -> float | None:
    """(slowest - fastest) / fastest of the samples."""
    return (max(samples) - min(samples)) / min(samples) if samples and min(samples) > 0 else None


def _decisions(values: dict[str, list[int]]) -> str:
    return decisions_text(values) or "nothing"


def decisions_text(values: dict[str, list[int]]) -> str:
    """
    >>> decisions_text({"tile": [4, 2], "rows": [1]})
    'tile=4x2 rows=1'
    """
    return " ".join(f"{k}={'x'.join(map(str, v))}" for k, v in values.items())


def _differences(t: Mapping[str, Any], best: Mapping[str, Any], sketches: Mapping[str, str]) -> str:
    """Decisions that differ from those of the fastest; the sketch and all decisions if the sketch differs.

    >>> one = {"sketch": "a1", "decisions": {"tile": [4, 2], "rows": [1]}}
    >>> two = {"sketch": "a1", "decisions": {"tile": [4, 2], "rows": [2]}}
    >>> _differences(one, two, {}), _differences(one | {"sketch": "b2"}, two, {"b2": "sketch 2"})
    ('rows=1', 'sketch 2: tile=4x2 rows=1')
    """
    values, others = t["decisions"], best["decisions"]
    if t["sketch"] != best["sketch"]:
        name = sketches.get(t["sketch"], "another schedule" if not t["sketch"] else "another sketch")
        return f"{name}: {_decisions(values)}" if values else name
    if values.keys() != others.keys():
        return _decisions(values)
    return _decisions({k: v for k, v in values.items() if v != others[k]})
