"""Sums of a model's extents that are equal at all samples by chance.

    n_1 = n // 16 + 1, n_2 = (n_1 + 1) // 2      all samples have an odd n_1      ──▶  n_1 + 1 = 2 * n_2 there

A kernel with such samples would get 2 * n_2 for n_1 + 1. So the samples must tell such sums apart: columns of
few extents are linearly independent at the samples, if they are so over the whole range.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# smallest share of the greatest extents that is not a rounding error: rests are 1 of at most some millions
SMALL = 1e-10


def place_of_difference(sampled: NDArray[np.int64], whole: NDArray[np.int64]) -> int | None:
    """The last row of `whole` at which a sum is not 0 that is 0 in all rows of `sampled`; None without one.

    Each column is an extent. A sum is any sum of the columns and of 1, each times a factor.

    >>> place_of_difference(np.array([[3, 2], [5, 3], [7, 4]]), np.array([[3, 2], [4, 2], [5, 3]]))
    1
    """
    most = np.maximum(np.abs(whole).max(axis=0), 1)
    _, sizes, rows = np.linalg.svd(_with_ones(sampled / most))  # rows: [columns + 1, columns + 1]
    zero = rows[int((sizes > SMALL).sum()) :]
    if not len(zero):
        return None
    misses = np.abs(_with_ones(whole / most) @ zero.T).max(axis=1)
    places = np.flatnonzero(misses > SMALL)
    return int(places[-1]) if places.size else None


def _with_ones(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.column_stack([np.ones(len(columns)), columns])


__all__ = ["place_of_difference"]
