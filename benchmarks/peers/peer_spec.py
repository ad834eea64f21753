"""What a contestant is: which library, how it is asked for, and what it gives back."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Ready = tuple[Callable[[], object], Callable[[], Array]]


class Skip(Exception):
    """This contestant does not take part in this job, and why; not a failure."""


@dataclass(frozen=True)
class Spec:
    """A contestant: which library, and how. Travels to its process as JSON."""

    kind: str  # a key of KINDS
    threads: int
    channels_last: bool = False  # torch: activations and weights in channels-last order
    numerics: str = "strict"  # ours: "fast" also allows Winograd's convolution
    cpu: str = "native"  # ours: the processor that code is for
    log: str = ""  # ours: tuning log; "" takes default schedules
    file: str = ""  # ours: a compiled model, or a folder of schedules; tvm: where its packages are
    environment: dict[str, str] = field(default_factory=dict)

    def variables(self) -> dict[str, str]:
        """Environment of its process: every library's own way to say how many threads."""
        names = (
            "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS",
            "AUTOTENSOR_NUM_THREADS", "HL_NUM_THREADS", "NUMBA_NUM_THREADS",
        )  # fmt: skip
        ours = {"AUTOTENSOR_NO_SHIPPED": "1"}  # what comes tuned may have been tuned on these very rows
        return {
            **dict.fromkeys(names, str(self.threads)),
            "PYTHONUNBUFFERED": "1",
            **ours,
            **self.environment,
        }


def cache_folder() -> str:
    """Where compiled code, tuning logs and environments of the benchmarks live between runs."""
    import platformdirs

    folder = os.path.join(platformdirs.user_cache_dir("autotensor"), "benchmarks")
    os.makedirs(folder, exist_ok=True)
    return folder
