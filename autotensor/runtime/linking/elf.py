"""Reads a relocatable object: its sections, symbols and relocations. Each number is checked against the file.

    file header ─▶ section headers ─┬▶ sections that are loaded (code, constants, data)
                                    ├▶ symbol table: a name or a section, and an offset in that section
                                    └▶ relocations: offset, kind, symbol, addend

Nothing is trusted: if a field of an object points outside its bounds, the error says so in one sentence.
Sections that are not loaded (notes, debug information, .eh_frame) are not read. Source: Tool Interface
Standard, ELF 1.2, and the gABI for 64 bits.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QIIq")

_RELOCATABLE = 1
PROGBITS, SYMTAB, STRTAB, RELA, _NOTE, NOBITS, _REL = 1, 2, 3, 4, 7, 8, 9
_X86_64_UNWIND = 0x70000001
WRITE, ALLOC, EXECUTE, _COMPRESSED, _TLS = 1, 2, 4, 0x800, 0x400
_UNDEFINED, ABSOLUTE, _COMMON, _FIRST_RESERVED = 0, 0xFFF1, 0xFFF2, 0xFF00
LOCAL, GLOBAL, WEAK = 0, 1, 2
_LONGEST_NAME = 4096
_MOST_LETTERS = 64 << 20
# none, object, function, section, file; excluded are common, thread-local and indirect symbols
_USUAL_TYPES = (0, 1, 2, 3, 4)


class Damaged(Exception):
    """The defect of an object; its text continues the sentence "an object file of it …"."""


class Section(NamedTuple):
    """A section that is loaded."""

    name: str
    offset: int  # offset of its bytes in the file
    size: int
    align: int  # a power of two
    is_code: bool
    is_writable: bool
    is_zero: bool  # has no bytes in the file


class Symbol(NamedTuple):
    """A symbol of the table. `section` is None for absolute symbols, and for symbols that another object
    defines."""

    name: str  # "" for local symbols, whose names are not used
    section: int | None
    value: int  # offset in the section, or an absolute address
    is_undefined: bool
    is_weak: bool
    size: int = 0  # bytes of a function or variable


class Relocation(NamedTuple):
    """`value of symbol + addend` is written to `offset` of a section, in the form that `kind` gives."""

    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True, slots=True)
class Object:
    """A relocatable object. `sections` holds the loaded sections by their number in the file."""

    machine: str  # processor family; "" if we do not know it
    data: bytes
    sections: dict[int, Section]
    symbols: tuple[Symbol, ...]
    relocations: dict[int, list[Relocation]]  # by the section's number


def is_elf(data: bytes) -> bool:
    return data[:4] == b"\x7fELF"


def machine_of(data: bytes) -> str:
    """The processor family of an ELF file, "" if we do not know the family."""
    return MACHINES.get(int.from_bytes(data[18:20], "little"), "")


def read(data: bytes) -> Object:
    """The object in `data`. Raises Damaged unless it is a complete relocatable object of known parts."""
    if len(data) < HEADER.size:
        raise Damaged("is cut short")
    ident, kind, machine, _, _, _, table, _, _, _, _, each, count, names = HEADER.unpack_from(data)
    if not is_elf(data) or ident[4:6] != b"\x02\x01" or kind != _RELOCATABLE:
        raise Damaged("is not a 64-bit little-endian relocatable object")
    if each != SECTION.size or not 0 < count < _FIRST_RESERVED or names >= count:
        raise Damaged("has a header that makes no sense")
    if table + count * each > len(data):
        raise Damaged("is cut short")
    headers = [SECTION.unpack_from(data, table + n * each) for n in range(count)]
    for n, (_, kind, _, _, offset, size, *_) in enumerate(headers):
        if kind not in (0, NOBITS) and offset + size > len(data):
            raise Damaged(f"has a section {n} that ends beyond it")
    texts = _strings(data, headers, names)
    sections = dict(_sections(headers, texts))
    symbols = _symbols(data, headers, sections)
    return Object(
        MACHINES.get(machine, ""),
        data,
        sections,
        symbols,
        _relocations(data, headers, sections, len(symbols)),
    )


_Header = tuple[int, ...]  # name, kind, flags, address, offset, size, link, info, align, bytes of an entry


def _strings(data: bytes, headers: list[_Header], number: int) -> bytes:
    """A table of strings. Its last byte must end a string."""
    _, kind, _, _, offset, size, *_ = headers[number]
    if kind != STRTAB or size == 0 or data[offset + size - 1] != 0:
        raise Damaged(f"has a section {number} that is not a table of names")
    return data[offset : offset + size]


def _text(table: bytes, start: int) -> str:
    if start >= len(table):
        raise Damaged("has a name that is outside its table")
    end = table.index(0, start)
    # names may overlap: without a limit, a small table could hold gigabytes of names
    if end - start > _LONGEST_NAME:
        raise Damaged(f"has a name of {end - start} bytes")
    return table[start:end].decode(errors="replace")


def _sections(headers: list[_Header], texts: bytes) -> Iterator[tuple[int, Section]]:
    """The sections that are loaded. They may not overlap in the file."""
    taken: list[tuple[int, int]] = [(0, HEADER.size)]
    for n, (name, kind, flags, _, offset, size, _, _, align, _) in enumerate(headers):
        if not flags & ALLOC or kind == 0:
            continue
        label = _text(texts, name)
        # Tables for unwinding the stack are not loaded: kernels call nothing that throws, and nothing unwinds
        # through kernels.
        if kind == _X86_64_UNWIND or label == ".eh_frame":
            continue
        if kind not in (PROGBITS, _NOTE, NOBITS):
            raise Damaged(f"has a section {label!r} of a kind that is not loaded here ({kind:#x})")
        if flags & (_COMPRESSED | _TLS) or (flags & WRITE and flags & EXECUTE):
            raise Damaged(f"has a section {label!r} that cannot be loaded (flags {flags:#x})")
        if align & (align - 1):
            raise Damaged(f"has a section {label!r} aligned to {align} bytes")
        if kind != NOBITS:
            taken.append((offset, offset + size))
        writable, code = bool(flags & WRITE), bool(flags & EXECUTE)
        yield n, Section(label, offset, size, max(1, align), code, writable, kind == NOBITS)
    taken.sort()
    if any(end > start for (_, end), (start, last) in pairwise(taken) if last > start):
        raise Damaged("has sections that overlap")


def _symbols(data: bytes, headers: list[_Header], sections: dict[int, Section]) -> tuple[Symbol, ...]:
    tables = [h for h in headers if h[1] == SYMTAB]
    if not tables:
        return ()
    if len(tables) > 1:
        raise Damaged("has several tables of symbols")
    _, _, _, _, offset, size, link, _, _, each = tables[0]
    if each != SYMBOL.size or size % each or link >= len(headers):
        raise Damaged("has a table of symbols that makes no sense")
    texts = _strings(data, headers, link)
    found, letters = [], 0
    for n, entry in enumerate(SYMBOL.iter_unpack(data[offset : offset + size])):
        found.append(_symbol(n, entry, texts, headers, sections))
        letters += len(found[-1].name)
        if letters > _MOST_LETTERS:
            raise Damaged("has names of more than 64 MB")
    return tuple(found)


def _symbol(
    n: int, entry: tuple[int, ...], texts: bytes, headers: list[_Header], sections: dict[int, Section]
) -> Symbol:
    name, info, _, place, value, size = entry
    binding = info >> 4
    label = "" if binding == LOCAL else _text(texts, name)
    if binding not in (LOCAL, GLOBAL, WEAK) or (info & 15) not in _USUAL_TYPES:
        raise Damaged(f"has a symbol {label or n} of a kind that is not loaded here ({info:#x})")
    if place in (_UNDEFINED, ABSOLUTE):
        # the null symbol, and the name of a file, are never used
        return Symbol(label, None, value, place == _UNDEFINED, binding == WEAK)
    if place >= len(headers):  # also common symbols, and section numbers of more than 16 bits
        raise Damaged(f"has a symbol {label or n} in a section {place} that is not there")
    if place in sections and value > sections[place].size:
        raise Damaged(f"has a symbol {label or n} outside its section")
    return Symbol(label, place, value, False, binding == WEAK, size)


def _relocations(
    data: bytes, headers: list[_Header], sections: dict[int, Section], symbols: int
) -> dict[int, list[Relocation]]:
    """The relocations of the sections that are loaded."""
    found: dict[int, list[Relocation]] = {}
    for _, kind, _, _, offset, size, link, target, _, each in headers:
        if kind not in (RELA, _REL) or target not in sections:
            continue
        section = sections[target]
        if kind == _REL or each != RELOCATION.size or size % each or section.is_zero:
            raise Damaged(f"has relocations of {section.name!r} that make no sense")
        if link >= len(headers) or headers[link][1] != SYMTAB:
            raise Damaged(f"has relocations of {section.name!r} without symbols")
        mine = found.setdefault(target, [])
        for place, how, symbol, addend in RELOCATION.iter_unpack(data[offset : offset + size]):
            if symbol >= symbols or place >= section.size:
                raise Damaged(f"has a relocation outside {section.name!r}, or of a symbol that is not there")
            mine.append(Relocation(place, how, symbol, addend))
    return found
