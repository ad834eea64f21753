"""dots: vector loops that are marked with a dot instruction become one, where they mean what it computes.

    for j in vectorized(16, thread="x86.vpdpbusd.512"): for q in 4:
      C[j] = C[j] + i32(A[4*k + q]) * i32(B[64*k + 4*j + q])
        ──▶     C[0:16] = x86.vpdpbusd.512(C[0:16], A[4*k : +4], B[64*k : +64])

Loops mean the same if each operand has the instruction's type and each loop takes the same steps through it.
Where a whole group is not there, at the end of a reduction, and where sums begin or are joined, the loops
stay: they are vectors of one element of a group at a time. Any other loops are an error.
"""

from __future__ import annotations

from itertools import permutations

from autotensor.base.errors import LoweringError
from autotensor.codegen.dot_instructions import DOTS, DotInstruction, Operand
from autotensor.ir.affine import affine
from autotensor.ir.expr import Binary, Cast, Const, Dot, Expr, Load, Op, Ramp, Var, const
from autotensor.ir.node import Node
from autotensor.ir.rewrite import substitute, transform
from autotensor.ir.stmt import For, ForKind, If, Let, Seq, Stmt, Store
from autotensor.ir.visit import any_node, free_vars

Loops = dict[Var, int]  # in one another, outermost first: variable → extent


def dots(body: Stmt) -> Stmt:
    """The body with its dots. Raises LoweringError for marked loops of other sums of products."""
    if not any_node(body, _is_marked):
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
    if parts is None or store.mask is not None or len(loops) != len(instruction.loops):
        return None
    sums, left, right = parts
    at_begin = {v: const(0, v.dtype) for v in loops}
    for order in permutations(loops):
        if tuple(loops[v] for v in order) != instruction.loops or not _fits(instruction.sums, sums, order):
            continue
        for a, b in ((left, right), (right, left)):
            if _fits(instruction.a, a, order) and _fits(instruction.b, b, order):
                of_a = instruction.rows * instruction.depth
                lanes = instruction.rows * instruction.columns, of_a, instruction.columns * instruction.depth
                total, first, second = (
                    Load(x.buffer, (Ramp(substitute(x.indices[0], at_begin), 1, n),))
                    for x, n in zip((sums, a, b), lanes, strict=True)
                )
                value = Dot(total, first, second, instruction.rows, instruction.group, instruction.name)
                return Store(store.buffer, total.indices, value)
    return None


def _sum_of_products(store: Store) -> tuple[Load, Load, Load] | None:
    """Sum and factors of `C[i] = C[i] + t(A[j]) * t(B[k])`, t the type of the sum."""
    match store.value:
        case Binary(Op.ADD, Load() as sums, Binary(Op.MUL, a, b)):
            pass
        case Binary(Op.ADD, Binary(Op.MUL, a, b), Load() as sums):
            pass
        case _:
            return None
    left, right = _factor(a), _factor(b)
    if left is None or right is None or (sums.buffer, sums.indices) != (store.buffer, store.indices):
        return None
    return sums, left, right


def _factor(e: Expr) -> Load | None:
    """What a factor is loaded from; casts widen it, so that the value is the same."""
    while isinstance(e, Cast) and _holds(e):
        e = e.a
    return e if isinstance(e, Load) and e.mask is None else None


def _holds(cast: Cast) -> bool:
    """Whether the type of a cast has all values of the one before."""
    new, old = cast.dtype.element, cast.a.dtype.element
    if new.is_float or old.is_float:
        return new.is_float and old.is_float and new.bits > old.bits
    return new.bits > old.bits and (new.kind == "int" or old.kind == "uint")


def _fits(operand: Operand, load: Load, order: tuple[Var, ...]) -> bool:
    """Whether a load has the operand's type and takes its steps."""
    place = affine(load.indices[0])
    if place is None or load.buffer.dtype != operand.dtype:
        return False
    plain = all(isinstance(t, Var) or free_vars(t).isdisjoint(order) for t in place.terms)
    return plain and tuple(place.coefficient(v) for v in order) == operand.steps


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
