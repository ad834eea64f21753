"""Makes one relocatable object from several, for other linkers. It works like `ld -r`, but needs no tool.

    a.o [ code | constants ]  b.o [ code | data ]  ──▶  [ code a, b | constants a | data b ], exported names

Nothing is relocated. Sections of one kind are put one after another, and relocations and symbols move with
them, so this works for any processor. Names that are not exported become local, as with `objcopy
--keep-global-symbol`. So objects of two models with equal kernels can be linked into one program.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from autotensor.base.errors import ArtifactError
from autotensor.runtime.linking import elf
from autotensor.runtime.linking.elf import Damaged, Object, Section, Symbol

_INFO_LINK = 0x40  # flag of a section: its `info` is the number of another section
_FUNCTION, _DATA, _NO_TYPE = 2, 1, 0
_HEADER_FLAGS = slice(48, 52)  # bytes of the file header with flags of the processor family
_FLAGS_OF = struct.Struct("<I")


@dataclass(slots=True)
class _Merged:
    """A section of the result."""

    name: str
    flags: int
    is_zero: bool
    align: int = 1
    size: int = 0
    data: bytearray = field(default_factory=bytearray)  # empty if the section is all zeros
    relocations: list[tuple[int, int, int, int]] = field(default_factory=list)  # offset, kind, symbol, addend


@dataclass(frozen=True, slots=True)
class _Entry:
    """A symbol of the result."""

    name: str
    info: int
    section: int  # the section's number in the result
    value: int
    size: int = 0

    @property
    def is_local(self) -> bool:
        return self.info >> 4 == elf.LOCAL


def merged_object(name: str, objects: Sequence[bytes], exported: Collection[str]) -> bytes:
    """One relocatable ELF object made of all objects. Only the symbols in `exported` are visible from
    outside.

    Raises ArtifactError, whose text begins with `name`, for objects that are damaged or not ELF, and for an
    exported name that no object defines.
    """
    try:
        parts = [elf.read(data) for data in objects]
        if len({elf.machine_of(data) for data in objects}) > 1:
            raise Damaged("is for another processor than the rest")
        return _Merger(parts, exported).written()
    except Damaged as error:
        raise ArtifactError(f"{name}: one of its object files {error}.") from error


def _kind_of(section: Section) -> tuple[str, int]:
    """Name and flags of the section in the result."""
    if section.is_code:
        return ".text", elf.ALLOC | elf.EXECUTE
    if not section.is_writable:
        return ".rodata", elf.ALLOC
    if section.is_zero:
        return ".bss", elf.ALLOC | elf.WRITE
    relocated = section.name.startswith(".data.rel.ro")  # read-only once the loader has filled in addresses
    return ".data.rel.ro" if relocated else ".data", elf.ALLOC | elf.WRITE


class _Merger:
    def __init__(self, objects: Sequence[Object], exported: Collection[str]) -> None:
        self._objects = objects
        self._sections: dict[str, _Merged] = {}
        self._starts: dict[tuple[int, int], tuple[str, int]] = {}  # section and offset of each part
        self._place_sections()
        self._globals: dict[str, tuple[int, Symbol]] = {}
        for number, o in enumerate(objects):
            for symbol in o.symbols:
                self._define(number, symbol)
        for missing in sorted(set(exported) - set(self._globals)):
            raise Damaged(f"should define {missing}, which none does")
        self._exported = exported
        self._entries: list[_Entry] = []
        self._numbers: dict[object, int] = {}  # numbers of the entries
        for number, o in enumerate(objects):
            for n, relocations in o.relocations.items():
                self._move(number, n, relocations)
        for label in exported:
            self._number_of(*self._globals[label])

    def _place_sections(self) -> None:
        for number, o in enumerate(self._objects):
            for n, section in o.sections.items():
                label, flags = _kind_of(section)
                into = self._sections.setdefault(label, _Merged(label, flags, label == ".bss"))
                start = -(-into.size // section.align) * section.align
                self._starts[number, n] = label, start
                into.align, into.size = max(into.align, section.align), start + section.size
                if not into.is_zero:
                    into.data.extend(bytes(start - len(into.data)))
                    into.data += self._bytes_of(o, section)

    @staticmethod
    def _bytes_of(o: Object, section: Section) -> bytes:
        return (
            bytes(section.size) if section.is_zero else o.data[section.offset : section.offset + section.size]
        )

    def _define(self, number: int, symbol: Symbol) -> None:
        """Defines a symbol. A strong definition wins over weak ones; among weak ones the first wins."""
        if not symbol.name or symbol.is_undefined:
            return
        known = self._globals.get(symbol.name)
        if known is None or (known[1].is_weak and not symbol.is_weak):
            self._globals[symbol.name] = number, symbol
        elif not symbol.is_weak:
            raise Damaged(f"defines {symbol.name} a second time")

    def _move(self, number: int, n: int, relocations: Sequence[elf.Relocation]) -> None:
        label, start = self._starts[number, n]
        into = self._sections[label]
        for r in relocations:
            symbol = self._objects[number].symbols[r.symbol]
            target = self._globals.get(symbol.name, (number, symbol)) if symbol.name else (number, symbol)
            into.relocations.append((start + r.offset, r.kind, self._number_of(*target), r.addend))

    def _number_of(self, number: int, symbol: Symbol) -> int:
        """The number of a symbol's entry, which is made at its first use."""
        key: object = symbol.name or (number, symbol)
        if key not in self._numbers:
            self._numbers[key] = len(self._entries)
            self._entries.append(self._entry(number, symbol))
        return self._numbers[key]

    def _entry(self, number: int, symbol: Symbol) -> _Entry:
        if symbol.is_undefined:
            binding = elf.WEAK if symbol.is_weak else elf.GLOBAL if symbol.name else elf.LOCAL
            return _Entry(symbol.name, binding << 4, 0, 0)
        if symbol.section is None:
            return _Entry(symbol.name, elf.LOCAL << 4, elf.ABSOLUTE, symbol.value)
        if symbol.section not in self._objects[number].sections:
            raise Damaged(f"refers to section {symbol.section}, which is not loaded")
        label, start = self._starts[number, symbol.section]
        binding = elf.LOCAL
        if symbol.name in self._exported:
            binding = elf.WEAK if symbol.is_weak else elf.GLOBAL
        kind = _NO_TYPE if not symbol.name else _FUNCTION if label == ".text" else _DATA
        return _Entry(
            symbol.name,
            binding << 4 | kind,
            1 + list(self._sections).index(label),
            start + symbol.value,
            symbol.size,
        )

    def written(self) -> bytes:
        """The file as bytes: header, sections, symbols, relocations, names, table of sections."""
        order = sorted(range(len(self._entries)), key=lambda n: not self._entries[n].is_local)
        places = {old: 1 + new for new, old in enumerate(order)}  # 0 is the null symbol
        names = _Names()
        symbols = bytearray(elf.SYMBOL.size)
        for old in order:
            e = self._entries[old]
            symbols += elf.SYMBOL.pack(names.add(e.name), e.info, 0, e.section, e.value, e.size)
        locals_ = 1 + sum(e.is_local for e in self._entries)
        return _file(self._objects[0], list(self._sections.values()), symbols, locals_, names, places)


class _Names:
    """A table of strings."""

    def __init__(self) -> None:
        self.data = bytearray(1)
        self._at = {"": 0}

    def add(self, name: str) -> int:
        if name not in self._at:
            self._at[name] = len(self.data)
            self.data += name.encode() + b"\0"
        return self._at[name]


def _file(
    first: Object,
    sections: Sequence[_Merged],
    symbols: bytearray,
    locals_: int,
    names: _Names,
    places: dict[int, int],
) -> bytes:
    """first: the object whose header names the processor. locals_: number of symbols before the first global
    symbol. places: the indices of the symbols in their table."""
    out = bytearray(elf.HEADER.size)
    headers: list[tuple[int, ...]] = [(0,) * 10]
    labels = _Names()

    def put(
        label: str, kind: int, flags: int, data: bytes | bytearray, *,
        size: int = -1, align: int = 1, link: int = 0, info: int = 0, each: int = 0,
    ) -> None:  # fmt: skip
        out.extend(bytes(-len(out) % align))
        length = len(data) if size < 0 else size
        headers.append((labels.add(label), kind, flags, 0, len(out), length, link, info, align, each))
        out.extend(data)

    for s in sections:
        put(s.name, elf.NOBITS if s.is_zero else elf.PROGBITS, s.flags, s.data, size=s.size, align=s.align)
    put(".note.GNU-stack", elf.PROGBITS, 0, b"")  # our code never executes its stack
    table = len(headers)
    put(
        ".symtab", elf.SYMTAB, 0, symbols,
        align=8, link=table + 1, info=locals_, each=elf.SYMBOL.size,
    )  # fmt: skip
    put(".strtab", elf.STRTAB, 0, names.data)
    for n, s in enumerate(sections, start=1):
        if s.relocations:
            put(
                f".rela{s.name}", elf.RELA, _INFO_LINK, b"".join(_relocations(s, places)),
                align=8, link=table, info=n, each=elf.RELOCATION.size,
            )  # fmt: skip
    last = len(headers)
    labels.add(".shstrtab")
    put(".shstrtab", elf.STRTAB, 0, labels.data)
    out.extend(bytes(-len(out) % 8))
    start = len(out)
    for h in headers:
        out += elf.SECTION.pack(*h)
    ident, kind, machine, version, *_ = elf.HEADER.unpack_from(first.data)
    (flags,) = _FLAGS_OF.unpack(first.data[_HEADER_FLAGS])
    sizes = (elf.HEADER.size, 0, 0, elf.SECTION.size, len(headers), last)
    out[: elf.HEADER.size] = elf.HEADER.pack(ident, kind, machine, version, 0, 0, start, flags, *sizes)
    return bytes(out)


def _relocations(section: _Merged, places: dict[int, int]) -> Iterator[bytes]:
    for offset, kind, symbol, addend in section.relocations:
        yield elf.RELOCATION.pack(offset, kind, places[symbol], addend)


__all__ = ["merged_object"]
