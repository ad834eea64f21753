"""The terms of the priors for a stage: the parts of its predicted time. Features read them, too."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Terms:
    """The parts of a stage's predicted time, in seconds for each candidate."""

    compute: Floats
    moves: tuple[Floats, ...]  # bytes from behind L1, L2, L3 …
    chunks: Floats  # iterations of the parallel loop, 1 without one
    imbalance: Floats  # ≥ 1
    tile: Floats  # vector accumulators (or stores) of one unrolled step
    loads: Floats  # vector or scalar loads of one step
    parts: tuple[Floats, ...]  # seconds of all cores: computing, then behind every cache
    hidden: Floats  # the seconds in `parts` that computing includes already
    launch: float  # seconds of its parallel region
    total: Floats  # seconds of the stage alone
