"""The description of a contestant: the library, its settings, and the functions that it returns."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Ready = tuple[Callable[[], object], Callable[[], Array]]


class Skip(Exception):
    """This contestant does not take part in this job; the message says why. It is not a failure."""


@dataclass(frozen=True)
class Spec:
    """A contestant: the library and its settings. Its process gets them as JSON."""

    kind: str  # a key of KINDS
    threads: int
    channels_last: bool = False  # for torch: activations and weights in channels-last order
    numerics: str = "strict"  # for autotensor: "fast" also allows Winograd's convolution
    cpu: str = "native"  # for autotensor: the processor for which code is compiled
    log: str = ""  # for autotensor: the tuning log; "": default schedules
    # for autotensor: a compiled model or a folder of schedules; for tvm: the folder of its packages
    file: str = ""
    environment: dict[str, str] = field(default_factory=dict)

    def variables(self) -> dict[str, str]:
        """The environment variables of its process. Each library has its own variable for the number of
        threads."""
        names = (
            "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS",
            "AUTOTENSOR_NUM_THREADS", "HL_NUM_THREADS", "NUMBA_NUM_THREADS",
        )  # fmt: skip
        ours = {"AUTOTENSOR_NO_SHIPPED": "1"}  # shipped schedules may have been tuned on these rows
        return {
            **dict.fromkeys(names, str(self.threads)),
            "PYTHONUNBUFFERED": "1",
            **ours,
            **self.environment,
        }


def cache_folder() -> str:
    """The folder in which the benchmarks keep compiled code, tuning logs and environments between runs."""
    import platformdirs

    folder = os.path.join(platformdirs.user_cache_dir("autotensor"), "benchmarks")
    os.makedirs(folder, exist_ok=True)
    return folder
