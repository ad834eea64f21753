"""Windows that are written as expressions become reductions.

    G[i] = max(max(x[i], x[i + 1]), x[i + 2]) - x[i + 1]

        ──▶   G.window[i] = max_{r < 3} x[i + r];   G[i] = G.window[i] - x[i + 1]

The terms are in the order of their positions, so they are joined in the same order as before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import permutations, product

from autotensor.ir.expr import Binary, Const, Expr, Load, Op, Select
from autotensor.ir.node import children
from autotensor.ir.reducers import selecting
from autotensor.ir.rewrite import substitute
from autotensor.ir.simplify import simplify
from autotensor.ir.visit import collect
from autotensor.schedule.axis import fresh
from autotensor.schedule.extents import access
from autotensor.te.stage import IterDef, StageOp, buffer_over
from autotensor.te.tensor import AxisKind

FEWEST = 3  # terms


def as_reductions(op: StageOp, names: Collection[str]) -> tuple[StageOp, ...]:
    """The windows in an op's bodies as stages, and the op that reads them; the op alone if there are none.

    names: the names of existing stages, which new stages must not have.
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
            buffer = buffer_over(op.axes, name, chain.dtype)
            found[chain] = replace(made, name=name, buffers=(buffer,), tag="")
    here = tuple(a.var for a in op.axes)
    values = {chain: Load(made.buffers[0], here) for chain, made in found.items()}
    return *found.values(), replace(op, bodies=tuple(substitute(b, values) for b in op.bodies))


def _chains(bodies: Sequence[Expr]) -> Iterator[Expr]:
    """The largest expressions that join terms by one operator, except inside a select, which may guard
    loads."""
    waiting: list[Expr] = [*bodies]
    seen, inner = set(bodies), set[Expr]()
    while waiting:
        e = waiting.pop()
        below = [e.cond] if isinstance(e, Select) else [c for c in children(e) if isinstance(c, Expr)]
        if isinstance(e, Binary) and selecting(e.op, e.dtype) is not None:
            inner.update(c for c in below if isinstance(c, Binary) and c.op is e.op)
            if e not in inner:
                yield e
        waiting += [c for c in below if c not in seen]
        seen.update(below)


def _terms(e: Expr, op: Op) -> list[Expr]:
    return [*_terms(e.a, op), *_terms(e.b, op)] if isinstance(e, Binary) and e.op is op else [e]


def _reduction(chain: Expr, op: StageOp) -> StageOp | None:
    """The chain as a reduction over the axes of an op; None if its terms are not one term that moves
    evenly."""
    assert isinstance(chain, Binary)
    first, *others = _terms(chain, chain.op)
    moves: list[dict[IterDef, int]] = [{}]
    for e in others if len(others) >= FEWEST - 1 and collect(first, Load) else ():
        move = _move(first, e, op.axes)
        if move is None:
            return None
        moves.append(move)
    for order in permutations(dict.fromkeys(a for m in moves for a in m)):
        steps = _grid([tuple(m.get(a, 0) for a in order) for m in moves])
        if steps:
            names = (fresh("r", {a.name for a in op.axes}, str(n)) for n in range(len(steps)))
            over = tuple(
                IterDef(n, count, AxisKind.REDUCE) for n, (_, count) in zip(names, steps, strict=True)
            )
            moved = {a.var: a.var + r.var * step for a, r, (step, _) in zip(order, over, steps, strict=True)}
            reducer = selecting(chain.op, chain.dtype)
            return replace(op, reduce_axes=over, bodies=(substitute(first, moved),), combiner=reducer)
    return None


def _move(first: Expr, e: Expr, axes: Sequence[IterDef]) -> dict[IterDef, int] | None:
    """The distance of a term from the first term along each axis; None if they are different expressions."""
    found: dict[IterDef, int] = {}
    for a, b in zip(collect(first, Load), collect(e, Load), strict=False):
        for i, j in zip(a.indices, b.indices, strict=False):
            form, gap = access(i), simplify(j - i)
            if form is None or not isinstance(gap, Const) or not gap.value:
                continue
            axis = next((x for x in axes if form.steps.get(x.name)), None)
            if axis is not None:
                found.setdefault(axis, int(gap.value) // form.steps[axis.name])
    there = substitute(first, {a.var: a.var + n for a, n in found.items()})
    return found if simplify(there) is simplify(e) else None


def _grid(places: Sequence[tuple[int, ...]]) -> list[tuple[int, int]]:
    """The step and the count of each axis, if the positions are a grid in order; otherwise an empty list.

    >>> _grid([(0, 0), (0, 2), (1, 0), (1, 2)])
    [(1, 2), (2, 2)]
    """
    steps = []
    for column in zip(*places, strict=True):
        values = sorted(set(column))
        steps.append((values[1] - values[0], len(values)) if len(values) > 1 else (1, 1))
    even = product(*(range(0, step * count, step) for step, count in steps))
    return steps if [*even] == [*places] else []
