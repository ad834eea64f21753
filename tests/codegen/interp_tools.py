"""Kernels for the interpreter's tests, and running them."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor.base.dtype import dtype_of
from autotensor.codegen.interp.interpreter import run_program
from autotensor.ir.expr import Expr, Ramp, Var, const
from autotensor.ir.func import Buffer, Launch, PrimFunc, Program, Role, Scope
from autotensor.ir.stmt import For, ForKind, Stmt, Store

VI, VJ, VK = Var("i"), Var("j"), Var("k")
NAN = float("nan")


def loop(var: Var, extent: Any, body: Stmt, kind: ForKind = ForKind.SERIAL, thread: str = "") -> For:
    return For(var, const(0), extent if isinstance(extent, Expr) else const(extent), kind, body, thread)


def thread(var: Var, extent: int, body: Stmt, axis: str = "threadIdx.x") -> For:
    return loop(var, extent, body, ForKind.THREAD, axis)


def buffer(name: str, *shape: int, dtype: str = "float32", scope: Scope = Scope.GLOBAL) -> Buffer:
    return Buffer(name, shape, dtype_of(dtype), scope)


def kernel(body: Stmt, *params: Buffer, launch: Launch | None = None) -> PrimFunc:
    return PrimFunc("f", params, body, launch)


def run(
    body: Stmt, *args: tuple[Buffer, Role], nthreads: int = 1, strict: bool = False, **arrays: Any
) -> Any:
    """Runs one kernel; gives the outputs, which start as NaN or 0."""
    for b, role in args:
        if role is Role.OUTPUT and b.name not in arrays:
            arrays[b.name] = np.full(b.shape, NAN if b.dtype.is_float else 0, b.dtype.numpy)
    program = Program(args, (), (kernel(body, *(b for b, _ in args)),))
    run_program(program, arrays, nthreads=nthreads, strict=strict)
    outs = [arrays[b.name] for b, role in args if role is Role.OUTPUT]
    return outs[0] if len(outs) == 1 else outs


def value_of(e: Expr) -> Any:
    """The value of one expression, as a NumPy array."""
    out = Buffer("out", (e.dtype.lanes,), e.dtype.element)
    index: Expr = Ramp(const(0), 1, e.dtype.lanes) if e.dtype.lanes > 1 else const(0)
    result = run(Store(out, (index,), e), (out, Role.OUTPUT))
    return result if e.dtype.lanes > 1 else result[0]


OUT = Role.OUTPUT
IN = Role.INPUT
