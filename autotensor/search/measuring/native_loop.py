"""Three native functions for timing: calls of a kernel, writes of the layer before it, and a fixed work.

    touch ┊ call 0 ┊ touch ┊ call 1 ┊ touch ┊ …        only the calls are timed, one by one

Python between two calls would take longer than a small kernel, so the loop over calls is native. Before every
call, the activations are written in the same way as by the kernel before: each thread writes its part of
every array, in order. The reference kernel always does the same arithmetic, on every thread. If its time
changes, the machine has changed, not the candidate.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from autotensor.base.target import host
from autotensor.codegen.llvm.build import build
from autotensor.runtime.linking.linker import Code, link
from autotensor.runtime.native import launcher, threads
from autotensor.runtime.native.assembler import Struct, assemble

_ROTATE = """
define void @rotate(ptr %launch, ptr %provider, ptr %fn, ptr %frames,
                    i64 %first, i64 %copies, i64 %count, i32 %n, ptr %touched, ptr %times) {
  %cold = icmp ne ptr %touched, null
  for i64 %k = 0 .. %count, i64 %slot = %first {
    %args = load ptr.at(%frames, i64 %slot)
    if %cold {
      call void %launch(ptr %provider, ptr @touch, ptr %touched, i32 %n, i64 1)
    }
    %began = call i64 @clock()
    call void %launch(ptr %provider, ptr %fn, ptr %args, i32 %n, i64 1)
    %ended = call i64 @clock()
    %took = sub i64 %ended, %began
    store %took, i64.at(%times, i64 %k)
    %after = add i64 %slot, 1
    %over = icmp eq i64 %after, %copies
    %following = select i1 %over, i64 0, i64 %after
  } next %following
  ret void
}

; of the kernel ABI. Its one argument: the number of arrays, then of each the address and its lines of 64
; bytes. A thread writes what is there into its share of the lines: its core's cache has them then, changed.
define void @touch(ptr %ctx, ptr %arrays, i32 %tid, i32 %n) {
  %t = sext i32 %tid to i64
  %all = sext i32 %n to i64
  %count = load i64, ptr %arrays
  %first = i64.at(%arrays, i64 1)
  for i64 %a = 0 .. %count {
    %array = array.at(%first, i64 %a)
    %base = load array.base(%array)
    %lines = load array.lines(%array)
    %before = mul i64 %lines, %t
    %from = sdiv i64 %before, %all
    %until = add i64 %before, %lines
    %to = sdiv i64 %until, %all
    for i64 %l = %from .. %to {
      %offset = shl i64 %l, 6
      %p = i8.at(%base, i64 %offset)
      %value = load volatile i64, ptr %p
      store volatile i64 %value, ptr %p
    }
  }
  ret void
}

; of the kernel ABI: turns × 8 fused multiply-adds of eight floats, in eight chains. Its one argument is an
; array with a line for each thread's result. Thread 0 starts from 0, but LLVM does not know who it is.
declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)
define void @reference(ptr %ctx, ptr %args, i32 %tid, i32 %n) {
  %f = sitofp i32 %tid to float
"""
Array = np.ndarray[Any, np.dtype[Any]]
_CHAINS = 8  # independent sums, one per lane: enough to hide the latency of fused multiply-adds on two units
_TURNS = 40_000  # about 50 us
_LINE = 64


@dataclass(frozen=True, slots=True, eq=False)
class NativeLoop:
    """The loaded functions."""

    _rotate: Callable[..., None]
    _launch: int
    _reference: int
    code: Code

    def run(
        self, fn: int, frames: Array, first: int, count: int, nthreads: int, touched: Array | None = None
    ) -> Array:
        """Seconds of each of `count` calls of `fn`. Call k uses frames[(first + k) mod copies].

        touched: the lines that are written before each call (`touch_list`); None: the caches stay as the last
        call left them.
        """
        table = ctypes.addressof(threads.current().table)
        times = np.empty(count, np.int64)
        copies, before = len(frames), None if touched is None else touched.ctypes.data
        address = frames.ctypes.data
        self._rotate(
            self._launch,
            table,
            fn,
            address,
            first % copies,
            copies,
            count,
            nthreads,
            before,
            times.ctypes.data,
        )
        return times * 1e-9

    def call(self, fn: int, args: Array, nthreads: int) -> float:
        """Seconds of one call with these arguments."""
        return float(self.run(fn, np.array([args.ctypes.data], np.uint64), 0, 1, nthreads)[0])

    def reference_seconds(self, nthreads: int) -> float:
        """Seconds of the reference kernel with a team: the median of three."""
        results = np.zeros(nthreads * _LINE, np.uint8)
        return sorted(self.call(self._reference, results, nthreads) for _ in range(3))[1]


def touch_list(arrays: Sequence[Array]) -> Array:
    """The argument `touched` of `NativeLoop.run`: whole lines of 64 bytes of each array, the first array
    last.

    A kernel's first input is the result of the layer before it. Other inputs, such as a shortcut's, are
    older.
    """
    listed = [len(arrays)]
    for a in reversed(arrays):
        listed += [a.ctypes.data, a.nbytes // _LINE]
    return np.array(listed, np.int64)


@cache
def native_loop() -> NativeLoop:
    """The functions, compiled once per process in about 10 ms."""
    target = host()
    text = assemble(
        launcher.CLOCK + _ROTATE + _reference_body(),
        {"array": Struct("ptr base · i64 lines")},
        {"MONOTONIC": time.CLOCK_MONOTONIC},
    )
    code = build(text, target, opt=1).object
    linked = link("timing", (code,), ("rotate", "reference", "touch"))
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    rotate = ctypes.CFUNCTYPE(None, *[pointer] * 4, number, number, number, ctypes.c_int32, pointer, pointer)
    return NativeLoop(
        rotate(linked.addresses["rotate"]),
        launcher.launcher()["launch"],
        linked.addresses["reference"],
        linked,
    )


def _reference_body() -> str:
    """The rest of `reference`. Every chain begins in another lane; otherwise LLVM would see that all chains
    are equal."""
    vector, names = "<8 x float>", range(_CHAINS)
    lines = [f"%s{n} = insertelement {vector} zeroinitializer, float %f, i32 {n}" for n in names]
    starts = ", ".join(f"{vector} %a{n} = %s{n}" for n in names)
    lines += [f"%h = fmul {vector} %s0, zeroinitializer", f"loop i64 %k = 0, {starts} {{"]
    lines += [
        f"%b{n} = call {vector} @llvm.fma.v8f32({vector} %a{n}, {vector} %h, {vector} %s{n})" for n in names
    ]
    following = " ".join(f"%b{n}" for n in names)
    lines += ["%next = add i64 %k, 1", f"if sge i64 %next, {_TURNS} break", f"}} next %next {following}"]
    total = "%b0"
    for n in names[1:]:
        lines.append(f"%t{n} = fadd {vector} {total}, %b{n}")
        total = f"%t{n}"
    lines += ["%t64 = sext i32 %tid to i64", f"%line = getelementptr [{_LINE} x i8], ptr %args, i64 %t64"]
    return "\n".join([*lines, f"store {vector} {total}, ptr %line, align 4", "ret void", "}", ""])
