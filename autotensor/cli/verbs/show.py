"""`autotensor show TASK|TRIAL --as …`: a schedule in any of its forms, from expressions to machine code.

show FILE.atm           what a compiled file holds
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotensor.cli.find import find
from autotensor.cli.options import AsJson, Db, Machine, example, grouped, new_app
from autotensor.cli.output import code, put_json, tell
from autotensor.insight.units import micros

if TYPE_CHECKING:
    from autotensor.base.target import Target
    from autotensor.schedule.trace import Trace
    from autotensor.te.workload import Workload

app = new_app()
FORMS = ("te", "nest", "trace", "ir", "llvm", "asm", "source")

EPILOG = example(
    "autotensor show resnet50/4 --as nest",
    "autotensor show 17 --as asm",
    "autotensor show af8327883368 --as trace",
    "autotensor show resnet50.atm",
    "autotensor show mlp/0 --target opencl --source > kernel.py",
)


NAMES = (
    "# The names are the log's: stages t0, t1, … in their order, inputs a0, …, their axes i0, … and r0, …. "
    '`at.build([…]).source("trace")` has your own names, and can be pasted back.'
)


@app.command(epilog=EPILOG)
@grouped
def show(
    what: Annotated[
        str,
        typer.Argument(
            metavar="TASK|TRIAL|FILE.atm",
            help="MODEL/N as `tasks` lists them, a workload's key, a trial's number, or a compiled file.",
        ),
    ],
    *,
    form: Annotated[
        str | None,
        typer.Option("--as", metavar="|".join(FORMS), help="The form to print. Default: nest."),
    ] = None,
    default: Annotated[
        bool, typer.Option("--default", help="The default schedule, not the best known.")
    ] = False,
    source: Annotated[
        bool, typer.Option("--source", help="The same as --as source: GPU kernels and a host program.")
    ] = False,
    machine: Machine,
    db: Db = None,
    json: AsJson = False,
) -> None:
    """Print a task under its best known schedule, or a trial under its own.

    te: the expressions. nest: the scheduled loops. trace: the calls that schedule it. ir: the program after
    all passes. llvm, asm: the generated code. source: GPU kernels, with a host program that runs them. For a
    FILE.atm, print its inputs and results, extents, weights, processors, and kernels with the origins of
    their schedules; no code of the file is run.
    """
    from autotensor.cli.inputs import is_file

    if is_file(what):
        if form or source or default:
            raise typer.BadParameter("it prints a task or a trial, not a file.", param_hint="'--as'")
        _show_file(Path(what), db, json)
        return
    form = "source" if source else form or "nest"
    if form not in FORMS:
        raise typer.BadParameter(f"{form!r} is not a form. Known: {', '.join(FORMS)}.", param_hint="'--as'")
    from autotensor.api.log import open_existing
    from autotensor.resolve import resolve, safe_default
    from autotensor.schedule.trace import Trace

    chosen = machine.chosen()
    with open_existing(db) as store:
        found = find(what, store)
        best = None if default else resolve(found.workload, chosen, store)
    trace, origin = best.trace if best else safe_default(found.workload, chosen), "default schedule"
    if found.trial is not None:
        trace = Trace.from_json(found.trial.trace)
        origin = f"trial {found.trial.id}, {found.trial.status}, {micros(found.trial.median_s)} us"
    elif best and best.source == "log":
        origin = f"trial {best.trial}, {micros(best.seconds)} us"
    elif best and best.source == "shipped":
        origin = f"comes with autotensor, {micros(best.seconds)} us on this class of machines"
    text = _text(form, found.workload, trace, chosen)
    if json:
        about = {"name": found.workload.name, "key": found.workload.key, "origin": origin}
        put_json({**about, "as": form, "text": text})
        return
    if found.trial is None and best and best.note:
        tell(f"# Note: {best.note}.")
    if form == "trace":
        tell(NAMES)
    tell(f"# {found.workload.name} ({found.workload.key[:12]}): {origin}")
    code(text)


def _text(form: str, workload: Workload, trace: Trace, chosen: Target) -> str:
    """The schedule in one of the forms."""
    from autotensor.compiler import compile_trace, lowered, nest_text, te_text
    from autotensor.ir.printer import to_text

    dag = workload.dag
    match form:
        case "te":
            return te_text(dag)
        case "trace":
            return trace.to_python() or "# no steps: the loops as written"
        case "nest":
            return nest_text(trace.replay(dag))
        case "source":
            if not chosen.is_gpu:
                raise typer.BadParameter(
                    "only GPU kernels have source; add --target opencl or --target cuda.",
                    param_hint="'--source'",
                )
            from autotensor.insight.standalone_program import harness

            return harness(compile_trace(dag, trace, chosen, workload.name))
        case "ir":
            program = lowered(trace.replay(dag), chosen)
            return "\n\n".join(to_text(f) for f in (*program.prepare, *program.run))
        case _:
            return compile_trace(dag, trace, chosen, "kernel", asm=form == "asm").texts[form]


def _show_file(path: Path, db: str | None, json: bool) -> None:
    from autotensor.api.log import open_existing
    from autotensor.cli.model_files.atm_contents import contents, print_contents

    with open_existing(db) as store:
        found = contents(path, store)
    put_json(found) if json else print_contents(found)
