"""Converts a torch module to an ONNX model, with torch's own exporter.

This is for networks whose graph `to_onnx.py` cannot write. A recurrent layer then is one LSTM or GRU node,
which onnxruntime runs fast; autotensor's graph has each step. It needs `onnx` and `onnxscript`.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def torch_to_onnx(module: Any, inputs: Mapping[str, Array]) -> Any:
    """An onnx.ModelProto with the module's weights inside. Its inputs are in the order of the samples in
    `inputs`."""
    # if it is missing, this raises ImportError; torch would raise another error
    import onnxscript  # noqa: F401
    import torch

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # no warning about missing torchvision
    samples = tuple(map(torch.from_numpy, inputs.values()))
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the exporter's own imports are deprecated
        made = torch.onnx.export(module, samples, input_names=list(inputs), dynamo=True, verbose=False)
    return made.model_proto
