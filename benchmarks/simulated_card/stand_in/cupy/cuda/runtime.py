"""CUDA's runtime with CuPy's names."""

from __future__ import annotations

from typing import Any

from cupy.cuda import the_card

NAMES = {
    2: "cudaErrorMemoryAllocation",
    35: "cudaErrorInsufficientDriver",
    46: "cudaErrorDevicesUnavailable",
    600: "cudaErrorNotReady",
    700: "cudaErrorIllegalAddress",
    716: "cudaErrorMisalignedAddress",
    719: "cudaErrorLaunchFailure",
    900: "cudaErrorStreamCaptureUnsupported",
    901: "cudaErrorStreamCaptureInvalidated",
}


class CUDARuntimeError(RuntimeError):
    """An error of the runtime, by its number."""

    def __init__(self, status: int, what: str = "") -> None:
        self.status = status
        super().__init__(f"{NAMES.get(status, f'cudaError {status}')}: {what or 'from the stand-in'}")


def getDeviceCount() -> int:  # CuPy's own name
    return the_card.count()


def driverGetVersion() -> int:
    return 12090


def getDeviceProperties(device: int) -> dict[str, Any]:
    return the_card.properties()
