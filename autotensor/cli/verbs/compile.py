"""`autotensor compile MODEL`: compiles without a search, with the log's schedules, or else with defaults.

-o FILE.atm             a file for at.load, `autotensor run` and `autotensor bench`
--for NAME,NAME         one such file for several processors; a load takes the best code that runs
--emit c -o FOLDER      a C library: header, object, weights, example; also made from a compiled file
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotensor.base.counted import counted
from autotensor.cli.options import (
    AsJson,
    FixedSource,
    Force,
    Log,
    ModelOrFile,
    NumericMachine,
    example,
    grouped,
    new_app,
)
from autotensor.cli.output import put_json, say
from autotensor.insight.units import size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autotensor.api.models import ModelPlan
    from autotensor.cli.inputs import Known

app = new_app()


class Stored(StrEnum):
    """How a model file holds weights."""

    PLAIN = "plain"
    PREPARED = "prepared"


class Form(StrEnum):
    """The form in which a model is written."""

    ATM = "atm"
    C = "c"


@app.command(
    epilog=example(
        "autotensor compile resnet50 -o resnet50.atm",
        "autotensor compile mlp --batch 8",
        "autotensor compile resnet50 --for x86-64-v3,x86-64-v4,znver5   # one file",
        "autotensor compile resnet50.atm --emit c -o resnet50   # a tuned one, for C",
    )
)
@grouped
def compile(
    model: ModelOrFile,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE.atm|FOLDER", help="Default: ./MODEL.atm; for a C library ./MODEL."
        ),
    ] = None,
    emit: Annotated[
        Form, typer.Option("--emit", help="c: header, object, weights and example; needs no C compiler.")
    ] = Form.ATM,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="With --emit c: the prefix of C functions.")
    ] = "",
    store: Annotated[
        Stored,
        typer.Option(
            "--store",
            help="plain: weights in their own layout; a machine's first load prepares them. prepared: in "
            "the layout of the kernels, up to ten times as large.",
        ),
    ] = Stored.PLAIN,
    processors: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="NAME,NAME", help="Processors, named as in -mcpu=NAME: one file for all."
        ),
    ] = None,
    source: FixedSource,
    machine: NumericMachine,
    log: Log,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Compile a model into one .atm file, with the best verified schedules for this machine.

    Schedules come from the log, else from those that come with autotensor for this class of machines. Tasks
    that were never tuned get default schedules, which are slower but not wrong. --emit c makes a C library
    instead, which needs no Python; it also takes an .atm file. No C compiler is needed.
    """
    from autotensor.api.models import plan_model
    from autotensor.cli.inputs import build_graph, check_replaced, compile_known, facts, place_of
    from autotensor.runtime.files import artifact_file

    if emit is Form.C:
        if processors is not None:
            raise typer.BadParameter("a C library is for one processor.", param_hint="'--for'")
        _write_c(model, source, machine, log, out, name, force, json)
        return
    if name:
        raise typer.BadParameter("it names C functions; add --emit c.", param_hint="'--name'")
    graph = build_graph(model, source)
    path = place_of(out, graph, source)
    plans = [plan_model(graph, t, facts=facts(model, source)) for t in machine.each_of(processors)]
    check_replaced(path, plans, force)
    several = [compile_known(plan, log, store is Stored.PREPARED) for plan in plans]
    artifact_file.save_all(path, [one.artifact for one in several])
    notes = [n for one in several for n in one.notes] + [n for one in several for n in _noted(one, path, log)]
    _report(model, path, plans, several, list(dict.fromkeys(notes)), processors is not None, json)


def _report(
    model: str,
    path: Path,
    plans: Sequence[ModelPlan],
    several: Sequence[Known],
    notes: Sequence[str],
    by_processor: bool,
    json: bool,
) -> None:
    """Prints what was compiled. by_processor: whether the schedules of each processor have their own line."""
    plan, known = plans[0], several[0]
    memory = known.artifact.meta["memory"]
    if json:
        document = {"model": model, "file": str(path), "bytes": path.stat().st_size, "tasks": known.sources}
        document |= {"notes": notes, "target": plan.target.key(), "memory": memory, **plan.facts}
        pairs = zip(plans, several, strict=True)
        each = [{"target": p.target.key(), "tasks": one.sources} for p, one in pairs]
        put_json({**document, **({"each": each} if by_processor else {})})
        return
    counts = f"{counted(len(plan.groups), 'kernel')}, {counted(len(plan.tasks), 'task')}"
    say(f"{path}: {size(path.stat().st_size)}, {counts}.")
    for p, one in zip(plans, several, strict=True):
        say(f"Schedules{f' for {p.target.arch}' if by_processor else ''}: {one.summary}.")
    least, unshared = size(memory["lower_bound_bytes"]), size(memory["unshared_bytes"])
    say(f"Memory of a call: {size(memory['arena_bytes'])} (at least {least}; {unshared} without reuse).")
    for note in notes:
        say(f"Note: {note}.")


def _write_c(
    model: str,
    source: FixedSource,
    machine: NumericMachine,
    log: Log,
    out: Path | None,
    name: str,
    force: bool,
    json: bool,
) -> None:
    """Writes a C library. A compiled file may be for any machine, because it is not run here."""
    from autotensor.cli.inputs import (
        build_graph,
        check_compiled,
        check_unshaped,
        compile_known,
        facts,
        is_file,
    )
    from autotensor.codegen.library.write import check_library, check_replaced, write_library
    from autotensor.runtime.files import artifact_file

    notes: list[str] = []
    if is_file(model):
        check_compiled(model, source, machine)
        check_unshaped(model, source)
        artifact = artifact_file.load(model)
        name = name or artifact.name
        folder = out or Path(name)
        if not force:
            check_replaced(folder, name, artifact.name)
    else:
        from autotensor.api.models import plan_model

        graph, target = build_graph(model, source), machine.chosen()
        name = name or graph.name
        folder = out or Path(name)
        check_library(target, folder, name)  # before minutes of work
        if not force:
            check_replaced(folder, name, graph.name)
        known = compile_known(plan_model(graph, target, facts=facts(model, source)), log, prepared=True)
        artifact, notes = known.artifact, known.notes
    library = write_library(artifact, folder, name)
    notes += [library.note] if library.note else []
    sizes = {path.name: path.stat().st_size for path in library.files}
    if json:
        put_json({"model": model, "folder": str(folder), "bytes": sizes, "notes": notes})
        return
    say(f"{folder}: {', '.join(f'{file} {size(n)}' for file, n in sizes.items())}.")
    for note in notes:
        say(f"Note: {note}.")


def _noted(known: Known, path: Path, log: Log) -> list[str]:
    """Records in the log that its trials are used by this file; a note if the log cannot be written."""
    from autotensor.api.log import open_log
    from autotensor.api.models import note_use
    from tuning_db import StoreError

    if not known.sources["log"]:
        return []
    try:
        with open_log(log.db) as store:
            note_use(store, known.found.values(), path)
    except StoreError as error:
        return [f"the log does not record that this file uses its trials: {error.what.rstrip('.')}"]
    return []
