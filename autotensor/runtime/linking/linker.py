"""Our linker: object files ──▶ code in this process, all of it in one reservation.

    elf.read ─▶ layout.lay_out ─▶ outside names found ─▶ memory ─▶ bytes, relocated ─▶ pages protected

Code and data that refer to each other by 32 bits lie side by side, at any address where the process has room
for all of them. The addresses of other mappings do not matter. Functions of the process may be any distance
away, because they are reached through a table of addresses. Everything is checked before it is mapped or
written. Constants are read-only, and no page is ever both writable and executable. An object that cannot be
linked gives an ArtifactError of one sentence. Nothing here can end the process.

LLVM's own loader, MCJIT, maps each section separately, and an assertion fails if two sections are more than 2
GiB apart.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from autotensor.base.errors import ArtifactError
from autotensor.runtime.linking import elf, llvm_linker
from autotensor.runtime.linking.elf import Damaged
from autotensor.runtime.linking.process_symbols import address_of
from autotensor.runtime.linking.relocation import KINDS
from autotensor.runtime.linking.sections import Layout, lay_out

_NOT_ELF = ("darwin", "win32", "cygwin")


@dataclass(frozen=True, slots=True, eq=False)
class Code:
    """Code in memory. The addresses are valid as long as this object lives."""

    addresses: Mapping[str, int]  # addresses of the named functions
    keep: Any

    def keep_for_ever(self) -> Code:
        """Keeps the code for threads that run until the process ends, after the interpreter has ended."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.keep))
        return self


def link(name: str, objects: Sequence[bytes], wanted: Sequence[str]) -> Code:
    """Loads object files for this processor. `wanted` names the functions whose addresses the caller needs.

    Raises ArtifactError, whose text begins with `name`, for objects that are damaged, are for another
    machine, or refer to a symbol that nothing defines.
    """
    machine = host_machine()
    if machine not in KINDS or sys.platform in _NOT_ELF:
        return Code(*llvm_linker.link(name, objects, wanted))
    for data in objects:
        if elf.is_elf(data) and elf.machine_of(data) != machine:
            raise ArtifactError(
                f"{name} holds code for {elf.machine_of(data)}, this machine is {machine}.",
                fix="at.load(path, recompile=True) compiles it anew; or build it for this machine.",
            )
    try:
        layout = lay_out([elf.read(data) for data in objects], machine)
        starts = _functions(name, layout, wanted)
        outside = _outside(name, layout)
        memory = _reserve(name, layout.ends[-1])
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        layout.write(memory, base, outside)
    except Damaged as error:
        raise ArtifactError(f"{name}: one of its object files {error}.") from error
    _protect(name, base, layout, machine)
    return Code({symbol: base + start for symbol, start in starts.items()}, memory)


def host_machine() -> str:
    """The processor family of this process, as LLVM calls it."""
    machine = platform.machine().lower()
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(machine, machine)


def _functions(name: str, layout: Layout, wanted: Sequence[str]) -> dict[str, int]:
    found = {}
    for function in wanted:
        start = layout.function(function)
        if start is None:
            raise ArtifactError(f"{name} has no function {function!r} in its object code.")
        found[function] = start
    return found


def _outside(name: str, layout: Layout) -> dict[str, int]:
    """Addresses of the symbols that the process must define; 0 for an optional symbol that is missing."""
    found = {symbol: (address_of(symbol), optional) for symbol, optional in layout.outside.items()}
    missing = sorted(symbol for symbol, (address, optional) in found.items() if not (address or optional))
    if missing:
        raise ArtifactError(f"{name} calls {', '.join(missing)}, which no library here defines.")
    return {symbol: address or 0 for symbol, (address, _) in found.items()}


def _reserve(name: str, size: int) -> mmap.mmap:
    """Memory filled with zeros, at any address. It is unmapped when the last reference is gone."""
    try:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise ArtifactError(f"{name}: no room for {size} bytes of code: {error.strerror}.") from error


def _protect(name: str, base: int, layout: Layout, machine: str) -> None:
    """Makes code and constants read-only."""
    code, constants, _ = layout.ends
    process = ctypes.CDLL(None, use_errno=True)
    groups = ((0, code, mmap.PROT_READ | mmap.PROT_EXEC), (code, constants, mmap.PROT_READ))
    for start, end, protection in groups:
        size = ctypes.c_size_t(end - start)
        if end > start and process.mprotect(ctypes.c_void_p(base + start), size, protection):
            why = os.strerror(ctypes.get_errno())
            raise ArtifactError(f"{name}: this system does not let its code be executed: {why}.")
    if machine == "aarch64":  # its instruction caches do not see stores
        # If the compiler's library is not found, we rely on the system, which cleans pages that become
        # executable for the first time.
        with suppress(OSError, AttributeError):
            ctypes.CDLL("libgcc_s.so.1")["__clear_cache"](ctypes.c_void_p(base), ctypes.c_void_p(base + code))
