"""LLVM IR with named fields, named constants, and control flow that needs no labels and phis.

    STATE = Struct("i32 turns · i64 since")

    define i64 @spin(ptr %s, i32 %n) {            entry: loop.1: then.3: …, with their phis and branches
      loop i32 %k = 0 {                           %k is 0 at first, then the value after `next`
        if sge i32 %k, %n break                   a comparison or an i1 value; `unless` is its negation
        store FREE, state.turns(%s)               an address and a type: both are known from the layout
        if eq i32 %k, 7 {
          %since = load atomic state.since(%s) acquire
          ret i64 %since
        }
        %k1 = add i32 %k, 1
      } next %k1
      ret i64 0
    }

Everything else is LLVM's own text, which is not changed. Further forms:

    for i32 %k = 0 .. %n, ptr %p = %q {           counts %k by itself; `next` and `continue` set the others
    %ours = exchange state.turns(%s), FREE, HERE  whether it was FREE; if so, it is HERE now (acq_rel)
    load i64.at(%p, i32 %k)                       element k from %p on, of a structure or a plain type
    alloca state                                  memory for one structure

`} else {`, `break`, `continue` and `goto label` have their meanings in C. If nothing ends a block, the next
block follows. A line that ends with a comma continues in the next line. Text after a semicolon is a comment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_BYTES = {"ptr": 8, "i64": 8, "i32": 4}
_CONSTANT = re.compile(r"\b[A-Z][A-Z_]+\b")
_PLACE = re.compile(r"(\w+)\.(\w+)\((%[\w.]+)(?:, (\w+ [%\w.]+))?\)")
_CONDITION = re.compile(r"(if|unless) (%[\w.]+|\w+ \w+ \S+, \S+) (.+)")
_ENDS = ("ret", "br", "unreachable")  # words that end a block


class Struct:
    """Fields in memory, laid out as in C. A field has 4 or 8 bytes, or is [n] bytes of anything. `align n`
    moves to the next multiple of n.

    >>> s = Struct("i32 state · ptr owner · align 64 · [64] lock")
    >>> s.offset["owner"], s.offset["lock"], s.bytes
    (8, 64, 128)
    """

    def __init__(self, fields: str, start: int = 0) -> None:
        """start: number of bytes before the first field."""
        self.type: dict[str, str] = {}
        self.offset: dict[str, int] = {}
        at = start
        for each in re.sub(";.*", "", fields).replace("·", "\n").splitlines():
            if words := each.split():
                kind, name = words
                size = 1 if kind[0] == "[" else int(name) if kind == "align" else _BYTES[kind]
                at = -(-at // size) * size
                if kind != "align":
                    self.type[name], self.offset[name] = kind, at
                    at += int(kind[1:-1]) if kind[0] == "[" else size
        self.bytes = at


def assemble(text: str, structs: Mapping[str, Struct], constants: Mapping[str, int | str]) -> str:
    """The text as LLVM IR. Raises KeyError for an unknown field or constant."""
    text = _CONSTANT.sub(lambda name: str(constants[name[0]]), re.sub(" *;.*", "", text))
    assembler = _Assembler(structs)
    for line in re.sub(r",\n\s*", ", ", text).splitlines():
        assembler.add(line.strip())
    return "\n".join([*assembler.lines, ""])


@dataclass(slots=True)
class _Block:
    """An `if` or a loop that is not closed yet."""

    number: int
    variables: list[tuple[str, str]] = field(default_factory=list)  # type and name
    # values of the variables, and the label that they come from
    values: list[tuple[list[str], str]] = field(default_factory=list)
    counter: str = ""  # value of the first variable in the next turn
    phis: int = -1  # position in the text where a loop's phis go; -1: not a loop
    divided: bool = False  # whether its `else` has begun


class _Assembler:
    def __init__(self, structs: Mapping[str, Struct]) -> None:
        self.lines: list[str] = []
        self._structs = structs
        self._label = ""  # label of the block that is being written; "": the last block has ended
        self._blocks: list[_Block] = []
        self._number = 0
        self._reached: set[str] = set()  # labels that some branch goes to

    def add(self, line: str) -> None:
        """Adds the text of one line."""
        match line.split():
            case ["define", *_]:
                self.lines.append(line)
                self._label = "entry"
                self.lines.append("entry:")
            case ["loop" | "for" as kind, *_]:
                self._open_loop(kind == "for", line.removeprefix(kind).removesuffix("{").strip())
            case ["if" | "unless", *_]:
                self._condition(line)
            case ["}", "else", "{"]:
                block = self._blocks[-1]
                block.divided = True
                self._go(f"end.{block.number}")
                self._begin(f"else.{block.number}")
            case ["}"] if not self._blocks:
                self.lines.append(line)
            case ["}", *values]:
                self._close(self._blocks.pop(), values[1:])
            case ["break"]:
                self._go(f"end.{self._loop().number}")
            case ["continue", *values]:
                self._next(self._loop(), values)
            case ["goto", label]:
                self._go(label)
            case [label] if label.endswith(":"):
                self._begin(label[:-1])
            case _:
                self._instruction(line)

    def _emit(self, line: str) -> None:
        self.lines.append(f"  {line}" if line else "")

    def _fresh(self) -> int:
        self._number += 1
        return self._number

    def _begin(self, label: str) -> None:
        if label != "entry":
            self._go(label)
            self.lines.append(f"{label}:")
        self._label = label

    def _go(self, label: str) -> None:
        if self._label:
            self._emit(f"br label %{label}")
            self._reached.add(label)
        self._label = ""

    def _loop(self) -> _Block:
        return next(b for b in reversed(self._blocks) if b.phis >= 0)

    def _condition(self, line: str) -> None:
        parts = _CONDITION.fullmatch(line)
        assert parts, line
        word, value, then = parts.groups()
        number = self._fresh()
        if not value.startswith("%"):
            self._emit(f"%_{number} = icmp {value}")
            value = f"%_{number}"
        block = _Block(number)
        inside, target = f"then.{number}", f"else.{number}"
        if then == "break":
            inside = f"end.{self._loop().number}"
        elif then.startswith("goto"):
            inside = then.removeprefix("goto ")
        branches = (inside, target) if word == "if" else (target, inside)
        self._emit(f"br i1 {value}, label %{branches[0]}, label %{branches[1]}")
        self._reached |= {inside, target}
        self._label = ""
        if inside != f"then.{number}":
            self._begin(target)
            return
        self._begin(inside)
        self._blocks.append(block)
        if then != "{":
            self.add(then)
            self.add("}")

    def _open_loop(self, counts: bool, text: str) -> None:
        """text: `i32 %k = 0 .. %n, ptr %p = %q`. Only a loop that counts has an end (`.. %n`)."""
        block = _Block(self._fresh())
        starts, limit = [], ""
        for each in text.split(", ") if text else ():
            declared, start = each.split(" = ")
            kind, name = declared.rsplit(" ", 1)
            if counts and not block.variables:
                start, limit = start.split(" .. ")
                block.counter = f"add {kind} {name}, 1"
                limit = f"slt {kind} {name}, {limit}"
            block.variables.append((kind, name))
            starts.append(start)
        block.values.append((starts, self._label))
        self._begin(f"loop.{block.number}")
        block.phis = len(self.lines)
        self._blocks.append(block)
        if limit:
            self._condition(f"unless {limit} break")

    def _next(self, block: _Block, values: list[str]) -> None:
        if block.counter and self._label:
            following = f"%_{self._fresh()}"
            self._emit(f"{following} = {block.counter}")
            values = [following, *values]
        if self._label:
            block.values.append(([v.rstrip(",") for v in values], self._label))
        self._go(f"loop.{block.number}")

    def _close(self, block: _Block, values: list[str]) -> None:
        number = block.number
        if block.phis >= 0:
            self._next(block, values)
            sources = [[f"[{v}, %{label}]" for v in vs] for vs, label in block.values]
            of_each = zip(block.variables, zip(*sources, strict=True), strict=True)
            self.lines[block.phis : block.phis] = [
                f"  {name} = phi {kind} {', '.join(values)}" for (kind, name), values in of_each
            ]
        elif not block.divided:
            self._begin(f"else.{number}")
            return
        if self._label or f"end.{number}" in self._reached:
            self._begin(f"end.{number}")

    def _instruction(self, line: str) -> None:
        """Adds a line of LLVM text with named places, after the instructions that compute addresses."""
        alone = re.fullmatch(rf"(%\S+) = ({_PLACE.pattern})", line)
        if alone:
            self._address(alone[1], alone[2])
            return
        loaded = re.match(r"(%\S+) = load ", line)
        for parts in _PLACE.finditer(line):
            name = f"{loaded[1]}.at" if loaded else f"%_{self._fresh()}"
            kind, address = self._address(name, parts[0], named=False)
            line = line.replace(parts[0], f"ptr {address}")
            aligned = f", align {_BYTES[kind]}" if kind in _BYTES else ""
            line = re.sub(r"(load.*) (ptr \S+)( \w+)?$", rf"\1 {kind}, \2\3{aligned}", line)
            line = re.sub(r"(store.*) (\S+), (ptr \S+)( \w+)?$", rf"\1 {kind} \2, \3\4{aligned}", line)
            line = re.sub(r"(atomicrmw \w+ ptr \S+), (\S+ \w+)$", rf"\1, {kind} \2", line)
            swap = rf"\1.pair = cmpxchg \2, {kind} \3, {kind} \4 acq_rel monotonic"
            pair = rf"\n  \1 = extractvalue {{ {kind}, i1 }} \1.pair, 1"
            line = re.sub(r"(%\S+) = exchange (ptr \S+), (\S+), (\S+)$", swap + pair, line)
        line = re.sub(r"alloca (\w+)\b", lambda m: f"alloca {self._kind(m[1])}", line)
        self._emit(line)
        if line.startswith(_ENDS):
            self._label = ""

    def _address(self, result: str, place: str, named: bool = True) -> tuple[str, str]:
        """Type and address of a place. named: the address gets the name `result`, even if it equals the
        base."""
        ((name, what, base, index),) = _PLACE.findall(place)
        if what == "at":
            kind = self._kind(name)
            self._emit(f"{result} = getelementptr {kind}, ptr {base}, {index}")
            return kind, result
        struct = self._structs[name]
        kind, offset = struct.type[what], struct.offset[what]
        if not offset and not named:
            return kind, base
        self._emit(f"{result} = getelementptr inbounds i8, ptr {base}, i64 {offset}")
        return kind, result

    def _kind(self, name: str) -> str:
        struct = self._structs.get(name)
        return f"[{struct.bytes} x i8]" if struct else name
