"""The results of another program for an ONNX file: onnxruntime if it is installed, else onnx's own
evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autotensor.api.verifying.run import Run
from autotensor.search.measuring.checks import compare_wide

Array = np.ndarray[Any, Any]

ROUNDING_ROOM = 10.0  # allowed difference, as a multiple of the error of our own rounding
LEAST_ROOM = 1e-6  # our own error counts as at least this, relative to the largest element


def onnx_results(path: str | Path, arrays: Sequence[Array]) -> tuple[str, list[Array]]:
    """The name of the program, and the file's results for these inputs, in the file's order."""
    try:
        import onnxruntime
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(str(path))
        given = dict(zip(evaluator.input_names, arrays, strict=False))
        return "onnx's reference evaluator", [np.asarray(r) for r in evaluator.run(None, given)]
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # the file as it is
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    given = dict(zip((i.name for i in session.get_inputs()), arrays, strict=False))
    return "onnxruntime", [np.asarray(r) for r in session.run(None, given)]


__all__ = ["onnx_results"]


def beside_onnx(
    run: Run, path: str | Path, who: str, theirs: Sequence[Array], ours: Sequence[Array]
) -> list[str]:
    """Differences from another program's results for the ONNX file."""
    assert run.wide is not None
    found = []
    places = [(n, a) for n, a in enumerate(run.artifact.args) if a.role == "output"]
    if len(theirs) != len(places):
        return [f"{who} gives {len(theirs)} results for {path}, {run.artifact.name} has {len(places)}"]
    for (n, spec), mine, other in zip(places, ours, theirs, strict=True):
        if mine.shape != other.shape:
            found.append(f"result {spec.name!r} has shape {mine.shape}; {who} gives {other.shape} for {path}")
            continue
        if mine.dtype.kind != "f":
            if not np.array_equal(mine, other):
                found.append(f"result {spec.name!r} differs from {who}'s result for {path}")
            continue
        exact = run.wide.view(spec, (n, 0))
        rounding = compare_wide(mine, exact, 1.0).error
        allowed = ROUNDING_ROOM * max(rounding, LEAST_ROOM)
        verdict = compare_wide(mine, other, allowed)
        if verdict.complaint:
            found.append(f"result {spec.name!r} differs from {who}'s result for {path}: {verdict.complaint}")
    return found
