"""Inlining: an op with a producer's expressions in place of its reads.

Lowering clamps an index that comes from memory to its tensor. After inlining, lowering may no longer see that
an index comes from memory, or which tensor it belongs to. Such an index is clamped here:

    P[i] = i - 4;  C[j] = T[P[j]]            ──P inlined──▶     C[j] = T[max(j - 4, 0)]
    T[i] = i + Y[i];  C[j] = T[X[j]]         ──T inlined──▶     C[j] = p + Y[p],  p = min(max(X[j], 0), 9)
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

from autotensor.ir.bounds import Bounds, Interval, bounds
from autotensor.ir.expr import Cmp, Expr, Load, Var, compare, const, maximum, minimum
from autotensor.ir.node import Node, children, map_children
from autotensor.ir.rewrite import substitute
from autotensor.te.dag import StageOp
from autotensor.te.indices import reads_memory


def inline_into(op: StageOp, producer: StageOp) -> StageOp:
    """The op with every read of the producer replaced by the producer's expression."""
    inliner = _Inliner(op, producer)
    return replace(op, bodies=tuple(map(inliner.expr, op.bodies)))


class _Inliner:
    """Replaces the reads of a producer in an op's expressions by the producer's expressions."""

    def __init__(self, op: StageOp, producer: StageOp) -> None:
        self.op = op
        self.producer = producer
        self.memo: dict[Node, Any] = {}

    def expr(self, e: Any) -> Any:
        found = self.memo.get(e)
        if found is None:
            found = self._load(e) if isinstance(e, Load) else map_children(e, self.expr)
            self.memo[e] = found
        return found

    def _load(self, e: Load) -> Expr:
        own = e.buffer in self.producer.buffers
        indices = []
        for k, (index, extent) in enumerate(zip(e.indices, e.buffer.dims, strict=True)):
            new = self.expr(index)
            if reads_memory(index) and (not reads_memory(new) or (own and k in self._values)):
                new = self._held(new, extent)
            indices.append(new)
        if not own:
            return Load(e.buffer, tuple(indices), None if e.mask is None else self.expr(e.mask))
        body = self.producer.bodies[self.producer.buffers.index(e.buffer)]
        return substitute(body, {a.var: i for a, i in zip(self.producer.axes, indices, strict=True)})

    def _held(self, index: Expr, extent: Expr) -> Expr:
        if self._bounds.decide(index >= 0) is not True:
            index = maximum(index, const(0))
        return index if self._bounds.decide(compare(Cmp.LT, index, extent)) else minimum(index, extent - 1)

    @cached_property
    def _bounds(self) -> Bounds:
        return bounds({a.var: Interval(0, a.extent - 1) for a in self.op.all_axes})

    @cached_property
    def _values(self) -> frozenset[int]:
        """The positions of the producer's axes that it does not only use as indices along dimensions of the
        same extent."""
        producer = self.producer
        places = {a.var: k for k, a in enumerate(producer.axes)}
        extents = dict(zip(places, producer.buffers[0].dims, strict=True))
        found = set()
        seen: set[Node] = set()
        stack: list[Node] = list(producer.bodies)
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if isinstance(node, Var):
                found.add(places.get(node, -1))
            elif isinstance(node, Load):
                pairs = zip(node.indices, node.buffer.dims, strict=True)
                stack += [i for i, n in pairs if not (isinstance(i, Var) and extents.get(i) is n)]
                stack += () if node.mask is None else (node.mask,)
            else:
                stack += children(node)
        return frozenset(found)


__all__ = ["inline_into"]
