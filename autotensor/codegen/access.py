"""The kind of access that a load or store is. This module decides the kind for every renderer; the renderers
only write the code.

    its lanes are at                       kind         how they are moved
    3, 4, 5, 6                             CONTIGUOUS   by one vector move (a scalar by its own)
    3, 3, 3, 3                             BROADCAST    one element is loaded for all
    6, 5, 4, 3                             PERMUTED     by one vector move and a shuffle of its lanes
    4, 4, 6, 6: inside an aligned vector   PERMUTED
    3, 9, 15, 21                           LANES        one after another
    i[3], i[4], i[5], i[6]                 SCATTERED    by a gather or scatter

Loads that share vectors are found for whole sequences of statements (`shared_vectors.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from math import prod

from autotensor.ir.affine import Affine
from autotensor.ir.expr import Broadcast, Const, Expr, Load
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.lane_offsets import lanes_of
from autotensor.ir.stmt import Store


class Kind(Enum):
    CONTIGUOUS = auto()
    BROADCAST = auto()
    PERMUTED = auto()
    LANES = auto()
    SCATTERED = auto()


@dataclass(frozen=True, slots=True)
class Access:
    """One load or store of a flat buffer."""

    kind: Kind
    start: Affine | None  # the first element that is moved; None: the lanes have no constant distances
    offsets: tuple[int, ...]  # the offset of each lane from `start`
    mask: Expr | None  # the mask of one lane or of all; None: everything is moved

    @property
    def is_whole(self) -> bool:
        """Whether all lanes are moved, in order, from neighbouring places."""
        return self.kind is Kind.CONTIGUOUS and self.mask is None

    def width(self, most: int, aligned: bool = True) -> int:
        """How many lanes one instruction may move: a power of two up to `most`; 1: lanes are moved one by
        one.

        The number of lanes of the access is a multiple of this width. With `aligned`, the index of its first
        element is a multiple of the width, too.
        """
        width = 1
        while self.is_whole and 2 * width <= most and len(self.offsets) % (2 * width) == 0:
            width *= 2
        while width > 1 and aligned and self.start is not None and self.start.divisor % width:
            width //= 2
        return width


def access_of(n: Load | Store) -> Access:
    """The access that a load or a store makes."""
    known = load_access if isinstance(n, Load) else store_access
    return known(n.buffer, n.indices[0], n.mask)


@lru_cache(maxsize=1 << 12)  # an unrolled tile uses the same indices again and again
def load_access(buffer: Buffer, index: Expr, mask: Expr | None = None) -> Access:
    """The access that a load from a flat buffer makes."""
    mask, lanes = _without_true(mask), lanes_of(index)
    if lanes is None:
        return Access(Kind.SCATTERED, None, (), mask)
    base, offsets = lanes
    kind, first = Kind.PERMUTED, None
    if _ascend(offsets):
        kind, first = Kind.CONTIGUOUS, offsets[0]
    elif mask is not None and mask.dtype.lanes > 1:
        kind, first = Kind.SCATTERED, 0
    elif len(set(offsets)) == 1:
        kind, first = Kind.BROADCAST, offsets[0]
    elif _ascend(offsets[::-1]):
        first = offsets[-1]
    else:
        first = _aligned_vector(buffer, base, offsets)
    if first is None:
        kind, first = Kind.LANES, 0
    return Access(kind, base.shift(first), tuple([o - first for o in offsets]) if first else offsets, mask)


@lru_cache(maxsize=1 << 12)
def store_access(buffer: Buffer, index: Expr, mask: Expr | None = None) -> Access:
    """The access that a store to a flat buffer makes. Lanes of register buffers are never scattered:
    registers have no address."""
    mask, lanes = _without_true(mask), lanes_of(index)
    if lanes is None:
        return Access(Kind.SCATTERED, None, (), mask)
    base, offsets = lanes
    if _ascend(offsets):
        return Access(Kind.CONTIGUOUS, base.shift(offsets[0]), tuple(range(len(offsets))), mask)
    apart = mask is None and len(set(offsets)) == len(offsets)
    kind = Kind.LANES if apart or buffer.scope is Scope.REGISTER else Kind.SCATTERED
    return Access(kind, base, offsets, mask)


def _ascend(offsets: tuple[int, ...]) -> bool:
    return offsets == tuple(range(offsets[0], offsets[0] + len(offsets)))


def _aligned_vector(buffer: Buffer, base: Affine, offsets: tuple[int, ...]) -> int | None:
    """The offset of the aligned vector that holds all lanes; None if there is none.

    If one lane is inside the buffer, the whole vector is: the size of the buffer is a multiple of the
    vector's.
    """
    lanes = len(offsets)
    whole = buffer.scope is not Scope.REGISTER and not prod(buffer.shape) % lanes and not buffer.dtype.is_bool
    whole = whole and not buffer.extents  # the buffer's end is known only at run time
    if not whole or any(c % lanes for c in base.terms.values()):
        return None
    vectors = {(base.constant + offset) // lanes for offset in offsets}
    return vectors.pop() * lanes - base.constant if len(vectors) == 1 else None


def _without_true(mask: Expr | None) -> Expr | None:
    """The mask in its simplest form: None if it is always true, a scalar if it is the same in all lanes."""
    if isinstance(mask, Broadcast):
        mask = mask.a
    return None if isinstance(mask, Const) and mask.value else mask
