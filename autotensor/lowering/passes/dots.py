"""dots: vector loops marked with a dot instruction become this instruction, if they compute the same.

    for j in vectorized(16, instruction="x86.vpdpbusd.512"): for q in 4:
      C[j] = C[j] + i32(A[4*k + q]) * i32(B[64*k + 4*j + q])
        ──▶     C[0:16] = x86.vpdpbusd.512(C[0:16], A[4*k : +4], B[64*k : +64])

Loops mean the same as an instruction if each operand has the instruction's type, and each loop takes the
instruction's steps through the operand. At the end of a reduction, a part of a group is read under masks. An
instruction of tiles may get fewer rows and groups than it has, and the rows of its operands may be any
distance apart:

    for j in vectorized(16, instruction="x86.tdpbusd"): for i in 14: for k in 16: for q in 4:
      C[16*i + j] = C[16*i + j] + i32(A[S*i + 4*k + q]) * i32(B[64*k + 4*j + q])
        ──▶     C[0:224] = x86.tdpbusd(C[0:224], A[rows of 64, S apart], B[0:1024])

Where sums begin or are joined, and at the ends of columns, the loops stay vector loops. Any other marked
loop is an error. Sums to which no instruction adds anything are an error, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from autotensor.base.errors import LoweringError
from autotensor.codegen.dot_instructions import DOTS, DotInstruction, Operand, takes_tiles
from autotensor.ir.affine import affine
from autotensor.ir.expr import Binary, Broadcast, Const, Dot, Expr, Load, Op, Ramp, Var, all_of, const
from autotensor.ir.node import Node
from autotensor.ir.rewrite import substitute, transform
from autotensor.ir.simplify import simplify
from autotensor.ir.stmt import For, ForKind, If, Let, Seq, Stmt, Store
from autotensor.ir.visit import collect, free_vars, widened
from autotensor.lowering.passes.unmask_loads import unmask
from autotensor.lowering.passes.vectorize import Vectorizer

Loops = dict[Var, int]  # variable → extent of nested loops, outermost first


def dots(body: Stmt) -> Stmt:
    """The body with its dots. Raises LoweringError for marked loops that compute other sums of products."""
    marked = [s for s in collect(body, For) if _is_marked(s)]
    if not marked:
        return body
    if any(takes_tiles(s.thread) for s in marked):
        body = unmask(body)  # panels hold whole tiles
    made = transform(body, lambda n: _replaced(n) if _is_marked(n) else None)
    added = {s.buffer for s in collect(made, Store) if isinstance(s.value, Dot)}
    for loop in marked:
        guarded = {s for branch in collect(loop, If) for s in collect(branch, Store)}  # ends of columns
        plain = (s for s in collect(loop, Store) if s not in guarded and s.buffer not in added)
        if any(_sum_of_products(s) is not None for s in plain):
            raise _does_not_fit(DOTS.get(loop.thread), loop)
    return made


def _is_marked(node: Node) -> bool:
    return isinstance(node, For) and node.thread in DOTS


def _replaced(loop: For) -> Stmt:
    instruction = DOTS.get(loop.thread)
    loops, inside = _nest(loop)
    whole = False
    if isinstance(inside, Store):
        found = _dot(instruction, loops, inside)
        if found is not None:
            return found
        whole = sorted(loops.values()) == sorted(instruction.loops) and inside.mask is None
    products = [p for p in map(_sum_of_products, collect(loop, Store)) if p is not None]
    foreign = any(not _of_types(instruction, p) for p in products)
    # products of tiles are never left as vector loops, which would take a hundred times as long
    if whole or foreign or (instruction.rows > 1 and products):
        raise _does_not_fit(instruction, loop)
    return _as_loops(loop, instruction)


def _does_not_fit(instruction: DotInstruction, loop: For) -> LoweringError:
    a, b, sums = instruction.a, instruction.b, instruction.sums
    columns, group = instruction.columns, instruction.group
    meant = (
        f"It adds products of {a.dtype} and {b.dtype} to {sums.dtype}; "
        f"loops of {', '.join(map(str, instruction.loops))} take steps of {sums.steps}, {a.steps} and "
        f"{b.steps} through these."
    )
    cure = (
        f" For sums of A[i, k] * B[k, j]: split j by {columns} and k by {group}, let the inner loops of both "
        f"be the innermost two, that of j outside, tensorize it, and let {group} rows of B lie "
        f'side by side: s.layout(B, [(0, {group})], "0.0 1 0.1").'
    )
    return LoweringError(
        f"tensorize: {instruction.name} does not fit the loop\n{loop}.\n",
        fix=meant + (cure if instruction.rows == 1 else ""),
    )


def _of_types(instruction: DotInstruction, parts: tuple[Load, Load, Load]) -> bool:
    """Whether a sum and its factors have the instruction's types."""
    total, *factors = (x.buffer.dtype for x in parts)
    return total == instruction.sums.dtype and (
        sorted(map(str, factors)) == sorted((str(instruction.a.dtype), str(instruction.b.dtype)))
    )


def _nest(s: Stmt) -> tuple[Loops, Stmt]:
    """Loops from 0 that are directly nested, and the statement inside."""
    loops: Loops = {}
    while isinstance(s, For) and isinstance(s.extent, Const) and s.begin is const(0, s.begin.dtype):
        loops[s.var] = int(s.extent.value)
        s = s.body
    return loops, s


def _dot(instruction: DotInstruction, loops: Loops, store: Store) -> Stmt | None:
    """The store of a dot that computes the same as the loops; None if the loops mean something else."""
    parts = _sum_of_products(store)
    if parts is None or store.mask is not None:
        return None
    sums, left, right = parts
    if instruction.rows > 1:
        return _dot_of_tiles(instruction, loops, store, parts)
    for order, last in _orders(instruction, loops):
        if not _fits(instruction.sums, sums, order):
            continue
        for a, b in ((left, right), (right, left)):
            shared = a.mask is None or free_vars(a.mask).isdisjoint(order[:-1])
            if shared and _fits(instruction.a, a, order) and _fits(instruction.b, b, order):
                return _written(instruction, store, (sums, a, b), order, last)
    return None


def _dot_of_tiles(
    instruction: DotInstruction, loops: Loops, store: Store, parts: tuple[Load, Load, Load]
) -> Stmt | None:
    """The same for an instruction of tiles: fewer rows and groups fill a part of a tile; one has no loop."""
    sums, *factors = parts
    if any(x.mask is not None for x in factors):
        return None
    missing = (None,) * (len(instruction.loops) - len(loops))
    at_begin = {v: const(0, v.dtype) for v in loops}
    for order in sorted({*permutations((*loops, *missing))}, key=str):
        rows, columns, groups, group = (1 if v is None else loops[v] for v in order)
        most = instruction.loops
        if (columns, group) != (most[1], most[3]) or rows > most[0] or groups > most[2]:
            continue
        for a, b in (factors, factors[::-1]):
            found = zip(
                (sums, a, b), (instruction.sums, instruction.a, instruction.b), (0, 0, 2), strict=True
            )
            pitches = [_pitch(operand, load, order, outer) for load, operand, outer in found]
            if any(p is None for p in pitches) or pitches[0] != instruction.sums.steps[0]:
                continue
            shapes = ((rows, columns), (rows, groups * group), (groups, columns * group))
            total, left, right = (
                Load(x.buffer, (_rows(substitute(x.indices[0], at_begin), pitch or 0, *shape),))
                for x, pitch, shape in zip((sums, a, b), pitches, shapes, strict=True)
            )
            value = Dot(total, left, right, rows, group, instruction.name)
            return Store(store.buffer, total.indices, value)
    return None


def _pitch(operand: Operand, load: Load, order: tuple[Var | None, ...], outer: int) -> int | None:
    """The distance in elements between rows of a tile; None if the load is not the operand's.

    outer: the position of the loop over rows.
    """
    place, steps = affine(load.indices[0]), operand.steps
    if place is None or load.buffer.dtype != operand.dtype:
        return None
    if not all(isinstance(t, Var) or free_vars(t).isdisjoint(v for v in order if v) for t in place.terms):
        return None
    taken = [steps[n] if v is None else place.coefficient(v) for n, v in enumerate(order)]
    pitch = taken[outer]
    taken[outer] = steps[outer]
    return pitch if tuple(taken) == steps and pitch > 0 else None


def _rows(base: Expr, pitch: int, rows: int, columns: int) -> Expr:
    """The indices of all elements of rows that are `pitch` apart, one row after the other."""
    lanes = Ramp(const(0), 1, rows * columns)
    if rows == 1 or pitch == columns:
        return Ramp(base, 1, rows * columns)

    def every(x: Expr) -> Expr:
        return Broadcast(x, rows * columns)

    wide = every(const(columns))
    return every(base) + (lanes // wide) * every(const(pitch)) + lanes % wide


def _orders(instruction: DotInstruction, loops: Loops) -> Iterator[tuple[tuple[Var, ...], int]]:
    """The loops in the order of the instruction's loops, and the number of elements in its group.

    The last group may be only a part; a part of one element has no loop.
    """
    *others, group = instruction.loops
    for order in permutations(loops):
        extents = [loops[v] for v in order]
        if extents[: len(others)] != others or len(extents) > len(instruction.loops):
            continue
        last = extents[-1] if len(extents) == len(instruction.loops) else 1
        if last <= group:
            yield order, last


def _written(
    instruction: DotInstruction, store: Store, loads: tuple[Load, ...], order: tuple[Var, ...], last: int
) -> Stmt:
    """The dot of the elements at the beginning of the loops; masks switch off lanes after the last one."""
    at_begin = {v: const(0, v.dtype) for v in order}
    columns, depth = instruction.columns, instruction.depth
    total, a, b = (
        Load(x.buffer, (Ramp(substitute(x.indices[0], at_begin), 1, n),), mask)
        for x, n, mask in zip(
            loads,
            (columns, depth, columns * depth),
            (None, *_masks(instruction, loads[1:], order, last)),
            strict=True,
        )
    )
    return Store(store.buffer, total.indices, Dot(total, a, b, 1, instruction.group, instruction.name))


def _masks(
    instruction: DotInstruction, loads: tuple[Load, ...], order: tuple[Var, ...], last: int
) -> Iterator[Expr | None]:
    """For both operands, which elements are read, as a vector; None if all are read."""
    group, lane = instruction.group, Var("dot.lane")
    place = dict(zip(order, (lane // group, lane % group), strict=False))
    for load, width in zip(loads, (group, group * instruction.columns), strict=True):
        inside = [] if load.mask is None else [substitute(load.mask, place)]
        if last < group:
            inside.append(lane % group < last)
        vector = Vectorizer(lane, Ramp(const(0), 1, width))
        yield vector.wide(simplify(all_of(*inside)), None) if inside else None


def _sum_of_products(store: Store) -> tuple[Load, Load, Load] | None:
    """The sum and the factors of `C[i] = C[i] + t(A[j]) * t(B[k])`, where t is the type of the sum."""
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
    """Whether a load has the operand's type and the operand's steps."""
    place = affine(load.indices[0])
    if place is None or load.buffer.dtype != operand.dtype:
        return False
    plain = all(isinstance(t, Var) or free_vars(t).isdisjoint(order) for t in place.terms)
    return plain and tuple(place.coefficient(v) for v in order) == operand.steps[: len(order)]


def _as_loops(loop: For, instruction: DotInstruction) -> Stmt:
    """The marked loop as a vector loop, with the loops over rows and over a group written out."""

    def written_out(s: Stmt) -> Stmt:
        match s:
            case For(var, begin, Const() as extent, ForKind.SERIAL, body) if extent.value <= max(
                instruction.rows, instruction.group
            ):
                return For(var, begin, extent, ForKind.UNROLLED, written_out(body))
            case If(cond, then, None):
                return If(cond, written_out(then))
            case Seq(stmts):
                return Seq(tuple(written_out(x) for x in stmts))
            case Let(var, value, body):
                return Let(var, value, written_out(body))
        return s

    return For(loop.var, loop.begin, loop.extent, ForKind.VECTORIZED, written_out(loop.body))
