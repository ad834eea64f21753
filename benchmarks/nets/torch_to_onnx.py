"""A torch module as an ONNX model, as torch's own exporter writes it.

For networks whose graph `to_onnx.py` does not write. A recurrent layer is one LSTM or GRU node then, which is
what onnxruntime is fast at; our graph has its steps one by one. Needs `onnx` and `onnxscript`.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def torch_to_onnx(module: Any, inputs: Mapping[str, Array]) -> Any:
    """An onnx.ModelProto with the module's weights inside; its inputs in the order of these samples."""
    import onnxscript  # noqa: F401  # torch's message for its absence is no ImportError
    import torch

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # torchvision is not missed
    samples = tuple(map(torch.from_numpy, inputs.values()))
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the exporter's own imports are deprecated
        made = torch.onnx.export(module, samples, input_names=list(inputs), dynamo=True, verbose=False)
    return made.model_proto
