"""Tensor expressions, in TVM's spelling: tensors, computes, stages, DAGs, workloads; reference, tolerance.

    from autotensor import te
    A = te.placeholder((1024, 1024), name="A")
    B = te.compute((1024, 1024), lambda i, j: te.exp(A[i, j]) + 1.0, name="B")

Start reading at `te/compute.py`, then `te/dag.py` (an expression as the rest of the system sees it).
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from autotensor.base.absent_names import absent
from autotensor.ir.expr import Expr, call, maximum, minimum, select
from autotensor.te.compute import all, any, comm_reducer, compute, max, min, prod, reduce_axis, sum
from autotensor.te.math import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    cast,
    ceil,
    const,
    cos,
    cosh,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    floordiv,
    floormod,
    fmod,
    indexdiv,
    indexmod,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    max_value,
    min_value,
    pow,
    power,
    requantize,
    round,
    rounded,
    rsqrt,
    sigmoid,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
)
from autotensor.te.scan import scan
from autotensor.te.symbols import var
from autotensor.te.tensor import AxisKind, Compute, IterVar, Placeholder, Tensor, placeholder
from autotensor.te.thread import ThreadAxis, thread_axis

if_then_else = select  # both evaluate only the side they take
Select = select  # as in tvm.tir


def create_schedule(outputs: Any) -> Any:
    """A schedule for the stages that compute `outputs`: a tensor, its op, or several.

    The same function as autotensor.create_schedule; TVM's users look for it here. Schedules are a layer above
    te. This function is te's only use of that layer, and it imports the layer when it is called.
    """
    return importlib.import_module("autotensor.schedule.schedule").create_schedule(outputs)


_NO_CALLS = "a kernel calls no other code; te has exp, erf and the functions in autotensor.te"
_BITS = "it is not supported; write it with >>, << and & on integers"
_ELSEWHERE = {  # names of TVM's te and tir → what replaces them here
    "size_var": 'write te.var("n", range=(1, 512)), or n = 1024',
    "Var": 'write te.var("n", range=(1, 512)) for an extent; te.compute gives axes to its function',
    "Cast": "write te.cast(dtype, x), or x.astype(dtype)",
    "ComputeOp": "write te.compute; C.op is the stage of a tensor",
    "PlaceholderOp": "write te.placeholder; A.op is the input of a tensor",
    "Schedule": "there is no TensorIR; write te.create_schedule(C)",
    "div": "write a / b, or a // b, which rounds down",
    "infinity": "write te.max_value(dtype), or float('inf')",
    "reinterpret": "it is not supported; te.cast converts values",
    "stmt_functor": "loops are made by at.lower, and are not rewritten by users",
    "extern": "a stage is always an expression; call other code between two kernels",
    "gradient": "at.gradients differentiates graphs, a te function in them (at.call) included",
    "hybrid": "a stage is always an expression; write it with te.compute",
    "create_prim_func": "there is no TVMScript; a te program goes to create_schedule, build or tune as it is",
    "truncdiv": "write // or te.floordiv, which round down; without negative numbers they are the same",
    "truncmod": "write % or te.floormod, which go with //; without negative numbers they are the same",
    "clip": "write te.maximum(te.minimum(x, high), low)",
    "call_extern": _NO_CALLS,
    "call_intrin": _NO_CALLS,
    "call_packed": _NO_CALLS,
    "call_pure_extern": _NO_CALLS,
    "clz": _BITS,
    "popcount": _BITS,
    "nearbyint": "write te.round, which rounds halves to even",
    "isfinite": 'write te.abs(x) < float("inf")',
    "argmax": "write a te.comm_reducer over pairs (docs/coming-from-tvm.md); models have at.ops.argmax",
    "argmin": "write a te.comm_reducer over pairs (docs/coming-from-tvm.md); models have at.ops.argmin",
    "tag_scope": "leave it out; tags have no effect here",
    "ir_builder": "a stage is always an expression; write it with te.compute",
    "TensorComputeOp": "write te.compute, and s[C].tensorize for instructions",
    "decl_buffer": "a stage's buffer is chosen by its schedule: s.layout, s[C].storage_align",
    "exp10": "write te.power(10.0, x)",
    "schedule": "write te.create_schedule(C); at.lower(s, args) gives the loops and their bounds",
    "decl_tensor_intrin": "instructions have names and are declared in autotensor/codegen: "
    's[C].tensorize(axis, "mma.m16n8k8.tf32")',
}

if not TYPE_CHECKING:  # type checkers should still report unknown names

    def __getattr__(name: str) -> Any:
        """Raises an error with advice for names that only TVM's te has."""
        raise absent("te", name, sys.modules[__name__], _ELSEWHERE)


__all__ = [
    "AxisKind",
    "Compute",
    "Expr",
    "IterVar",
    "Placeholder",
    "Select",
    "Tensor",
    "ThreadAxis",
    "abs",
    "acos",
    "acosh",
    "all",
    "any",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "call",
    "cast",
    "ceil",
    "comm_reducer",
    "compute",
    "const",
    "cos",
    "cosh",
    "create_schedule",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "floordiv",
    "floormod",
    "fmod",
    "if_then_else",
    "indexdiv",
    "indexmod",
    "isinf",
    "isnan",
    "log",
    "log1p",
    "log2",
    "log10",
    "max",
    "max_value",
    "maximum",
    "min",
    "min_value",
    "minimum",
    "placeholder",
    "pow",
    "power",
    "prod",
    "reduce_axis",
    "requantize",
    "round",
    "rounded",
    "rsqrt",
    "scan",
    "select",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "sum",
    "tan",
    "tanh",
    "thread_axis",
    "trunc",
    "var",
]
