"""CUDA's driver with CuPy's names."""

from __future__ import annotations

from cupy.cuda import the_card

CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0
CU_FUNC_ATTRIBUTE_NUM_REGS = 4
CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
NAMES = {
    1: "CUDA_ERROR_INVALID_VALUE: invalid argument",
    222: "CUDA_ERROR_UNSUPPORTED_PTX_VERSION: the provided PTX was compiled with an unsupported toolchain.",
    500: "CUDA_ERROR_NOT_FOUND: named symbol not found",
    701: "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources requested for launch",
}


class CUDADriverError(RuntimeError):
    """An error of the driver, by its number."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(NAMES.get(status, f"CUDA_ERROR {status}"))


def funcGetAttribute(attribute: int, f: int) -> int:  # CuPy's own names, here and below
    kernel = the_card.kernel_at(f)
    return {
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: kernel.most_threads,
        CU_FUNC_ATTRIBUTE_NUM_REGS: kernel.registers,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: kernel.dynamic_bytes,
    }[attribute]


def funcSetAttribute(f: int, attribute: int, value: int) -> None:
    kernel = the_card.kernel_at(f)
    if attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES or not kernel.may_have(value):
        raise CUDADriverError(1)
    kernel.dynamic_bytes = value
