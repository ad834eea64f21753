"""Windows that are written out, as reductions.

    G[i] = max(max(x[i], x[i + 1]), x[i + 2]) - x[i + 1]

        ──▶   G.window[i] = max_{r < 3} x[i + r];   G[i] = G.window[i] - x[i + 1]

Terms stand in the order of their places, so that they are joined as before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import permutations, product

from autotensor.ir.expr import Binary, Const, Expr, Load, Op
from autotensor.ir.func import Buffer
from autotensor.ir.node import Node, children
from autotensor.ir.reducers import selecting
from autotensor.ir.rewrite import substitute
from autotensor.ir.simplify import simplify
from autotensor.ir.visit import walk
from autotensor.schedule.axis import fresh
from autotensor.schedule.extents import access
from autotensor.te.stage import IterDef, StageOp
from autotensor.te.tensor import AxisKind

FEWEST = 3  # terms

def as_reductions(op: StageOp, names: Collection[str]) -> tuple[StageOp, ...]:
    """The windows that an op's bodies join, and the op that reads them; the op alone where there are none.

    names: of stages, that new ones are told from.
    """
    if op.is_reduction:
        return (op,)
    found: dict[Expr, StageOp] = {}
    for chain in _chains(op.bodies):
        made = _reduction(chain, op)
        if made is not None and op.bodies == (chain,):
            return (made,)
        if made is not None:
            name = fresh(f"{op.name}.window", {*names, *(o.name for o in found.values())})
            buffer = Buffer(name, op.buffers[0].shape, chain.dtype)
            found[chain] = replace(made, name=name, buffers=(buffer,), tag="")
    here = tuple(a.var for a in op.axes)
    values = {chain: Load(made.buffers[0], here) for chain, made in found.items()}
    return *found.values(), replace(op, bodies=tuple(substitute(b, values) for b in op.bodies))


def _chains(bodies: Sequence[Expr]) -> Iterator[Expr]:
    """The largest expressions that join terms by one operator."""
    inner: set[Node] = set()
    for e in (e for body in bodies for e in walk(body)):
        if isinstance(e, Binary) and selecting(e.op, e.dtype) is not None:
            inner.update(c for c in children(e) if isinstance(c, Binary) and c.op is e.op)
            if e not in inner:
                yield e


def _terms(e: Expr, op: Op) -> list[Expr]:
    return [*_terms(e.a, op), *_terms(e.b, op)] if isinstance(e, Binary) and e.op is op else [e]


def _reduction(chain: Expr, op: StageOp) -> StageOp | None:
    """The chain as a reduction over the axes of an op; None where its terms are not one that moves evenly."""
    assert isinstance(chain, Binary)
    first, *others = _terms(chain, chain.op)
    moves = [_move(first, e, op.axes) for e in others]
    if len(others) < FEWEST - 1 or None in moves:
        return None
    along = dict.fromkeys(a for m in moves if m is not None for a in m)
    for order in permutations(along):
        steps = _grid([(0,) * len(order), *(tuple(m.get(a, 0) for a in order) for m in moves if m is not None)])
        if steps:
            over = [IterDef(fresh("r", {a.name for a in op.axes}, str(n)), c, AxisKind.REDUCE) for n, (_, c) in enumerate(steps)]
            moved = {a.var: a.var + r.var * step for a, r, (step, _) in zip(order, over, steps, strict=True)}
            body = substitute(first, moved)
            return replace(op, reduce_axes=tuple(over), bodies=(body,), combiner=selecting(chain.op, chain.dtype))
    return None


def _move(first: Expr, e: Expr, axes: Sequence[IterDef]) -> dict[IterDef, int] | None:
    """How far along the axes a term is from the first one; None where it is another one."""
    found: dict[IterDef, int] = {}
    for a, b in zip(_loads(first), _loads(e), strict=False):
        for i, j in zip(a.indices, b.indices, strict=False):
            form, gap = access(i), simplify(j - i)
            if form is None or not isinstance(gap, Const) or not gap.value:
                continue
            axis = next((x for x in axes if form.steps.get(x.name)), None)
            if axis is not None:
                found.setdefault(axis, int(gap.value) // form.steps[axis.name])
    there = substitute(first, {a.var: a.var + n for a, n in found.items()})
    return found if simplify(there) is simplify(e) else None


def _loads(e: Expr) -> list[Load]:
    return [n for n in walk(e) if isinstance(n, Load)]


def _grid(places: Sequence[tuple[int, ...]]) -> list[tuple[int, int]]:
    """The step and the count of each axis of places that are a grid, in order; none where they are not.

    >>> _grid([(0, 0), (0, 2), (1, 0), (1, 2)])
    [(1, 2), (2, 2)]
    """
    steps = []
    for column in zip(*places, strict=True):
        values = sorted(set(column))
        steps.append((values[1] - values[0], len(values)) if len(values) > 1 else (1, 1))
    even = product(*(range(0, step * count, step) for step, count in steps))
    return steps if [*even] == [*places] else []
