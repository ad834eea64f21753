"""Arrays that live on a device, to be passed from one compiled function to the next without a copy.

    x = to_device(array, "cuda");  y = f(x);  y.numpy()

On CUDA, these arrays support `__cuda_array_interface__` and DLPack, both ways: torch.from_dlpack(y),
f(torch_tensor).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from autotensor.base.errors import ArgumentError
from autotensor.base.target import parse
from autotensor.runtime.arrays import Array
from autotensor.runtime.device.contract import Device, Memory
from autotensor.runtime.device.devices import device_of


@dataclass(frozen=True, slots=True, eq=False)
class DeviceArray:
    """A row-major array on a device."""

    device: Device
    memory: Memory
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def numpy(self) -> Array:
        """A copy in host memory; waits until the array is ready."""
        made: Array = np.empty(self.shape, self.dtype)
        with self.device.lock:
            self.device.read(self.memory, made)
        return made

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        found = self.numpy()
        return found if dtype is None else found.astype(dtype)

    def _native(self) -> Any:
        """An array of the owner's library (CuPy, for example) over the same memory."""
        if self.device.kind != "cuda":
            raise ArgumentError(
                f"arrays of {self.device.kind} cannot be shared with other libraries.", fix="Use .numpy()."
            )
        with self.device.lock:
            self.device.finish()
        return self.memory[: self.nbytes].view(self.dtype).reshape(self.shape)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        try:
            native = self._native()
        except ArgumentError as error:
            raise AttributeError(error.what) from error  # because other libraries ask with hasattr
        return dict(native.__cuda_array_interface__)

    def __dlpack__(self, **options: Any) -> Any:
        return self._native().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, number = self._native().__dlpack_device__()
        return int(kind), int(number)

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype}[{', '.join(map(str, self.shape))}] on {self.device.name}>"


def to_device(array: Array, target: str) -> DeviceArray:
    """A copy of a host array on a target's device: "opencl", "opencl -device=gpu" or "cuda", for example."""
    device = device_of(parse(target))
    with device.lock:
        memory = device.allocate(array.nbytes)
        device.write(memory, array)
    return DeviceArray(device, memory, array.shape, array.dtype)
