"""`autotensor compare FLOAT.onnx [QUANTISED.onnx]`: the costs and gains of quantising, or of 16 bits."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotensor.base.errors import InputError
from autotensor.cli.options import AsJson, Log, NumericMachine, example, grouped, new_app
from autotensor.cli.output import put_json, say, table

if TYPE_CHECKING:
    from autotensor.api.comparing.compare import Compared, Comparison

app = new_app()
HEADS = ("cosine", "largest error", "signal/noise")


@app.command(epilog=example("autotensor compare resnet50.onnx resnet50_int8.onnx --data photos.npz"))
@grouped
def compare(
    model: Annotated[str, typer.Argument(metavar="FLOAT.onnx", help="The model in floats.")],
    quantised: Annotated[
        str | None,
        typer.Argument(
            metavar="QUANTISED.onnx",
            help="The same model, quantised. Without it, the first one under --numerics bf16 or fp16.",
            show_default=False,
        ),
    ] = None,
    *,
    data: Annotated[
        Path,
        typer.Option(
            "--data", metavar="FILE.npz", help="Inputs by name; several batches, joined along the first axis."
        ),
    ],
    machine: NumericMachine,
    log: Log,
    json: AsJson = False,
) -> None:
    """Compare a quantised model with the one in floats: layer by layer, as a whole, and in time.

    With one file, the model in floats is compared with itself computed in 16 bits, as a whole.

    Each model computes a layer from its own earlier layers, so errors add up from layer to layer.
    """
    from autotensor.api.comparing.compare import compare as compared
    from autotensor.cli.images import load_arrays
    from autotensor.cli.model_files.onnx_files import is_onnx

    for name in (model, *([] if quantised is None else [quantised])):
        if not is_onnx(name):
            raise InputError(f"{name!r} is not an .onnx file.", fix="Both models are given as .onnx files.")
    arrays = load_arrays(data)
    if not isinstance(arrays, dict):
        raise InputError(
            f"--data {str(data)!r} holds one array without a name.",
            fix="np.savez('data.npz', NAME=array) keeps the model's inputs by name.",
        )
    found = compared(model, quantised, arrays, machine.chosen(), db=log.db)
    put_json(_document(found)) if json else _print(found)


def _document(c: Comparison) -> dict[str, Any]:
    worst = c.worst
    return {
        "batches": c.batches,
        "layers": [_fields(row) for row in c.layers],
        "not_compared": list(c.alone),
        "worst": None if worst is None else worst.name,
        "results": [_fields(row) for row in c.results],
        "float_s": c.float_s,
        "quantised_s": c.quantised_s,
        "speedup": c.speedup,
    }


def _fields(row: Compared) -> dict[str, Any]:
    """JSON has no infinity: null means no noise if the largest error is 0, else not-a-number."""
    a = row.agreement
    numbers = {"cosine": a.cosine, "max_abs": a.max_abs, "snr_db": a.snr_db, "top1": a.top1}
    return {
        "name": row.name,
        "op": row.op or None,
        "shape": list(row.shape),
        **{key: None if v is None or not math.isfinite(v) else v for key, v in numbers.items()},
    }


def _print(c: Comparison) -> None:
    if c.layers:
        table(
            ("layer", "operator", "shape", *HEADS), [(r.name, r.op, _shape(r), *_cells(r)) for r in c.layers]
        )
    elif c.alone:
        say("No layers of the two models match, neither by name nor by order.")
    if c.alone:
        say(f"Not compared, because the quantised model has no matching layer: {', '.join(c.alone)}.")
    say()
    classes = any(r.agreement.top1 is not None for r in c.results)
    heads = ("result", "shape", *HEADS, *(["same class"] if classes else []))
    table(heads, [(r.name, _shape(r), *_cells(r), *([_class(r)] if classes else [])) for r in c.results])
    say()
    if c.worst is not None:
        say(f"Most noise: {c.worst.name} ({c.worst.op}).")
    say(
        f"Floats {c.float_s * 1e3:.3g} ms, quantised {c.quantised_s * 1e3:.3g} ms: "
        f"{c.speedup:.2f} times as fast (timed alternately, medians)."
    )


def _shape(row: Compared) -> str:
    return "x".join(map(str, row.shape)) or "number"


def _cells(row: Compared) -> tuple[str, ...]:
    a = row.agreement
    noise = "no noise" if a.snr_db == math.inf else f"{a.snr_db:.1f} dB"
    return f"{a.cosine:.6f}", f"{a.max_abs:.3g}", noise


def _class(row: Compared) -> str:
    return "-" if row.agreement.top1 is None else f"{row.agreement.top1 * 100:.1f} %"
