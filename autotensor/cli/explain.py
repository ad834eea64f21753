"""`autotensor explain TASK`: what the log knows about a task."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer

from autotensor.cli.find import TaskName, find
from autotensor.cli.options import AsJson, Db, TargetText, Threads, example, new_app, target_of
from autotensor.cli.output import put_json, say, table
from autotensor.insight.units import gflops, micros, percent

app = new_app()


@app.command(
    epilog=example("autotensor explain resnet50/4", "autotensor explain af8327883368 --top 3 --json")
)
def explain(
    what: TaskName,
    top: Annotated[int, typer.Option(min=1, help="How many of the fastest trials.")] = 10,
    threads: Threads = None,
    target: TargetText = None,
    db: Db = None,
    json: AsJson = False,
) -> None:
    """Print the fastest trials of a task on this machine, what made them, what they decided, and failures.

    stack: vectors that go round an innermost loop by way of the stack; spills: vector moves to or from it.
    A trial's number is what `autotensor show` takes.
    """
    from autotensor.api.log import open_existing
    from autotensor.base.errors import InputError
    from autotensor.base.machine import host_machine

    where = target_of(target, threads).key()
    with open_existing(db) as store:
        found = find(what, store)
        if store is None:
            raise InputError("there is no tuning log yet.", fix="Tune something first.")
        key, fingerprint = found.workload.key, host_machine().fingerprint
        rows = store.trials(workload_key=key, target_key=where, machine=fingerprint)
        failures = store.failures(workload_key=key)
        foreign = store.best_foreign(key, where, fingerprint)
    flops = float(found.workload.dag.flops())
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
        "flops": flops,
        "statuses": dict(Counter(r.status.value for r in rows)),
        "trials": trials,
        "failures": [
            {"status": f.status.value, "error": f.signature, "count": f.count, "trial": f.example}
            for f in failures
        ],
        "foreign": [{"machine": f.machine.cpu_model, "median_s": f.trial.median_s} for f in foreign],
    }
    if json:
        put_json(document)
        return
    _print(document, top)


def _print(d: dict[str, Any], top: int) -> None:
    counts = (
        ", ".join(f"{n} {status}" for status, n in sorted(d["statuses"].items()))
        or "no trials on this machine"
    )
    say(f"{d['name']} ({d['key'][:12]}, {d['target']}): {counts}")
    if d["trials"]:
        best = d["trials"][0]["median_s"]
        say()
        table(
            ("rank", "trial", "us", "of best", "GFLOP/s", "predicted us", "spread",
             "stack", "spills", "made by", "decisions"),
            [
                (t["rank"], t["trial"], micros(t["median_s"]), f"{t['median_s'] / best:.2f}",
                 gflops(d["flops"], t["median_s"]), micros(t["predicted_s"]),
                 percent(_spread(t["samples_s"])),
                 t["assembly"].get("carried", "-"), t["assembly"].get("spills", "-"),
                 t["made_by"] + ("" if t["verified"] else " (unverified)"), _decisions(t["decisions"]))
                for t in d["trials"]
            ],
        )  # fmt: skip
    for f in d["failures"]:
        say(f"{f['count']} × {f['status']} (trial {f['trial']}): {f['error'] or 'no text'}")
    for f in d["foreign"]:
        say(f"Another machine, {f['machine']}: {micros(f['median_s'])} us; never used here.")


def _spread(samples: list[float]) -> float | None:
    """(slowest - fastest) / fastest of the samples."""
    return (max(samples) - min(samples)) / min(samples) if samples and min(samples) > 0 else None


def _decisions(values: dict[str, list[int]]) -> str:
    return " ".join(f"{k}={'x'.join(map(str, v))}" for k, v in values.items()) or "none"
