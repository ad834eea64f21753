"""How near two tensors are, over any number of batches.

Sums.of(a, b) + Sums.of(c, d) ──▶ .agreement()
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement of one tensor with another one that is taken as right."""

    cosine: float  # NaN if a value is not finite; the same holds for the next two
    max_abs: float  # the largest difference
    snr_db: float  # 10 log10(Σ right² / Σ difference²); infinite if the tensors are equal
    top1: float | None = None  # share of rows whose greatest elements agree in index; None: no classes


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums from which an agreement is computed."""

    product: float = 0.0
    right: float = 0.0  # sum of the squares of the right values
    other: float = 0.0  # sum of the squares of the other values
    error: float = 0.0  # sum of the squares of the differences
    max_abs: float = 0.0
    same: int = 0  # rows whose greatest elements have the same index
    rows: int = 0  # 0 if the arrays are not classes

    @staticmethod
    def of(right: Array, other: Array, classes: bool = False) -> Sums:
        """The agreement of two arrays of one shape. classes: the arrays are [rows, classes], and the greatest
        element of a row is the answer."""
        a, b = (np.asarray(x, np.float64).ravel() for x in (right, other))
        with np.errstate(invalid="ignore", over="ignore"):
            d = a - b
            sums = Sums(
                float(a @ b), float(a @ a), float(b @ b), float(d @ d), float(abs(d).max(initial=0.0))
            )
        if not classes:
            return sums
        hits = right.argmax(axis=1) == other.argmax(axis=1)
        return replace(sums, same=int(hits.sum()), rows=len(hits))

    def __add__(self, more: Sums) -> Sums:
        return Sums(
            self.product + more.product,
            self.right + more.right,
            self.other + more.other,
            self.error + more.error,
            float(np.maximum(self.max_abs, more.max_abs)),  # keeps NaN
            self.same + more.same,
            self.rows + more.rows,
        )

    def agreement(self) -> Agreement:
        """
        >>> Sums.of(np.array([3.0, 4.0]), np.array([3.0, 3.5])).agreement()
        Agreement(cosine=0.9979..., max_abs=0.5, snr_db=20.0, top1=None)
        """
        lengths = math.sqrt(self.right) * math.sqrt(self.other)
        if self.error == 0.0:
            cosine, snr = 1.0, math.inf
        else:
            cosine = self.product / lengths if lengths else 0.0
            snr = 10.0 * math.log10(self.right / self.error) if self.right else -math.inf
        return Agreement(cosine, self.max_abs, snr, self.same / self.rows if self.rows else None)
