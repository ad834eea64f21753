"""PoCL on a processor that is younger than the LLVM inside it: it is given the name of an older processor to
compile for.

The wheel of PoCL has LLVM 14, which calls a newer processor "generic". PoCL hands that name to clang, which
does not accept it: every build fails with "unknown target CPU 'generic'" (PoCL's issue 1049; later releases
fall back by themselves). It takes Zen 4 for Zen 3, which has no AVX-512: then kernels written for this
processor's vectors make LLVM crash, or compile for minutes. No option reaches that argument. The name is a
pointer in the device's record, so we point it to the name of an older processor with the same instructions.
This is done only where one of the two is seen, for a device of the processor that we run on. A wheel of PoCL
4 or later would make this file unnecessary.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from autotensor.base import log

UNKNOWN = "unknown target CPU 'generic'"
GENERIC, ZEN_3 = "generic", "znver3"  # as LLVM spells them
_RECORD_BYTES = 4096  # bytes of a device's record that are searched; it has about 1500
_LAST_ADDRESS = 1 << 47

# (features that the processor has, a processor known to LLVM 14 that has no more), the best first
_KNOWN = (
    (("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma", "bmi2"), b"skylake-avx512"),
    (("avx2", "fma", "bmi2", "f16c"), b"haswell"),
    ((), b"x86-64"),
)
_names: list[ctypes.Array[ctypes.c_char]] = []  # PoCL keeps pointers to them for as long as the process lives


def known_name(features: str) -> bytes:
    """A processor that an old LLVM supports, with no instructions but these.

    >>> known_name("+sse2,+avx2,+fma,+bmi2,+f16c")
    b'haswell'
    """
    has = {f.lstrip("+") for f in features.split(",") if not f.startswith("-")}
    return next(name for needed, name in _KNOWN if has.issuperset(needed))


def name_processor(record: int, features: str, called: str) -> bool:
    """Gives the device record at that address a name that clang accepts; False if it has none to replace.

    record: `int_ptr` of pyopencl's device. called: the name that is there now. Memory is read through the
    system, so that a value that is not a pointer gives an error of reading, not a crash.
    """
    name = called.encode() + b"\0"
    chosen = ctypes.create_string_buffer(known_name(features))
    replaced = False
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:

        def read(at: int, size: int) -> bytes:
            try:
                memory.seek(at)
                return memory.read(size) or b""
            except (OSError, ValueError, OverflowError):
                return b""  # unmapped memory

        data = read(record, _RECORD_BYTES)
        for offset in range(0, len(data) - 7, 8):
            pointer = int.from_bytes(data[offset : offset + 8], "little")
            if _RECORD_BYTES < pointer < _LAST_ADDRESS and read(pointer, len(name)) == name:
                ctypes.c_void_p.from_address(record + offset).value = ctypes.addressof(chosen)
                replaced = True
    if replaced:
        _names.append(chosen)
        log.at(2, lambda: f"opencl: PoCL calls this processor {called}; told {chosen.value.decode()}")
    return replaced
