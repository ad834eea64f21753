"""A workspace keeps only the last few steps of a scan if no other steps are read again.

    for t in range(1000):                                for t in range(1000):
      S[t, j] = f(S[t - 1, j])               ──▶           S[t % 2, j] = f(S[(t - 1) % 2, j])
    for j: C[j] = S[999, j]                              for j: C[j] = S[1, j]

This serves programs that read only a last state, such as a solution after many iterations: the kept steps
stay in a cache.
Source: the storage folding of Halide (Ragan-Kelley et al., PLDI 2013).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autotensor.ir.affine import affine
from autotensor.ir.expr import Binary, Const, Expr, Load, Op, Var
from autotensor.ir.func import Buffer, PrimFunc, Program, Role
from autotensor.ir.node import Node
from autotensor.ir.rewrite import transform
from autotensor.ir.stmt import For, ForKind, Store
from autotensor.ir.visit import collect

# a workspace is made smaller only if there are this many times as many steps as are kept (chosen, 2026-11)
FEWER = 4


def keep_last_steps(program: Program) -> Program:
    """The program with smaller workspaces for scans of which only the last steps are read."""
    for buffer in program.buffers(Role.WORKSPACE):
        kept = _kept(program, buffer)
        if kept is not None and kept * FEWER <= buffer.shape[0]:
            program = _folded(program, buffer, kept)
    return program


def _kept(program: Program, buffer: Buffer) -> int | None:
    """How many steps must be kept at a time.

    None if the buffer is not written step by step, or if another stage does not read at constant steps.
    """
    if not buffer.shape or buffer.extents or buffer.strides or buffer.swizzle:
        return None
    using = [f for f in (*program.prepare, *program.run) if buffer in f.params]
    own = [f for f in using if any(s.buffer is buffer for s in collect(f.body, Store))]
    if len(own) != 1:
        return None
    back = _furthest_back(own[0], buffer)
    if back is None:
        return None
    first = buffer.shape[0]
    for step in (i for f in using if f is not own[0] for i in _steps(f, buffer)):
        if not isinstance(step, Const):
            return None
        first = min(first, int(step.value))
    return max(back + 1, buffer.shape[0] - first)


def _furthest_back(func: PrimFunc, buffer: Buffer) -> int | None:
    """The greatest distance of a step from a step that it reads; None if the steps are not of one loop."""
    loops = [x for x in collect(func.body, For) if any(s.buffer is buffer for s in collect(x.body, Store))]
    written = {s.indices[0] for s in collect(func.body, Store) if s.buffer is buffer}
    (step,) = written if len(written) == 1 else (None,)
    loop = next((x for x in loops if x.var is step), None)
    if loop is None or loop.kind is not ForKind.SERIAL or not isinstance(step, Var):
        return None
    everywhere, inside = ([*_steps(node, buffer)] for node in (func.body, loop.body))
    back = [_distance(i, step) for i in everywhere]
    if len(inside) < len(everywhere) or any(d is None or d < 0 for d in back):
        return None
    return max((d for d in back if d is not None), default=0)


def _steps(node: Node | PrimFunc, buffer: Buffer) -> Iterator[Expr]:
    """The steps at which a buffer is read."""
    body = node.body if isinstance(node, PrimFunc) else node
    return (x.indices[0] for x in collect(body, Load) if x.buffer is buffer)


def _distance(index: Expr, step: Var) -> int | None:
    """By how much, at most, an index is less than the step; None if the index has another form.

    For t - 2 and max(t - 2, 0), the distance is 2.
    """
    match index:
        case Binary(Op.MAX, below, Const(0)):
            index = below
    found = affine(step - index)
    return found.constant if found is not None and found.is_constant else None


def _folded(program: Program, buffer: Buffer, kept: int) -> Program:
    small = Buffer(buffer.name, (kept, *buffer.shape[1:]), buffer.dtype, buffer.scope)

    def visit(node: Node) -> Node | None:
        match node:
            case Load(b, (step, *others), mask) if b is buffer:
                return Load(small, (step % kept, *others), mask)
            case Store(b, (step, *others), value, mask) if b is buffer:
                return Store(small, (step % kept, *others), value, mask)
        return None

    def smaller(func: PrimFunc) -> PrimFunc:
        if buffer not in func.params:
            return func
        params = tuple(small if b is buffer else b for b in func.params)
        return replace(func, params=params, body=transform(func.body, visit))

    return replace(
        program,
        args=tuple((small if b is buffer else b, role) for b, role in program.args),
        prepare=tuple(map(smaller, program.prepare)),
        run=tuple(map(smaller, program.run)),
    )


__all__ = ["keep_last_steps"]
