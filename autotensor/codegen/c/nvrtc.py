"""NVRTC: CUDA source to machine code and a report of its resources, without a card or a driver.

    compile_source(text, "sm_80") ──▶ MachineCode(cubin, resources={"t0_3fa9…": Resources(registers=64, …)})

Only the library is needed (`pip install nvidia-cuda-nvrtc-cu12`), which is called through ctypes. Our sources
include no headers.
"""

from __future__ import annotations

import ctypes
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache

from autotensor.base.errors import CodegenError
from autotensor.runtime.device.nvrtc_library import INSTALL, OPTIONS, library
from autotensor.runtime.files.object_cache import default_cache, object_key

_OPTIONS = (*OPTIONS, "--ptxas-options=-v")


@dataclass(frozen=True, slots=True)
class Resources:
    """The registers and memory of one thread or block of a kernel, as ptxas reports them."""

    registers: int
    spill_bytes: int  # stored and loaded again, per thread
    stack_bytes: int  # private arrays that did not become registers, per thread
    shared_bytes: int  # static, per block


@dataclass(frozen=True, slots=True)
class MachineCode:
    """Machine code for one architecture."""

    cubin: bytes
    resources: dict[str, Resources]  # by kernel


def compile_source(source: str, arch: str) -> MachineCode:
    """Machine code of CUDA source. Raises CodegenError with the compiler's log, or when NVRTC is missing."""
    with _compiled(source, arch) as (nvrtc, program, log):
        return MachineCode(_text(nvrtc, "nvrtcGetCUBIN", program), resources(log))


def ptx_of(source: str, arch: str, options: Sequence[str] = _OPTIONS) -> str:
    """PTX of CUDA source for `arch` and all later architectures. Raises the errors of `compile_source`."""
    with _compiled(source, arch, options) as (nvrtc, program, _):
        return _text(nvrtc, "nvrtcGetPTX", program).decode()


@contextmanager
def _compiled(
    source: str, arch: str, options: Sequence[str] = _OPTIONS
) -> Iterator[tuple[ctypes.CDLL, ctypes.c_void_p, str]]:
    """A program that NVRTC has compiled, with the compiler's log."""
    nvrtc = library()
    if nvrtc is None:
        raise CodegenError("CUDA source cannot be compiled: NVRTC is not installed.", fix=f"{INSTALL}.")
    program = ctypes.c_void_p()
    _call(
        nvrtc, "nvrtcCreateProgram", ctypes.byref(program), source.encode(), b"autotensor.cu", 0, None, None
    )
    try:
        given = [o.encode() for o in (f"--gpu-architecture={arch}", *options)]
        status = nvrtc.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given))
        log = _text(nvrtc, "nvrtcGetProgramLog", program).decode(errors="replace")
        if status:
            raise CodegenError(f"NVRTC refused a kernel for {arch}: {_first_error(log)}", context=lambda: log)
        yield nvrtc, program, log
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


@lru_cache(maxsize=256)
def resources_of(source: str, arch: str) -> dict[str, Resources]:
    """The resources of the kernels of CUDA source, compiled once and cached by content."""
    cache = default_cache()
    key = object_key("ptxas", source, arch, version(), *_OPTIONS)
    known = cache.get(key)
    if known is not None:
        return {name: Resources(**numbers) for name, numbers in json.loads(known).items()}
    found = compile_source(source, arch).resources
    cache.put(key, json.dumps({name: asdict(r) for name, r in found.items()}).encode())
    return found


def version() -> str:
    """The library's version, "" without a library."""
    nvrtc = library()
    if nvrtc is None:
        return ""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _call(nvrtc, "nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def resources(log: str) -> dict[str, Resources]:
    """The report of ptxas, by kernel.

    >>> text = '''ptxas info    : Compiling entry function 'k' for 'sm_80'
    ... ptxas info    : Function properties for k
    ...     8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
    ... ptxas info    : Used 10 registers, used 1 barriers, 256 bytes smem, 368 bytes cmem[0]'''
    >>> resources(text)["k"]
    Resources(registers=10, spill_bytes=8, stack_bytes=8, shared_bytes=256)
    """
    out: dict[str, Resources] = {}
    for part in re.split(r"(?=Compiling entry function ')", log)[1:]:
        name = part.split("'", 2)[1]
        numbers = {
            key: sum(int(n) for n in re.findall(pattern, part))
            for key, pattern in (
                ("registers", r"Used (\d+) registers"),
                ("spill_bytes", r"(\d+) bytes spill"),
                ("stack_bytes", r"(\d+) bytes stack frame"),
                ("shared_bytes", r"(\d+) bytes smem"),
            )
        }
        out[name] = Resources(**numbers)
    return out


def _first_error(log: str) -> str:
    lines = [line for line in log.splitlines() if "error" in line] or log.splitlines() or ["no message"]
    return lines[0].strip()


def _text(nvrtc: ctypes.CDLL, function: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _call(nvrtc, f"{function}Size", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    _call(nvrtc, function, program, buffer)
    return buffer.raw if function == "nvrtcGetCUBIN" else buffer.value


def _call(nvrtc: ctypes.CDLL, function: str, *args: object) -> None:
    status = getattr(nvrtc, function)(*args)
    if status:
        raise CodegenError(f"{function} of NVRTC failed with status {status}.")


__all__ = [
    "INSTALL",
    "MachineCode",
    "Resources",
    "compile_source",
    "library",
    "ptx_of",
    "resources",
    "resources_of",
]
