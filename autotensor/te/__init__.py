"""Tensor expressions, in TVM's spelling: tensors, computes, stages, DAGs, workloads; reference, tolerance.

    from autotensor import te
    A = te.placeholder((1024, 1024), name="A")
    B = te.compute((1024, 1024), lambda i, j: te.exp(A[i, j]) + 1.0, name="B")

Start reading at `te/compute.py`, then `te/dag.py` (an expression as the rest of the system sees it).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from autotensor.base.absent_names import advice
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
_NODES = "write the formula: a + b, a < b, te.all(a, b), te.if_then_else(c, a, b), te.exp(a)"
_NUMBER = 'write the number, or te.const(3, "int32")'
_LOOPS = "loops are made by at.lower, and are not written by users; print(s) shows them"
_GRADIENT = "at.gradients differentiates graphs, a te function in them (at.call) included"
_INLINE = "s[D].compute_inline() inlines a stage; at.build([A, B]) chooses a schedule by itself"
_EXPRESSION = "a stage is always an expression; write it with te.compute"
_BITS = "it is not supported; write it with >>, << and & on integers"
_OPERATORS = "at.ops has operators of graphs; in te, write its formula as a te.compute"
_ELSEWHERE = {  # names of TVM's te and tir → what replaces them here
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Mod", "FloorDiv", "FloorMod", "Min", "Max"), _NODES),
    **dict.fromkeys(("EQ", "NE", "LT", "LE", "GT", "GE", "And", "Or", "Not", "Call", "Let"), _NODES),
    **dict.fromkeys(("add", "subtract", "multiply", "divide", "PrimExpr", "Reduce"), _NODES),
    **dict.fromkeys(
        ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"), "write a & b, a | b, a ^ b, ~a"
    ),
    **dict.fromkeys(("shift_left", "shift_right"), "write a << b, a >> b"),
    **dict.fromkeys(("IntImm", "FloatImm", "StringImm"), _NUMBER),
    **dict.fromkeys(("For", "While", "IfThenElse", "Evaluate", "Block", "BlockRealize", "SeqStmt"), _LOOPS),
    **dict.fromkeys(("AttrStmt", "Allocate", "Store", "BufferStore", "BufferLoad", "Buffer", "Stmt"), _LOOPS),
    **dict.fromkeys(("PrimFunc", "BufferRegion", "LetStmt", "AssertStmt", "analysis", "trace"), _LOOPS),
    **dict.fromkeys(("AutoInlineInjective", "AutoInlineElemWise", "AutoInlineBroadcast"), _INLINE),
    "transform": "there are no passes to configure; loops are made by at.lower",
    "SpecializedCondition": "leave it out; guards are added where a loop needs them",
    "likely": "write the condition alone; guards are added where a loop needs them",
    "differentiate": _GRADIENT,
    "ScanOp": "write te.scan; Y.op is the stage of its result",
    "ExternOp": _EXPRESSION,
    "HybridOp": _EXPRESSION,
    "hypot": "write te.sqrt(x * x + y * y)",
    "copysign": "write te.if_then_else(y < 0, -te.abs(x), te.abs(x))",
    "nextafter": "it is not supported; te.cast converts values",
    "ldexp": "write x * te.exp2(y)",
    "q_multiply_shift": "write te.requantize",
    "ret": _EXPRESSION,
    "Range": "write the extent: te.reduce_axis(n)",
    "call_llvm_intrin": _NO_CALLS,
    "call_llvm_pure_intrin": _NO_CALLS,
    "size_var": 'write te.var("n", range=(1, 512)), or n = 1024',
    "Var": 'write te.var("n", range=(1, 512)) for an extent; te.compute gives axes to its function',
    "Cast": "write te.cast(dtype, x), or x.astype(dtype)",
    "ComputeOp": "write te.compute; C.op is the stage of a tensor",
    "PlaceholderOp": "write te.placeholder; A.op is the input of a tensor",
    "Schedule": "there is no TensorIR; write te.create_schedule(C)",
    "div": "write a / b, or a // b, which rounds down",
    "infinity": "write te.max_value(dtype), or float('inf')",
    "reinterpret": "it is not supported; te.cast converts values",
    "stmt_functor": _LOOPS,
    "extern": "a stage is always an expression; call other code between two kernels",
    "gradient": _GRADIENT,
    "hybrid": _EXPRESSION,
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
    **dict.fromkeys(("matmul", "dot", "einsum", "conv2d", "mean", "softmax", "transpose"), _OPERATORS),
    "relu": "write te.maximum(x, 0.0)",
    "where": "write te.if_then_else(condition, a, b)",
    "arange": "write te.compute((n,), lambda i: i)",
    **dict.fromkeys(("zeros", "ones", "full"), "write te.compute(shape, lambda i, j: 0.0)"),
    "tag_scope": "leave it out; tags have no effect here",
    "ir_builder": _EXPRESSION,
    "TensorComputeOp": "write te.compute, and s[C].tensorize for instructions",
    "decl_buffer": "a stage's buffer is chosen by its schedule: s.layout, s[C].storage_align",
    "exp10": "write te.power(10.0, x)",
    "schedule": "write te.create_schedule(C); at.lower(s, args) gives the loops and their bounds",
    "decl_tensor_intrin": "instructions have names, which docs/schedule-language.md lists: "
    's[C].tensorize(axis, "x86.vpdpbusd.512"); a new one is a file in autotensor/instructions',
}

if not TYPE_CHECKING:  # type checkers should still report unknown names
    __getattr__ = advice(__name__, "te", _ELSEWHERE)


def __dir__() -> list[str]:
    """Public names only, for completion by Tab."""
    return list(__all__)


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
