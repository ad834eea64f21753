"""CuPy's functions on a card simulated in NumPy: those that autotensor calls, with CuPy's own parameters.

Only a rehearsal puts this folder on Python's path (`python benchmarks/gpu.py --rehearse`). NVRTC compiles
kernels, and their PTX is executed. Work on a stream is done only when the caller waits for the stream, as on
a card; errors are raised then. tests/benchmarks/card/test_cupy_as_it_is.py compares every signature with
CuPy's wheels.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from cupy import cuda
from cupy.cuda import the_card

__version__ = "stand-in"

float32, float16, uint8 = np.float32, np.float16, np.uint8


class ndarray:
    """An array in the card's memory."""

    def __init__(self, host: np.ndarray[Any, Any], base: int, owner: Any) -> None:
        self._host, self._base, self._owner = host, base, owner

    shape = property(lambda self: self._host.shape)
    dtype = property(lambda self: self._host.dtype)
    nbytes = property(lambda self: self._host.nbytes)
    flags = property(lambda self: self._host.flags)
    T = property(lambda self: ndarray(self._host.T, self._base, self._owner))

    @property
    def address(self) -> int:
        return int(self._base)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        interface = {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._base, False),
            "version": 3,
        }
        return {**interface, "strides": None, "stand_in": self}

    def __dlpack__(self, **options: Any) -> ndarray:
        return self  # the array itself stands in for a capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __getitem__(self, part: slice) -> ndarray:
        start = (part.start or 0) * self._host.itemsize
        return ndarray(self._host[part], self._base + start, self._owner)

    def __setitem__(self, part: slice, value: ndarray) -> None:
        into, source = self._host[part], value._host
        cuda.get_current_stream().enqueue(lambda: np.copyto(into, source))

    def set(self, arr: np.ndarray[Any, Any], stream: Any = None) -> None:
        if arr.shape != self.shape or arr.dtype != self.dtype:
            raise TypeError(f"set: {arr.dtype}{arr.shape} into {self.dtype}{self.shape}")
        (stream or cuda.get_current_stream()).enqueue(lambda: np.copyto(self._host, arr))

    def get(
        self,
        stream: Any = None,
        order: str = "C",
        out: np.ndarray[Any, Any] | None = None,
        blocking: bool = True,
    ) -> np.ndarray[Any, Any]:
        into = np.empty(self.shape, self.dtype) if out is None else out
        if into.shape != self.shape or into.dtype != self.dtype:
            raise TypeError(f"get: {self.dtype}{self.shape} into {into.dtype}{into.shape}")
        stream = stream or cuda.get_current_stream()
        stream.enqueue(lambda: np.copyto(into, self._host))
        if blocking:
            stream.synchronize()
        return into

    def view(self, dtype: Any = None, type: Any = None) -> ndarray:
        return ndarray(self._host.view(dtype), self._base, self._owner)

    def reshape(self, *shape: Any, order: str = "C") -> ndarray:
        return ndarray(self._host.reshape(*shape), self._base, self._owner)


def empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    base, data = the_card.allocate(size)
    found = ndarray(data.view(dtype).reshape(shape), base, data)
    weakref.finalize(data, the_card.free, base)
    return found


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> ndarray:
    return asarray(np.arange(start, stop, step, dtype))


def from_dlpack(array: Any) -> ndarray:
    found: ndarray = array.__dlpack__()
    return found


def asarray(a: Any, dtype: Any = None, order: str | None = None, *, blocking: bool = False) -> ndarray:
    interface = getattr(a, "__cuda_array_interface__", None)
    if interface is not None:
        found: ndarray = interface["stand_in"]
        return found
    host = np.asarray(a, dtype)
    made = empty(host.shape, host.dtype)
    made.set(host)
    return made
