"""`autotensor compile MODEL -o FILE.atm`: no search; what the log knows, defaults for the rest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotensor.cli.options import (
    AsJson,
    FixedSource,
    Force,
    Log,
    ModelName,
    NumericMachine,
    example,
    grouped,
    new_app,
)
from autotensor.cli.output import put_json, say
from autotensor.insight.units import size

if TYPE_CHECKING:
    from autotensor.cli.inputs import Known

app = new_app()


@app.command(
    epilog=example("autotensor compile resnet50 -o resnet50.atm", "autotensor compile mlp --batch 8")
)
@grouped
def compile(
    model: ModelName,
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE.atm", help="Default: ./MODEL.atm.")
    ] = None,
    source: FixedSource,
    machine: NumericMachine,
    log: Log,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Compile a model into one .atm file, with the best verified schedules that are known for this machine.

    Those of the log first, then those that come with autotensor for this class of machines. What was never
    tuned gets default schedules: slower, never wrong. Needs no C compiler.
    """
    from autotensor.api.models import plan_model
    from autotensor.cli.inputs import build_graph, check_replaced, compile_known, facts, place_of

    graph = build_graph(model, source)
    path = place_of(out, graph, source)
    plan = plan_model(graph, machine.chosen(), facts=facts(model, source))
    check_replaced(path, plan, force)
    known = compile_known(plan, log)
    known.module.save(path)
    sources, notes = known.sources, [*known.notes, *_noted(known, path, log)]
    memory = known.module.artifact.meta["memory"]
    if json:
        document = {"model": model, "file": str(path), "bytes": path.stat().st_size, "tasks": sources}
        put_json({**document, "notes": notes, "target": plan.target.key(), "memory": memory, **plan.facts})
        return
    say(f"{path}: {size(path.stat().st_size)}, {len(plan.groups)} kernels, {len(plan.tasks)} tasks.")
    say(f"Schedules: {known.summary}.")
    least, unshared = size(memory["lower_bound_bytes"]), size(memory["unshared_bytes"])
    say(f"Memory of a call: {size(memory['arena_bytes'])} (at least {least}; {unshared} without reuse).")
    for note in notes:
        say(f"Note: {note}.")


def _noted(known: Known, path: Path, log: Log) -> list[str]:
    """Tells the log what its trials were built into; a log that may only be read is worth a note."""
    from autotensor.api.log import open_log
    from autotensor.api.models import note_use
    from tuning_db import StoreError

    if not known.sources["log"]:
        return []
    try:
        with open_log(log.db) as store:
            note_use(store, known.found.values(), path)
    except StoreError as error:
        return [f"the log does not remember this file: {error.what.rstrip('.')}"]
    return []
