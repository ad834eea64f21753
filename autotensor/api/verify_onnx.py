"""What another program makes of an ONNX file: onnxruntime if it is installed, else onnx's own evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def onnx_results(path: str | Path, arrays: Sequence[Array]) -> tuple[str, list[Array]]:
    """The name of the program, and the file's results for these inputs, in its order."""
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
