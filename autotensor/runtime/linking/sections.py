"""Objects side by side: the position of each section, and the bytes of all sections for a given address.

    [ code of all objects | stubs ][ constants | table of addresses ][ data ]

This works with plain numbers and bytes, for any processor, so the result can be examined without running it.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from autotensor.runtime.linking.elf import Damaged, Object, Relocation, Section, Symbol
from autotensor.runtime.linking.relocation import KINDS, NOTHING, STUB_BYTES, Kind, Of, Origin, page, stub

_MOST_BYTES = 1 << 30  # most bytes of all sections: references of 32 bits reach less than 2 GiB
_SLOT_BYTES = 8

Target = tuple[int, Symbol]  # a relocation's symbol, and the object that defines it (-1: none)


class Use(NamedTuple):
    """A relocation, and what it means."""

    section: tuple[int, int]  # numbers of the object and of the section
    relocation: Relocation
    kind: Kind
    target: Target


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions as offsets from the start of one reservation."""

    machine: str
    objects: tuple[Object, ...]
    defined: Mapping[str, Target]  # global symbols
    uses: tuple[Use, ...]
    starts: Mapping[tuple[int, int], int]  # offset of each section, by the numbers of object and section
    stubs: Mapping[Target, int]
    slots: Mapping[Target, int]  # slots in the table of addresses
    table: int
    ends: tuple[int, int, int]  # ends of code, constants, data: multiples of a page

    @property
    def outside(self) -> dict[str, bool]:
        """Names of the symbols that the process must define, each with whether it may be missing."""
        found: dict[str, bool] = {}
        for use in self.uses:
            symbol = use.target[1]
            if symbol.is_undefined and use.kind.of is not Of.TABLE:
                found[symbol.name] = found.get(symbol.name, True) and symbol.is_weak
        return found

    def function(self, name: str) -> int | None:
        """The offset of a function; None if no function has this name."""
        number, symbol = self.defined.get(name, (-1, None))
        if symbol is None or symbol.section is None:
            return None
        section = self.objects[number].sections.get(symbol.section)
        if section is None or not section.is_code or symbol.value >= section.size:
            return None
        return self.starts[number, symbol.section] + symbol.value

    def write(self, memory: MutableSequence[int] | Any, base: int, outside: Mapping[str, int]) -> None:
        """Writes the bytes of all sections, relocated for address `base`, into a writable buffer of zeros.

        outside: the addresses of symbols that the process defines. Raises Damaged for a value that does not
        fit its bits.
        """
        for (number, n), start in self.starts.items():
            section = self.objects[number].sections[n]
            if not section.is_zero:
                data = self.objects[number].data
                memory[start : start + section.size] = data[section.offset : section.offset + section.size]
        for target, slot in self.slots.items():
            address = self._address(target, base, outside) & ((1 << 64) - 1)
            memory[slot : slot + _SLOT_BYTES] = address.to_bytes(_SLOT_BYTES, "little")
        for target, at in self.stubs.items():
            memory[at : at + STUB_BYTES] = stub(self.machine, base + at, base + self.slots[target])
        for use in self.uses:
            self._relocate(memory, base, use, outside)

    def _relocate(self, memory: Any, base: int, use: Use, outside: Mapping[str, int]) -> None:
        kind = use.kind
        at = self.starts[use.section] + use.relocation.offset
        match kind.of:
            case Of.SYMBOL:
                value = self._address(use.target, base, outside)
            case Of.CALLEE:
                stub_at = self.stubs.get(use.target)
                value = self._address(use.target, base, outside) if stub_at is None else base + stub_at
            case Of.SLOT:
                value = base + self.slots[use.target]
            case Of.TABLE:
                value = base + self.table
        value += use.relocation.addend
        match kind.origin:
            case Origin.PLACE:
                value -= base + at
            case Origin.PAGE:
                value = page(value) - page(base + at)
            case Origin.TABLE:
                value -= base + self.table
            case Origin.TABLE_PAGE:
                value -= page(base + self.table)
            case Origin.NOTHING:
                pass
        try:
            new = kind.put(int.from_bytes(memory[at : at + kind.bytes], "little"), value)
        except ValueError as error:
            name = self.objects[use.section[0]].sections[use.section[1]].name
            raise Damaged(f"has a {kind.name} in {name!r} that cannot be: {error}") from error
        memory[at : at + kind.bytes] = new.to_bytes(kind.bytes, "little")

    def _address(self, target: Target, base: int, outside: Mapping[str, int]) -> int:
        number, symbol = target
        if symbol.is_undefined:
            return outside[symbol.name]
        if symbol.section is None:
            return symbol.value
        return base + self.starts[number, symbol.section] + symbol.value


def lay_out(objects: Sequence[Object], machine: str) -> Layout:
    """Lays out the objects. Raises Damaged for objects that cannot be linked in any process."""
    defined = _defined(objects)
    uses = tuple(_uses(objects, machine, defined))
    called = dict.fromkeys(u.target for u in uses if u.kind.of is Of.CALLEE and u.target[1].is_undefined)
    tabled = dict.fromkeys([*called, *(u.target for u in uses if u.kind.of is Of.SLOT)])

    starts: dict[tuple[int, int], int] = {}
    end = _place(objects, lambda s: s.is_code, 0, starts)
    first_stub = _up(end, STUB_BYTES)
    code = _up(first_stub + len(called) * STUB_BYTES, mmap.PAGESIZE)
    end = _place(objects, lambda s: not s.is_code and not s.is_writable, code, starts)
    table = _up(end, _SLOT_BYTES)
    constants = _up(table + len(tabled) * _SLOT_BYTES, mmap.PAGESIZE)
    data = _up(_place(objects, lambda s: s.is_writable, constants, starts), mmap.PAGESIZE)
    if data > _MOST_BYTES:
        raise Damaged(f"has sections of {data} bytes")
    return Layout(
        machine,
        tuple(objects),
        defined,
        uses,
        starts,
        {target: first_stub + n * STUB_BYTES for n, target in enumerate(called)},
        {target: table + n * _SLOT_BYTES for n, target in enumerate(tabled)},
        table,
        (code, constants, data),
    )


def _defined(objects: Sequence[Object]) -> dict[str, Target]:
    """The global symbols. A strong definition wins over weak ones; among weak ones the first wins."""
    found: dict[str, Target] = {}
    for number, o in enumerate(objects):
        for symbol in o.symbols:
            if not symbol.name or symbol.is_undefined:
                continue
            known = found.get(symbol.name)
            if known is None or (known[1].is_weak and not symbol.is_weak):
                found[symbol.name] = number, symbol
            elif not symbol.is_weak:
                raise Damaged(f"defines {symbol.name} a second time")
    return found


def _uses(objects: Sequence[Object], machine: str, defined: Mapping[str, Target]) -> Iterator[Use]:
    kinds, nothing = KINDS[machine], NOTHING[machine]
    for number, o in enumerate(objects):
        for n, relocations in o.relocations.items():
            section = o.sections[n]
            for r in relocations:
                if r.kind in nothing:
                    continue
                kind = kinds.get(r.kind)
                if kind is None:
                    raise Damaged(f"has a relocation of a kind that is not known here ({r.kind})")
                if r.offset + kind.bytes > section.size or (kind.is_instruction and r.offset & 3):
                    raise Damaged(f"has a {kind.name} that is not inside {section.name!r}")
                symbol = o.symbols[r.symbol]
                target = defined.get(symbol.name, (number, symbol)) if symbol.name else (number, symbol)
                if target[1].is_undefined:
                    target = -1, target[1]._replace(is_weak=symbol.is_weak)
                _check(kind, target, objects, section)
                yield Use((number, n), r, kind, target)


def _check(kind: Kind, target: Target, objects: Sequence[Object], section: Section) -> None:
    """Raises Damaged for a target that a relocation of this kind cannot have."""
    number, symbol = target
    if kind.of is Of.TABLE:
        return
    if symbol.is_undefined:
        if not symbol.name:
            raise Damaged(f"has a {kind.name} in {section.name!r} of no symbol")
        if kind.of is Of.SYMBOL and kind.bytes < 8:  # the distance is different in each process
            raise Damaged(f"reaches for {symbol.name}, which is outside, by a {kind.name}")
    elif symbol.section is not None:
        where = objects[number].sections.get(symbol.section)
        if where is None:
            raise Damaged(f"has a {kind.name} in {section.name!r} to a section that is not loaded")
        if kind.of is Of.CALLEE and not where.is_code:
            raise Damaged(f"calls into {where.name!r}, which is not code")


def _place(objects: Sequence[Object], chosen: Any, at: int, starts: dict[tuple[int, int], int]) -> int:
    """Puts the chosen sections at `at` and after it. Returns the end."""
    for number, o in enumerate(objects):
        for n, section in o.sections.items():
            if chosen(section):
                if section.align > mmap.PAGESIZE:
                    raise Damaged(f"has a section {section.name!r} aligned to {section.align} bytes")
                at = _up(at, section.align)
                starts[number, n] = at
                at += section.size
    return at


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
