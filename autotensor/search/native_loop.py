"""Two native functions for timing: calls of a kernel with rotating arguments, and a fixed piece of work.

Python between two calls would take longer than a small kernel, so the loop over calls is native. The
reference kernel does the same arithmetic for ever and ever, on every thread: when its time moves, the machine
has changed, not the candidate.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from autotensor.base.target import host
from autotensor.codegen.llvm_build import build
from autotensor.runtime import loader, native, threads
from autotensor.runtime.artifact import Artifact

_ROTATE = """
define void @rotate(ptr %launch, ptr %provider, ptr %fn, ptr %frames,
                    i64 %first, i64 %copies, i64 %count, i32 %n) {
entry:
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %next, %body ]
  %slot = phi i64 [ %first, %entry ], [ %following, %body ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %body, label %exit
body:
  %place = getelementptr ptr, ptr %frames, i64 %slot
  %args = load ptr, ptr %place
  call void %launch(ptr %provider, ptr %fn, ptr %args, i32 %n, i64 1)
  %next = add i64 %k, 1
  %after = add i64 %slot, 1
  %over = icmp eq i64 %after, %copies
  %following = select i1 %over, i64 0, i64 %after
  br label %head
exit:
  ret void
}
"""
_CHAINS = 8  # independent sums, one per lane: as many as hide the latency of fused multiply-adds on two units
_TURNS = 40_000  # about 50 us
_LINE = 64


@dataclass(frozen=True, slots=True, eq=False)
class NativeLoop:
    """The loaded functions."""

    _rotate: Callable[..., None]
    _launch: int
    _reference: int
    _keep: Any

    def run(self, fn: int, frames: np.ndarray[Any, Any], first: int, count: int, nthreads: int) -> float:
        """Seconds of `count` calls of `fn`; the k-th gets the arguments at frames[(first + k) mod copies]."""
        table = ctypes.addressof(threads.current().table)
        address, copies = frames.ctypes.data, len(frames)
        began = time.perf_counter()
        self._rotate(self._launch, table, fn, address, first % copies, copies, count, nthreads)
        return time.perf_counter() - began

    def reference_seconds(self, nthreads: int) -> float:
        """Seconds of the reference kernel in a team: the median of three."""
        results = np.zeros(nthreads * _LINE, np.uint8)
        frames = np.array([results.ctypes.data], np.uint64)
        return sorted(self.run(self._reference, frames, 0, 1, nthreads) for _ in range(3))[1]


@cache
def native_loop() -> NativeLoop:
    """Compiled once per process, in about 10 ms."""
    target = host()
    code = build(_ROTATE + _reference_text(), target, opt=1).object
    loaded = loader.load(Artifact("timing", replace(target), "rotate", None, (), (code,)))
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    rotate = ctypes.CFUNCTYPE(
        None, pointer, pointer, pointer, pointer, number, number, number, ctypes.c_int32
    )
    return NativeLoop(
        rotate(loaded.entry),
        native.launcher()["launch"],
        int(loaded.engine.get_function_address("reference")),
        loaded,
    )


def _reference_text() -> str:
    """A function of the kernel ABI: turns × 8 fused multiply-adds of eight floats, in eight chains.

    Its one argument is an array with a line for each thread's result.
    """
    vector, fma = "<8 x float>", "@llvm.fma.v8f32"
    names = range(_CHAINS)
    lines = [
        f"declare {vector} {fma}({vector}, {vector}, {vector})",
        "define void @reference(ptr %ctx, ptr %args, i32 %tid, i32 %n) {",
    ]
    # thread 0 starts from 0, but LLVM does not know who it is
    lines += ["entry:", "  %f = sitofp i32 %tid to float"]
    # every chain starts in another lane, or LLVM would see that all are one
    lines += [f"  %s{n} = insertelement {vector} zeroinitializer, float %f, i32 {n}" for n in names]
    lines += [f"  %h = fmul {vector} %s0, zeroinitializer", "  br label %loop", "loop:"]
    lines += ["  %k = phi i64 [ 0, %entry ], [ %next, %loop ]"]
    lines += [f"  %a{n} = phi {vector} [ %s{n}, %entry ], [ %b{n}, %loop ]" for n in names]
    lines += [f"  %b{n} = call {vector} {fma}({vector} %a{n}, {vector} %h, {vector} %s{n})" for n in names]
    lines += [
        "  %next = add i64 %k, 1",
        f"  %more = icmp slt i64 %next, {_TURNS}",
        "  br i1 %more, label %loop, label %done",
        "done:",
    ]
    total = "%b0"
    for n in names[1:]:
        lines.append(f"  %t{n} = fadd {vector} {total}, %b{n}")
        total = f"%t{n}"
    lines += ["  %t64 = sext i32 %tid to i64", f"  %line = getelementptr [{_LINE} x i8], ptr %args, i64 %t64"]
    lines += [f"  store {vector} {total}, ptr %line, align 4", "  ret void", "}"]
    return "\n".join(lines) + "\n"
