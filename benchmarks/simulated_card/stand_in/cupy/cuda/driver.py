"""CUDA's driver, as CuPy names it."""

from __future__ import annotations

NAMES = {
    1: "CUDA_ERROR_INVALID_VALUE: invalid argument",
    500: "CUDA_ERROR_NOT_FOUND: named symbol not found",
    701: "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources requested for launch",
}


class CUDADriverError(RuntimeError):
    """An error of the driver, by its number."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(NAMES.get(status, f"CUDA_ERROR {status}"))
