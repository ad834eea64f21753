"""The distance of a model's results from those of a reference: how far at most, and at which element."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from autotensor.api.verifying.report import Distance

Array = np.ndarray[Any, Any]


def distances(
    names: Iterable[str], ours: Sequence[Array], reference: str, theirs: Sequence[Array]
) -> list[Distance]:
    """A row for each result that has elements, and the same shape in both."""
    rows = zip(names, ours, theirs, strict=False)
    return [_distance(n, a, reference, b) for n, a, b in rows if a.shape == b.shape and a.size]


def _distance(name: str, mine: Array, reference: str, other: Array) -> Distance:
    a, b = mine.astype(np.float64), other.astype(np.float64)
    with np.errstate(all="ignore"):
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        apart = np.where(np.isnan(apart), np.inf, apart)  # one of the two is not a number
        largest = float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b)))
    at = np.unravel_index(int(apart.argmax()), a.shape)
    absolute = float(apart[at])
    relative = 0.0 if absolute == 0 else absolute / largest if largest else float("inf")
    return Distance(name, reference, absolute, relative, tuple(map(int, at)), float(a[at]), float(b[at]))
