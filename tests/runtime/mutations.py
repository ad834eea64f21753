"""Damages an object file in many ways and links the results, in a child of test_linker.py.

python mutations.py SEED COUNT      prints how many were loaded, how many refused, in how many ways
"""

from __future__ import annotations

import random
import struct
import sys
from collections import Counter

from objects import zoo

from autotensor.base.errors import ArtifactError
from autotensor.runtime.linking.linker import host_machine, link

# offset and bytes of every number, as the standard has them
HEADER = (
    (16, 2), (18, 2), (20, 4), (24, 8), (32, 8), (40, 8), (48, 4), (52, 2), (54, 2), (56, 2), (58, 2),
    (60, 2), (62, 2),
)  # fmt: skip
SECTION = ((0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 8), (40, 4), (44, 4), (48, 8), (56, 8))
SYMBOL = ((0, 4), (4, 1), (5, 1), (6, 2), (8, 8), (16, 8))
RELOCATION = ((0, 8), (8, 4), (12, 4), (16, 8))


def fields(data: bytes) -> list[tuple[int, int]]:
    """Where the numbers of the headers, symbols and relocations are, and their bytes."""
    spots = list(HEADER)
    table = struct.unpack_from("<Q", data, 40)[0]
    for head in range(table, table + 64 * struct.unpack_from("<H", data, 60)[0], 64):
        spots += [(head + at, width) for at, width in SECTION]
        kind = struct.unpack_from("<I", data, head + 4)[0]
        offset, size = struct.unpack_from("<QQ", data, head + 24)
        each = {2: SYMBOL, 4: RELOCATION}.get(kind, ())
        spots += [(start + at, w) for start in range(offset, offset + size, 24) for at, w in each]
    return spots


def changed(rng: random.Random, whole: bytes, spots: list[tuple[int, int]]) -> bytes:
    data = bytearray(whole)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        if rng.random() < 0.1:
            data[rng.randrange(len(data))] = rng.randrange(256)
            continue
        at, width = rng.choice(spots)
        old, top = int.from_bytes(data[at : at + width], "little"), (1 << 8 * width) - 1
        special = (0, 1, 2, 7, 255, top, top >> 1, (top >> 1) + 1, len(data), len(data) - 1)
        near = (old + 1, old - 1, old * 2, old ^ 1 << rng.randrange(8 * width))
        any_of = (rng.randrange(top + 1), rng.randrange(64), rng.randrange(len(data)))
        new = rng.choice((*special, *near, *any_of))
        data[at : at + width] = (new & top).to_bytes(width, "little")
    if rng.random() < 0.05:
        del data[rng.randrange(len(data)) :]
    return bytes(data)


def main(seed: int, count: int) -> None:
    rng = random.Random(seed)
    whole, other = zoo(host_machine(), seed % 3 + 1)
    spots = fields(whole)
    refused: Counter[str] = Counter()
    loaded = 0
    for n in range(count):
        print(n, end=" ", file=sys.stderr)  # the last number before a crash
        try:
            link("z", (changed(rng, whole, spots), other), ("counter", "many_ways"))
            loaded += 1
        except ArtifactError as error:
            refused[str(error)[:45]] += 1
    print(loaded, sum(refused.values()), len(refused))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
