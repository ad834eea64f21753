"""`autotensor verify MODEL|FILE.atm`: compares every kernel with its reference; names the first wrong one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotensor.cli.options import (
    AsJson,
    Inputs,
    Log,
    Machine,
    ModelOrFile,
    Seed,
    Source,
    example,
    grouped,
    new_app,
)
from autotensor.cli.output import put_json

app = new_app()


@app.command(
    epilog=example(
        "autotensor verify resnet50.atm",
        "autotensor verify resnet50.atm --against resnet50.onnx",
        "autotensor verify bert_base --against float64",
        "autotensor verify net.atm --batch 3   # compiled with --batch 1..8",
    )
)
@grouped
def verify(
    model: ModelOrFile,
    *,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.onnx|float64",
            help="float64: also print the rounding error after each kernel. FILE.onnx: also compare weights "
            "with the file, and results with onnxruntime.",
        ),
    ] = None,
    input: Inputs = None,
    script: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.py",
            help="Write a script that shows the first wrong kernel; its data go next to it.",
        ),
    ] = None,
    source: Source,
    seed: Seed = 0,
    machine: Machine,
    log: Log,
    json: AsJson = False,
) -> None:
    """Run a model kernel by kernel, and compare each with a float64 reference on the same arrays.

    Names the first kernel that differs, with its trial and trace; --script writes a script that shows the
    difference. A compiled file with run-time extents is verified at the least and the greatest of those that
    --input, --batch and --shape do not choose. The exit code is 1 if any kernel is wrong.
    """
    from autotensor.cli.verification import checked, document, print_reports

    found = checked(model, against, input, script, source, seed, machine, log)
    put_json(document(found)) if json else print_reports(found)
    if not found[-1].report.is_right:
        raise typer.Exit(1)
