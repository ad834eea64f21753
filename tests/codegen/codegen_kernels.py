"""Small programs built by hand from the loop IR, and a way to run them thread by thread."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autotensor.base.dtype import DType, float32, int64
from autotensor.base.target import Target, host
from autotensor.codegen.backend import compile
from autotensor.ir.expr import Broadcast, Expr, Load, Ramp, Var, const
from autotensor.ir.func import Buffer, PrimFunc, Program, Role, Scope
from autotensor.ir.stmt import Alloc, For, ForKind, Stmt, Store, seq
from autotensor.runtime.arrays import aligned_copy, aligned_empty
from autotensor.runtime.linking import loader
from autotensor.runtime.native import launcher

Array = np.ndarray[Any, np.dtype[Any]]
LANES = 16


def buffer(name: str, *shape: int, dtype: DType = float32, scope: Scope = Scope.GLOBAL) -> Buffer:
    return Buffer(name, shape, dtype, scope)


def loop(var: Var, extent: Any, body: Stmt, kind: ForKind = ForKind.SERIAL, begin: Any = 0) -> For:
    to_expr: Callable[[Any], Expr] = lambda x: x if isinstance(x, Expr) else const(x)  # noqa: E731
    return For(var, to_expr(begin), to_expr(extent), kind, body)


def program(body: Stmt, *args: tuple[Buffer, Role]) -> Program:
    return Program(args, (), (PrimFunc("k", tuple(b for b, _ in args), body),))


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)
def _no_barrier(ctx: int, tid: int, threads: int) -> None:
    """Stands for the barrier where threads run one after another, which only single kernels allow."""


def call(address: int, pointers: Sequence[int], threads: int) -> None:
    """Run an entry for every thread, one after another."""
    entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)(address)
    slots = (ctypes.c_void_p * max(1, len(pointers)))(*pointers)
    # Zeros behind the barrier: nothing is shared.
    ctx = (ctypes.c_void_p * (launcher.CONTEXT.bytes // 8))(ctypes.cast(_no_barrier, ctypes.c_void_p).value)
    for tid in range(threads):
        entry(ctypes.addressof(ctx), ctypes.addressof(slots), tid, threads)


def run(p: Program, *arrays: Array, threads: int = 1, target: Target | None = None, part: str = "run") -> Any:
    """Compile and run; arrays in the program's order, outputs are changed in place. Gives the artifact."""
    artifact = compile(p, target or host(), name="test")
    loaded = loader.load(artifact)
    pointers = [a.ctypes.data for a in arrays]
    scratch = [aligned_empty((s.stride * threads,), "uint8") for s in artifact.args if s.per_thread]
    for s in scratch:
        s[:] = 0xFF
    call(
        loaded.entry if part == "run" else loaded.prepare,
        [*pointers, *(s.ctypes.data for s in scratch)],
        threads,
    )
    return artifact


def elementwise(
    fn: Callable[..., Expr],
    inputs: Sequence[Array],
    lanes: int = 1,
    out: DType | None = None,
    target: Target | None = None,
) -> Array:
    """`fn` of the inputs' elements; the inputs' length is a multiple of `lanes`."""
    from autotensor.base.dtype import dtype_of

    n = inputs[0].size
    ins = [buffer(f"x{k}", n, dtype=dtype_of(a.dtype)) for k, a in enumerate(inputs)]
    i = Var("i")
    at: Expr = i if lanes == 1 else Ramp(i * lanes, 1, lanes)
    value = fn(*(Load(b, (at,)) for b in ins))
    result = buffer("y", n, dtype=out or value.dtype.element)
    p = program(
        loop(i, n // lanes, Store(result, (at,), value), ForKind.PARALLEL),
        *((b, Role.INPUT) for b in ins),
        (result, Role.OUTPUT),
    )
    y = np.empty(n, result.dtype.numpy)
    run(p, *(np.ascontiguousarray(a) for a in inputs), y, target=target)
    return y


# -- register-tiled kernels ------------------------------------------------------------------------------


def tile_steps(
    acc: Buffer,
    rows: int,
    columns: int,
    a: Callable[[int], Expr],
    b: Callable[[int], Expr],
    lanes: int = LANES,
) -> tuple[Stmt, Stmt]:
    """Initialisation and update of a tile of `rows` x `columns` vectors: acc[r, c] += a(r) * b(c)."""
    zero, update = [], []
    for r in range(rows):
        for c in range(columns):
            at = (Ramp(const((r * columns + c) * lanes), 1, lanes),)
            zero.append(Store(acc, at, const(0.0, float32.with_lanes(lanes))))
            update.append(Store(acc, at, Load(acc, at) + Broadcast(a(r), lanes) * b(c)))
    return seq(*zero), seq(*update)


def tile_result(
    acc: Buffer, out: Buffer, rows: int, columns: int, at: Callable[[int, int], Expr], lanes: int = LANES
) -> Stmt:
    """out[at(r, c) …] = acc[r, c]."""
    return seq(
        *(
            Store(
                out,
                (Ramp(at(r, c), 1, lanes),),
                Load(acc, (Ramp(const((r * columns + c) * lanes), 1, lanes),)),
            )
            for r in range(rows)
            for c in range(columns)
        )
    )


def gemm(m: int, n: int, k: int, rows: int, columns: int, lanes: int = LANES) -> Program:
    """C[m, n] = A[m, k] · B[k, n], B packed as [n/(16·columns), k, 16·columns]; parallel over column
    panels."""
    width = columns * lanes
    A, B, C = buffer("A", m, k), buffer("B", n // width, k, width), buffer("C", m, n)
    acc = buffer("acc", rows * width, scope=Scope.REGISTER)
    io, jo, kk = Var("io"), Var("jo"), Var("kk")
    zero, update = tile_steps(
        acc,
        rows,
        columns,
        lambda r: Load(A, ((io * rows + r) * k + kk,)),
        lambda c: Load(B, (Ramp((jo * k + kk) * width + c * lanes, 1, lanes),)),
        lanes,
    )
    result = tile_result(
        acc, C, rows, columns, lambda r, c: (io * rows + r) * n + jo * width + c * lanes, lanes
    )
    body = Alloc(acc, seq(zero, loop(kk, k, update), result))
    nest = loop(jo, n // width, loop(io, m // rows, body), ForKind.PARALLEL)
    return program(nest, (A, Role.INPUT), (B, Role.PREPARED), (C, Role.OUTPUT))


def conv(h: int, w: int, ci: int, co: int, rows: int, columns: int, kernel: int = 3) -> Program:
    """NHWC convolution, stride 1, of an input that is already padded; `rows` pixels x 16·columns channels a
    tile."""
    width, lanes, padded = columns * LANES, LANES, w + kernel - 1
    X = buffer("X", h + kernel - 1, padded, ci)
    W = buffer("W", co // width, kernel, kernel, ci, width)
    Y = buffer("Y", h, w, co)
    acc = buffer("acc", rows * width, scope=Scope.REGISTER)
    y, x, o, kh, kw, c = (Var(v) for v in ("y", "x", "o", "kh", "kw", "c"))
    zero, update = tile_steps(
        acc,
        rows,
        columns,
        lambda r: Load(X, (((y + kh) * padded + x * rows + r + kw) * ci + c,)),
        lambda v: Load(
            W, (Ramp((((o * kernel + kh) * kernel + kw) * ci + c) * width + v * lanes, 1, lanes),)
        ),
    )
    result = tile_result(
        acc, Y, rows, columns, lambda r, v: (y * w + x * rows + r) * co + o * width + v * lanes
    )
    reduction = loop(kh, kernel, loop(kw, kernel, loop(c, ci, update)))
    tile = Alloc(acc, seq(zero, reduction, result))
    nest = loop(y, h, loop(o, co // width, loop(x, w // rows, tile)), ForKind.PARALLEL)
    return program(nest, (X, Role.INPUT), (W, Role.PREPARED), (Y, Role.OUTPUT))


def pack(b: Array, width: int) -> Array:
    """[k, n] as aligned panels [n/width, k, width]."""
    k, n = b.shape
    return aligned_copy(b.reshape(k, n // width, width).transpose(1, 0, 2))


def pack_filters(w: Array, width: int) -> Array:
    """[kh, kw, ci, co] as aligned [co/width, kh, kw, ci, width]."""
    kh, kw, ci, co = w.shape
    return aligned_copy(w.reshape(kh, kw, ci, co // width, width).transpose(3, 0, 1, 2, 4))


def ulps(got: Array, exact: Array) -> float:
    """Greatest error in units in the last place of `got`'s type; equal infinities and NaNs count as 0."""
    dtype = got.dtype
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = exact.astype(dtype)
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        unit = np.maximum(np.abs(np.spacing(rounded)), np.finfo(dtype).smallest_subnormal).astype(
            np.longdouble
        )
        error = np.where(same, 0, np.abs(got.astype(np.longdouble) - exact.astype(np.longdouble)) / unit)
    return float(np.max(np.nan_to_num(error, nan=math.inf)))


__all__ = [n for n in dir() if not n.startswith("_")]
INT = int64
