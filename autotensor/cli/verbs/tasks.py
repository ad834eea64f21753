"""`autotensor tasks MODEL`: the distinct computations of a model, and the log's trials of each."""

from __future__ import annotations

from typing import Any

from autotensor.cli.options import (
    AsJson,
    Batch,
    Db,
    FixedSource,
    Given,
    Machine,
    ModelName,
    Shapes,
    example,
    grouped,
    new_app,
)
from autotensor.cli.output import IN_USE, put_json, say, table, tell
from autotensor.insight.units import gflops, micros

app = new_app()


@app.command(epilog=example("autotensor tasks resnet50", "autotensor show resnet50/4 --as nest"))
@grouped
def tasks(
    model: ModelName,
    *,
    batch: Batch = None,
    shape: Shapes = None,
    input: Given = None,
    machine: Machine,
    db: Db = None,
    json: AsJson = False,
) -> None:
    """List the tasks of a model: distinct kernels, how often each runs, the time of the schedule in use."""
    from autotensor.api.log import open_existing
    from autotensor.api.models import plan_model
    from autotensor.cli.inputs import build_graph
    from autotensor.resolve import in_use, tuned_for_others
    from autotensor.runtime.place import here

    plan = plan_model(build_graph(model, FixedSource(None, batch, shape, input)), machine.chosen())
    place = here(plan.target)
    found: list[dict[str, Any]] = []
    notes: dict[str, None] = {}
    with open_existing(db) as store:
        for n, t in enumerate(plan.tasks):
            key = t.workload.at_greatest.key  # which is measured
            used = None if store is None else in_use(store, place.task(key))
            trials = 0 if store is None else store.count(*place.task(key))
            if store is not None and not trials and (note := tuned_for_others(store, place.task(key))):
                notes[note] = None
            found.append(
                {
                    "task": f"{model}/{n}",
                    "name": t.name,
                    "weight": t.weight,
                    "flops": t.flops,
                    "best_s": used.median_s if used else None,
                    "trial": used.id if used else None,
                    "trials": trials,
                    "key": key,
                }
            )
    if json:
        put_json(found)
        return
    heads = ("task", "what", "weight", "MFLOP", "us in use", "GFLOP/s", "trials", "key")
    table(
        heads,
        [
            (f["task"], f["name"], f["weight"], f"{f['flops'] / 1e6:.2f}", micros(f["best_s"]),
             gflops(f["flops"], f["best_s"]), f["trials"], f["key"][:12])
            for f in found
        ],
    )  # fmt: skip
    for note in notes:
        tell(f"Note: {note}.")
    if any(f["trial"] for f in found):
        say(IN_USE)
    elif not notes:
        tell(f"None of these was tuned here yet: `autotensor tune {model}`.")
