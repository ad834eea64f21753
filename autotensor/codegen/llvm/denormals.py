"""`-denormals=flush`: while a thread is in an entry, its processor treats denormal numbers as zeros.

    old = control register;  register = old | flush;  …;  register = old

A denormal number is closer to zero than the smallest normal number of its type. A processor takes a hundred
cycles or more for an operation on denormal numbers. With the flush bits of its control register set, it reads
such numbers as zeros and writes zeros instead of them. The thread's register is restored afterwards, so that
the results of other code do not change.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass

from autotensor.base.errors import TargetError
from autotensor.base.target import Target

FLUSH_X86 = 0x8040  # MXCSR: flush to zero, denormals are zeros
FLUSH_ARM = 1 << 24  # FPCR: FZ


@dataclass(frozen=True, slots=True)
class Flushing:
    """Lines of LLVM IR around the body of a function."""

    declared: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


KEPT = Flushing()

_X86 = Flushing(
    ("declare void @llvm.x86.sse.stmxcsr(ptr)", "declare void @llvm.x86.sse.ldmxcsr(ptr)"),
    (
        "  %control.old = alloca i32, align 4",
        "  %control.new = alloca i32, align 4",
        "  call void @llvm.x86.sse.stmxcsr(ptr %control.old)",
        "  %control.bits = load i32, ptr %control.old, align 4",
        f"  %control.flush = or i32 %control.bits, {FLUSH_X86}",
        "  store i32 %control.flush, ptr %control.new, align 4",
        "  call void @llvm.x86.sse.ldmxcsr(ptr %control.new)",
    ),
    ("  call void @llvm.x86.sse.ldmxcsr(ptr %control.old)",),
)
_ARM = Flushing(
    ("declare i64 @llvm.aarch64.get.fpcr()", "declare void @llvm.aarch64.set.fpcr(i64)"),
    (
        "  %control.old = call i64 @llvm.aarch64.get.fpcr()",
        f"  %control.flush = or i64 %control.old, {FLUSH_ARM}",
        "  call void @llvm.aarch64.set.fpcr(i64 %control.flush)",
    ),
    ("  call void @llvm.aarch64.set.fpcr(i64 %control.old)",),
)


def flushing(target: Target) -> Flushing:
    """The code that an entry for this target needs to treat denormals as the target says.

    Raises TargetError for a machine whose control register autotensor does not know.
    """
    if target.denormals == "keep":
        return KEPT
    machine = target.triple.partition("-")[0] or platform.machine()
    if machine in ("x86_64", "AMD64", "amd64"):
        return _X86
    if machine in ("aarch64", "arm64"):
        return _ARM
    raise TargetError(
        f"target option -denormals=flush: autotensor cannot set this on a {machine}.",
        fix="Leave it out; then denormals are kept.",
    )
