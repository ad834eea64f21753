"""Loads of scattered lanes that together read whole stretches of memory: these loads share vectors.

    x0 = A[0, s, 2s, 1, s+1, …]            a, b, c = A[0 … 15], A[s … s+15], A[2s … 2s+15]
    x1 = A[s+5, 2s+5, 6, …]         ──▶    x0 = shuffle(shuffle(a, b), c)
    x2 = A[2s+10, 11, s+11, …]             x1 = …

In this way interleaved colours become planes and planes become interleaved colours, and even and odd elements
are separated. Only elements that some load reads are loaded. If the number of loads equals the number of
lanes and they read neighbouring columns, the vectors are rows of a square, which is transposed as a whole:

    x0 = A[0], A[s], …, A[15s]              r0 = A[0 … 15]
    x1 = A[1], A[s+1], …                    r1 = A[s … s+15]
    …                              ──▶      …                    x = transpose(r), 64 shuffles
    x15 = A[15], A[s+15], …                 r15 = A[15s … 15s+15]

Both sides touch the same elements. A load of scattered lanes costs one move per element, a shuffle a quarter
of that.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from autotensor.base.dtype import int64
from autotensor.ir.affine import Affine
from autotensor.ir.expr import Expr, Load
from autotensor.ir.func import Scope
from autotensor.ir.lane_offsets import Lanes, lanes_of
from autotensor.ir.stmt import Stmt, Store

LEAST_LANES, MOST_LANES = 4, 16  # lanes of loads that share vectors
# most vectors from which one result is shuffled; with more, a shuffle costs as much as moving lanes
MOST_SOURCES = 4
# most source vectors as a share of a vector's lanes, on processors where one instruction takes lanes from
# anywhere in two vectors (in vectors of 16 lanes, softmax of rows of 7 took 0.83 x the time of moving lanes,
# normalising rows of 9 1.27 x; Zen 4, 2026-11)
MIXED = 7 / 16


@dataclass(frozen=True, slots=True)
class SharedVectors:
    """Vectors of one buffer, and the loads whose lanes they hold. All positions count from `base`."""

    base: Affine
    vectors: tuple[int, ...]  # the first element of each
    wanted: Mapping[Load, tuple[int, ...]]  # the position of each lane
    is_square: bool  # lane k of load n is lane n of vector k

    def sources(self, load: Load) -> tuple[tuple[int, int], ...]:
        """Where each lane of a load is found: the index of a vector, and a lane of this vector."""
        places = self.wanted[load]
        return tuple(
            (k, p - self.vectors[k]) for p, k in zip(places, _homes(places, self.vectors), strict=True)
        )


def shared_vectors(
    stmts: Sequence[Stmt], loads: Callable[[Expr], Iterable[Load]], mixes: bool = False
) -> dict[Stmt, list[SharedVectors]]:
    """The vectors that a sequence of stores shares, by the first store that reads them. `loads` returns the
    loads in a value; `mixes`: whether one instruction takes lanes of two vectors in any order.

    A store to a loaded buffer must come before the load.
    """
    stores = [s for s in stmts if isinstance(s, Store)]
    if len(stores) < len(stmts):
        return {}
    written = {s.buffer: n for n, s in enumerate(stores)}  # buffer → the index of the last store to it
    users: dict[Load, int] = {}
    for n, store in enumerate(stores):
        for load in loads(store.value):
            if written.get(load.buffer, -1) < n:
                users.setdefault(load, n)
    places = {load: lanes for load in users if (lanes := _by_lanes(load)) is not None}
    squares = list(_squares(places)) if len(stores) >= LEAST_LANES else []
    taken = {load for square in squares for load in square.wanted}
    streams = _streams({load: lanes for load, lanes in places.items() if load not in taken}, mixes)
    out: dict[Stmt, list[SharedVectors]] = {}
    for shared in (*squares, *streams):
        out.setdefault(stores[min(users[load] for load in shared.wanted)], []).append(shared)
    return out


def _by_lanes(load: Load) -> Lanes | None:
    """The base without its constant, and the positions of the lanes, of a plain load whose lanes are not side
    by side. None for other loads."""
    n, index = load.dtype.lanes, load.indices[0]
    if load.mask is not None or not LEAST_LANES <= n <= MOST_LANES or n & (n - 1) or load.dtype.is_bool:
        return None
    if load.buffer.scope is Scope.REGISTER or index.dtype.element != int64:  # narrower sums may wrap
        return None
    lanes = lanes_of(index) if len(load.indices) == 1 else None
    if lanes is None:
        return None
    base, offsets = lanes
    if len(set(offsets)) == 1 or all(abs(b - a) == 1 for a, b in pairwise(offsets)):
        return None
    return Lanes(base.shift(-base.constant), tuple(base.constant + o for o in offsets))


def _group(load: Load, lanes: Lanes) -> tuple[object, ...]:
    """A key that is equal for loads that can share vectors."""
    return load.buffer, load.dtype, frozenset(lanes.base.terms.items())


def _squares(loads: Mapping[Load, Lanes]) -> Iterator[SharedVectors]:
    """Groups of loads that read neighbouring columns, as many columns as there are lanes."""
    groups: dict[tuple[object, ...], dict[int, Load]] = {}
    for load, lanes in loads.items():
        first, step = lanes.offsets[0], lanes.offsets[1] - lanes.offsets[0]
        if step >= load.dtype.lanes and all(o == first + k * step for k, o in enumerate(lanes.offsets)):
            groups.setdefault((step, *_group(load, lanes)), {})[first] = load
    for at in groups.values():
        for start in sorted(at):
            if start not in at:
                continue  # the run before has taken this column
            base, rows = loads[at[start]]
            run = range(start, start + len(rows))
            if all(c in at for c in run):
                yield SharedVectors(
                    base, rows, {load: loads[load].offsets for load in map(at.pop, run)}, True
                )


def _streams(loads: Mapping[Load, Lanes], mixes: bool) -> Iterator[SharedVectors]:
    """Groups of loads from one buffer whose lanes together fill whole vectors."""
    groups: dict[tuple[object, ...], dict[Load, Lanes]] = {}
    for load, lanes in loads.items():
        groups.setdefault(_group(load, lanes), {})[load] = lanes
    for group in groups.values():
        wanted = {load: lanes.offsets for load, lanes in group.items()}
        base, first = next(iter(group.values()))
        vectors = _vectors({p for places in wanted.values() for p in places}, len(first))
        most = max(MOST_SOURCES, int(MIXED * len(first)) if mixes else 0)
        if vectors and all(len(set(_homes(places, vectors))) <= most for places in wanted.values()):
            yield SharedVectors(base, vectors, wanted, False)


def _vectors(places: set[int], lanes: int) -> tuple[int, ...]:
    """The first elements of vectors that hold exactly these positions; () if stretches are too short."""
    ordered = sorted(places)
    out: list[int] = []
    begin = ordered[0]
    for a, b in pairwise([*ordered, ordered[-1] + 2]):
        if b == a + 1:
            continue
        if a + 1 - begin < lanes:
            return ()
        out.extend(range(begin, a + 2 - lanes, lanes))
        if out[-1] + lanes <= a:
            out.append(a + 1 - lanes)
        begin = b
    return tuple(out)


def _homes(places: tuple[int, ...], vectors: tuple[int, ...]) -> list[int]:
    """For each position, the index of the vector that holds it: the last vector that starts at or before it.
    `vectors` ascends."""
    return [bisect_right(vectors, p) - 1 for p in places]
