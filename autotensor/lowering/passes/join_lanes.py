"""join: joins the lanes of a vectorized reduction half by half, as vectors of half the size.

    for k in vectorized(8): C[i] += L[k]     ──▶     L4[0:4] = L[0:4] + L[4:8]
                                                     L2[0:2] = L4[0:2] + L4[2:4]
                                                     L1[0]   = L2[0] + L2[1]
                                                     C[i]   += L1[0]

This works for any reducer, also for one of pairs: the function that joins C with L also joins L with L. If
the number of lanes n is not a power of two, the lanes beyond the largest power of two below n are first
joined with the first lanes.
"""

from __future__ import annotations

from autotensor.ir.expr import Const, Expr, Load, const
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.node import Node
from autotensor.ir.rewrite import substitute, transform
from autotensor.ir.stmt import Alloc, For, ForKind, Let, Seq, Stmt, Store, seq
from autotensor.ir.visit import collect, free_vars


def lanes_name(buffer: Buffer) -> str:
    """The name of the accumulators of a buffer, by which this pass finds them."""
    return f"{buffer.name}.lanes"


def join(body: Stmt) -> Stmt:
    if not any(a.buffer.name.endswith(".lanes") for a in collect(body, Alloc)):
        return body
    return transform(body, lambda n: _joined(n) if isinstance(n, For) else None)


def _joined(loop: For) -> Stmt | None:
    """The loop as a tree of joins; None if the loop joins no accumulators."""
    if loop.kind is not ForKind.VECTORIZED or not isinstance(loop.extent, Const):
        return None
    targets = _targets(loop)
    if targets is None:
        return None
    sources = {
        b: load
        for b in targets
        for load in collect(loop.body, Load)
        if load.buffer.name == lanes_name(b) and loop.var in free_vars(load)
    }
    if len(sources) < len(targets):
        return None
    return _Tree(loop, targets, sources).build()


def _targets(loop: For) -> dict[Buffer, Expr] | None:
    """The buffers that the loop writes, each at one place; None if the loop does anything else."""
    s = loop.body
    while isinstance(s, Let):
        s = s.body
    found: dict[Buffer, Expr] = {}
    for store in s.stmts if isinstance(s, Seq) else (s,):
        if not isinstance(store, Store) or store.mask is not None or loop.var in free_vars(store.indices[0]):
            return None
        found[store.buffer] = store.indices[0]
    return found


class _Tree:
    """Writes the joins of one loop."""

    def __init__(self, loop: For, targets: dict[Buffer, Expr], sources: dict[Buffer, Load]) -> None:
        self.loop = loop
        self.var = loop.var
        self.targets = targets
        self.sources = sources  # target → its partial result in lane `var`
        self.buffers: list[Buffer] = []

    def build(self) -> Stmt:
        assert isinstance(self.loop.extent, Const)
        lanes, parts = int(self.loop.extent.value), []
        lane: dict[Buffer, Expr] = dict(self.sources)
        while lanes > 1:
            half = 1 << (lanes - 1).bit_length() - 1
            near = {b: Buffer(f"{lanes_name(b)}.{half}", (half,), b.dtype, Scope.LOCAL) for b in self.targets}
            self.buffers.extend(near.values())
            beyond = {b: substitute(e, {self.var: self.var + half}) for b, e in lane.items()}
            parts.append(self._over(0, lanes - half, self._update(lane, beyond, near)))
            if lanes - half < half:
                rest = seq(*(Store(near[b], (self.var,), e) for b, e in lane.items()))
                parts.append(self._over(lanes - half, 2 * half - lanes, rest))
            lane = {b: Load(n, (self.var,)) for b, n in near.items()}
            lanes = half
        old: dict[Buffer, Expr] = {b: Load(b, (at,)) for b, at in self.targets.items()}
        parts.append(substitute(self._update(old, lane, {}), {self.var: const(0)}))
        body = seq(*parts)
        for b in reversed(self.buffers):
            body = Alloc(b, body)
        return body

    def _update(self, old: dict[Buffer, Expr], new: dict[Buffer, Expr], near: dict[Buffer, Buffer]) -> Stmt:
        """The loop's body with `old` and `new` joined; it stores into `near`, at the loop's variable."""

        def visit(node: Node) -> Node | None:
            match node:
                case Load(b, (at,)) if self.targets.get(b) is at:
                    return old[b]
                case Load(b) if (target := self._source(node)) is not None:
                    return new[target]
                case Store(b, _, value) if b in near:
                    return Store(near[b], (self.var,), value)
            return None

        return transform(self.loop.body, visit)

    def _source(self, load: Load) -> Buffer | None:
        return next((b for b, s in self.sources.items() if s is load), None)

    def _over(self, begin: int, extent: int, body: Stmt) -> Stmt:
        if extent == 1:
            return substitute(body, {self.var: const(begin)})
        return For(self.var, const(begin), const(extent), ForKind.VECTORIZED, body)
