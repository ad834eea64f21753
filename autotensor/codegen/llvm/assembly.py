"""Facts about machine code: spills, fused multiply-adds, loads and bytes of the innermost loops.

A spill is a vector register moved to or from the stack inside an innermost loop. There are two kinds, with
different costs:

    vmovups %zmm3, 64(%rsp) … vmovups 64(%rsp), %zmm9      a temporary, put aside within one iteration
    vmovups 64(%rsp), %zmm3 … vmovups %zmm3, 64(%rsp)      *carried*: part of a tile that does not fit

The first kind delays no other instruction: fast transforms have dozens of these. The second kind delays every
multiply-add. The tuning log keeps these facts with every trial, and the search uses them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from autotensor.codegen.llvm.assembly_loops import blocks, innermost

_X86_STACK = re.compile(r"^\s+v?mov(?:[au]p[sd]|dq[au]\d*|s[sd])\s.*-?\d*\(%r[sb]p\)(?:,|\s|$)")
_ARM_STACK = re.compile(r"^\s+(?:ldp|stp|ldr|str|ldur|stur)\s+[qdsv]\d+.*\[(?:sp|x29)[,\]]")
_STORE = re.compile(r"^\s+(?:v?mov\w+\s+%[xyz]mm\d+,|(?:stp|str|stur)\s+[qdsv]\d+)")
_SLOT = re.compile(r"(?<![\w)])-?\d*\(%rsp\)|\[(?:sp|x29)(?:, #-?\d+)?\]")  # one place on the stack, as text
_VECTOR = re.compile(r"%[xyz]mm\d|\s[qdsv]\d+,")
_FMA = re.compile(r"^\s+(?:vfn?m(?:add|sub)\w*|fml[as]|fn?m(?:add|sub))\s")
_MEMORY = re.compile(r"\([^)]*\)|\[[^\]]*\]")


@dataclass(frozen=True, slots=True)
class AsmFacts:
    """Counts over the innermost loops of a listing; `instructions` counts the whole listing."""

    spills: int  # vector moves to or from the stack
    # most vectors that pass through the stack from one iteration to the next, in a loop with multiply-adds
    carried: int
    fma: int  # fused multiply-add instructions
    loads: int  # instructions with a memory operand that is not the stack
    loops: int  # innermost loops
    longest_loop: int  # instructions in the longest one
    instructions: int


def asm_facts(asm: str) -> AsmFacts:
    """Facts of a listing in the syntax that LLVM prints (AT&T for x86)."""
    listing = blocks(asm)
    inner = [[line for n in loop for line in listing[n].lines] for loop in innermost(listing)]
    body = [line for loop in inner for line in loop]
    spills = sum(bool(_X86_STACK.match(line) or _ARM_STACK.match(line)) for line in body)
    memory = sum(bool(_MEMORY.search(line)) and "lea" not in line for line in body)
    return AsmFacts(
        spills=spills,
        carried=max(map(_carried, inner), default=0),
        fma=sum(bool(_FMA.match(line)) for line in body),
        loads=memory - spills,
        loops=len(inner),
        longest_loop=max(map(len, inner), default=0),
        instructions=sum(len(b.lines) for b in listing),
    )


def _carried(body: list[str]) -> int:
    """The number of slots on the stack from which an iteration reads a vector, and to which it later writes
    the vector for the next iteration.

    A loop without multiply-adds counts as 0, because the vectors that it moves are not a register tile.
    """
    if not any(_FMA.match(line) for line in body):
        return 0
    first: dict[str, bool] = {}  # slot → whether the first access to it is a write
    written: set[str] = set()
    for line in body:
        slot = _SLOT.search(line) if _VECTOR.search(line) else None
        if slot:
            writes = bool(_STORE.match(line))
            first.setdefault(slot.group(), writes)
            if writes:
                written.add(slot.group())
    return sum(not first[slot] for slot in written)
