"""`autotensor explain TASK|TRIAL|MODEL`: what the log knows about a task, and why a schedule is fast or slow.

TASK                                    its fastest trials and its failures
TRIAL, or TASK with --default           one schedule: predicted and measured time, loops, caches, model
… --steps, --ablate                     the loops after each step; what each step is worth
TASK|MODEL --plot FILE.png              how the search went
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotensor.cli.find import Found, find
from autotensor.cli.options import AsJson, Db, Machine, example, grouped, new_app
from autotensor.cli.output import paragraph, put_json, say, table, tell
from autotensor.insight.units import gflops, micros, percent

if TYPE_CHECKING:
    from autotensor.base.target import Target
    from autotensor.insight.explained_schedule import Subject
    from autotensor.insight.search_history import History
    from tuning_db import TrialStore

app = new_app()
SHIPPED = {  # what a schedule that comes with the package is worth here
    "exact": "from this class of machines",
    "compatible": "a tuning run measures it here",
    "refused": "not used here",
}
ABLATION_SAMPLES = 9  # of each variant that is not clearly slow


@app.command(
    epilog=example(
        "autotensor explain resnet50/4",
        "autotensor explain 17 --steps",
        "autotensor explain resnet50/4 --ablate",
        "autotensor explain resnet50 --plot resnet50.png",
    )
)
@grouped
def explain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="TASK|TRIAL|MODEL",
            help="MODEL/N as `tasks` lists them, a workload's key, a trial's number; with --plot a model.",
        ),
    ],
    *,
    default: Annotated[
        bool, typer.Option("--default", help="Of a task: explain its default schedule.")
    ] = False,
    steps: Annotated[bool, typer.Option("--steps", help="Print the loops after each step.")] = False,
    ablate: Annotated[
        bool, typer.Option("--ablate", help="Measure the schedule without each of its steps.")
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE.png", help="Draw how the search went, and its predictions."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, metavar="N", help="How many of a task's fastest trials.")] = 10,
    machine: Machine,
    db: Db = None,
    json: AsJson = False,
) -> None:
    """Say what the log knows about a task, or why one schedule takes the time that it takes.

    Of a TASK: its fastest trials on this machine. stack: vectors that go round an innermost loop by way of
    the stack; spills: vector moves to or from it. Of a TRIAL: predicted and measured time, loops, caches,
    what the cost model adds. With --default, --steps or --ablate a task means one schedule: its default, else
    the one that is used.
    """
    from autotensor.api.log import open_existing

    where = machine.chosen()
    with open_existing(db) as store:
        if plot is not None:
            if default or steps or ablate:
                raise typer.BadParameter("it goes with no other question.", param_hint="'--plot'")
            _plot(what, plot, where, store, json)
            return
        found = find(_no_model(what), store)
        if found.trial is None and not (default or steps or ablate):
            _explain_task(found, top, where, store, json)
            return
        document = _document(found, default, where, store, db, steps=steps, ablate=ablate)
    if json:
        put_json(document)
    else:
        from autotensor.cli.why import print_schedule

        print_schedule(document)


def _no_model(what: str) -> str:
    """Raises InputError for the bare name of a model, which has many tasks."""
    from autotensor.base.errors import InputError
    from autotensor.models import MODELS

    if what in MODELS:
        raise InputError(
            f"{what!r} is a model; one of its tasks is needed, or --plot FILE.png.",
            fix=f"`autotensor tasks {what}` lists them.",
        )
    return what


# -- one schedule ---------------------------------------------------------------------------------------


def _document(
    found: Found,
    default: bool,
    where: Target,
    store: TrialStore | None,
    db: str | None,
    *,
    steps: bool,
    ablate: bool,
) -> dict[str, Any]:
    from autotensor.cli.rates import measured_peak
    from autotensor.cli.why import schedule_document
    from autotensor.insight.explained_schedule import of_schedule, of_trial

    if found.trial is not None:
        if default:
            raise typer.BadParameter("a trial was named; it is for tasks.", param_hint="'--default'")
        assert store is not None  # the trial is from it
        subject = of_trial(store, found.trial, found.workload)
    else:
        subject = of_schedule(found.workload, where, store, default=default)
    if ablate:
        _check_ablation(subject)
    peak = measured_peak(db, subject.target.num_cores) if subject.here else None
    document = schedule_document(subject, store, peak)
    if steps:
        document["steps"] = _steps(subject)
    if ablate:
        document["ablation"] = _ablation(subject)
    return document


def _steps(subject: Subject) -> list[dict[str, Any]]:
    from autotensor.insight.trace_steps import step_views

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
    from autotensor.base.errors import InputError

    if not subject.here:
        raise InputError(
            f"{subject.origin} was measured on another machine; --ablate compares times of this one.",
            fix="Name a trial of this machine, or a task.",
        )


def _ablation(subject: Subject) -> dict[str, Any]:
    from contextlib import closing

    from autotensor.cli.why import ablation_document
    from autotensor.insight.ablation import ablate, variants
    from autotensor.schedule.primitives.algorithm import algorithm_tolerance
    from autotensor.search.measuring.measure_request import MeasureOptions
    from autotensor.search.measuring.measurer import LocalMeasurer

    found = variants(subject.workload.dag, subject.trace, subject.sketch, subject.decisions)
    tell(f"Measuring {sum(v.trace is not None for v in found)} variants of the schedule beside it …")
    options = MeasureOptions(repeat=ABLATION_SAMPLES, residency=subject.residency, asm=False)
    with closing(LocalMeasurer(subject.target, options, numerics=algorithm_tolerance)) as measurer:
        return ablation_document(*ablate(subject.workload, subject.trace, found, measurer))


# -- one task -------------------------------------------------------------------------------------------


def _explain_task(found: Found, top: int, target: Target, store: TrialStore | None, json: bool) -> None:
    from autotensor.base.errors import InputError
    from autotensor.base.machine import host_machine
    from schedules.shipped import offers

    if store is None:
        raise InputError("there is no tuning log yet.", fix="Tune something first.")
    where = target.key()
    key, fingerprint = found.workload.key, host_machine().fingerprint
    rows = store.trials(workload_key=key, target_key=where, machine=fingerprint)
    failures = store.failures(workload_key=key)
    foreign = store.best_foreign(key, where, fingerprint)
    fast = sorted((r for r in rows if r.median_s is not None), key=lambda r: r.median_s or 0.0)
    trials: list[dict[str, Any]] = [
        {
            "rank": n,
            "trial": r.id,
            "median_s": r.median_s,
            "samples_s": [s.seconds for s in r.samples],
            "predicted_s": r.predicted,
            "verified": r.verified,
            "assembly": dict(r.assembly),
            "max_error": r.verification.max_error if r.verification else None,
            "made_by": r.made_by,
            "decisions": {k: list(v) for k, v in r.decisions.items()},
        }
        for n, r in enumerate(fast[:top], start=1)
    ]
    document: dict[str, Any] = {
        "name": found.workload.name,
        "key": key,
        "target": where,
        "flops": float(found.workload.dag.flops()),
        "statuses": dict(Counter(r.status.value for r in rows)),
        "trials": trials,
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
    put_json(document) if json else _print_task(document)


def _print_task(d: dict[str, Any]) -> None:
    counts = (
        ", ".join(f"{n} {status}" for status, n in sorted(d["statuses"].items()))
        or "no trials on this machine"
    )
    paragraph(f"{d['name']} ({d['key'][:12]}, {d['target']}): {counts}", "  ")
    if d["trials"]:
        first = d["trials"][0]
        best = first["median_s"]
        say()
        table(
            ("trial", "us", "of best", "predicted", "spread", "stack", "spills", "made by",
             "decided otherwise"),
            [
                (t["trial"], micros(t["median_s"]), f"{t['median_s'] / best:.2f}",
                 micros(t["predicted_s"]), percent(_spread(t["samples_s"])),
                 t["assembly"].get("carried", "-"), t["assembly"].get("spills", "-"),
                 t["made_by"] + ("" if t["verified"] else " (unverified)"),
                 "" if t is first else _differences(t["decisions"], first["decisions"]))
                for t in d["trials"]
            ],
        )  # fmt: skip
        say()
        rate = gflops(d["flops"], best)
        paragraph(
            f"Trial {first['trial']}{f', {rate} GFLOP/s,' if rate != '-' else ''} decided "
            f"{_decisions(first['decisions'])}. `autotensor explain {first['trial']}` says why it takes its "
            "time.",
            "  ",
        )
    for f in d["failures"]:
        paragraph(f"{f['count']} × {f['status']} (trial {f['trial']}): {f['error'] or 'no text'}", "  ")
    for f in d["foreign"]:
        say(f"Another machine, {f['machine']}: {micros(f['median_s'])} us; never used here.")
    for o in d["shipped"]:
        why = f"{SHIPPED[o['fit']]}{': ' if o['reason'] else ''}{o['reason']}"
        paragraph(f"Shipped with autotensor, {o['origin']}: {micros(o['median_s'])} us there; {why}.", "  ")


def _spread(samples: list[float]) -> float | None:
    """(slowest - fastest) / fastest of the samples."""
    return (max(samples) - min(samples)) / min(samples) if samples and min(samples) > 0 else None


def _decisions(values: dict[str, list[int]]) -> str:
    return " ".join(f"{k}={'x'.join(map(str, v))}" for k, v in values.items()) or "nothing"


def _differences(values: dict[str, list[int]], best: dict[str, list[int]]) -> str:
    """What was decided otherwise than in the fastest; all of it where the sketch is another one.

    >>> _differences({"tile": [4, 2], "rows": [1]}, {"tile": [4, 2], "rows": [2]})
    'rows=1'
    """
    if values.keys() != best.keys():
        return _decisions(values)
    return _decisions({k: v for k, v in values.items() if v != best[k]})


# -- pictures -------------------------------------------------------------------------------------------


def _plot(what: str, path: Path, target: Target, store: TrialStore | None, json: bool) -> None:
    from autotensor.base.errors import InputError
    from autotensor.cli.inputs import check_place
    from autotensor.insight.plot import draw_model, draw_task
    from autotensor.insight.search_history import fall
    from autotensor.models import MODELS

    if path.suffix.lower() != ".png":
        raise typer.BadParameter(f"{str(path)!r} is no name of a PNG file.", param_hint="'--plot'")
    check_place(path)
    if store is None:
        raise InputError("there is no tuning log yet.", fix="Tune something first.")
    if what in MODELS:
        tasks = _histories(what, target, store)
        measured = [t for t in tasks if t.measured]
        found = fall(measured)
        if found is None:
            raise _nothing(what)
        missing = len(tasks) - len(measured)
        draw_model(
            f"{what}, {len(measured)} of {len(tasks)} tasks" if missing else what, measured, found, path
        )
    else:
        measured = [_history(find(what, store), target, store)]
        if not measured[0].measured:
            raise _nothing(measured[0].name)
        draw_task(measured[0], path)
    if json:
        put_json({"file": str(path), "tasks": [_series(t) for t in measured]})
    else:
        trials = sum(len(t.points) for t in measured)
        say(f"{path}: {trials} trials of {len(measured)} task{'s' * (len(measured) != 1)}.")


def _nothing(name: str) -> Exception:
    from autotensor.base.errors import InputError

    return InputError(
        f"the log has no times of {name} for this target on this machine.", fix="Tune it first."
    )


def _history(found: Found, target: Target, store: TrialStore) -> History:
    from autotensor.base.machine import host_machine
    from autotensor.insight.search_history import history

    return history(store, found.workload, target, host_machine().fingerprint)


def _histories(model: str, target: Target, store: TrialStore) -> list[History]:
    from autotensor.api.models import plan_model
    from autotensor.base.machine import host_machine
    from autotensor.cli.inputs import build_graph
    from autotensor.insight.search_history import history

    machine = host_machine().fingerprint
    tasks = plan_model(build_graph(model), target).tasks
    return [history(store, t.workload, target, machine, t.name, t.weight) for t in tasks]


def _series(t: History) -> dict[str, Any]:
    from autotensor.insight.search_history import best_so_far, rank_correlation

    best = best_so_far([p.seconds for p in t.points])
    return {
        "name": t.name,
        "weight": t.weight,
        "default_s": t.default_s,
        "bound_s": t.bound_s,
        "rank_correlation": rank_correlation(t),
        "trials": [
            {"trial": p.trial, "median_s": p.seconds, "predicted_s": p.predicted_s, "made_by": p.made_by,
             "best_s": b}
            for p, b in zip(t.points, best, strict=True)
        ],
    }  # fmt: skip
