"""Stages and their axes, as plain frozen data: the form in which the rest of the system sees one compute.

C = te.compute((32, 32), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k))
        ──▶  StageOp("C", (i, j), (k,), bodies=(A[i, k] * B[k, j],), combiner=sum, buffers=(C,))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from autotensor.base.dtype import DType, int64
from autotensor.ir.expr import Binary, Call, Combiner, Compare, Const, Expr, Load, Symbol, Var, const
from autotensor.ir.func import Buffer
from autotensor.ir.node import children
from autotensor.ir.simplify import simplify
from autotensor.ir.visit import collect, walk
from autotensor.te.tensor import AxisKind


@dataclass(frozen=True, slots=True)
class IterDef:
    """One axis of a stage."""

    name: str
    extent: int  # the greatest value, if the extent is known only at run time
    kind: AxisKind = AxisKind.SPATIAL
    runtime: Expr | None = None  # the extent's value, if it is known at run time only

    @property
    def var(self) -> Var:
        return Var(self.name, int64)

    @property
    def size(self) -> Expr:
        """The extent as an expression."""
        return const(self.extent) if self.runtime is None else self.runtime

    def blocks(self, name: str, of: int) -> IterDef:
        """An axis over blocks of this number of points; the last block may be smaller."""
        runtime = None if self.runtime is None else simplify((self.runtime + (of - 1)) // of)
        return IterDef(name, -(-self.extent // of), self.kind, runtime)


@dataclass(frozen=True, slots=True)
class StageOp:
    """One compute: `buffers[n][axes] = bodies[n]` for each output, joined over the reduce axes, if any."""

    name: str
    axes: tuple[IterDef, ...]
    reduce_axes: tuple[IterDef, ...]
    bodies: tuple[Expr, ...]
    combiner: Combiner | None
    buffers: tuple[Buffer, ...]
    tag: str = ""

    @property
    def is_reduction(self) -> bool:
        return self.combiner is not None

    @property
    def all_axes(self) -> tuple[IterDef, ...]:
        return (*self.axes, *self.reduce_axes)

    @property
    def is_open(self) -> bool:
        """Whether the stage depends on extents that are known at run time only."""
        return any(a.runtime is not None for a in self.all_axes) or bool(self.body_symbols)

    @property
    def body_symbols(self) -> tuple[Symbol, ...]:
        """The symbols that the bodies use as numbers or in indices, in order of appearance."""
        return _symbols_in(self.bodies)

    @property
    def has_open_sum(self) -> bool:
        """Whether an extent that is summed over is known at run time only."""
        return any(a.runtime is not None for a in self.reduce_axes)

    def loads(self) -> tuple[Load, ...]:
        """Distinct loads of all bodies, in order."""
        return _loads(self.bodies)

    def reads(self) -> tuple[Buffer, ...]:
        """Distinct buffers read, in order."""
        return _reads(self.bodies)

    def points(self) -> int:
        """Evaluations of the body."""
        return prod(a.extent for a in self.all_axes)

    def joins(self) -> int:
        """Operations that join one term to the others; 0 if the stage is not a reduction."""
        return sum(max(1, operations(r)) for r in self.combiner.result) if self.combiner else 0


def axes_over(buffer: Buffer, prefix: str = "d") -> tuple[IterDef, ...]:
    """One axis for each dimension of a buffer, with the dimension's number in its name."""
    return tuple(
        IterDef(f"{prefix}{n}", extent, runtime=None if isinstance(size, Const) else size)
        for n, (extent, size) in enumerate(zip(buffer.shape, buffer.dims, strict=True))
    )


def buffer_over(axes: Sequence[IterDef], name: str, dtype: DType) -> Buffer:
    """A buffer with one element for each point of the axes."""
    is_open = any(a.runtime is not None for a in axes)
    extents = tuple(a.size for a in axes) if is_open else ()
    return Buffer(name, tuple(a.extent for a in axes), dtype, extents=extents)


@lru_cache(maxsize=4096)  # schedules call this again and again, and bodies are interned
def _loads(bodies: tuple[Expr, ...]) -> tuple[Load, ...]:
    return tuple(dict.fromkeys(load for body in bodies for load in collect(body, Load)))


@lru_cache(maxsize=4096)
def _symbols_in(bodies: tuple[Expr, ...]) -> tuple[Symbol, ...]:
    return tuple(dict.fromkeys(n for body in bodies for n in walk(body) if isinstance(n, Symbol)))


@lru_cache(maxsize=4096)
def _reads(bodies: tuple[Expr, ...]) -> tuple[Buffer, ...]:
    return tuple(dict.fromkeys(load.buffer for load in _loads(bodies)))


@lru_cache(maxsize=4096)
def operations(body: Expr) -> int:
    """Float operations of a body, each occurrence counted."""
    found: dict[Expr, int] = {}

    def count(node: Expr) -> int:
        if isinstance(node, Load):
            return 0  # index arithmetic is not counted
        if node not in found:
            found[node] = _own(node) + sum(count(c) for c in children(node) if isinstance(c, Expr))
        return found[node]

    return count(body)


@lru_cache(maxsize=4096)
def distinct_operations(body: Expr) -> int:
    """Float operations of a body; repeated operations count once, because code computes them once, too."""
    return float_operations((body,))


def float_operations(bodies: Sequence[Expr]) -> int:
    """Float operations of several bodies that are computed together; repeated operations count once."""
    return sum(_own(e) for e in evaluated(bodies))


def evaluated(bodies: Sequence[Expr]) -> list[Expr]:
    """The distinct expressions that bodies evaluate, without loads and without the arithmetic of indices."""
    seen: set[Expr] = set()
    waiting = list(bodies)
    while waiting:
        e = waiting.pop()
        if e not in seen and not isinstance(e, Load):
            seen.add(e)
            waiting.extend(c for c in children(e) if isinstance(c, Expr))
    return list(seen)


def _own(node: Expr) -> int:
    """Float operations of a node without its operands."""
    if isinstance(node, (Binary, Compare)):
        return int(node.a.dtype.is_float)
    return int(isinstance(node, Call) and node.dtype.is_float)
