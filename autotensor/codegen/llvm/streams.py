"""Loads by lanes that together read whole stretches of memory: vectors and shuffles instead of lane moves.

    x0 = A[0, s, 2s, 1, s+1, …]            a, b, c = A[0 … 15], A[s … s+15], A[2s … 2s+15]
    x1 = A[s+5, 2s+5, 6, …]         ──▶    x0 = shuffle(shuffle(a, b), c)
    x2 = A[2s+10, 11, s+11, …]             x1 = …

So do three colours become pixels and pixels colours, and so are even and odd elements told apart. Only what
some load reads is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from autotensor.base.dtype import DType
from autotensor.codegen.llvm.text import ty
from autotensor.codegen.llvm.transpose import LEAST_LANES, MOST_LANES, Square, Transposer
from autotensor.ir.affine import Affine
from autotensor.ir.expr import Expr, Load
from autotensor.ir.func import Scope
from autotensor.ir.stmt import Stmt, Store

MOST_SOURCES = 4  # vectors of which one is shuffled; more cost as much as moving lanes


@dataclass(frozen=True, slots=True)
class Wanted:
    """A load, and the place of each of its lanes relative to the group's base."""

    load: Load
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Streams:
    """Loads of one buffer, and the first elements of the vectors that hold all they want."""

    base: Affine
    vectors: tuple[int, ...]
    wanted: tuple[Wanted, ...]


class Streamer(Transposer):
    """A writer that serves loads by lanes from whole vectors, squares first."""

    def squares(self, stmts: Sequence[Stmt]) -> dict[Stmt, list[Square | Streams]]:  # type: ignore[override]
        """Groups of loads by lanes among those of a sequence of stores, by the first store that wants one."""
        out: dict[Stmt, list[Square | Streams]] = {}
        taken: set[Load] = set()
        for stmt, squares in super().squares(stmts).items():
            out[stmt] = list(squares)
            taken.update(load for square in squares for load in square.columns)
        for stmt, streams in self._streams(stmts, taken):
            out.setdefault(stmt, []).append(streams)
        return out

    def turn(self, square: Square | Streams) -> None:
        """Load the vectors of a group; its loads are then known."""
        if isinstance(square, Square):
            super().turn(square)
            return
        t = square.wanted[0].load.dtype
        buffer = square.wanted[0].load.buffer
        vectors = [self._plain_load(buffer, square.base.shift(at), t, None) for at in square.vectors]
        for wanted in square.wanted:
            picked = _picked(wanted.places, square.vectors, t.lanes)
            self.remember(wanted.load, self._shuffled(vectors, picked, t), self.depth)
            self.readers[buffer].append(wanted.load)

    def _streams(self, stmts: Sequence[Stmt], taken: set[Load]) -> list[tuple[Stmt, Streams]]:
        stores = [s for s in stmts if isinstance(s, Store)]
        if len(stores) < len(stmts):
            return []
        written = {s.buffer for s in stores}
        groups: dict[tuple[object, ...], dict[Load, Wanted]] = {}
        first: dict[tuple[object, ...], tuple[Stmt, Affine]] = {}
        for store in stores:
            for load in self.loads(store.value):
                if load in taken or load.buffer in written:
                    continue
                found = self._scattered(load)
                if found is not None:
                    base, places = found
                    key = (load.buffer, load.dtype, frozenset(base.terms.items()))
                    groups.setdefault(key, {})[load] = Wanted(load, places)
                    first.setdefault(key, (store, base))
        out: list[tuple[Stmt, Streams]] = []
        for group_key, group in groups.items():
            begin, base = first[group_key]
            wanted = tuple(group.values())
            vectors = _vectors({p for w in wanted for p in w.places}, wanted[0].load.dtype.lanes)
            if vectors and all(len(set(_homes(w.places, vectors))) <= MOST_SOURCES for w in wanted):
                out.append((begin, Streams(base, vectors, wanted)))
        return out

    def _scattered(self, load: Load) -> tuple[Affine, tuple[int, ...]] | None:
        """Base without its constant, and places, of a plain load whose lanes are not side by side."""
        n = load.dtype.lanes
        if load.mask is not None or not LEAST_LANES <= n <= MOST_LANES or load.dtype.is_bool:
            return None
        if load.buffer.scope is Scope.REGISTER or n & (n - 1):
            return None
        lanes = self._lanes(load.buffer, load.indices)
        if isinstance(lanes, Expr):
            return None
        base, offsets = lanes
        if len(set(offsets)) == 1 or all(abs(b - a) == 1 for a, b in pairwise(offsets)):
            return None
        return base.shift(-base.constant), tuple(base.constant + o for o in offsets)

    def _shuffled(self, vectors: list[str], picked: tuple[tuple[int, int], ...], t: DType) -> str:
        """The vector whose lanes are lanes of others: (vector, lane) for each."""
        n = t.lanes
        sources = list(dict.fromkeys(v for v, _ in picked))
        result, done = vectors[sources[0]], {sources[0]}
        order = [lane if v == sources[0] else None for v, lane in picked]
        for source in sources[1:] or sources:
            mask = [
                n + lane if v == source and v not in done else kept
                for (v, lane), kept in zip(picked, order, strict=True)
            ]
            text = ", ".join("i32 poison" if m is None else f"i32 {m}" for m in mask)
            other = vectors[source]
            result = self.op(f"shufflevector {ty(t)} {result}, {ty(t)} {other}, <{n} x i32> <{text}>")
            done.add(source)
            order = [k if v in done else None for k, (v, _) in enumerate(picked)]
        return result


def _vectors(places: set[int], lanes: int) -> tuple[int, ...]:
    """First elements of vectors that hold the places and nothing else; () where stretches are too short."""
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
    """Which of the vectors holds each place; the last one that starts at or before it."""
    return [max(k for k, at in enumerate(vectors) if at <= p) for p in places]


def _picked(places: tuple[int, ...], vectors: tuple[int, ...], lanes: int) -> tuple[tuple[int, int], ...]:
    homes = _homes(places, vectors)
    assert all(p - vectors[k] < lanes for p, k in zip(places, homes, strict=True))
    return tuple((k, p - vectors[k]) for p, k in zip(places, homes, strict=True))
