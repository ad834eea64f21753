"""Candidates from hand-written LLVM IR for `t0[i] = a0[i] + a1[i]`, most of which misbehave.

They are real code, run for real.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from autotensor import te
from autotensor.base.dtype import float32
from autotensor.base.target import host
from autotensor.codegen.llvm.build import build
from autotensor.codegen.llvm.function_writer import literal
from autotensor.compiler import compile_trace
from autotensor.runtime.files.artifact import ArgSpec, Artifact
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload

N = 4096
TARGET = host().with_threads(1)


def addition() -> Workload:
    a, b = te.placeholder((N,), name="a"), te.placeholder((N,), name="b")
    return Workload.of(ComputeDAG.of([a, b, te.compute((N,), lambda i: a[i] + b[i], name="c")]), "addition")


def good() -> Artifact:
    return compile_trace(addition().dag, Trace(), TARGET)


# The right answer, then EXTRA. %a, %b, %c are the arrays; BIAS, which LATE may compute from the sum %w, is
# added to every element, loads have ALIGN.
_ADD = """
DECLARE
define void @NAME(ptr %ctx, ptr %args, i32 %tid, i32 %n) {
entry:
  %pb = getelementptr ptr, ptr %args, i64 1
  %pc = getelementptr ptr, ptr %args, i64 2
  %a = load ptr, ptr %args
  %b = load ptr, ptr %pb
  %c = load ptr, ptr %pc
  BEFORE
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %x = getelementptr <16 x float>, ptr %a, i64 %i
  %y = getelementptr <16 x float>, ptr %b, i64 %i
  %z = getelementptr <16 x float>, ptr %c, i64 %i
  %u = load <16 x float>, ptr %x, align ALIGN
  %v = load <16 x float>, ptr %y, align ALIGN
  %w = fadd <16 x float> %u, %v
  LATE
  %r = fadd <16 x float> %w, BIAS
  store <16 x float> %r, ptr %z, align 4
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, 256
  br i1 %more, label %loop, label %done
done:
  EXTRA
  ret void
}
"""
_ZERO = "zeroinitializer"
_LAST = "  %p = getelementptr float, ptr {array}, i64 {index}\n"
_ODD_CALLS = """
  %seen = load i64, ptr @calls
  %later = add i64 %seen, 1
  store i64 %later, ptr @calls
  %late = icmp sgt i64 %seen, 2
  %off = select i1 %late, float 1.0, float 0.0
  %bias = insertelement <16 x float> zeroinitializer, float %off, i32 3
"""
_FLOOD = """
define void @NAME(ptr %ctx, ptr %args, i32 %tid, i32 %n) {
  br label %loop
loop:
  %k = call i64 @write(i32 1, ptr @text, i64 1024)
  br label %loop
}
@text = constant [1024 x i8] c"TEXT"
declare i64 @write(i32, ptr, i64)
""".replace("TEXT", "x" * 1024)

_VARIANTS: dict[str, dict[str, str]] = {
    "right": {},
    "wrong": {"BIAS": "<" + ", ".join(["float 0.0"] * 15 + ["float 0.0009765625"]) + ">"},
    "nan": {"EXTRA": _LAST.format(array="%c", index=77) + "  store float 0x7FF8000000000000, ptr %p"},
    "unwritten": {"more": "icmp slt i64 %next, 255"},
    "before": {"EXTRA": _LAST.format(array="%c", index=-3) + "  store float 0.0, ptr %p"},
    "beyond": {"EXTRA": _LAST.format(array="%c", index=N + 2) + "  store float 0.0, ptr %p"},
    "beyond input": {"EXTRA": _LAST.format(array="%b", index=N) + "  store float 0.0, ptr %p"},
    "changes input": {"EXTRA": _LAST.format(array="%a", index=5) + "  store float 0.0, ptr %p"},
    "reads beyond": {
        "EXTRA": _LAST.format(array="%a", index=N)
        + "  %h = load float, ptr %p\n  %g = fmul float %h, 0.0\n  %o = load float, ptr %c\n"
        + "  %s = fadd float %o, %g\n  store float %s, ptr %c"
    },
    "right three times": {"DECLARE": "@calls = global i64 0", "BEFORE": _ODD_CALLS, "BIAS": "%bias"},
    "aligned": {"ALIGN": "64"},
    "segfault": {"EXTRA": "  store volatile i32 1, ptr inttoptr (i64 8 to ptr)"},
    "abort": {"DECLARE": "declare void @abort()", "EXTRA": "  call void @abort()"},
    "exit": {"DECLARE": "declare void @exit(i32)", "EXTRA": "  call void @exit(i32 3)"},
    "kill": {
        "DECLARE": "declare i32 @raise(i32)",
        "EXTRA": "  %k = call i32 @raise(i32 9)",
    },
    "loop": {"EXTRA": "  br label %again\nagain:\n  br label %again\nnever:"},
    "loops late": {
        "DECLARE": "@calls = global i64 0",
        "BEFORE": _ODD_CALLS,
        "EXTRA": "  br i1 %late, label %again, label %fine\nagain:\n  br label %again\nfine:",
    },
    "flood": {},
}


def evil(kind: str) -> Artifact:
    """The candidate of that kind."""
    return _made(kind, _VARIANTS.get(kind, {}))


def scaled(error: float) -> Artifact:
    """The right answer times 1 + error: off by `error` of the largest element, in that element."""
    by = literal(error, float32.with_lanes(16))
    return _made(f"scaled {error:.0e}", {"LATE": f"%bias = fmul <16 x float> %w, {by}", "BIAS": "%bias"})


def _made(kind: str, variant: Mapping[str, str]) -> Artifact:
    text = _FLOOD if kind == "flood" else _ADD
    parts = {"DECLARE": "", "BEFORE": "", "LATE": "", "EXTRA": "", "BIAS": _ZERO, "ALIGN": "4", **variant}
    if "more" in parts:
        text = text.replace("icmp slt i64 %next, 256", parts.pop("more"))
    name = "evil_" + re.sub(r"\W", "_", kind)
    for word, value in {**parts, "NAME": name}.items():
        text = text.replace(word, value)
    args = tuple(
        ArgSpec(n, role, (N,), "float32") for n, role in (("a0", "input"), ("a1", "input"), ("t0", "output"))
    )
    return Artifact(name, TARGET, name, None, args, (build(text, TARGET, opt=1).object,))


def hungry() -> Artifact:
    """A right candidate that needs 100 GB of workspace."""
    made = evil("right")
    return replace(made, args=(*made.args, ArgSpec("w", "workspace", (25 << 30,), "float32")))
