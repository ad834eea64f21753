"""Square transposes in registers: strided loads side by side become row loads and shuffles.

    x0 = A[0], A[s], …, A[15s]              r0 = A[0 … 15]
    x1 = A[1], A[s+1], …                    r1 = A[s … s+15]
    …                              ──▶      …                    x = transpose(r), 64 shuffles
    x15 = A[15], A[s+15], …                 r15 = A[15s … 15s+15]

Both sides touch the same elements. A load by lanes costs one move per element, a shuffle a quarter of that.
Source: the perfect-shuffle transpose (Stone, "Parallel processing with the perfect shuffle", 1971).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autotensor.base.dtype import DType
from autotensor.codegen.llvm.memory import MemoryWriter
from autotensor.codegen.llvm.text import ty
from autotensor.ir.affine import Affine
from autotensor.ir.expr import Expr, Load
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.stmt import Stmt, Store

LEAST_LANES, MOST_LANES = 4, 16  # of a square


@dataclass(frozen=True, slots=True)
class Square:
    """As many rows, by the index of their first element, as columns, by the load that wants them."""

    rows: tuple[Affine, ...]
    columns: tuple[Load, ...]


class Transposer(MemoryWriter):
    """A writer that transposes what a sequence of statements loads by lanes."""

    def squares(self, stmts: Sequence[Stmt]) -> dict[Stmt, list[Square]]:
        """Whole squares among what a sequence of stores loads, by the first store that wants one.

        None of the stores may write what is loaded.
        """
        stores = [s for s in stmts if isinstance(s, Store)]
        if len(stores) < LEAST_LANES or len(stores) < len(stmts):
            return {}
        written = {s.buffer for s in stores}
        found: dict[
            tuple[Buffer, DType, int, frozenset[tuple[Expr, int]]], dict[int, tuple[Load, Affine]]
        ] = {}
        users: dict[Load, int] = {}
        for n, store in enumerate(stores):
            for load in self.loads(store.value):
                known = self._strided(load)
                if known is not None and load.buffer not in written:
                    base, step = known
                    key = (load.buffer, load.dtype, step, frozenset(base.terms.items()))
                    found.setdefault(key, {})[base.constant] = (load, base)
                    users.setdefault(load, n)
        out: dict[Stmt, list[Square]] = {}
        for (_, _, step, _), at in found.items():
            for square in _whole(at, step):
                out.setdefault(stores[min(users[x] for x in square.columns)], []).append(square)
        return out

    def turn(self, square: Square) -> None:
        """Load the rows of a square; its columns are then known."""
        for load, vector in zip(square.columns, self._transposed(square), strict=True):
            self.remember(load, vector, self.depth)
            self.readers[load.buffer].append(load)

    def _strided(self, load: Load) -> tuple[Affine, int] | None:
        """Base and step of a plain load by lanes."""
        n = load.dtype.lanes
        if load.mask is not None or not LEAST_LANES <= n <= MOST_LANES or n & (n - 1) or load.dtype.is_bool:
            return None
        if load.buffer.scope is Scope.REGISTER:
            return None
        lanes = self._lanes(load.buffer, load.indices)
        if isinstance(lanes, Expr):
            return None
        base, offsets = lanes
        step = offsets[1] - offsets[0]
        even = all(o == k * step for k, o in enumerate(offsets))
        return (base, step) if even and step >= n else None

    def _transposed(self, square: Square) -> list[str]:
        first = square.columns[0]
        t, n = first.dtype, first.dtype.lanes
        half = n // 2
        low = ", ".join(f"i32 {k}, i32 {n + k}" for k in range(half))
        high = ", ".join(f"i32 {half + k}, i32 {n + half + k}" for k in range(half))
        vectors = [self._plain_load(first.buffer, row, t, None) for row in square.rows]
        for _ in range(n.bit_length() - 1):
            vectors = [
                self.op(f"shufflevector {ty(t)} {a}, {ty(t)} {b}, <{n} x i32> <{order}>")
                for a, b in zip(vectors[:half], vectors[half:], strict=True)
                for order in (low, high)
            ]
        return vectors


def _whole(at: dict[int, tuple[Load, Affine]], step: int) -> Iterator[Square]:
    """Runs of as many neighbouring columns as there are lanes."""
    for start in sorted(at):
        if start not in at:
            continue  # taken by the run before
        n = at[start][0].dtype.lanes
        run = range(start, start + n)
        if all(c in at for c in run):
            taken = [at.pop(c) for c in run]
            base = taken[0][1]
            rows = tuple(base.shift(r * step) for r in range(n))
            yield Square(rows, tuple(load for load, _ in taken))
