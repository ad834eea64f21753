"""Facts of a kernel's code: basic blocks, registers that no instruction reads, the smallest access."""

from __future__ import annotations

import re

from simulated_card.ptx_text import Kernel
from simulated_card.ptx_values import TYPES


def block_ends(kernel: Kernel) -> list[int]:
    """For every instruction, the end of its basic block: after a branch or a barrier, or before a label."""
    labels = set(kernel.labels.values())
    ends, end = [0] * len(kernel.code), len(kernel.code)
    for k in reversed(range(len(kernel.code))):
        if kernel.code[k].op.partition(".")[0] in ("bra", "ret", "exit", "bar", "barrier") or k + 1 in labels:
            end = k + 1
        ends[k] = end
    return ends


def unread_registers(kernel: Kernel) -> frozenset[str]:
    """The registers of vector loads that no instruction reads."""
    loaded: set[str] = set()
    read: set[str] = set()
    for i in kernel.code:
        is_load = i.op.startswith("ld.")
        if is_load and isinstance(i.operands[0], tuple):
            loaded.update(i.operands[0])
        given = i.operands if i.op.startswith(("st.", "cp.", "bra", "bar")) else i.operands[1:]
        read.update(re.findall(r"%\w+", f"{i.guard} {given}"))
    return frozenset(loaded - read)


def granule_of(kernel: Kernel) -> int:
    """The bytes of the smallest access to shared memory."""
    sizes = (
        TYPES[i.op.rpartition(".")[2]].itemsize
        for i in kernel.code
        if i.op.startswith(("ld.shared", "st.shared", "ldmatrix"))
    )
    return min((4, *sizes))
