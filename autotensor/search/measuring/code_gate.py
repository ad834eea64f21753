"""Refuses machine code before it runs, if it is certainly slow.

    compiled ──facts about the innermost loops──▶ refusal(facts) ──▶ "" or why it is not worth a measurement

A register tile is fast because it stays in registers. If it does not fit, every iteration reads parts of it
from the stack and writes them back, and each multiply-add waits for memory. Only such code is refused.
Temporaries that are spilled within an iteration, and constants that are read again, are allowed. The fastest
transforms of Winograd's convolution have dozens of these, like the fastest windows with 16 registers.
"""

from __future__ import annotations

from collections.abc import Mapping

# Number of vectors that a loop carries through the stack. Products with tiles of 30 to 64 accumulators
# carried 1 to 34, and took at least 1.3 times as long as the best ones. Winners in tuned models carried 0;
# one of them carried 1 (AVX-512, 2026-11).
LEAST_CARRIED = 3


def refusal(facts: Mapping[str, int]) -> str:
    """Why code with these facts (`codegen.llvm_asm.AsmFacts`) is not worth running; "" if it is worth
    running.

    >>> refusal({"carried": 1, "spills": 36, "fma": 168})
    ''
    >>> refusal({"registers": 128, "spill_bytes": 340, "stack_bytes": 344})
    'its threads need more than the 128 registers that each can have: 340 bytes are spilled.'
    """
    if spilled := facts.get("spill_bytes", 0):  # for a GPU kernel, counted by ptxas
        return (
            f"its threads need more than the {facts.get('registers', 0)} registers that each can have: "
            f"{spilled} bytes are spilled."
        )
    carried = facts.get("carried", 0)
    if carried < LEAST_CARRIED:
        return ""
    return (
        f"the register tile does not fit: {carried} vectors go through the stack in every iteration of an "
        "innermost loop."
    )
