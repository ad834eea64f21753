"""Instructions of a whole warp: shuffles, and matrix instructions with PTX's layouts of elements.

    ldmatrix(rows, turned)           rows: [warps, matrices, 8 rows, 8] uint16 ▶ [warps, matrices, 32] uint32
    mma("m16n8k16", "f16", a, b, c)  a: [warps, 4, 32] uint32, …               ▶ [warps, 4, 32] float32
    shuffle("bfly", a, b, c)         a: [warps, 32]                            ▶ values, in range, sources

This was written from NVIDIA's published tables, which are quoted at each function, and not from autotensor's
code generation. So if both agree, the generated code means what was scheduled. Source: PTX ISA 8.8,
"Warp-level matrix instructions" (9.7.14.5.7 and .8: fragments of mma.m16n8k8 and mma.m16n8k16; 9.7.14.5.15:
ldmatrix) and "shfl.sync" (9.7.9.6).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

LANE = np.arange(32)
GROUP = LANE >> 2  # groupID = %laneid >> 2
MEMBER = LANE % 4  # threadID_in_group = %laneid % 4

# element i of a lane's fragment ▶ the rows and columns, for each lane
Place = Callable[[int], tuple[Array, Array]]


def _a_1688_tf32(i: int) -> tuple[Array, Array]:
    """row = groupID for a0 and a2, groupID + 8 for a1 and a3; col = threadID_in_group for a0 and a1, + 4 for
    a2 and a3."""
    return GROUP + (8 if i in (1, 3) else 0), MEMBER + (4 if i in (2, 3) else 0)


def _b_1688_tf32(i: int) -> tuple[Array, Array]:
    """row = threadID_in_group for b0, + 4 for b1; col = groupID."""
    return MEMBER + (4 if i == 1 else 0), GROUP


def _a_16816(i: int) -> tuple[Array, Array]:
    """row = groupID for ai where 0 <= i < 2 or 4 <= i < 6, groupID + 8 otherwise; col = threadID_in_group * 2
    + (i & 1) for ai where i < 4, + 8 for i >= 4."""
    row = GROUP + (0 if 0 <= i < 2 or 4 <= i < 6 else 8)
    return row, MEMBER * 2 + (i & 1) + (8 if i >= 4 else 0)


def _b_16816(i: int) -> tuple[Array, Array]:
    """row = threadID_in_group * 2 + (i & 1) for bi where i < 2, + 8 for i >= 2; col = groupID."""
    return MEMBER * 2 + (i & 1) + (8 if i >= 2 else 0), GROUP


def _c_16x8(i: int) -> tuple[Array, Array]:
    """row = groupID for ci where i < 2, groupID + 8 for i >= 2; col = threadID_in_group * 2 + (i & 1)."""
    return GROUP + (0 if i < 2 else 8), MEMBER * 2 + (i & 1)


# shape.type ▶ k, and the positions of A's and B's elements
FRAGMENTS: dict[str, tuple[int, Place, Place]] = {
    "m16n8k8.tf32": (8, _a_1688_tf32, _b_1688_tf32),
    "m16n8k16.f16": (16, _a_16816, _b_16816),
    "m16n8k16.bf16": (16, _a_16816, _b_16816),
}


def elements(registers: Array, kind: str) -> Array:
    """The numbers in registers of 32 bits, from low to high bits. [warps, registers, 32] ▶ [warps, elements,
    32] float64."""
    if kind == "tf32":  # the low 13 bits are ignored
        return (registers & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    halves = np.stack((registers & np.uint32(0xFFFF), registers >> np.uint32(16)), axis=2)
    halves = halves.reshape(registers.shape[0], -1, 32)  # element 2 r + h: half h of register r
    if kind == "f16":
        return halves.astype(np.uint16).view(np.float16).astype(np.float64)
    return (halves << np.uint32(16)).view(np.float32).astype(np.float64)


def mma(shape: str, kind: str, a: Array, b: Array, c: Array) -> Array:
    """D = A × B + C with 16 × 8 × k in every warp. a: [warps, 4, 32], b: [warps, 2, 32] uint32; c: [warps, 4,
    32] float32. Sums are computed in float64 and rounded once, because PTX leaves their order open."""
    k, a_at, b_at = FRAGMENTS[f"{shape}.{kind}"]
    whole_a, whole_b = np.zeros((len(a), 16, k)), np.zeros((len(a), k, 8))
    for matrix, place, found in ((whole_a, a_at, elements(a, kind)), (whole_b, b_at, elements(b, kind))):
        for i in range(found.shape[1]):
            row, col = place(i)
            matrix[:, row, col] = found[:, i]
    whole = whole_a @ whole_b  # [warps, 16, 8]
    out = np.empty_like(c)
    for i in range(4):
        row, col = _c_16x8(i)
        out[:, i] = whole[:, row, col] + c[:, i]
    return out


def ldmatrix(rows: Array, turned: bool) -> Array:
    """The registers of every lane, [warps, matrices, 32] uint32. rows: [warps, matrices, 8, 8] uint16. Lane 8
    m + r gives the address of row r of matrix m.

    Thread t holds element 2 * (t % 4) of row t / 4 in its register's low half, and the next element in the
    high half. With .trans, column t / 4 replaces row t / 4.
    """
    if turned:
        rows = rows.swapaxes(2, 3)
    low, high = (rows[:, :, GROUP, 2 * MEMBER + half].astype(np.uint32) for half in (0, 1))
    return low | high << np.uint32(16)


def shuffle(mode: str, a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    """The values, whether the source lane is in range, and the source lane. a, b, c: [warps, 32] uint32.

    maxLane = (lane & mask) | (cval & ~mask) and minLane = lane & mask, where cval = c[4:0], mask = c[12:8];
    .up j = lane - b, in range if j >= maxLane; .down j = lane + b, .bfly j = lane ^ b, .idx j = minLane |
    (b & ~mask), each in range if j <= maxLane; a lane out of range copies its own.
    """
    clamp, mask, by = (x.astype(np.int64) & 31 for x in (c, c >> np.uint32(8), b))
    most, least = (LANE & mask) | (clamp & ~mask & 31), LANE & mask
    match mode:
        case "up":
            source = LANE - by
            fits = source >= most
        case "down":
            source = LANE + by
            fits = source <= most
        case "bfly":
            source = LANE ^ by
            fits = source <= most
        case "idx":
            source = least | (by & ~mask & 31)
            fits = source <= most
        case _:
            raise ValueError(f"shfl.sync.{mode} is not known")
    source = np.where(fits, source, LANE)
    return np.take_along_axis(a, source, axis=1), fits, source
