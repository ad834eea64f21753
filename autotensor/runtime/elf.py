"""Reading the symbol table of a native object, so that a missing symbol is a sentence and not an abort inside
LLVM."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_SYMTAB = 2
_MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}


@dataclass(frozen=True, slots=True)
class Symbols:
    """What one object offers and asks for."""

    machine: str  # processor family, "" when unknown to us
    defined: frozenset[str]
    undefined: frozenset[str]


def read_symbols(data: bytes) -> Symbols | None:
    """Global symbols of a 64-bit little-endian ELF object; None if it is something else (Mach-O, say).

    Raises ValueError if the object is cut short.
    """
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    try:
        machine = struct.unpack_from("<H", data, 18)[0]
        (table,) = struct.unpack_from("<Q", data, 40)
        entry_bytes, count = struct.unpack_from("<HH", data, 58)
        sections = [struct.unpack_from("<IIQQQQII", data, table + k * entry_bytes) for k in range(count)]
        defined: set[str] = set()
        undefined: set[str] = set()
        for _, kind, _, _, offset, size, link, _ in sections:
            if kind == _SYMTAB:
                _collect(data, offset, size, sections[link][4], defined, undefined)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"cut short ({error})") from error
    return Symbols(_MACHINES.get(machine, ""), frozenset(defined), frozenset(undefined))


def _collect(data: bytes, offset: int, size: int, names: int, defined: set[str], undefined: set[str]) -> None:
    for at in range(offset + 24, offset + size, 24):  # the first symbol is always the null one
        name, info, _, section = struct.unpack_from("<IBBH", data, at)
        binding = info >> 4
        if name == 0 or binding == 0:  # local
            continue
        start = names + name
        text = data[start : data.index(b"\0", start)].decode()
        if section:
            defined.add(text)
        elif binding != 2:  # weak and undefined is allowed
            undefined.add(text)
