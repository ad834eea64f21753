"""Tiny native functions for the tests of the runtime, as LLVM IR text, and artifacts made of them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from autotensor.base.target import host
from autotensor.runtime.files.artifact import ArgSpec, Artifact

N = 1000  # elements of the vectors below

# The part [first, last) of N elements that belongs to thread %tid of %n, as a loop around BODY.
_SHARED_LOOP = """
  %n64 = sext i32 %n to i64
  %t64 = sext i32 %tid to i64
  %t1 = add i64 %t64, 1
  %a0 = mul i64 %t64, COUNT
  %first = sdiv i64 %a0, %n64
  %b0 = mul i64 %t1, COUNT
  %last = sdiv i64 %b0, %n64
  br label %head
head:
  %i = phi i64 [%first, %entry], [%next, %body]
  %more = icmp slt i64 %i, %last
  br i1 %more, label %body, label %exit
body:
BODY
  %next = add i64 %i, 1
  br label %head
exit:
  ret void
"""


def _function(name: str, pointers: str, body: str, count: int = N) -> str:
    """A kernel whose pointers p0, p1 … come from the argument slots listed in `pointers`."""
    loads = "\n".join(
        f"  %q{k} = getelementptr ptr, ptr %args, i64 {slot}\n  %p{k} = load ptr, ptr %q{k}"
        for k, slot in enumerate(pointers.split())
    )
    loop = _SHARED_LOOP.replace("BODY", body).replace("COUNT", str(count))
    return f"define void @{name}(ptr %ctx, ptr %args, i32 %tid, i32 %n) {{\nentry:\n{loads}\n{loop}\n}}\n"


# C = A + B
ADD = _function(
    "add",
    "0 1 2",
    """
  %x = getelementptr float, ptr %p0, i64 %i
  %y = getelementptr float, ptr %p1, i64 %i
  %z = getelementptr float, ptr %p2, i64 %i
  %a = load float, ptr %x
  %b = load float, ptr %y
  %c = fadd float %a, %b
  store float %c, ptr %z
""",
)

# P = W * 2 ; C = A + P
PREPARE = _function(
    "double_weights",
    "1 2",
    """
  %x = getelementptr float, ptr %p0, i64 %i
  %y = getelementptr float, ptr %p1, i64 %i
  %a = load float, ptr %x
  %b = fadd float %a, %a
  store float %b, ptr %y
""",
)
ADD_PREPARED = ADD.replace("i64 2\n", "i64 3\n").replace("i64 1\n  %p1", "i64 2\n  %p1")

# Every thread adds its number + 1 to its own workspace line; thread 0 sums them up after a barrier: n(n+1)/2.
TEAM_SUM = """
define void @team_sum(ptr %ctx, ptr %args, i32 %tid, i32 %n) {
entry:
  %q1 = getelementptr ptr, ptr %args, i64 1
  %work = load ptr, ptr %q1
  %t64 = sext i32 %tid to i64
  %mine = getelementptr [64 x i8], ptr %work, i64 %t64
  %one = add i32 %tid, 1
  store i32 %one, ptr %mine
  %barrier = load ptr, ptr %ctx
  call void %barrier(ptr %ctx, i32 %tid, i32 %n)
  %first = icmp eq i32 %tid, 0
  br i1 %first, label %sum, label %exit
sum:
  %k = phi i32 [0, %entry], [%k1, %sum]
  %s = phi i32 [0, %entry], [%s1, %sum]
  %k64 = sext i32 %k to i64
  %p = getelementptr [64 x i8], ptr %work, i64 %k64
  %v = load i32, ptr %p
  %s1 = add i32 %s, %v
  %k1 = add i32 %k, 1
  %more = icmp slt i32 %k1, %n
  br i1 %more, label %sum, label %store
store:
  %out = load ptr, ptr %args
  store i32 %s1, ptr %out
  %second = getelementptr i32, ptr %out, i64 1
  store i32 %n, ptr %second
  br label %exit
exit:
  ret void
}
"""

# In each turn a thread writes the turn's number into its own line; after a barrier all lines must hold it,
# and a second barrier keeps writers from running ahead. args[0][0] counts violations; args[1] are the lines.
BARRIER_STRESS = """
define void @barrier_stress(ptr %ctx, ptr %args, i32 %tid, i32 %n) {
entry:
  %bad = load ptr, ptr %args
  %q1 = getelementptr ptr, ptr %args, i64 1
  %lines = load ptr, ptr %q1
  %t64 = sext i32 %tid to i64
  %mine = getelementptr [64 x i8], ptr %lines, i64 %t64
  %barrier = load ptr, ptr %ctx
  br label %turn
turn:
  %i = phi i32 [1, %entry], [%i1, %after]
  store i32 %i, ptr %mine
  call void %barrier(ptr %ctx, i32 %tid, i32 %n)
  br label %look
look:
  %k = phi i32 [0, %turn], [%k1, %seen]
  %k64 = sext i32 %k to i64
  %line = getelementptr [64 x i8], ptr %lines, i64 %k64
  %v = load i32, ptr %line
  %same = icmp eq i32 %v, %i
  br i1 %same, label %seen, label %wrong
wrong:
  %old = atomicrmw add ptr %bad, i32 1 monotonic
  br label %seen
seen:
  %k1 = add i32 %k, 1
  %others = icmp slt i32 %k1, %n
  br i1 %others, label %look, label %after
after:
  call void %barrier(ptr %ctx, i32 %tid, i32 %n)
  %i1 = add i32 %i, 1
  %more = icmp sle i32 %i1, TURNS
  br i1 %more, label %turn, label %exit
exit:
  ret void
}
"""

# Counts its own calls in args[0], atomically.
COUNT = """
define void @count(ptr %ctx, ptr %args, i32 %tid, i32 %n) {
  %p = load ptr, ptr %args
  %old = atomicrmw add ptr %p, i64 1 monotonic
  ret void
}
"""

NOTHING = "define void @nothing(ptr %ctx, ptr %args, i32 %tid, i32 %n) { ret void }"


@cache
def compiled(ir: str) -> bytes:
    """Object code of IR text."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine: Any = llvm.Target.from_default_triple().create_target_machine(opt=1, reloc="pic")
    return bytes(machine.emit_object(llvm.parse_assembly(ir)))


def vector(name: str, role: str, n: int = N) -> ArgSpec:
    return ArgSpec(name, role, (n,), "float32")


def add_artifact() -> Artifact:
    args = (vector("A", "input"), vector("B", "input"), vector("C", "output"))
    texts = {"llvm": ADD, "te": "C[i] = A[i] + B[i]"}
    return Artifact("add", host(), "add", None, args, (compiled(ADD),), texts=texts)


def prepared_artifact() -> Artifact:
    args = (vector("A", "input"), vector("W", "constant"), vector("P", "prepared"), vector("C", "output"))
    objects = (compiled(ADD_PREPARED), compiled(PREPARE))
    return Artifact("scale", host(), "add", "double_weights", args, objects, meta={"entry_constants": []})


def team_artifact() -> Artifact:
    args = (ArgSpec("S", "output", (2,), "int32"), ArgSpec("T", "workspace", (1,), "int32", per_thread=True))
    return Artifact("team", host(), "team_sum", None, args, (compiled(TEAM_SUM),))


def indexed_artifact(dtype: str, count: int, least: int, most: int) -> Artifact:
    """A function of `count` indices N with values in least … most, which does nothing."""
    args = (ArgSpec("N", "input", (count,), dtype), vector("C", "output", 1))
    ranges = {"index_ranges": {"N": (least, most)}}
    return Artifact("indexed", host(), "nothing", None, args, (compiled(NOTHING),), meta=ranges)


def renamed(artifact: Artifact, **changes: Any) -> Artifact:
    return replace(artifact, **changes)
