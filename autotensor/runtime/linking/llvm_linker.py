"""Loading by LLVM's just-in-time linker. It is used for objects that are not ELF (macOS, Windows), or are for
a processor that linker.py does not support (RISC-V).

JITLink reserves one piece of memory for everything that is linked together, as linker.py does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotensor.base.errors import ArtifactError


def link(name: str, objects: Sequence[bytes], wanted: Sequence[str]) -> tuple[dict[str, int], Any]:
    """Addresses of these functions, and the object that keeps them alive. Raises ArtifactError."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    library = llvm.JITLibraryBuilder().add_current_process()
    for data in objects:
        library.add_object_img(data)
    for function in wanted:
        library.export_symbol(function)
    try:
        jit = llvm.create_lljit_compiler(use_jit_link=True)
        tracker = library.link(jit, name)
        addresses = {function: int(tracker[function]) for function in wanted}
    except (RuntimeError, KeyError) as error:
        raise ArtifactError(f"{name}: its object code cannot be loaded: {error}.") from error
    return addresses, (jit, tracker)  # in this order, because the last is released first
