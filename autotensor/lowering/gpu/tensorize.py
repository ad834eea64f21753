"""tensorize: loops marked with an instruction become this instruction of a warp, if they mean the same."""

from __future__ import annotations

from autotensor.base.errors import LoweringError
from autotensor.codegen.c.tensor_intrinsics import LANE_AXIS, LANES, fragments, is_tensorized
from autotensor.ir.expr import Load
from autotensor.ir.node import children, map_children
from autotensor.ir.rewrite import substitute
from autotensor.ir.stmt import For, If, Let, Stmt
from autotensor.ir.visit import collect, contains, free_vars
from autotensor.lowering.gpu.unify import thread_extents


def check_tensorized(body: Stmt) -> Stmt:
    """The body. If it has instructions, its indices are written with thread variables only.

    Raises LoweringError for a marked loop that computes something else than its instruction.
    """
    if not any(map(is_tensorized, collect(body, For))):
        return body
    body = _without_lets(body)
    extents = thread_extents(body)
    _visit(body, extents.get(LANE_AXIS, 1), "")
    return body


def _without_lets(s: Stmt) -> Stmt:
    """The statement with the variables that hold parts of a thread's number replaced by their values."""
    match s:
        case Let(var, value, inner) if not contains(value, Load):
            return _without_lets(substitute(inner, {var: value}))
        case _:
            return map_children(s, lambda c: _without_lets(c) if isinstance(c, Stmt) else c)


def _visit(s: Stmt, lanes: int, under: str) -> None:
    match s:
        case For() if is_tensorized(s):
            if lanes != LANES:
                raise LoweringError(
                    f"tensorize: {s.thread} needs a warp of {LANES} threads along threadIdx.x; "
                    f"there are {lanes}."
                )
            if under:
                raise LoweringError(
                    f"tensorize: {s.thread} stands under `{under}`, which not all threads of a warp enter."
                )
            fragments(s)
        case If(cond) if any(v.name.startswith("threadIdx") for v in free_vars(cond)):
            for c in children(s):
                if isinstance(c, Stmt):
                    _visit(c, lanes, str(cond))
        case _:
            for c in children(s):
                if isinstance(c, Stmt):
                    _visit(c, lanes, under)
