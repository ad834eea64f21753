"""The weights of a C library as a file that is mapped into memory: a head that identifies the file, then the
arrays.

0    "autotensor weights 1", zeros, and a hash of the rest            64 bytes
64   the first array · the second · …                                 each at a multiple of 64 bytes
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from autotensor.codegen.library.tables import Weights
from autotensor.runtime.arrays import Array
from autotensor.runtime.files.atomic_write import replacing

_MARK = b"autotensor weights 1"
_LINE = 64


def weights_of(values: Mapping[str, Array]) -> Weights:
    """The offset of each array, and the head of the file; 0 bytes if there is no array."""
    offsets, end = {}, _LINE
    digest = hashlib.sha256()
    for name, value in values.items():
        offsets[name] = end
        digest.update(_bytes(value))
        end += -(-value.nbytes // _LINE) * _LINE
    digest.update(repr(sorted(offsets.items())).encode())
    head = _MARK.ljust(_LINE - digest.digest_size, b"\0") + digest.digest()
    return Weights(head, offsets, end if values else 0)


def write_weights(path: Path, weights: Weights, values: Mapping[str, Array]) -> None:
    """Writes the file. It replaces an old file of that name, but a process that has mapped the old file keeps
    it."""
    with replacing(path) as file:
        file.write(weights.head)
        for name, value in values.items():
            file.seek(weights.offsets[name])
            file.write(_bytes(value))
        file.truncate(weights.bytes)


def _bytes(value: Array) -> memoryview | bytes:
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8).data if value.size else b""


__all__ = ["weights_of", "write_weights"]
