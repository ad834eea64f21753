"""Parses PTX text to kernels of instructions. It covers the part of the language that NVRTC writes for
autotensor's sources.

    parse(text)["C_3b24ac025c25"].code[7]     Instruction("mad.lo.s32", ("%r31", "%r43", "11", "%r30"), …)

Source: PTX ISA 8.8, "Syntax" and "State spaces, types, and variables". The parser in the wheel `ptx-parser`
(0.1.3) cannot be used: it loses the predicate of `@%p1 bra`, and stops at `.maxntid 64, 1, 1` (2026-11).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. A vector operand is a tuple of operands; an address is "[base+offset]"."""

    op: str
    operands: tuple[str | tuple[str, ...], ...] = ()
    guard: str = ""  # "%p1", "!%p1"

    def __str__(self) -> str:
        guard = f"@{self.guard} " if self.guard else ""
        words = (o if isinstance(o, str) else f"{{{', '.join(o)}}}" for o in self.operands)
        return f"{guard}{self.op} {', '.join(words)};"


@dataclass(slots=True)
class Kernel:
    """An entry function: its instructions, and the addresses of its labels and variables."""

    name: str
    params: tuple[str, ...] = ()
    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)  # name ▶ index of the next instruction
    shared: dict[str, int] = field(default_factory=dict)  # name ▶ offset in the block's shared memory
    shared_bytes: int = 0
    local: dict[str, int] = field(default_factory=dict)  # the same in a thread's own memory
    local_bytes: int = 0
    widths: dict[str, int] = field(default_factory=dict)  # a register's name without its number ▶ bits


_ENTRY = re.compile(r"\.entry\s+(\w+)\s*\((.*?)\)[^{]*\{", re.DOTALL)
_SPACE = re.compile(r"\.(shared|local)\s+\.align\s+(\d+)\s+\.[a-z]+(\d+)\s+([\w$]+)(?:\[(\d*)\])?")
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)")
_GUARDED = re.compile(r"@(!?%\w+)\s+(.*)", re.DOTALL)
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")


def parse(text: str) -> dict[str, Kernel]:
    """The kernels of a module, by name."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    found = {}
    module = text[: (_ENTRY.search(text) or re.compile("$").search(text)).start()]  # type: ignore[union-attr]
    for entry in _ENTRY.finditer(text):
        kernel = Kernel(entry[1], tuple(re.findall(r"\.param\s+\.\w+\s+(\w+)", entry[2])))
        for statement in _statements(module):
            if _SPACE.search(statement):
                _declare(kernel, statement)
        for statement in _statements(_body(text, entry.end())):
            _take(kernel, statement)
        found[kernel.name] = kernel
    return found


def _body(text: str, at: int) -> str:
    """The text between the brace before `at` and its closing brace."""
    depth = 1
    for brace in re.compile(r"[{}]").finditer(text, at):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return text[at : brace.start()]
    raise ValueError("PTX: a brace is not closed")


def _statements(body: str) -> list[str]:
    """Splits a body at `;`. Labels become separate statements. Braces of an inner scope are dropped, braces
    of an operand are kept."""
    out: list[str] = []
    for line in re.sub(r"(\$?\w+):(?!:)", r"\1: ;", body).split(";"):
        line = line.strip()
        while line[:1] in ("{", "}") and line:
            line = line[1:].strip()
        if line:
            out.append(line)
    return out


def _take(kernel: Kernel, statement: str) -> None:
    if statement.startswith("."):
        return _declare(kernel, statement)
    if statement.endswith(":"):
        kernel.labels[statement[:-1].strip()] = len(kernel.code)
        return None
    guard = ""
    if found := _GUARDED.match(statement):
        guard, statement = found[1], found[2]
    op, _, rest = statement.partition(" ") if " " in statement else statement.partition("\t")
    op, more = op.split()[0], op.split()[1:]
    kernel.code.append(
        Instruction(op, tuple(map(_operand, _OPERAND.findall(" ".join([*more, rest])))), guard)
    )
    return None


def _operand(text: str) -> str | tuple[str, ...]:
    return tuple(x.strip() for x in text[1:-1].split(",")) if text.startswith("{") else text


def _declare(kernel: Kernel, statement: str) -> None:
    if space := _SPACE.search(statement):
        places, size = (
            (kernel.shared, kernel.shared_bytes)
            if space[1] == "shared"
            else (kernel.local, kernel.local_bytes)
        )
        align = int(space[2])
        at = -(-size // align) * align
        places[space[4]] = at
        count = 1 if space[5] is None else int(space[5] or 0)  # the launch gives the size of []
        end = at + int(space[3]) // 8 * count
        if space[1] == "shared":
            kernel.shared_bytes = end
        else:
            kernel.local_bytes = end
    elif registers := _REGISTERS.match(statement):
        bits = 1 if registers[1] == "pred" else int(re.sub(r"\D", "", registers[1]))
        for name in registers[2].split(","):
            kernel.widths[name.strip().partition("<")[0]] = bits
