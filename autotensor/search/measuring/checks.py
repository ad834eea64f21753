"""Checks of answers: the inputs to test with, how far answers may differ, and when they must be equal.

    make_inputs(dag, "normal", seed=0)         random inputs; inputs used as indices stay in range
    exact_on_integers(dag)                     whether correct programs agree bit for bit on integers
    compare(got, want, bound)                  Verdict(error, allowed, complaint)
    compare_wide(got, exact, allowed)          against float64 answers, for algorithms that round differently

The oracle is the unscheduled program. It does not matter here where its answers come from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from autotensor.base.dtype import DType
from autotensor.ir.expr import (
    Binary,
    Call,
    Cast,
    Combiner,
    Compare,
    Const,
    Expr,
    Load,
    Neg,
    Op,
    Select,
    Unary,
    Var,
)
from autotensor.ir.func import Buffer
from autotensor.ir.visit import walk
from autotensor.search.measuring.candidate_memory import raw, repeat, stretches
from autotensor.te.dag import ComputeDAG, StageOp
from autotensor.te.indices import index_ranges
from autotensor.te.reference import random_inputs
from autotensor.te.tolerance import error_bound, scale, term_sizes

Array = np.ndarray[Any, np.dtype[Any]]

KINDS = ("normal", "positive", "integer")
LEAST_POSITIVE = 0.1
LARGE_BYTES = 64 << 20
PERIOD = 1_000_003  # large constants repeat after this many elements: a prime, so that no two rows are equal
MISMATCHES = 1e-3  # share of results that may differ, for an argmax, a rounding … of floats


def make_inputs(
    dag: ComputeDAG, kind: str, seed: int, known: Mapping[str, Array] = MappingProxyType({})
) -> dict[str, Array]:
    """Inputs by name. Inputs of the kind "positive" are |x| + 0.1, where x are the normal inputs; roots and
    logarithms need such inputs.

    known: inputs that exist already.
    """
    arrays = random_inputs(dag, seed, "integer" if kind == "integer" else "normal", without=known)
    arrays.update(known)
    limits, ranges = index_limits(dag), index_ranges(dag)
    for n, b in enumerate(dag.inputs):
        if b.name in known:
            continue
        if b.name in limits:
            rng = np.random.default_rng([seed, n, 1])
            low, high = ranges.get(b.name, (0, max(0, limits[b.name] - 1)))
            # negative indices, which count from the end, only if they are needed
            low = max(0, low) if high >= 0 else low
            arrays[b.name] = rng.integers(low, high + 1, b.shape).astype(b.dtype.numpy)
        elif kind == "positive" and b.dtype.is_float:
            arrays[b.name] = (np.abs(arrays[b.name]) + LEAST_POSITIVE).astype(b.dtype.numpy)
    return arrays


def large_constants(dag: ComputeDAG) -> tuple[Buffer, ...]:
    """Constants that are the same in all sets of inputs: making and preparing 400 MB takes a second."""
    return tuple(
        b for b in dag.inputs if b.name in dag.constants and b.dtype.is_float and b.bytes >= LARGE_BYTES
    )


def fill_large(array: Array, kind: str) -> None:
    """Fills an array with small whole numbers, which are above zero for "positive". Sums of their products
    with whole numbers are exact. For other sums, they are as good as random numbers."""
    rng = np.random.default_rng(PERIOD)
    most = 2 if array.dtype.itemsize > 2 else 1
    low = 1 if kind == "positive" else -most
    block = rng.integers(low, most + 1, min(PERIOD, array.size)).astype(array.dtype)
    repeat(raw(block), array.reshape(-1).view(np.uint8))


def index_limits(dag: ComputeDAG) -> dict[str, int]:
    """Inputs whose values are used as indices, with the smallest extent that they index."""
    limits: dict[str, int] = {}
    names = {b.name for b in dag.inputs}
    for stage in dag.stages:
        for load in stage.loads():
            for index, extent in zip(load.indices, load.buffer.shape, strict=True):
                for node in walk(index):
                    if isinstance(node, Load) and node.buffer.name in names:
                        limits[node.buffer.name] = min(extent, limits.get(node.buffer.name, extent))
    return limits


# -- comparing ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of comparing one output. `error` and `allowed` have the same unit."""

    error: float
    allowed: float
    complaint: str = ""  # empty if the output is right

    @property
    def ratio(self) -> float:
        """The error as a multiple of the allowed error, so that outputs can be compared."""
        return self.error / self.allowed if self.allowed else 0.0 if self.error == 0.0 else math.inf


def output_bounds(dag: ComputeDAG, tolerance: float | None = None) -> dict[str, float]:
    """The allowed error of each output. `tolerance`: for floats of algorithms that round differently."""
    bounds = error_bound(dag)
    return {
        b.name: tolerance if tolerance is not None and b.dtype.is_float else bounds[b.name]
        for b in dag.outputs
    }


MOST_POINTS = 1 << 22  # most points for which NumPy computes the sizes of terms: a second at most


def sizes_of_terms(dag: ComputeDAG, inputs: Mapping[str, Array]) -> dict[str, float]:
    """`term_sizes`, but empty for large computations.

    Large computations have so many results that the terms of some do not cancel.
    """
    return {} if sum(s.points() for s in dag.stages) > MOST_POINTS else term_sizes(dag, inputs)


def compare(got: Array, want: Array, bound: float, terms: float = 0.0) -> Verdict:
    """Compares `got` with the oracle's `want`.

    The error of floats is the largest |got - want| / (|want| + scale), in the unit of te/tolerance.py, where
    `terms` matter if they cancel. If only one of two values is finite, this is an error.
    bound 0: every element must be equal, and the error is the largest difference.
    bound inf (integers decided by floats): the error is the share of elements that differ.
    """
    got, want = got.reshape(-1), want.reshape(-1)
    if bound == 0.0 or want.dtype.kind in "biu":
        return _compare_equal(got, want, MISMATCHES if math.isinf(bound) else 0.0)
    if math.isinf(bound):  # floats computed from integers that floats decide
        return _share(_tally(~_close(g, w, 1e-3) for g, w in stretches(got, want)), got, want, MISMATCHES)
    wide = np.dtype(np.float64 if want.dtype.itemsize > 4 else np.float32)
    odd, largest = _Tally(), terms
    for finite, g, w in _widened(got, want, wide):
        odd.add(finite != np.isfinite(g))
        largest = scale(_where(finite, w), largest)
    if odd.count:
        return Verdict(math.inf, bound, _instead(odd, got, want))
    worst = _Worst()
    for finite, g, w in _widened(got, want, wide):
        g, w = _where(finite, g), _where(finite, w)
        error = np.subtract(g, w)
        np.abs(error, out=error)
        if largest == 0.0:  # all answers of the oracle are 0
            error = np.where(error == 0, 0.0, np.inf)
        else:
            size = np.abs(w)
            size += largest
            error /= size
        worst.add(error, g, w, bound)
    if worst.error <= bound:
        return Verdict(worst.error, bound)
    return Verdict(
        worst.error,
        bound,
        f"{_number(worst.got)} instead of {_number(worst.want)}: "
        f"error {worst.error:.2g}, allowed {bound:.2g}, {worst.count} such elements",
    )


def compare_wide(got: Array, exact: Array, allowed: float) -> Verdict:
    """Compares floats `got` with the float64 program's answers, or with other exact answers.

    The error is the largest |got - exact|, relative to the largest |exact|. An algorithm's tolerance has the
    same unit. If only one of two values is finite, this is an error, unless `got`'s type cannot hold the
    exact value.
    """
    got, exact = got.reshape(-1), exact.reshape(-1)
    odd, largest = _Tally(), 0.0
    for finite, g, w in _widened(got, exact, np.dtype(np.float64)):
        odd.add(finite != np.isfinite(g))
        largest = scale(_where(finite, w), largest)
    if odd.count:
        return Verdict(math.inf, allowed, _instead(odd, got, exact))
    worst = _Worst()
    for finite, g, w in _widened(got, exact, np.dtype(np.float64)):
        g, w = _where(finite, g), _where(finite, w)
        difference = np.subtract(g, w)
        worst.add(np.abs(difference, out=difference), g, w, allowed * largest)
    error = worst.error / largest if largest else 0.0 if worst.error == 0.0 else math.inf
    if error <= allowed:
        return Verdict(error, allowed)
    return Verdict(
        error,
        allowed,
        f"{_number(worst.got)} instead of {_number(worst.want)} in float64: "
        f"error {error:.2g} of the largest element, allowed {allowed:.2g}, {worst.count} such elements",
    )


@dataclass(slots=True)
class _Tally:
    """Counts elements that differ, stretch by stretch."""

    seen: int = 0
    count: int = 0
    first: int = 0  # index of the first element that differs

    def add(self, differ: Array) -> None:
        found = int(np.count_nonzero(differ))
        if found and not self.count:
            self.first = self.seen + int(differ.argmax())
        self.seen += differ.size
        self.count += found


def _tally(differ: Iterable[Array]) -> _Tally:
    found = _Tally()
    for part in differ:
        found.add(part)
    return found


@dataclass(slots=True)
class _Worst:
    """The first of the largest errors, stretch by stretch. NaN counts as the largest error."""

    error: float = 0.0
    got: Any = None
    want: Any = None
    count: int = 0  # number of elements above the limit

    def add(self, errors: Array, got: Array, want: Array, limit: float) -> None:
        if not errors.size:
            return
        at = int(errors.argmax())
        if not math.isnan(self.error) and not errors[at] <= self.error:
            self.error, self.got, self.want = float(errors[at]), got[at], want[at]
        if not errors[at] <= limit:
            self.count += int((errors > limit).sum())


def _widened(got: Array, want: Array, wide: np.dtype[Any]) -> Iterator[tuple[Array, Array, Array]]:
    """Stretches: where `want` is finite in `got`'s type, and both arrays in the type `wide`."""
    for g, w in stretches(got, want):
        with np.errstate(over="ignore", invalid="ignore"):
            narrow = w.astype(g.dtype, copy=False)
            parts = np.isfinite(narrow), g.astype(wide, copy=False), w.astype(wide, copy=False)
        yield parts


def _where(chosen: Array, values: Array) -> Array:
    """The chosen values. If all are chosen, nothing is copied."""
    return values if chosen.all() else values[chosen]


def _instead(odd: _Tally, got: Array, want: Array) -> str:
    return f"element {odd.first} is {got[odd.first]} instead of {want[odd.first]}, {odd.count} such elements"


def _compare_equal(got: Array, want: Array, share: float) -> Verdict:
    if want.dtype.kind == "b":  # compared as bytes, because a bool that was never written is neither 0 nor 1
        got, want = got.view(np.uint8), want.view(np.uint8)
    odd, worst = _Tally(), 0.0
    for g, w in stretches(got, want):
        differ = g != w
        if want.dtype.kind not in "biu":
            differ &= (g == g) | (w == w)
        odd.add(differ)
        if not share and differ.any():
            with np.errstate(all="ignore"):
                apart = np.abs(g[differ].astype(np.float64) - w[differ].astype(np.float64))
            worst = float(apart.max(initial=worst))
    if share:
        return _share(odd, got, want, share)
    if not odd.count:
        return Verdict(0.0, 0.0)
    at = odd.first
    complaint = (
        f"element {at} is {_number(got[at])} instead of {_number(want[at])}, {odd.count} such elements"
    )
    return Verdict(worst if math.isfinite(worst) and worst > 0 else math.inf, 0.0, complaint)


def _share(odd: _Tally, got: Array, want: Array, allowed: float) -> Verdict:
    error = odd.count / odd.seen if odd.seen else 0.0
    if error <= allowed:
        return Verdict(error, allowed)
    at = odd.first
    return Verdict(
        error,
        allowed,
        f"element {at} is {_number(got[at])} instead of {_number(want[at])}, {error:.1%} of all differ",
    )


def _close(got: Array, want: Array, rtol: float) -> Array:
    with np.errstate(all="ignore"):
        return np.isclose(
            got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=0.0, equal_nan=True
        )


def _number(x: Any) -> str:
    return f"{float(x):.9g}"


# -- when results are exact ---------------------------------------------------------------------------

_MANTISSA = {16: 11, 32: 24, 64: 53}
_BFLOAT_MANTISSA = 8
_SMALLEST_UNIT = 2.0**-12
_KEEPS_GRID = frozenset({"abs", "floor", "ceil", "round", "trunc"})


@dataclass(frozen=True, slots=True)
class _Grid:
    """Values that are multiples of `unit`, at most `most` in magnitude."""

    most: float
    unit: float = 1.0

    def join(self, other: _Grid) -> _Grid:
        return _Grid(max(self.most, other.most), min(self.unit, other.unit))


class _Inexact(Exception):
    """An operation may round."""


def exact_on_integers(dag: ComputeDAG) -> bool:
    """Whether every float operation on "integer" inputs is exact, in any order and fused or not.

    The answer is True only if this can be shown: sums, products, minima and choices whose values stay
    multiples of a unit and fit into the mantissa. Divisions and transcendental functions round.
    """
    if dag.carried:  # numbers may grow from step to step
        return False
    grids: dict[str, _Grid] = {}
    for b in dag.inputs:
        t = b.dtype
        grids[b.name] = _Grid(
            1.0 if t.is_bool or (t.is_float and t.bits <= 16) else 2.0 if t.is_float else 8.0
        )
    try:
        for stage in dag.stages:
            found = _stage_grids(stage, grids)
            grids.update({b.name: g for b, g in zip(stage.buffers, found, strict=True)})
    except _Inexact:
        return False
    return True


def _stage_grids(stage: StageOp, buffers: Mapping[str, _Grid]) -> list[_Grid]:
    env = {a.var: _Grid(float(max(0, a.extent - 1))) for a in stage.all_axes}
    grids = [_grid(body, env, buffers) for body in stage.bodies]
    if stage.combiner is None:
        return grids
    length = math.prod(a.extent for a in stage.reduce_axes)
    return [_joined(stage.combiner, n, grids, length) for n in range(len(grids))]


def _joined(combiner: Combiner, n: int, sources: list[_Grid], length: int) -> _Grid:
    """Component `n` of a reduction. A sum grows with its length; minima and choices do not grow."""
    left, right = combiner.lhs[n], combiner.rhs[n]
    identity = _grid(combiner.identity[n], {}, {})
    start = sources[n].join(identity)
    match combiner.result[n]:
        case Binary(Op.ADD, a, b) if {a, b} == {left, right}:
            total = _Grid(sources[n].most * length + identity.most, start.unit)
            return _fitting(left.dtype, total)
        case result:
            env = {v: s for pair in (combiner.lhs, combiner.rhs) for v, s in zip(pair, sources, strict=True)}
            env.update({left: start, right: start})
            after = _grid(result, env, {})
            if after.join(start) != start:
                raise _Inexact
            return start


def _grid(e: Expr, env: Mapping[Var, _Grid], buffers: Mapping[str, _Grid]) -> _Grid:
    known: dict[Expr, _Grid] = {}

    def of(x: Expr) -> _Grid:
        if x not in known:
            known[x] = _grid_of(x, env, buffers, of)
        return known[x]

    return of(e)


def _grid_of(
    e: Expr, env: Mapping[Var, _Grid], buffers: Mapping[str, _Grid], of: Callable[[Expr], _Grid]
) -> _Grid:
    """The grid of an expression. `of` gives the grids of its parts."""
    match e:
        case Var():
            return env[e]
        case Const(value, _):
            return _fitting(e.dtype, _constant(value))
        case Load(buffer, indices, _):
            for i in indices:
                of(i)
            return buffers[buffer.name]
        case Binary(op, a, b):
            return _fitting(e.dtype, _operation(op, of(a), of(b), e.dtype))
        case Unary(Neg.NEG, a):
            return of(a)
        case Unary(_, a):
            of(a)
            return _wrapping(e.dtype)
        case Compare(_, a, b):
            of(a)
            of(b)
            return _Grid(1.0)
        case Select(cond, a, b):
            of(cond)
            return of(a).join(of(b))
        case Cast(t, a):
            x = of(a)
            return _fitting(t, x if t.is_float else _Grid(math.floor(x.most)))
        case Call(name, args, _) if name in _KEEPS_GRID:
            x = of(args[0])
            return x if name == "abs" else _Grid(math.ceil(x.most))
        case _:
            raise _Inexact


def _constant(value: Any) -> _Grid:
    number = abs(float(value))
    if number == 0.0 or math.isinf(number):  # infinities are identities of minima, and exact in any order
        return _Grid(0.0)
    unit = 1.0
    while number % unit and unit > _SMALLEST_UNIT:
        unit /= 2
    if number % unit:
        raise _Inexact
    return _Grid(number, unit)


def _operation(op: Op, a: _Grid, b: _Grid, dtype: DType) -> _Grid:
    match op:
        case Op.ADD | Op.SUB:
            return _Grid(a.most + b.most, min(a.unit, b.unit))
        case Op.MUL:
            return _Grid(a.most * b.most, a.unit * b.unit)
        case Op.MIN | Op.MAX:
            return a.join(b)
        case Op.FLOORDIV:
            return a
        case Op.MOD:
            return b
        case Op.DIV:
            raise _Inexact
        case _:
            return _wrapping(dtype)


def _wrapping(dtype: DType) -> _Grid:
    return _Grid(1.0 if dtype.is_bool else 2.0**dtype.bits)


def _fitting(dtype: DType, grid: _Grid) -> _Grid:
    """The grid, if the type holds all its values. Integers wrap around in the same way in any order."""
    if not dtype.is_float:
        return grid if dtype.is_bool or grid.most < 2.0 ** (dtype.bits - 1) else _wrapping(dtype)
    mantissa = _BFLOAT_MANTISSA if dtype.kind == "bfloat" else _MANTISSA[dtype.bits]
    if grid.most / grid.unit > 2.0**mantissa or (
        dtype.bits == 16 and dtype.kind == "float" and grid.most > 65504
    ):
        raise _Inexact
    return grid
