"""`autotensor run MODEL|FILE.atm`: one inference, and its results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotensor.base.errors import InputError
from autotensor.cli.options import (
    AsJson,
    Force,
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
from autotensor.cli.output import put_json, say, tell

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

app = new_app()
TOP = 5
MOST_ROWS = 32  # most rows of a classifier's answer; a result with more rows is a matrix

EPILOG = example(
    "autotensor run resnet50.atm --input photo.jpg",
    "autotensor run resnet50 --weights resnet50.safetensors --input photo.jpg",
    "autotensor run mlp --input x.npy --output y.npy",
    "autotensor run resnet50 --instant",
    "autotensor run net.atm --batch 3   # compiled with --batch 1..8",
    "autotensor run voice.onnx --shape input=1x576 --input sr=16000",
    "autotensor run encoder.onnx --shape seq=64 --input ids.npz --output y.npz",
)


@app.command(epilog=EPILOG)
@grouped
def run(
    model: ModelOrFile,
    *,
    input: Inputs = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", metavar="FILE", help="File for the results: .npy for one array, .npz for all."
        ),
    ] = None,
    source: Source,
    seed: Seed = 0,
    instant: Annotated[
        bool, typer.Option("--instant", help="NumPy answers, unless compiled code is there before.")
    ] = False,
    machine: Machine,
    log: Log,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Run a model once, and print the five best classes if it is a classifier.

    Photos are prepared as for ImageNet. A built-in model is compiled first, with schedules of
    the log and defaults for the rest.
    """
    from autotensor.cli.inputs import (
        facts,
        is_file,
        open_module,
        sample_arrays,
        warn_of_weights,
    )
    from autotensor.cli.model_files.atm_calls import only_call, takes
    from autotensor.cli.model_files.onnx_parts import InParts
    from autotensor.cli.output_files import ARRAYS, check_output, files_of_log
    from autotensor.cli.values import call_arrays, parted

    if output is not None:
        if output.suffix not in ARRAYS:
            raise InputError(f"output {str(output)!r} has an unknown ending.", fix="Known: .npy, .npz.")
        own = {"the model": model, **files_of_log(log.db)}
        check_output(output, ARRAYS[output.suffix], force, own)
    parted(input or ())  # before anything is compiled
    module = open_module(model, source, machine, log, instant)
    if isinstance(module, InParts):
        warning, names = "", list(module.output_names)
    else:
        warning = warn_of_weights(facts(model, source) if instant else module.artifact.meta)
        names = [a.name for a in module.args if a.role == "output"]
    if output is not None and output.suffix != ".npz" and len(names) > 1:
        raise InputError(
            f"{module.name} has {len(names)} results ({', '.join(names)}); {str(output)!r} holds one.",
            fix=f"Write all of them, by name: --output {output.with_suffix('.npz')}.",
        )
    wanted, extents = [a for a in module.args if a.role != "output"], {}
    if not isinstance(module, InParts) and not instant:
        call = only_call(module, source if is_file(model) else None, input or ())
        module, wanted, extents = call.function, list(call.args), call.extents
        if call.said:
            tell(f"Run{call.where}. {model} takes {takes(call.function)}.")
    arrays, drawn = call_arrays(input or (), wanted, sample_arrays(module, wanted, seed), module.name)
    if drawn:
        tell(f"Note: random numbers for {', '.join(drawn)}.")
    if warning:
        (tell if json else say)(warning)
    answers = module(*arrays)
    answers = answers if isinstance(answers, tuple) else (answers,)
    if output is not None:
        _write(output, dict(zip(names, answers, strict=True)))
    is_classifier = len(answers) == 1 and _is_scores(answers[0])
    if json:
        outputs = [_json(n, a, is_classifier) for n, a in zip(names, answers, strict=True)]
        more = {"extents": extents} if extents else {}
        put_json({"model": model, "warning": warning, "outputs": outputs, **more})
        return
    for name, answer in zip(names, answers, strict=True):
        for line in _lines(name, answer, is_classifier):
            say(line)


def _write(path: Path, named: Mapping[str, Array]) -> None:
    """Writes all arrays as .npz, or the only one as .npy. A failure leaves no partial file."""
    import io
    from zipfile import ZipFile

    import numpy as np

    from autotensor.runtime.files.atomic_write import replacing

    data = io.BytesIO()
    if path.suffix == ".npz":  # not by np.savez, which cannot keep an array that is called "file"
        with ZipFile(data, "w") as archive:
            for name, array in named.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.save(member, array, allow_pickle=False)
    else:
        (array,) = named.values()
        np.save(data, array)
    try:
        with replacing(path) as file:
            file.write(data.getbuffer())
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}.") from error


def _is_scores(answer: Array) -> bool:
    """Whether the model's only result looks like a classifier's logits. NaN and inf have no shares."""
    import numpy as np

    rows = answer.ndim == 2 and answer.shape[0] <= MOST_ROWS and answer.shape[1] > 1
    return rows and answer.dtype.kind == "f" and bool(np.isfinite(answer.max(axis=1)).all())


def best_classes(row: Array) -> list[dict[str, Any]]:
    """The most likely classes of one row of scores. Softmax makes shares of the scores, unless they are
    shares already."""
    import numpy as np

    from autotensor.cli.images import class_name

    scores = row.astype(np.float64)
    shares = scores
    if not _are_shares(scores):
        shares = np.exp(scores - scores.max())
        shares /= shares.sum()
    order = np.argsort(-scores, kind="stable")[:TOP]
    return [{"class": int(n), "name": class_name(int(n), len(row)), "share": float(shares[n])} for n in order]


def _are_shares(scores: Array) -> bool:
    """Whether a row is the result of a softmax."""
    return bool(scores.min() >= 0 and abs(scores.sum() - 1) < 1e-3)


def _json(name: str, answer: Array, is_classifier: bool) -> dict[str, Any]:
    document: dict[str, Any] = {"name": name, "shape": list(answer.shape), "dtype": str(answer.dtype)}
    if is_classifier:
        document["top"] = [best_classes(row) for row in answer]
    return document


def _lines(name: str, answer: Array, is_classifier: bool) -> list[str]:
    kind = f"{name}: {answer.dtype}[{', '.join(map(str, answer.shape))}]"
    if answer.size == 0:
        return [kind]
    low, high, mean = (float(x) for x in (answer.min(), answer.max(), answer.mean()))
    lines = [f"{kind}, from {low:.4g} to {high:.4g}, mean {mean:.4g}"]
    if not is_classifier:
        return lines
    if not all(map(_are_shares, answer)):
        lines.append("As a classifier's scores (softmax):")
    for n, row in enumerate(answer):
        if len(answer) > 1:
            lines.append(f"row {n}")
        for c in best_classes(row):
            known = c["name"] != f"class {c['class']}"
            number = f"{c['class']:>4}  " if known else ""
            lines.append(f"{c['share'] * 100:6.2f} %  {number}{c['name']}")
    return lines
