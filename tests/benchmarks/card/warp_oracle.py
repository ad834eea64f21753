"""What the instructions of a warp do, from the text of NVIDIA's PTX ISA alone, lane by lane in plain loops.

    shuffle("down", 4, 1, 31)                   Source(lane=5, in_range=True)
    matrices(memory, addresses, count=2, turned=True)[lane][register]
    LAYOUTS["m16n8k16", "f16"].a(lane, i)       (row, column) of the lane's i-th element, lowest bits first
    product("m16n8k16", "f16", a, b, c)         the exact D by its lanes, and how far from it a card may be
    Copies(…).copy / .commit / .wait / .read    one thread's asynchronous copies

Its author had read neither the code generation nor the simulator (benchmarks/simulated_card), and it imports
neither. So a difference from the simulator means that one of the two understands the manual wrongly. For
everything that PTX leaves undefined, `Undefined` is raised here, and the simulator must report a fault.

A register is an int of 32 bits. Lanes are 0 to 31.

Source: PTX ISA 8.7: "shfl.sync"; "ldmatrix"; "Matrix Fragments for mma.m16n8k8" and "… m16n8k16";
"mma" (precision); "cp.async", "cp.async.commit_group", "cp.async.wait_group"; "cvt" (.tf32);
"dp4a", "dp2a".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

LANES = 32
CHECKED = frozenset(  # spellings that test_warp_oracle.py compares
    [
        *(f"shfl.sync.{mode}.b32" for mode in ("idx", "up", "down", "bfly")),
        *(f"ldmatrix.sync.aligned.m8n8.x{n}{t}.shared.b16" for n in (1, 2, 4) for t in ("", ".trans")),
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
        *(f"mma.sync.aligned.m16n8k16.row.col.f32.{t}.{t}.f32" for t in ("f16", "bf16")),
        *(f"cp.async.{word}" for word in ("ca.shared.global", "cg.shared.global", "commit_group")),
        *(f"cp.async.{word}" for word in ("wait_group", "wait_all")),
        *(f"{name}.{a}32.{b}32" for name in ("dp4a", "dp2a.lo", "dp2a.hi") for a in "su" for b in "su"),
        "cvt.rna.tf32.f32",
        "bar.sync",
    ]
)
Place = Callable[[int, int], tuple[int, int]]  # (lane, element) ▶ (row, column)
Registers = Sequence[Sequence[int]]  # [lane][register]


class Undefined(Exception):
    """PTX does not define the effect."""


# -- shfl.sync -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    lane: int
    in_range: bool


def shuffle(mode: str, lane: int, b: int, c: int) -> Source:
    """The lane whose `a` comes to `lane`. `c`: clamp in bits 0 to 4, mask of segments in bits 8 to 12."""
    offset, clamp, segment = b & 31, c & 31, c >> 8 & 31
    last = (lane & segment) | (clamp & ~segment & 31)
    first = lane & segment
    if mode == "up":
        j = lane - offset
        inside = j >= last
    elif mode == "down":
        j = lane + offset
        inside = j <= last
    elif mode == "bfly":
        j = lane ^ offset
        inside = j <= last
    else:
        j = first | (offset & ~segment & 31)
        inside = j <= last
    return Source(j, True) if inside else Source(lane, False)


def shuffled(
    mode: str, a: Sequence[int], b: Sequence[int], c: Sequence[int], members: int, active: Sequence[bool]
) -> dict[int, tuple[int, bool]]:
    """Value and predicate of each lane that runs the instruction.

    Raises Undefined if a lane that is not a member runs it, or if a lane takes the value of a lane that is
    not a member or does not run.
    """
    found = {}
    for lane in (n for n in range(LANES) if active[n]):
        source = shuffle(mode, lane, b[lane], c[lane])
        if not members >> lane & 1 or not members >> source.lane & 1 or not active[source.lane]:
            raise Undefined(f"lane {lane} takes from lane {source.lane}")
        found[lane] = (a[source.lane], source.in_range)
    return found


# -- ldmatrix ------------------------------------------------------------------------------------------------


def matrices(memory: bytes, addresses: Sequence[int], count: int, turned: bool) -> list[list[int]]:
    """Registers of each lane: 8 × 8 elements of 16 bits each, of as many matrices as registers.

    Row r of matrix m is where lane 8 m + r points; addresses of further lanes mean nothing (from sm_80 on).
    """
    found = [[0] * count for _ in range(LANES)]
    for m in range(count):
        tile = []
        for r in range(8):
            at = addresses[8 * m + r]
            if at % 16 or at + 16 > len(memory):
                raise Undefined(f"row {r} of matrix {m} at byte {at}")
            tile.append(struct.unpack_from("<8H", memory, at))
        for lane in range(LANES):
            row, column = lane // 4, lane % 4 * 2
            pair = (
                (tile[column][row], tile[column + 1][row])
                if turned
                else (tile[row][column], tile[row][column + 1])
            )
            found[lane][m] = pair[0] | pair[1] << 16
    return found


# -- mma.sync ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the elements of A [16, k] and B [k, 8] lie; C and D [16, 8] are the same in all shapes."""

    k: int
    bits: int  # of an element
    a: Place
    b: Place


def _a_16816(lane: int, i: int) -> tuple[int, int]:
    group, member = lane >> 2, lane % 4
    row = group if 0 <= i < 2 or 4 <= i < 6 else group + 8
    column = member * 2 + (i & 1) + (0 if i < 4 else 8)
    return row, column


def _b_16816(lane: int, i: int) -> tuple[int, int]:
    group, member = lane >> 2, lane % 4
    return member * 2 + (i & 1) + (0 if i < 2 else 8), group


def _a_1688_tf32(lane: int, i: int) -> tuple[int, int]:
    group, member = lane >> 2, lane % 4
    return (group if i in (0, 2) else group + 8), (member if i in (0, 1) else member + 4)


def _b_1688_tf32(lane: int, i: int) -> tuple[int, int]:
    return (lane % 4 if i == 0 else lane % 4 + 4), lane >> 2


def accumulator(lane: int, i: int) -> tuple[int, int]:
    group, member = lane >> 2, lane % 4
    return (group if i < 2 else group + 8), member * 2 + (i & 1)


LAYOUTS: dict[tuple[str, str], Layout] = {
    ("m16n8k8", "tf32"): Layout(8, 32, _a_1688_tf32, _b_1688_tf32),
    ("m16n8k16", "f16"): Layout(16, 16, _a_16816, _b_16816),
    ("m16n8k16", "bf16"): Layout(16, 16, _a_16816, _b_16816),
}


def number(pattern: int, kind: str) -> float:
    """The value of an element's bits."""
    match kind:
        case "f16":
            return float(np.uint16(pattern).view(np.float16))
        case "bf16":
            return float(np.uint16(pattern).view(ml_dtypes.bfloat16))
    return float(np.uint32(pattern).view(np.float32))


def matrix(registers: Registers, shape: tuple[int, int], place: Place, bits: int, kind: str) -> np.ndarray:
    """The matrix in the lanes' registers together; NaN for elements that no lane holds."""
    found = np.full(shape, np.nan)
    for lane in range(LANES):
        whole = sum(r << 32 * n for n, r in enumerate(registers[lane]))
        for i in range(32 * len(registers[lane]) // bits):
            row, column = place(lane, i)
            assert np.isnan(found[row, column]), "two lanes hold one element"
            found[row, column] = number(whole >> bits * i & (1 << bits) - 1, kind)
    return found


def product(shape: str, kind: str, a: Registers, b: Registers, c: Registers) -> tuple[np.ndarray, np.ndarray]:
    """D = A B + C as the lanes get it, exact, and how far from it the manual lets a card be: [lane, 4] both.

    Products of f16, bf16 and tf32 are exact in float64. "Accumulation … with at least single precision", in
    any order: k + 1 roundings of partial sums that are no larger than the sum of the sizes.
    """
    layout = LAYOUTS[shape, kind]
    left = matrix(a, (16, layout.k), layout.a, layout.bits, kind)
    right = matrix(b, (layout.k, 8), layout.b, layout.bits, kind)
    start = matrix(c, (16, 8), accumulator, 32, "f32")
    exact = left @ right + start
    far = (np.abs(left) @ np.abs(right) + np.abs(start)) * (layout.k + 1) * 2.0**-23
    lanes = range(LANES)
    return (
        np.array([[exact[accumulator(n, i)] for i in range(4)] for n in lanes]),
        np.array([[far[accumulator(n, i)] for i in range(4)] for n in lanes]),
    )


def to_tf32(pattern: int) -> int:
    """`cvt.rna.tf32.f32`: 10 bits of mantissa, to nearest, ties away from zero; for finite numbers.

    Bits below them have no meaning that PTX gives; zero is the value that any reading of them has.
    """
    return (pattern + 0x1000 & 0xFFFFE000) & 0xFFFFFFFF


# -- dp4a, dp2a ----------------------------------------------------------------------------------------------


def dot(name: str, a_type: str, b_type: str, a: int, b: int, c: int) -> int:
    """c and four products of bytes (dp4a), or two of halves of a with bytes of b (dp2a); the sum wraps."""
    codes = {"s32": "bh", "u32": "BH"}
    left = struct.unpack(
        "<" + ("4" if name == "dp4a" else "2") + codes[a_type][name != "dp4a"], a.to_bytes(4, "little")
    )
    right = struct.unpack("<4" + codes[b_type][0], b.to_bytes(4, "little"))
    first = 2 if name == "dp2a.hi" else 0
    return (c + sum(x * right[first + n] for n, x in enumerate(left))) & 0xFFFFFFFF


# -- cp.async ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Copies:
    """One thread's copies into its own part of shared memory, from memory that does not change meanwhile."""

    shared: bytearray
    _open: list[tuple[int, bytes]] = field(default_factory=list)  # (at, bytes), in no group yet
    _groups: list[list[tuple[int, bytes]]] = field(default_factory=list)  # committed, and possibly under way

    def copy(self, at: int, source: bytes, size: int, used: int | None = None) -> None:
        """`cp.async [at], [source], size, used`: what is not used of `size` bytes is zero."""
        used = size if used is None else used
        if size not in (4, 8, 16) or at % size or used > size:
            raise Undefined("a size or place that there is not")
        self._settled(at, size)  # two copies have no order
        self._open.append((at, source[:used] + bytes(size - used)))

    def commit(self) -> None:
        """All copies in no group make one, an empty one too."""
        self._groups.append(self._open)
        self._open = []

    def wait(self, left: int) -> None:
        """Until no more than the `left` latest groups are under way."""
        done = self._groups[: max(0, len(self._groups) - left)]
        self._groups = self._groups[len(done) :]
        for at, data in (copy for group in done for copy in group):
            self.shared[at : at + len(data)] = data

    def wait_all(self) -> None:
        self.commit()
        self.wait(0)

    def read(self, at: int, size: int) -> bytes:
        self._settled(at, size)
        return bytes(self.shared[at : at + size])

    def write(self, at: int, data: bytes) -> None:
        self._settled(at, len(data))
        self.shared[at : at + len(data)] = data

    def _settled(self, at: int, size: int) -> None:
        for group in (*self._groups, self._open):
            for begin, data in group:
                if begin < at + size and at < begin + len(data):
                    raise Undefined(f"bytes {at} to {at + size} are under way")
