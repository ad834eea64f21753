"""Measures when each thread of a region begins and ends: another function is launched instead of the kernel.

    launch(@spanned, {kernel, its arguments, spans}) ──▶ in each thread: clock, kernel, clock

This costs two readings of the clock per thread, some 50 ns, and the kernel does not change.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

from autotensor.runtime.native import launcher, threads
from autotensor.runtime.native.assembler import Struct, assemble

WORK = Struct("ptr fn · ptr args · ptr spans")
SPAN = Struct("i64 began · i64 ended · align 64")  # in nanoseconds; one for each thread

_TEXT = r"""
define void @spanned(ptr %c, ptr %work, i32 %tid, i32 %n) {
  %fn = load work.fn(%work)
  %args = load work.args(%work)
  %spans = load work.spans(%work)
  %mine = span.at(%spans, i32 %tid)
  %began = call i64 @clock()
  store %began, span.began(%mine)
  call void %fn(ptr %c, ptr %args, i32 %tid, i32 %n)
  %ended = call i64 @clock()
  store %ended, span.ended(%mine)
  ret void
}
"""


class _Span(ctypes.Structure):
    _fields_ = (
        ("began", ctypes.c_int64),
        ("ended", ctypes.c_int64),
        ("_rest", ctypes.c_byte * (SPAN.bytes - 16)),
    )


class _Work(ctypes.Structure):
    _fields_ = (("fn", ctypes.c_void_p), ("args", ctypes.c_void_p), ("spans", ctypes.c_void_p))


def launch_spanned(fn: int, args: int, nthreads: int) -> tuple[tuple[int, float, float], ...]:
    """Like `threads.launch`. Returns index, begin and end (in `perf_counter`'s seconds) of each thread."""
    spans = (_Span * nthreads)()
    work = _Work(fn, args, ctypes.addressof(spans))
    threads.launch(_spanned(), ctypes.addressof(work), nthreads)
    return tuple((n, s.began * 1e-9, s.ended * 1e-9) for n, s in enumerate(spans) if s.ended)


@cache
def _spanned() -> int:
    constants = {"MONOTONIC": launcher.monotonic(sys.platform)}
    text = assemble(launcher.CLOCK + _TEXT, {"work": WORK, "span": SPAN}, constants)
    return launcher.compiled(text, ("spanned",))["spanned"]


__all__ = ["launch_spanned"]
