"""Facts about machine code: spills, fused multiply-adds, loads and bytes of the innermost loops.

A spill is a vector register moved to or from the stack inside an innermost loop; a good register tile has
none. Nothing is refused for it, the clock judges; the tuning log keeps these facts with every trial.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LABEL = re.compile(r"^([\w.$@\"]+):")
_JUMP = re.compile(r"^\s+(?:j\w+|b\.\w+|b|cbn?z|tbn?z)\s+(?:.*,\s*)?([.\w$]+)\s*$")
_X86_STACK = re.compile(r"^\s+v?mov(?:[au]p[sd]|dq[au]\d*|s[sd])\s.*-?\d*\(%r[sb]p\)(?:,|\s|$)")
_ARM_STACK = re.compile(r"^\s+(?:ldp|stp|ldr|str|ldur|stur)\s+[qdsv]\d+.*\[(?:sp|x29)[,\]]")
_FMA = re.compile(r"^\s+(?:vfn?m(?:add|sub)\w*|fml[as]|fn?m(?:add|sub))\s")
_MEMORY = re.compile(r"\([^)]*\)|\[[^\]]*\]")


@dataclass(frozen=True, slots=True)
class AsmFacts:
    """Counts over the innermost loops of a listing (`instructions` over all of it)."""

    spills: int  # vector moves to or from the stack
    fma: int  # fused multiply-add instructions
    loads: int  # instructions with a memory operand that is not the stack
    loops: int  # innermost loops
    longest_loop: int  # instructions in the longest one
    instructions: int


def asm_facts(asm: str) -> AsmFacts:
    """Facts of a listing in the syntax that LLVM prints (AT&T for x86)."""
    lines: list[str] = []
    labels: dict[str, int] = {}
    for raw in asm.splitlines():
        line = raw.split("#")[0].split("//")[0].rstrip()
        label = _LABEL.match(line)
        if label:
            labels[label.group(1)] = len(lines)
        elif line.strip() and not line.strip().startswith("."):
            lines.append(line)
    loops = []
    for at, line in enumerate(lines):
        jump = _JUMP.match(line)
        target = labels.get(jump.group(1), at + 1) if jump else at + 1
        if target <= at:
            loops.append((target, at + 1))
    inner = [a for a in loops if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    body = [line for start, stop in dict.fromkeys(inner) for line in lines[start:stop]]
    spills = sum(bool(_X86_STACK.match(line) or _ARM_STACK.match(line)) for line in body)
    memory = sum(bool(_MEMORY.search(line)) and "lea" not in line for line in body)
    return AsmFacts(
        spills=spills,
        fma=sum(bool(_FMA.match(line)) for line in body),
        loads=memory - spills,
        loops=len(set(inner)),
        longest_loop=max((stop - start for start, stop in inner), default=0),
        instructions=len(lines),
    )
