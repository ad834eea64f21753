"""vthread: virtual threads become one thread that does the work of all of them, step by step.

    for v in bind(2, "vthread"):          for k: S[…] = A[…]                     once: S does not depend on v
      P = 0                                 P[0] = 0; P[1] = 0
      for k: S[…] = A[…]         ──▶        for k: S[…] = A[…]
             P += S[v]                             P[0] += S[0]; P[1] += S[1]

Statements that depend on the virtual thread are repeated for each virtual thread, one copy after the other.
Memory whose contents depend on the virtual thread gets one more dimension. Source: section 4.4 of TVM (Chen
et al., OSDI 2018).
"""

from __future__ import annotations

from autotensor.base.errors import LoweringError
from autotensor.ir.expr import Const, Expr, Load, Var
from autotensor.ir.func import Buffer
from autotensor.ir.node import Node, children, map_children
from autotensor.ir.rewrite import substitute, transform
from autotensor.ir.stmt import Alloc, For, ForKind, If, Let, Seq, Stmt, Store, seq
from autotensor.ir.visit import any_node, free_vars, walk
from autotensor.te.thread import VTHREAD


def vthread(body: Stmt) -> Stmt:
    """Replaces inner virtual threads first; afterwards only ordinary loops are left of them."""
    if not any_node(body, _is_virtual):
        return body
    return transform(body, lambda n: _spread(n) if isinstance(n, For) and _is_virtual(n) else None)


def _is_virtual(node: Node) -> bool:
    return isinstance(node, For) and node.thread == VTHREAD


def _spread(loop: For) -> Stmt:
    if not isinstance(loop.extent, Const):
        raise LoweringError(f"bind: virtual threads of {loop.var.name!r} have no constant extent.")
    count = int(loop.extent.value)
    body = _inlined(loop.body, loop.var)
    own = _own_buffers(body, loop.var)
    wide = {b: Buffer(b.name, (count, *b.shape), b.dtype, b.scope, (), b.swizzle, b.turns) for b in own}
    return _Spreader(loop, wide).stmt(_widened(body, loop.var, wide))


def _inlined(s: Stmt, var: Var) -> Stmt:
    """The statement, with variables that depend on the virtual thread replaced by their values."""
    match s:
        case Let(name, value, body) if var in free_vars(value):
            return _inlined(substitute(body, {name: value}), var)
        case _:
            return map_children(s, lambda c: _inlined(c, var) if isinstance(c, Stmt) else c)


def _own_buffers(body: Stmt, var: Var) -> set[Buffer]:
    """The buffers that are allocated inside and whose contents depend on the virtual thread."""
    inside = {n.buffer for n in walk(body) if isinstance(n, Alloc)}
    own: set[Buffer] = set()

    def depends(e: Node) -> bool:
        return var in free_vars(e) or any(isinstance(n, Load) and n.buffer in own for n in walk(e))

    def visit(s: Stmt, under: bool) -> None:
        match s:
            case Store(buffer, indices, value, mask):
                if buffer in inside and (
                    under or any(depends(e) for e in (*indices, value, *(() if mask is None else (mask,))))
                ):
                    own.add(buffer)
            case If(cond, then, otherwise):
                for x in (then, otherwise):
                    if x is not None:
                        visit(x, under or depends(cond))
            case Let(_, value, inner):
                visit(inner, under or depends(value))
            case _:
                for c in children(s):
                    if isinstance(c, Stmt):
                        visit(c, under)

    before = -1
    while before != len(own):
        before = len(own)
        visit(body, False)
    return own


def _widened(body: Stmt, var: Var, wide: dict[Buffer, Buffer]) -> Stmt:
    def visit(node: Node) -> Node | None:
        match node:
            case Load(buffer, indices, mask) if buffer in wide:
                return Load(wide[buffer], (var, *indices), mask)
            case Store(buffer, indices, value, mask) if buffer in wide:
                return Store(wide[buffer], (var, *indices), value, mask)
            case Alloc(buffer, inner) if buffer in wide:
                return Alloc(wide[buffer], inner)
        return None

    return transform(body, visit)


class _Spreader:
    def __init__(self, loop: For, wide: dict[Buffer, Buffer]) -> None:
        self.loop = loop
        self.wide = set(wide.values())

    def each(self, s: Stmt) -> Stmt:
        return For(self.loop.var, self.loop.begin, self.loop.extent, ForKind.UNROLLED, s)

    def stmt(self, s: Stmt) -> Stmt:
        """The statement as all virtual threads run it together."""
        var = self.loop.var
        if var not in free_vars(s):
            return s
        match s:
            case Seq(stmts):
                return seq(*(self.stmt(x) for x in stmts))
            case Alloc(buffer, body):
                return Alloc(buffer, self.stmt(body))
            case For(v, begin, extent, kind, body, thread) if var not in _vars(begin, extent):
                if kind is ForKind.VECTORIZED:
                    return self.each(s)
                return For(v, begin, extent, kind, self.stmt(body), thread)
            case If(cond, then, otherwise) if var not in free_vars(cond):
                return If(cond, self.stmt(then), None if otherwise is None else self.stmt(otherwise))
            case Let(v, value, body) if var not in free_vars(value):
                return Let(v, value, self.stmt(body))
            case _:
                return self.each(s)


def _vars(*exprs: Expr) -> frozenset[Var]:
    return frozenset().union(*(free_vars(e) for e in exprs))
