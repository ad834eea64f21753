"""Evaluates a DAG with NumPy, slowly and obviously; all other ways of computing it are compared with this.

    evaluate(dag, arrays)                             {"C": array, …}, each operation rounded to its own type
    evaluate(dag, arrays, accumulate=np.float64)      the same in float64 throughout: nearly the exact result
    random_inputs(dag, seed, kind="integer")          inputs for which float results are exact

A stage is computed over its whole iteration space at once: axis n becomes an index array of shape [1, …,
extent, …, 1], reduce axes last, and NumPy broadcasts. Large spaces are cut into blocks. How far a correct
program may be from the result is in `tolerance.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from autotensor.base.dtype import DType
from autotensor.base.errors import ArgumentError, TensorError
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
    const,
)
from autotensor.ir.func import Buffer
from autotensor.ir.rewrite import substitute
from autotensor.ir.semantics import COMPARISONS, FUNCTIONS, OPERATORS, converted
from autotensor.ir.simplify import simplify
from autotensor.te.contraction import contracted
from autotensor.te.dag import ComputeDAG, StageOp
from autotensor.te.scan import first_steps, hosts, steps_of

Array = np.ndarray[Any, Any]

POINTS_PER_BLOCK = 8 << 20  # with about four temporaries of 8 bytes: 256 MB


def evaluate(dag: ComputeDAG, arrays: Mapping[str, Array], accumulate: Any = None) -> dict[str, Array]:
    """Every computed buffer of the DAG by name, also the intermediate ones.

    arrays: the inputs, by buffer name. accumulate: a NumPy float type in which all floats are computed and
    returned, instead of their own types. Integers and bools keep their types. Inputs may already have the
    type `accumulate`.
    Raises ArgumentError for missing or wrong inputs, TensorError for an index out of bounds.
    """
    known: dict[str, Array] = {}
    for b in dag.inputs:
        array = arrays.get(b.name)
        if array is None:
            raise ArgumentError(
                f"input {b.name!r} is missing; given are {', '.join(sorted(arrays)) or 'none'}."
            )
        types = (b.dtype.numpy, np.dtype(accumulate)) if accumulate is not None and b.dtype.is_float else ()
        if array.shape != b.shape or array.dtype not in (types or (b.dtype.numpy,)):
            raise ArgumentError(
                f"input {b.name!r} is {array.dtype} of shape {array.shape}; "
                f"expected {b.dtype} of shape {b.shape}."
            )
        known[b.name] = array.astype(accumulate, copy=False) if types else array
    out: dict[str, Array] = {}
    with np.errstate(all="ignore"):
        on_the_way = {s.name for h in hosts(dag.stages, dag.carried) for s in _steps(dag, h)[:-1]}
        for stage in dag.stages:
            if stage.name in on_the_way:
                continue
            found = _scanned(dag, stage, known, accumulate) or _stage(stage, known, accumulate)
            for buffer, array in zip(stage.buffers, found, strict=True):
                known[buffer.name] = out[buffer.name] = array
    return out


def _steps(dag: ComputeDAG, host: StageOp) -> tuple[StageOp, ...]:
    return steps_of(host, dag.stages, dag.carried)


def _scanned(
    dag: ComputeDAG, host: StageOp, arrays: Mapping[str, Array], accumulate: Any
) -> tuple[Array, ...] | None:
    """The results of a stage that carries state, step by step; None for any other stage."""
    inside = _steps(dag, host)
    if not inside:
        return None
    types = Types(accumulate)
    known = dict(arrays)
    for s in inside:
        known.update({b.name: np.zeros([a.extent for a in s.axes], types.of(b.dtype)) for b in s.buffers})
    known.update({before.name: known[after.name] for before, after in dag.carried if after in host.buffers})
    first = first_steps(host)
    for t in range(host.axes[0].extent):
        for s in inside if t >= first else (host,):
            at = s.axes[0].var
            one = replace(
                s,
                axes=s.axes[1:],
                bodies=tuple(simplify(substitute(b, {at: const(t)})) for b in s.bodies),
                buffers=tuple(Buffer(b.name, b.shape[1:], b.dtype) for b in s.buffers),
            )
            for b, array in zip(s.buffers, _stage(one, known, accumulate), strict=True):
                known[b.name][t] = array
    return tuple(known[b.name] for b in host.buffers)


def _stage(stage: StageOp, arrays: Mapping[str, Array], accumulate: Any) -> tuple[Array, ...]:
    shape = tuple(a.extent for a in stage.axes)
    rank = len(shape)
    types = Types(accumulate)
    outs = tuple(np.empty(shape, types.of(b.dtype)) for b in stage.buffers)
    combiner = stage.combiner
    if combiner is not None:
        for out, identity in zip(outs, combiner.identity, strict=True):
            out[...] = Values(stage, {}, arrays, types).value(identity, None)
    if 0 in (a.extent for a in stage.all_axes):
        return outs
    if types.accumulate == np.float64:
        known = contracted(stage, lambda grid, e: Values(stage, grid, arrays, types).value(e, None))
        if known is not None:
            return (outs[0] + known,)
    for box in _boxes(tuple(a.extent for a in stage.all_axes)):
        sizes = tuple(end - begin for begin, end in box)
        grid = {
            axis.var: np.arange(begin, end, dtype=np.int64).reshape(
                [-1 if m == n else 1 for m in range(len(box))]
            )
            for n, (axis, (begin, end)) in enumerate(zip(stage.all_axes, box, strict=True))
        }
        values = Values(stage, grid, arrays, types)
        # each [*spatial, *reduce]
        results = [np.broadcast_to(values.value(body, None), sizes) for body in stage.bodies]
        where = tuple(slice(begin, end) for begin, end in box[:rank])
        if combiner is None:
            for out, r in zip(outs, results, strict=True):
                out[where] = r
        else:
            joined = _join(combiner, [o[where] for o in outs], results, rank, types)
            for out, j in zip(outs, joined, strict=True):
                out[where] = j
    return outs


def _boxes(extents: tuple[int, ...]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Boxes that tile the space in order. Inner axes stay whole if a block holds them; outer axes are cut."""
    if not extents:
        yield ()
        return
    inner = prod(extents[1:])
    step = max(1, min(extents[0], POINTS_PER_BLOCK // max(1, inner)))
    for begin in range(0, extents[0], step):
        for rest in _boxes(extents[1:]):
            yield ((begin, min(extents[0], begin + step)), *rest)


# -- reductions ----------------------------------------------------------------------------------------------

_ASSOCIATIVE = (Op.ADD, Op.MUL, Op.MIN, Op.MAX, Op.AND, Op.OR, Op.XOR)


def _join(
    combiner: Combiner, so_far: list[Array], sources: list[Array], rank: int, types: Types
) -> tuple[Array, ...]:
    """`so_far` joined with all sources along the axes from `rank` on."""
    ufunc = _ufunc(combiner)
    if ufunc is not None:
        (a,), (s,) = so_far, sources
        partial = s if s.ndim == rank else ufunc.reduce(s, axis=tuple(range(rank, s.ndim)), dtype=s.dtype)
        return (ufunc(a, partial),)
    state = tuple(so_far)
    for point in np.ndindex(sources[0].shape[rank:]):
        right = tuple(s[(..., *point)] for s in sources)
        values = Values(
            None, dict(zip((*combiner.lhs, *combiner.rhs), (*state, *right), strict=True)), {}, types
        )
        state = tuple(values.value(r, None) for r in combiner.result)
    return state


def _ufunc(combiner: Combiner) -> Any:
    """The NumPy function of a combiner that is one associative operator, whatever its name; else None."""
    match combiner.result:
        case (Binary(op, a, b),) if op in _ASSOCIATIVE:
            x, y = combiner.lhs[0], combiner.rhs[0]
            if (a is x and b is y) or (a is y and b is x):
                return OPERATORS[op]
    return None


# -- expressions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Types:
    accumulate: Any

    def of(self, t: DType) -> Any:
        return t.numpy if self.accumulate is None or not t.is_float else np.dtype(self.accumulate)


class Values:
    """Values of expressions over one grid. Where `mask` is false, any value and any index will do."""

    def __init__(
        self, stage: StageOp | None, env: Mapping[Var, Any], arrays: Mapping[str, Array], types: Types
    ) -> None:
        self.stage = stage
        self.env = env
        self.arrays = arrays
        self.types = types
        self.memo: dict[Expr, Any] = {}  # unmasked values
        self.leaving: set[Expr] = set()  # expressions that read outside their buffer when no mask is given

    def value(self, e: Expr, mask: Any) -> Any:
        found = self.memo.get(e)
        if found is None and mask is not None and e not in self.leaving:
            # without the mask, and remembered: otherwise a part used twice at each of n levels is computed
            # 2^n times
            try:
                found = self.value(e, None)
            except TensorError:
                self.leaving.add(e)
        if found is None:
            found = self._value(e, mask)
            if mask is None:
                self.memo[e] = found
        return found

    def _value(self, e: Expr, mask: Any) -> Any:
        match e:
            case Var():
                return self.env[e]
            case Const(number, t):
                return np.asarray(number, dtype=t.element.numpy).astype(self.types.of(t))
            case Binary(op, a, b):
                if op is Op.DIV and not a.dtype.is_float:
                    raise TensorError(f"'/' is not defined for {a.dtype}.")
                operator = np.divide if op is Op.DIV else OPERATORS[op]
                return operator(self.value(a, mask), self.value(b, mask))
            case Unary(Neg.NEG, a):
                return np.negative(self.value(a, mask))
            case Unary(Neg.NOT, a):
                return np.invert(self.value(a, mask))
            case Compare(op, a, b):
                return COMPARISONS[op](self.value(a, mask), self.value(b, mask))
            case Select(cond, a, b):
                c = self.value(cond, mask)
                on, off = (c, ~c) if mask is None else (mask & c, mask & ~c)
                return np.where(c, self.value(a, on), self.value(b, off))
            case Cast(t, a):
                x = self.value(a, mask)
                wide = t.is_float and self.types.accumulate is not None
                return x.astype(self.types.of(t)) if wide else converted(x, t.element)
            case Call(name, args):
                return FUNCTIONS[name](*(self.value(a, mask) for a in args))
            case Load(buffer, indices, m):
                return self.load(buffer, indices, m, mask)
            case _:
                raise TensorError(f"{type(e).__name__} cannot be part of a tensor expression's body.")

    def load(self, buffer: Buffer, indices: tuple[Expr, ...], own: Expr | None, mask: Any) -> Any:
        wanted = mask
        if own is not None:
            c = self.value(own, mask)
            wanted = c if mask is None else mask & c
        array = self.arrays[buffer.name]
        safe = []
        for axis, (i, n) in enumerate(zip(indices, buffer.shape, strict=True)):
            at = self.value(i, mask if own is None else wanted)
            bad = (at < 0) | (at >= n)
            if bad.any():
                self._check(buffer, axis, at, bad if wanted is None else bad & wanted)
                at = np.clip(at, 0, max(0, n - 1))
            safe.append(at)
        if 0 in buffer.shape:  # no element is read: otherwise the check above would have failed
            return np.zeros((), array.dtype)
        value = array[tuple(safe)] if safe else array[()]
        if own is not None:
            value = np.where(self.value(own, mask), value, np.zeros((), array.dtype))
        return np.asarray(value)

    def _check(self, buffer: Buffer, axis: int, at: Array, bad: Array) -> None:
        if not bad.any():
            return
        first = np.broadcast_to(at, bad.shape)[bad].flat[0]
        where = f"stage {self.stage.name!r}: " if self.stage is not None else ""
        raise TensorError(
            f"{where}index {axis} of {buffer.name!r} becomes {int(first)}; its shape is {buffer.shape}.",
            fix="Guard the read with te.if_then_else.",
        )


# -- inputs ------------------------------------------------------------------------------------------------


def random_inputs(
    dag: ComputeDAG, seed: int, kind: str = "normal", without: Collection[str] = ()
) -> dict[str, Array]:
    """Inputs by name, except the names in `without`; the same seed gives the same arrays.

    kind: "normal": floats from the standard normal distribution, integers from -100 … 100 (0 … 100 if
    unsigned). "integer": floats from -2 … 2 (-1 … 1 in 16-bit types), so that sums of products are exact and
    any two correct programs agree bit for bit; integers from -8 … 8. Bools are true in half of the cases.
    Inputs that serve as indices are not recognised: replace their arrays.
    """
    if kind not in ("normal", "integer"):
        raise ArgumentError(f"inputs of kind {kind!r} are unknown.", fix="Known: normal, integer.")
    out = {}
    for n, b in enumerate(dag.inputs):
        rng = np.random.default_rng([seed, n])
        t = b.dtype
        if b.name in without:
            continue
        if t.is_bool:
            out[b.name] = rng.random(b.shape) < 0.5
        elif t.is_float and kind == "normal":
            out[b.name] = rng.standard_normal(b.shape).astype(t.numpy)
        else:
            most = (2 if t.bits > 16 else 1) if t.is_float else 100 if kind == "normal" else 8
            least = 0 if t.kind == "uint" else -most
            out[b.name] = rng.integers(least, most + 1, b.shape).astype(t.numpy)
    return out
