"""Entries: the exported functions around kernels, all with the same signature.

    void entry(ptr ctx, ptr args, i32 tid, i32 nthreads)

The entry of `run` or `prepare` loads its pointers from `args` and runs the kernels in order. Threads meet
where a kernel touches bytes that another kernel has written since the last meeting. A plan is an entry that
calls other entries. For each call it makes an array of pointers into the plan's arguments.

    ctx ──▶ [0]  void barrier(ctx, tid, nthreads)       every thread calls it; not called when nthreads is 1
            [48] i32 take(ctx, tid, nthreads, parts)    next part of a heavy kernel, if [56] is not null
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotensor.base.errors import CodegenError
from autotensor.codegen.llvm.denormals import KEPT, Flushing
from autotensor.codegen.llvm.kernel import KernelText
from autotensor.codegen.llvm.parts import Heavy
from autotensor.ir.func import Buffer
from autotensor.runtime.native import launcher, work_sharing
from autotensor.runtime.native.assembler import assemble

# Parts of a shared region for each thread. ResNet-18 and 50 take the same time with 8 and 32 (2 cores,
# 2026-11).
PARTS_EACH = 16

_STRUCTS = {"context": launcher.CONTEXT}

BARRIER = assemble(
    """
define internal void @meet(ptr %ctx, i32 %tid, i32 %nthreads) #1 {
  %alone = icmp slt i32 %nthreads, 2
  br i1 %alone, label %done, label %wait
wait:
  %f = load context.barrier(%ctx)
  call void %f(ptr %ctx, i32 %tid, i32 %nthreads)
  goto done
done:
  ret void
}
""",
    _STRUCTS,
    {},
)
_MEET = "  call void @meet(ptr %ctx, i32 %tid, i32 %nthreads)"


@dataclass(frozen=True, slots=True)
class Late:
    """An offset that is known only when the plan runs: an element of an int64 array among the arguments."""

    table: int  # index of that argument
    number: int


@dataclass(frozen=True, slots=True)
class Call:
    """One step of a plan: an entry and its pointers, each an argument of the plan plus an offset in bytes."""

    symbol: str
    # (index into the plan's arguments, byte offset), in the callee's order
    slots: tuple[tuple[int, int | Late], ...]
    barrier: bool = True  # whether threads must meet before it; ignored for the first call


def entry_text(
    name: str,
    kernels: Sequence[KernelText],
    slots: Mapping[Buffer, int],
    workspace: tuple[int, int] | None,
    flushing: Flushing = KEPT,
) -> str:
    """An entry that runs kernels in order.

    slots: position of every buffer in `args`. workspace: the position of the workspace in `args`, and the
    bytes between two threads' parts of it.
    """
    lines = [
        f"define void @{name}(ptr %ctx, ptr noalias readonly %args, i32 %tid, i32 %nthreads) #1 {{",
        "entry:",
        *flushing.before,
    ]
    used = sorted({slots[b] for k in kernels for b in k.params})
    for slot in used:
        lines += _fetch(f"%a{slot}", slot)
    thread_space = "null"
    if workspace is not None and any(k.per_thread_bytes for k in kernels):
        slot, stride = workspace
        lines += _fetch("%all", slot)
        lines += [
            "  %t = zext i32 %tid to i64",
            f"  %skip = mul nuw nsw i64 %t, {stride}",
            "  %ws = getelementptr inbounds i8, ptr %all, i64 %skip",
        ]
        thread_space = "%ws"
    for kernel, meets in zip(kernels, meetings(kernels), strict=True):
        if meets:
            lines.append(_MEET)
        pointers = [f"ptr %a{slots[b]}" for b in kernel.params]
        space = thread_space if kernel.per_thread_bytes else "null"
        arguments = ", ".join([*pointers, "i32 %tid", "i32 %nthreads", f"ptr {space}"])
        if kernel.heavy is None:
            lines.append(f"  call void @{kernel.name}({arguments})")
        else:
            lines.append(f"  call void @{kernel.name}.shared({arguments}, ptr %ctx)")
    return "\n".join([*lines, *flushing.after, "  ret void", "}", ""])


def shared_text(kernel: KernelText, heavy: Heavy) -> str:
    """A heavy kernel whose threads take part after part.

    Part k of m is the work that thread k of m threads would do. `take` of the context
    (native/work_sharing.py) returns the next part.
    """
    pointers = [f"ptr %p{k}" for k in range(len(kernel.params))]
    own = ("i32 %tid", "i32 %nthreads", "ptr %ws", "ptr %ctx")

    def call(part: str, parts: str) -> str:
        arguments = ", ".join([*pointers, f"i32 {part}", f"i32 {parts}", "ptr %ws"])
        return f"  call void @{kernel.name}({arguments})"

    threads = min(heavy.most_threads, work_sharing.MOST_PARTS // PARTS_EACH)
    text = f"""
define internal void @{kernel.name}.shared({", ".join([*pointers, *own])}) #1 {{
  %lines = load context.lines(%ctx)
  %able = icmp ne ptr %lines, null
  %few = icmp sle i32 %nthreads, {threads}
  %share = and i1 %able, %few
  br i1 %share, label %divide, label %static
static:
{call("%tid", "%nthreads")}
  ret void
divide:
  %take = load context.take(%ctx)
  %wanted = mul nuw nsw i32 %nthreads, {PARTS_EACH}
  %fits = icmp slt i32 %wanted, {heavy.most_parts}
  %parts = select i1 %fits, i32 %wanted, i32 {heavy.most_parts}
next:
  %part = call i32 %take(ptr %ctx, i32 %tid, i32 %nthreads, i32 %parts)
  %some = icmp sge i32 %part, 0
  br i1 %some, label %run, label %done
run:
{call("%part", "%parts")}
  goto next
done:
  ret void
}}
"""
    return assemble(text, _STRUCTS, {})


def meetings(kernels: Sequence[KernelText]) -> list[bool]:
    """For every kernel, whether threads must meet before it.

    They must meet if the kernel reads or writes a buffer that a kernel since the last meeting wrote, or
    writes a buffer that such a kernel read.
    """
    result = []
    read: set[Buffer] = set()
    written: set[Buffer] = set()
    for k in kernels:
        meets = not written.isdisjoint(k.reads | k.writes) or not read.isdisjoint(k.writes)
        if meets:
            read, written = set(), set()
        read |= k.reads
        written |= k.writes
        result.append(meets)
    return result


def plan_text(name: str, calls: Sequence[Call], n_args: int) -> str:
    """An entry that calls others, which are external symbols."""
    for call in calls:
        for arg, offset in call.slots:
            if not 0 <= arg < n_args or (isinstance(offset, int) and offset < 0):
                what = f"{call.symbol} wants byte {offset} of argument {arg}"
                raise CodegenError(f"plan {name!r}: {what}; there are {n_args} arguments.")
    lines = [f"declare void @{s}(ptr, ptr, i32, i32)" for s in dict.fromkeys(c.symbol for c in calls)]
    lines += [
        f"define void @{name}(ptr %ctx, ptr noalias readonly %args, i32 %tid, i32 %nthreads) #1 {{",
        "entry:",
    ]
    most = max((len(c.slots) for c in calls), default=0)
    lines.append(f"  %slots = alloca [{max(1, most)} x ptr], align 16")
    tables = {o.table for c in calls for _, o in c.slots if isinstance(o, Late)}
    for slot in sorted({arg for c in calls for arg, _ in c.slots} | tables):
        lines += _fetch(f"%a{slot}", slot)
    for k, call in enumerate(calls):
        for j, (arg, offset) in enumerate(call.slots):
            value = f"%a{arg}"
            if offset:
                value, by = f"%p{k}.{j}", str(offset)
                if isinstance(offset, Late):
                    by = f"%o{k}.{j}"
                    lines += [
                        f"  {by}.at = getelementptr inbounds i64, ptr %a{offset.table}, i64 {offset.number}",
                        f"  {by} = load i64, ptr {by}.at, align 8",
                    ]
                lines.append(f"  {value} = getelementptr inbounds i8, ptr %a{arg}, i64 {by}")
            lines += [
                f"  %s{k}.{j} = getelementptr inbounds ptr, ptr %slots, i64 {j}",
                f"  store ptr {value}, ptr %s{k}.{j}, align 8",
            ]
        if k and call.barrier:
            lines.append(_MEET)
        lines.append(f"  call void @{call.symbol}(ptr %ctx, ptr %slots, i32 %tid, i32 %nthreads)")
    return "\n".join([*lines, "  ret void", "}", "", BARRIER, "attributes #1 = { nounwind }", ""])


def _fetch(name: str, slot: int) -> list[str]:
    return [
        f"  {name}.at = getelementptr inbounds ptr, ptr %args, i64 {slot}",
        f"  {name} = load ptr, ptr {name}.at, align 8",
    ]
