"""dots: vector loops that are marked with a dot instruction become one, where they mean what it computes.

    for j in vectorized(16, thread="x86.vpdpbusd.512"): for q in 4:
      C[j] = C[j] + i32(A[4*k + q]) * i32(B[64*k + 4*j + q])
        ──▶     C[0:16] = x86.vpdpbusd.512(C[0:16], A[4*k : +4], B[64*k : +64])

Loops mean the same if each operand has the instruction's type and each loop takes the same steps through it.
At the end of a reduction a part of a group is read under masks. Where sums begin or are joined the loops stay
and are vectors. Any other loops are an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from autotensor.base.errors import LoweringError
from autotensor.codegen.dot_instructions import DOTS, DotInstruction, Operand
from autotensor.ir.affine import affine
from autotensor.ir.expr import Binary, Const, Dot, Expr, Load, Op, Ramp, Var, all_of, const
from autotensor.ir.node import Node
from autotensor.ir.rewrite import substitute, transform
from autotensor.ir.simplify import simplify
from autotensor.ir.stmt import For, ForKind, If, Let, Seq, Stmt, Store
from autotensor.ir.visit import collect, free_vars, widened
from autotensor.lowering.passes.vectorize import Vectorizer

Loops = dict[Var, int]  # in one another, outermost first: variable → extent


def dots(body: Stmt) -> Stmt:
    """The body with its dots. Raises LoweringError for marked loops of other sums of products."""
    if not any(map(_is_marked, collect(body, For))):
        return body
    return transform(body, lambda n: _replaced(n) if _is_marked(n) else None)


def _is_marked(node: Node) -> bool:
    return isinstance(node, For) and node.thread in DOTS


def _replaced(loop: For) -> Stmt:
    instruction = DOTS.get(loop.thread)
    loops, inside = _nest(loop)
    if isinstance(inside, Store):
        found = _dot(instruction, loops, inside)
        if found is not None:
            return found
        if tuple(sorted(loops.values())) == tuple(sorted(instruction.loops)) and inside.mask is None:
            raise LoweringError(
                f"tensorize: {instruction.name} does not fit\n{loop}",
                fix=f"It adds products of {instruction.a.dtype} and {instruction.b.dtype} to "
                f"{instruction.sums.dtype}; loops of {', '.join(map(str, instruction.loops))} take steps of "
                f"{instruction.sums.steps}, {instruction.a.steps} and {instruction.b.steps} through these.",
            )
    return _as_loops(loop, instruction)


def _nest(s: Stmt) -> tuple[Loops, Stmt]:
    """Loops from 0 directly in one another, and what is inside."""
    loops: Loops = {}
    while isinstance(s, For) and isinstance(s.extent, Const) and s.begin is const(0, s.begin.dtype):
        loops[s.var] = int(s.extent.value)
        s = s.body
    return loops, s


def _dot(instruction: DotInstruction, loops: Loops, store: Store) -> Stmt | None:
    """The store of a dot that stands for the loops; None where they mean something else."""
    parts = _sum_of_products(store)
    if parts is None or store.mask is not None:
        return None
    sums, left, right = parts
    if instruction.rows > 1 and (left.mask is not None or right.mask is not None):
        return None
    for order, last in _orders(instruction, loops):
        if not _fits(instruction.sums, sums, order):
            continue
        for a, b in ((left, right), (right, left)):
            shared = a.mask is None or free_vars(a.mask).isdisjoint(order[:-1])
            if shared and _fits(instruction.a, a, order) and _fits(instruction.b, b, order):
                return _written(instruction, store, (sums, a, b), order, last)
    return None


def _orders(instruction: DotInstruction, loops: Loops) -> Iterator[tuple[tuple[Var, ...], int]]:
    """Loops in the order of the instruction's, and how many elements of its group there are.

    An instruction without rows may end in a part of a group; a part of one element has no loop.
    """
    *others, group = instruction.loops
    for order in permutations(loops):
        extents = [loops[v] for v in order]
        if extents[: len(others)] != others or len(extents) > len(instruction.loops):
            continue
        last = extents[-1] if len(extents) == len(instruction.loops) else 1
        if last == group or (last < group and instruction.rows == 1):
            yield order, last


def _written(
    instruction: DotInstruction, store: Store, loads: tuple[Load, ...], order: tuple[Var, ...], last: int
) -> Stmt:
    """The dot of the elements at the loops' beginning; masks switch off lanes beyond the last element."""
    at_begin = {v: const(0, v.dtype) for v in order}
    rows, columns, depth = instruction.rows, instruction.columns, instruction.depth
    total, a, b = (
        Load(x.buffer, (Ramp(substitute(x.indices[0], at_begin), 1, n),), mask)
        for x, n, mask in zip(
            loads,
            (rows * columns, rows * depth, columns * depth),
            (None, *_masks(instruction, loads[1:], order, last)),
            strict=True,
        )
    )
    return Store(store.buffer, total.indices, Dot(total, a, b, rows, instruction.group, instruction.name))


def _masks(
    instruction: DotInstruction, loads: tuple[Load, ...], order: tuple[Var, ...], last: int
) -> Iterator[Expr | None]:
    """Which elements of both operands are read, as vectors; None for all."""
    group, lane = instruction.group, Var("dot.lane")
    place = dict(zip(order, (lane // group, lane % group), strict=False))
    for load, width in zip(loads, (group, group * instruction.columns), strict=True):
        inside = [] if load.mask is None else [substitute(load.mask, place)]
        if last < group:
            inside.append(lane % group < last)
        vector = Vectorizer(lane, Ramp(const(0), 1, width))
        yield vector.wide(simplify(all_of(*inside)), None) if inside else None


def _sum_of_products(store: Store) -> tuple[Load, Load, Load] | None:
    """Sum and factors of `C[i] = C[i] + t(A[j]) * t(B[k])`, t the type of the sum."""
    match store.value:
        case Binary(Op.ADD, Load() as sums, Binary(Op.MUL, a, b)):
            pass
        case Binary(Op.ADD, Binary(Op.MUL, a, b), Load() as sums):
            pass
        case _:
            return None
    left, right = widened(a), widened(b)
    if left is None or right is None or (sums.buffer, sums.indices) != (store.buffer, store.indices):
        return None
    return sums, left, right


def _fits(operand: Operand, load: Load, order: tuple[Var, ...]) -> bool:
    """Whether a load has the operand's type and takes its steps."""
    place = affine(load.indices[0])
    if place is None or load.buffer.dtype != operand.dtype:
        return False
    plain = all(isinstance(t, Var) or free_vars(t).isdisjoint(order) for t in place.terms)
    return plain and tuple(place.coefficient(v) for v in order) == operand.steps[: len(order)]


def _as_loops(loop: For, instruction: DotInstruction) -> Stmt:
    """The marked loop as a vector, or plain where the instruction has rows; loops of a group written out."""

    def written_out(s: Stmt) -> Stmt:
        match s:
            case For(var, begin, Const() as extent, ForKind.SERIAL, body) if (
                extent.value <= instruction.group
            ):
                return For(var, begin, extent, ForKind.UNROLLED, written_out(body))
            case If(cond, then, None):
                return If(cond, written_out(then))
            case Seq(stmts):
                return Seq(tuple(written_out(x) for x in stmts))
            case Let(var, value, body):
                return Let(var, value, written_out(body))
        return s

    kind = ForKind.VECTORIZED if instruction.rows == 1 else ForKind.SERIAL
    return For(loop.var, loop.begin, loop.extent, kind, written_out(loop.body))
