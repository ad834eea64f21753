"""The work of one machine of a cluster: a gradient program, sent as bytes, runs on arrays sent with the call.

    gradients_of(program, threads, weights, batch, step, part)  ──▶  loss, gradients

The program is a saved artifact without its texts. Each process loads it once, and recognises it by its
content. The machine needs only NumPy and llvmlite. If its processor lacks a feature, an error says so in one
sentence.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from autotensor.runtime.open_artifact import Function
from autotensor.runtime.saved_model import load

Array = np.ndarray[Any, np.dtype[Any]]


def gradients_of(
    program: bytes,
    threads: int,
    weights: Sequence[Array],
    batch: Sequence[Array],
    step: int,
    part: int,
) -> list[Array]:
    """The loss of a part of the batch, then its gradients with respect to the weights.

    step, part: they make calls differ, for schedulers that take equal calls for a single one.
    """
    made = _opened(program, threads)(*batch, *weights)
    return [np.asarray(a) for a in (made if isinstance(made, tuple) else (made,))]


@lru_cache(maxsize=8)
def _opened(program: bytes, threads: int) -> Function:
    with tempfile.TemporaryDirectory(prefix="autotensor_") as folder:
        path = Path(folder) / "gradients.atm"
        path.write_bytes(program)
        return load(path, threads=threads)
