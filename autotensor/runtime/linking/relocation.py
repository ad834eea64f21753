"""Relocations: the value that each kind writes, for x86-64 and aarch64.

This module has the kinds that LLVM emits for position-independent code in the small code model, and the kinds
most similar to them.

    value = of(symbol) + addend - origin        written to some bytes, or to bits of an instruction

Source: System V ABI, AMD64 supplement, table 4.9; ELF for the Arm 64-bit Architecture (aaelf64), section 5.7.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

_PAGE = 0xFFF  # offset in a page: instructions use pages of 4 KiB, whatever the system's page size is


class Of(enum.Enum):
    """The thing whose address the value uses."""

    SYMBOL = "S"
    CALLEE = "L"  # the symbol, or a stub that jumps to it if another object defines it
    SLOT = "G"  # the slot that holds the symbol's address, in the table of addresses
    TABLE = "GOT"  # the table itself, for any symbol


class Origin(enum.Enum):
    """The address that is subtracted."""

    NOTHING = "0"
    PLACE = "P"
    PAGE = "Page(P)"  # the page of the relocated place; of the address, too, only the page is taken
    TABLE = "GOT"
    TABLE_PAGE = "Page(GOT)"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of relocation.

    `put` takes two numbers: the old contents of the bytes as an unsigned number, and the value, which may be
    negative. It returns the new contents, and raises ValueError for a value that does not fit.
    """

    name: str
    of: Of
    origin: Origin
    bytes: int
    put: Callable[[int, int], int]
    is_instruction: bool = False  # it changes an instruction, that is four bytes at a multiple of four


def page(address: int) -> int:
    return address & ~_PAGE


def _number(bits: int, least: int, most: int) -> Callable[[int, int], int]:
    def put(_: int, value: int) -> int:
        if not least <= value <= most:
            raise ValueError(f"{value:#x} does not fit into {bits} bits")
        return value & ((1 << bits) - 1)

    return put


def _signed(bits: int) -> Callable[[int, int], int]:
    return _number(bits, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _unsigned(bits: int) -> Callable[[int, int], int]:
    return _number(bits, 0, (1 << bits) - 1)


def _whole(_: int, value: int) -> int:
    return value & ((1 << 64) - 1)


def _jump(width: int, low: int) -> Callable[[int, int], int]:
    """A distance in instructions, stored in `width` bits from bit `low` on."""
    fits = _signed(width)

    def put(old: int, value: int) -> int:
        if value & 3:
            raise ValueError(f"{value:#x} is not a multiple of 4")
        mask = ((1 << width) - 1) << low
        return old & ~mask | fits(0, value >> 2) << low

    return put


def _adr(shift: int) -> Callable[[int, int], int]:
    """The 21 bits of `adr` (shift 0) and `adrp` (shift 12). The two lowest bits are stored apart."""
    fits = _signed(21)

    def put(old: int, value: int) -> int:
        field = fits(0, value >> shift)
        return old & ~(3 << 29 | 0x7FFFF << 5) | (field & 3) << 29 | (field >> 2) << 5

    return put


def _low12(scale: int) -> Callable[[int, int], int]:
    """The offset in a page, in units of 2^scale bytes."""

    def put(old: int, value: int) -> int:
        low = value & _PAGE
        if low & ((1 << scale) - 1):
            raise ValueError(f"{value:#x} is not a multiple of {1 << scale}")
        return old & ~(_PAGE << 10) | (low >> scale) << 10

    return put


def _low15(old: int, value: int) -> int:
    if value & 7 or not 0 <= value < 1 << 15:
        raise ValueError(f"{value:#x} is not one of the first 4096 slots")
    return old & ~(_PAGE << 10) | (value >> 3) << 10


def _x86_64() -> dict[int, Kind]:
    s, callee, slot, table = Of.SYMBOL, Of.CALLEE, Of.SLOT, Of.TABLE
    zero, place, got = Origin.NOTHING, Origin.PLACE, Origin.TABLE
    return {
        1: Kind("R_X86_64_64", s, zero, 8, _whole),
        2: Kind("R_X86_64_PC32", s, place, 4, _signed(32)),
        4: Kind("R_X86_64_PLT32", callee, place, 4, _signed(32)),
        9: Kind("R_X86_64_GOTPCREL", slot, place, 4, _signed(32)),
        10: Kind("R_X86_64_32", s, zero, 4, _unsigned(32)),
        11: Kind("R_X86_64_32S", s, zero, 4, _signed(32)),
        24: Kind("R_X86_64_PC64", s, place, 8, _whole),
        25: Kind("R_X86_64_GOTOFF64", s, got, 8, _whole),
        26: Kind("R_X86_64_GOTPC32", table, place, 4, _signed(32)),
        27: Kind("R_X86_64_GOT64", slot, got, 8, _whole),
        28: Kind("R_X86_64_GOTPCREL64", slot, place, 8, _whole),
        29: Kind("R_X86_64_GOTPC64", table, place, 8, _whole),
        31: Kind("R_X86_64_PLTOFF64", callee, got, 8, _whole),
        41: Kind("R_X86_64_GOTPCRELX", slot, place, 4, _signed(32)),
        42: Kind("R_X86_64_REX_GOTPCRELX", slot, place, 4, _signed(32)),
        43: Kind("R_X86_64_CODE_4_GOTPCRELX", slot, place, 4, _signed(32)),
    }


def _aarch64() -> dict[int, Kind]:
    s, callee, slot = Of.SYMBOL, Of.CALLEE, Of.SLOT
    zero, place, its_page = Origin.NOTHING, Origin.PLACE, Origin.PAGE
    return {
        257: Kind("R_AARCH64_ABS64", s, zero, 8, _whole),
        258: Kind("R_AARCH64_ABS32", s, zero, 4, _number(32, -(1 << 31), (1 << 32) - 1)),
        260: Kind("R_AARCH64_PREL64", s, place, 8, _whole),
        261: Kind("R_AARCH64_PREL32", s, place, 4, _signed(32)),  # the ABI also accepts unsigned values
        262: Kind("R_AARCH64_PREL16", s, place, 2, _signed(16)),
        273: Kind("R_AARCH64_LD_PREL_LO19", s, place, 4, _jump(19, 5), True),
        274: Kind("R_AARCH64_ADR_PREL_LO21", s, place, 4, _adr(0), True),
        275: Kind("R_AARCH64_ADR_PREL_PG_HI21", s, its_page, 4, _adr(12), True),
        277: Kind("R_AARCH64_ADD_ABS_LO12_NC", s, zero, 4, _low12(0), True),
        278: Kind("R_AARCH64_LDST8_ABS_LO12_NC", s, zero, 4, _low12(0), True),
        279: Kind("R_AARCH64_TSTBR14", callee, place, 4, _jump(14, 5), True),
        280: Kind("R_AARCH64_CONDBR19", callee, place, 4, _jump(19, 5), True),
        282: Kind("R_AARCH64_JUMP26", callee, place, 4, _jump(26, 0), True),
        283: Kind("R_AARCH64_CALL26", callee, place, 4, _jump(26, 0), True),
        284: Kind("R_AARCH64_LDST16_ABS_LO12_NC", s, zero, 4, _low12(1), True),
        285: Kind("R_AARCH64_LDST32_ABS_LO12_NC", s, zero, 4, _low12(2), True),
        286: Kind("R_AARCH64_LDST64_ABS_LO12_NC", s, zero, 4, _low12(3), True),
        299: Kind("R_AARCH64_LDST128_ABS_LO12_NC", s, zero, 4, _low12(4), True),
        309: Kind("R_AARCH64_GOT_LD_PREL19", slot, place, 4, _jump(19, 5), True),
        311: Kind("R_AARCH64_ADR_GOT_PAGE", slot, its_page, 4, _adr(12), True),
        312: Kind("R_AARCH64_LD64_GOT_LO12_NC", slot, zero, 4, _low12(3), True),
        313: Kind("R_AARCH64_LD64_GOTPAGE_LO15", slot, Origin.TABLE_PAGE, 4, _low15, True),
        314: Kind("R_AARCH64_PLT32", callee, place, 4, _signed(32)),
        315: Kind("R_AARCH64_GOTPCREL32", slot, place, 4, _signed(32)),
    }


KINDS = {"x86_64": _x86_64(), "aarch64": _aarch64()}
NOTHING = {"x86_64": (0,), "aarch64": (0, 256)}  # R_*_NONE


def stub(machine: str, at: int, slot: int) -> bytes:
    """STUB_BYTES bytes of code for address `at`. They jump to the address that is stored at `slot`."""
    if machine == "x86_64":
        distance = _signed(32)(0, slot - (at + 6))
        return b"\xff\x25" + distance.to_bytes(4, "little") + b"\xcc" * 10  # jmp *distance(%rip)
    words = (
        _adr(12)(0x90000010, page(slot) - page(at)),  # adrp x16, page of slot
        _low12(3)(0xF9400211, slot),  # ldr x17, [x16, offset in the page]
        0xD61F0220,  # br x17
        0,
    )
    return b"".join(word.to_bytes(4, "little") for word in words)


STUB_BYTES = 16
