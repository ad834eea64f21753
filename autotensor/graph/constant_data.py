"""The arrays of constants: read-only, and equal when their types, shapes and bytes are equal.

    Data.of(array)   keeps an array that cannot change, or copies it
    Alike(data)      the same equality, as a key that does not keep the array alive

The bytes of two arrays are compared only if a sample of them is equal. `Data.digest` is a hash of all bytes.
"""

from __future__ import annotations

import hashlib
from typing import Any
from weakref import ref

import numpy as np

from autotensor.base.dtype import dtype_of

Array = np.ndarray[Any, np.dtype[Any]]
SAMPLED, SAMPLES = 4096, 64  # number of bytes, from this many places, that distinguish most constants


class Data:
    """A read-only array. Two are equal when their types, shapes and bytes are equal."""

    __slots__ = ("__weakref__", "_digest", "_hash", "array")

    def __init__(self, array: Array, digest: str = "") -> None:
        """array: immutable, row-major. digest: identifies the constant if the array only represents it."""
        self.array, self._digest = array, digest
        self._hash = hash(digest or (array.dtype, array.shape, _sample(array)))

    @staticmethod
    def of(array: Array) -> Data:
        kept = np.asarray(array)
        if not (_is_immutable(kept) and kept.flags.c_contiguous and kept.dtype.isnative):
            native = kept.dtype.newbyteorder("=")
            kept = np.array(kept, dtype=native, order="C", copy=True)  # no caller can change it later
            kept.flags.writeable = False
        dtype_of(kept.dtype)
        return Data(kept)

    @property
    def digest(self) -> str:
        """A hash of type, shape and bytes."""
        if not self._digest:
            # SHA-256 has processor instructions: twice as fast as BLAKE2 (Zen 4, 2026-11)
            digest = hashlib.sha256(f"{self.array.dtype}{self.array.shape}".encode())
            digest.update(_bytes(self.array).data)
            self._digest = digest.hexdigest()[:32]
        return self._digest

    def __reduce__(self) -> tuple[Any, ...]:
        return Data.of, (self.array,)  # the copy is read-only, too

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Data) or self._hash != other._hash:
            return False
        a, b = self.array, other.array
        if self._digest and other._digest:
            return self._digest == other._digest
        same = a.dtype == b.dtype and a.shape == b.shape
        return a is b or (same and np.array_equal(_bytes(a), _bytes(b)))

    def __hash__(self) -> int:
        return self._hash


class Alike:
    """The key of a constant, which is equal for equal data.

    It does not keep the data alive: otherwise the table of nodes would keep the weights of every model.
    """

    __slots__ = ("_data", "_hash")

    def __init__(self, data: Data) -> None:
        self._data, self._hash = ref(data), hash(data)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Alike):
            return False
        mine, others = self._data(), other._data()
        return mine is not None and mine == others

    def __hash__(self) -> int:
        return self._hash


def _is_immutable(array: Array) -> bool:
    """Whether the array can never change.

    It must be read-only. Its memory must be its own, or all of a bytes object, as readers of files make it.
    """
    if array.flags.writeable or array.base is None:
        return not array.flags.writeable
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return isinstance(owner, bytes) and len(owner) == array.nbytes


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8) if array.size else np.zeros(0, np.uint8)


def _sample(array: Array) -> bytes:
    """Some of an array's bytes: reading all bytes would take as long as reading the array's file."""
    data = _bytes(array)
    if data.size <= SAMPLED:
        return data.tobytes()
    rest = data.size // SAMPLES * SAMPLES
    return data[:rest].reshape(SAMPLES, -1)[:, : SAMPLED // SAMPLES].tobytes() + data[-SAMPLES:].tobytes()
