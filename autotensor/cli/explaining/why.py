"""The facts that `autotensor explain TRIAL` finds about one schedule, as one document (also --json).

explained(found, …) ──▶ dict ──why_text.print_schedule──▶ text
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Any

import typer

from autotensor.base.errors import InputError
from autotensor.cli.explaining.task_trials import trial_document
from autotensor.cli.find import Found
from autotensor.cli.output import tell
from autotensor.cli.rates import measured_peak
from autotensor.compiler import te_text
from autotensor.insight.costs import costs
from autotensor.insight.explained_schedule import Subject, of_schedule, of_trial, seen
from autotensor.insight.learned_costs import learned
from autotensor.insight.loop_levels import heaviest, level_table
from autotensor.insight.trace_steps import step_views
from autotensor.lowering.gpu.banks import traffic
from autotensor.lowering.pipeline import lower
from autotensor.schedule.primitives.algorithm import algorithm_tolerance, algorithms_of

if TYPE_CHECKING:
    from autotensor.base.target import Target
    from autotensor.insight.ablation import Ablated
    from autotensor.search.measuring.measure_request import MeasureResult
    from tuning_db import TrialStore

ABLATION_SAMPLES = 9  # samples of each variant that is not clearly slow


def explained(
    found: Found,
    default: bool,
    where: Target,
    store: TrialStore | None,
    db: str | None,
    *,
    steps: bool,
    ablate: bool,
) -> dict[str, Any]:
    """The schedule of a trial, or the one that a task uses; with `--steps` and `--ablate`."""
    if found.trial is not None:
        if default:
            raise typer.BadParameter("it is for tasks; a trial was given.", param_hint="'--default'")
        assert store is not None  # the trial comes from the log
        subject = of_trial(store, found.trial, found.workload)
    else:
        subject = of_schedule(found.workload, where, store, default=default)
    if ablate:
        _check_ablation(subject)
    peak = measured_peak(db, subject.target) if subject.here else None
    document = schedule_document(subject, store, peak)
    if steps:
        document["steps"] = _steps(subject)
    if ablate:
        document["ablation"] = _ablation(subject)
    return document


def _steps(subject: Subject) -> list[dict[str, Any]]:
    return [
        {
            "call": v.call,
            "changed": v.changed,
            "nest": v.nest,
            "new": [x.new for x in v.lines],
            "note": v.note,
        }
        for v in step_views(subject.workload.dag, subject.trace)
    ]


def _check_ablation(subject: Subject) -> None:
    if not subject.here:
        raise InputError(
            f"{subject.origin} was measured on another machine; --ablate compares times of this one.",
            fix="Name a trial of this machine, or a task.",
        )


def _ablation(subject: Subject) -> dict[str, Any]:
    from autotensor.insight.ablation import ablate, variants  # here, because only --ablate measures
    from autotensor.search.measuring.measure_request import MeasureOptions
    from autotensor.search.measuring.measurer import LocalMeasurer

    found = variants(subject.workload.dag, subject.trace, subject.sketch, subject.decisions)
    tell(f"Measuring {sum(v.trace is not None for v in found)} variants of the schedule together with it …")
    options = MeasureOptions(repeat=ABLATION_SAMPLES, residency=subject.residency, asm=False)
    with closing(LocalMeasurer(subject.target, options, numerics=algorithm_tolerance)) as measurer:
        return ablation_document(*ablate(subject.workload, subject.trace, found, measurer))


def schedule_document(s: Subject, store: TrialStore | None, peak: float | None) -> dict[str, Any]:
    """The document without steps and ablation. peak: measured FLOP/s of the target's threads."""

    loops = seen(s)
    known = learned(s, loops, store)
    found: dict[str, Any] = {
        "name": s.workload.name,
        "key": s.workload.key,
        "target": s.target.key(),
        "origin": s.origin,
        "notes": _notes(s, store),
        "te": te_text(s.workload.dag),
        "trial": None if s.trial is None else trial_document(s.trial),
        "sketch": _sketch(s),
        "best": _best(s, store),
        "algorithm": _algorithm(s),
        "shared_memory": _shared_memory(s),
        "costs": None,
        "loops": None,
        "model": known if isinstance(known, str) else asdict(known),
    }
    if loops.stages:
        priced = costs(s, loops, peak)
        found["costs"] = {**asdict(priced), "of_peak": priced.of_peak, "threads": s.target.num_cores}
        found["loops"] = asdict(level_table(heaviest(loops), s.target))
    return found


def _shared_memory(s: Subject) -> list[dict[str, Any]]:
    """Shared-memory trips of a warp for each access, and the least possible number."""

    if s.target.kind != "cuda":
        return []
    program = lower(s.trace.replay(s.workload.dag), s.target)
    return [{"kernel": f.name, **asdict(t), "ways": t.ways} for f in program.run for t in traffic(f)]


def _notes(s: Subject, store: TrialStore | None) -> list[str]:
    notes = []
    if not s.here and store is not None:
        cpu = next((m.cpu_model for m in store.machines() if m.fingerprint == s.machine), "")
        notes.append(
            f"measured on another machine, {cpu or s.machine}: predictions use its rates, and the "
            "schedule is never used here."
        )
    if s.rates.guessed and s.target.on_card:
        notes.append(
            "rates of cards are never measured: predictions and bound use a multiprocessor's rates from data "
            "sheets."
        )
    elif s.rates.guessed:
        whose = "this machine" if s.here else "that machine"
        notes.append(
            f"the log has no rates of {whose}, so predictions and bound use guessed rates "
            "(`autotensor doctor --calibrate` measures this machine)."
        )
    if s.trial is not None and s.sketch is None:
        notes.append("this version's rules do not generate this schedule; its loops are those of its trace.")
    return notes


def _best(s: Subject, store: TrialStore | None) -> dict[str, Any] | None:
    found = () if store is None else store.best(s.workload.key, s.target.key(), s.machine)
    return {"trial": found[0].id, "median_s": found[0].median_s} if found else None


def _sketch(s: Subject) -> dict[str, Any] | None:
    """The structure of the schedule: which sketch it is, its rules, and its steps that the first lacks."""
    if s.sketch is None:
        return None
    first = s.sketches[0]
    filled = s.sketch.fill(s.decisions).steps
    others = [
        done.call() for done, step in zip(filled, s.sketch.steps, strict=True) if step not in first.steps
    ]
    return {
        "number": 1 + s.sketches.index(s.sketch),
        "of": len(s.sketches),
        "rules": list(s.sketch.made_by),
        "other_steps": others,
    }


def _algorithm(s: Subject) -> str:
    """The algorithm that the schedule chose for a stage (e.g. Winograd); "" if none."""

    return next(iter(algorithms_of(s.trace.steps)), "")


def ablation_document(whole: MeasureResult, found: tuple[Ablated, ...]) -> dict[str, Any]:
    """The times that were measured now, which are comparable only with each other."""

    return {
        "whole_s": median(whole.seconds) if whole.ok else None,
        "status": whole.status.value,
        "error": whole.error,
        "without": [
            {
                "steps": list(a.variant.steps),
                "calls": list(a.variant.calls),
                "how": a.variant.how,
                "status": a.status or "NO_SCHEDULE",
                "seconds": a.seconds,
                "ratio": None if a.times is None else a.times.middle,
                "bounds": None if a.times is None else [a.times.lower, a.times.upper],
                "same": a.same,
                "reason": a.reason,
            }
            for a in found
        ],
    }
