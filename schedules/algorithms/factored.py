"""A sum of products of several factors becomes sums of products of two factors.

If a factor does not depend on an axis, the sum over this axis is computed before the multiplication by this
factor.

    M[i, r] = Σ_j Σ_k X[i, j, k] * B[j, r] * C[k, r]

        ──▶   M.part[i, j, r] = Σ_k X[i, j, k] * C[k, r]
              M[i, r]         = Σ_j M.part[i, j, r] * B[j, r]

A count of operations, and of elements that are written and read again, decides which two factors are joined
first. Dynamic programming over subsets of the factors makes the trees of pairs. Each of the cheapest trees is
an algorithm, so that the search can race them.

Products are distributed over sums and regrouped, so rounding differs. It stays within the bound of the sum as
it is written, because the error of a part is multiplied by the same factors as its terms. If an operand is
infinite, NaN may become an infinity: ∞ * (1 + 0) instead of ∞ * 1 + ∞ * 0. A part may overflow, even if a
small factor would have kept the terms finite. So floats are regrouped only in fast numerics, and 16-bit
floats never. The results for integers are the same, modulo 2ⁿ.
Source: Pfeifer, Haegeman and Verstraete, "Faster identification of optimal contraction sequences for tensor
networks" (Physical Review E, 2014).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import combinations, product
from math import prod

from autotensor.ir.expr import Binary, Expr, Load, Op
from autotensor.ir.func import Buffer
from autotensor.ir.visit import collect, free_vars
from autotensor.schedule.algorithm import ALGORITHMS, Algorithm
from autotensor.schedule.axis import fresh
from autotensor.schedule.extents import access
from autotensor.schedule.state import Stage, State
from autotensor.te.dag import StageOp
from autotensor.te.stage import IterDef
from autotensor.te.tensor import AxisKind

NAMES = ("factored", "factored_second", "factored_third")  # in the order of the count
MOVED = 4.0  # writing or reading an element takes the time of this many multiply-additions (chosen, 2026-11)
MOST_FACTORS = 7  # 3^7 pairs of subsets

Names = frozenset[str]  # names of axes


@dataclass(frozen=True, slots=True)
class SummedFactor:
    """One factor of the product as it is written."""

    value: Expr
    axes: Names


@dataclass(frozen=True, slots=True)
class Join:
    """The product of two parts (or one part alone), summed over the axes on which no other part depends."""

    parts: tuple[SummedFactor | Join, ...]
    axes: Names  # the result's axes
    summed: Names


@dataclass(frozen=True, slots=True)
class Factoring:
    """A way to compute the sum: its last join, and the cost of all joins. Constant factors are multiplied
    last."""

    root: Join
    cost: float  # multiply-additions


def written_cost(op: StageOp, operations: float) -> float:
    """The cost of the sum as it is written, in the unit of `Factoring.cost`. operations: operations of a
    term."""
    factors = factors_of(op)
    terms = op.points() * operations
    extents = {a.name: a.extent for a in op.all_axes}
    return terms + sum(_moved(f.axes, extents) for f in factors) + _moved({a.name for a in op.axes}, extents)


@lru_cache(maxsize=256)  # called by rules, and again by the steps of each sketch
def factorings(op: StageOp) -> tuple[Factoring, ...]:
    """The cheapest ways, the best first, without the sum as it is written; () for other kinds of stages."""
    factors = factors_of(op)
    varying = tuple(f for f in factors if f.axes)
    if not 2 <= len(varying) <= MOST_FACTORS:
        return ()
    if {a.name for a in op.reduce_axes} - frozenset().union(*(f.axes for f in varying)):
        return ()  # a sum of equal terms
    found = _Joins(op, varying).best()
    return tuple(f for f in found if not _is_single_sum(op, factors, f))


def factors_of(op: StageOp) -> tuple[SummedFactor, ...]:
    """The factors of the terms; () unless the stage is a sum of products with one result and one type."""
    c = op.combiner
    if c is None or c.name != "sum" or len(op.bodies) != 1 or op.is_open:
        return ()
    t = op.buffers[0].dtype
    if op.bodies[0].dtype is not t or t.is_half or t.is_bool or t.lanes > 1:
        return ()
    names = {a.name for a in op.all_axes}
    return tuple(
        SummedFactor(e, frozenset(v.name for v in free_vars(e)) & names) for e in product_of(op.bodies[0])
    )


def product_of(e: Expr) -> Iterator[Expr]:
    match e:
        case Binary(Op.MUL, a, b):
            yield from product_of(a)
            yield from product_of(b)
        case _:
            yield e


def _moved(axes: Names | set[str], extents: dict[str, int]) -> float:
    return MOVED * prod(extents[n] for n in axes)


class _Joins:
    """The cheapest joins of each subset of the factors, by dynamic programming."""

    def __init__(self, op: StageOp, factors: Sequence[SummedFactor]) -> None:
        self._factors = factors
        self._extents = {a.name: a.extent for a in op.all_axes}
        self._results = frozenset(a.name for a in op.axes)

    def best(self) -> tuple[Factoring, ...]:
        """The cheapest joins of all factors, the best first."""
        everything = range(len(self._factors))
        ways: dict[frozenset[int], list[_Way]] = {}
        for size in range(1, len(self._factors) + 1):
            for subset in map(frozenset, combinations(everything, size)):
                found = [*(self._alone(subset) if size == 1 else self._pairs(subset, ways))]
                ways[subset] = sorted(found, key=lambda w: w.cost)[: len(NAMES)]
        whole = ways[frozenset(everything)]
        return tuple(Factoring(w.part, w.cost) for w in whole if isinstance(w.part, Join))

    def _alone(self, subset: frozenset[int]) -> Iterator[_Way]:
        """A factor alone: unchanged, and summed over the axes on which only this factor depends."""
        factor = self._factors[min(subset)]
        whole, summed = _Way(0.0, factor), self._join((_Way(0.0, factor),), subset)
        yield whole
        if summed.part.axes != factor.axes:
            yield summed

    def _pairs(self, subset: frozenset[int], ways: dict[frozenset[int], list[_Way]]) -> Iterator[_Way]:
        first, *rest = sorted(subset)
        for size in range(len(rest)):
            for others in combinations(rest, size):
                one = frozenset((first, *others))
                for pair in product(ways[one], ways[subset - one]):
                    yield self._join(pair, subset)

    def _join(self, ways: tuple[_Way, ...], subset: frozenset[int]) -> _Way:
        needed = self._results.union(*(f.axes for n, f in enumerate(self._factors) if n not in subset))
        union = frozenset().union(*(w.part.axes for w in ways))
        part = Join(tuple(w.part for w in ways), union & needed, union - needed)
        moved = sum(_moved(axes, self._extents) for axes in (part.axes, *(w.part.axes for w in ways)))
        terms = prod(self._extents[n] for n in union)
        return _Way(sum(w.cost for w in ways) + terms + moved, part)


@dataclass(frozen=True, slots=True)
class _Way:
    cost: float
    part: SummedFactor | Join


def _is_single_sum(op: StageOp, factors: Sequence[SummedFactor], found: Factoring) -> bool:
    """Whether a factoring is the sum as it is written."""
    return len(found.root.parts) == len(factors) and all(
        isinstance(p, SummedFactor) for p in found.root.parts
    )


# -- stages --------------------------------------------------------------------------------------------------


def factored(state: State, stage: Stage, rank: int) -> tuple[StageOp, ...] | None:
    """The joins of the factoring with this rank, each as a stage; None if there is no such factoring."""
    found = factorings(stage.op)
    if rank >= len(found):
        return None
    return tuple(_Writer(stage.op, set(state.names)).write(found[rank].root))


class _Writer:
    """Makes a stage of each join, producers first."""

    def __init__(self, op: StageOp, taken: set[str]) -> None:
        self._op, self._taken = op, taken
        self._made: list[StageOp] = []

    def write(self, root: Join) -> list[StageOp]:
        op = self._op
        constant = [f.value for f in factors_of(op) if not f.axes]
        is_whole = root.axes == {a.name for a in op.axes} and not constant
        if root.summed and not is_whole:
            factors, summed = [self._value(root), *constant], frozenset[str]()
        else:
            factors, summed = [*map(self._value, root.parts), *constant], root.summed
        over = tuple(a for a in op.reduce_axes if a.name in summed)
        body = reduce(_times, factors)
        last = replace(op, reduce_axes=over, bodies=(body,), combiner=op.combiner if over else None)
        return [*self._made, last]

    def _value(self, part: SummedFactor | Join) -> Expr:
        """A part as an expression. The result of a join is read from its stage."""
        if isinstance(part, SummedFactor):
            return part.value
        op = self._op
        body = reduce(_times, map(self._value, part.parts))
        axes, over = self._order(part), tuple(a for a in op.reduce_axes if a.name in part.summed)
        name = fresh(f"{op.name}.part", self._taken)
        self._taken.add(name)
        buffer = Buffer(name, tuple(a.extent for a in axes), op.buffers[0].dtype)
        combiner = op.combiner if over else None
        self._made.append(StageOp(name, axes, over, (body,), combiner, (buffer,)))
        return Load(buffer, tuple(a.var for a in axes))

    def _order(self, part: Join) -> tuple[IterDef, ...]:
        """The axes of a join's result in the order of the sum, except the last one. It is the last axis of
        the sum's result, or otherwise an axis along which most factors are contiguous in memory."""
        axes = [replace(a, kind=AxisKind.SPATIAL) for a in self._op.all_axes if a.name in part.axes]
        if not axes:
            return ()
        column = self._op.axes[-1].name if self._op.axes else ""
        loads = [e for f in _leaves(part) for e in collect(f.value, Load) if e.indices]
        along = [_last_axis(load) for load in loads]
        last = max(reversed(axes), key=lambda a: (a.name == column, along.count(a.name)))
        return (*(a for a in axes if a is not last), last)


def _times(a: Expr, b: Expr) -> Expr:
    return Binary(Op.MUL, a, b)


def _leaves(part: SummedFactor | Join) -> Iterator[SummedFactor]:
    if isinstance(part, SummedFactor):
        yield part
    else:
        for p in part.parts:
            yield from _leaves(p)


def memory_order(e: Expr, axes: Sequence[IterDef]) -> tuple[IterDef, ...]:
    """The axes in the order of the dimensions of the loads in `e`, outermost first. Axes of no load come
    before them."""
    walkers = [v for load in collect(e, Load) for i in load.indices for v in free_vars(i)]
    rank = {v: n for n, v in enumerate(walkers)}
    return tuple(sorted(axes, key=lambda a: rank.get(a.var, -1)))


def _last_axis(load: Load) -> str | None:
    """The axis that alone is the load's last index."""
    last = access(load.indices[-1])
    return None if last is None else last.axis


def _of_rank(rank: int) -> Callable[[State, Stage], tuple[StageOp, ...] | None]:
    def expand(state: State, stage: Stage) -> tuple[StageOp, ...] | None:
        return factored(state, stage, rank)

    return expand


for _rank, _name in enumerate(NAMES):
    ALGORITHMS.add(_name, Algorithm(_name, _of_rank(_rank)))
