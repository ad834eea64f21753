"""PoCL on a processor that is newer than PoCL's LLVM: PoCL gets the name of an older processor, and compiles
for that one.

The wheel of PoCL has LLVM 14, which calls a newer processor "generic". PoCL hands that name to clang, which
does not accept it: every build fails with "unknown target CPU 'generic'" (PoCL's issue 1049; later releases
choose another name themselves). LLVM 14 also takes Zen 4 for Zen 3, which has no AVX-512. Then kernels that
use this processor's vectors make LLVM crash, or compile for minutes. No option changes the name. But the name
is a pointer in the device's record, so we point it to the name of an older processor with the same
instructions. This is done only if one of the two names is found, for a device of the processor that we run
on. A wheel of PoCL 4 or later would make this file unnecessary.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from autotensor.base import log

UNKNOWN = "unknown target CPU 'generic'"
GENERIC, ZEN_3 = "generic", "znver3"  # as LLVM spells them
_RECORD_BYTES = 4096  # this many bytes of a device's record are searched; the record has about 1500
_LAST_ADDRESS = 1 << 47

# (features that the processor has, a processor known to LLVM 14 without other features), the best first
_KNOWN = (
    (("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma", "bmi2"), b"skylake-avx512"),
    (("avx2", "fma", "bmi2", "f16c"), b"haswell"),
    ((), b"x86-64"),
)
_names: list[ctypes.Array[ctypes.c_char]] = []  # PoCL keeps pointers to these names until the process ends


def known_name(features: str) -> bytes:
    """A processor that an old LLVM supports, and that has no instructions except these.

    >>> known_name("+sse2,+avx2,+fma,+bmi2,+f16c")
    b'haswell'
    """
    has = {f.lstrip("+") for f in features.split(",") if not f.startswith("-")}
    return next(name for needed, name in _KNOWN if has.issuperset(needed))


def name_processor(record: int, features: str, called: str) -> bool:
    """Gives a device record a name that clang accepts. Returns False if the record has no name to replace.

    record: `int_ptr` of pyopencl's device. called: the name that the record has now. Memory is read through
    the system, so that a value that is not a pointer gives a read error instead of a crash.
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
