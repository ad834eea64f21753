"""Facts from listings: which vectors a loop carries through the stack, and which are only stored and loaded
again."""

from __future__ import annotations

import pytest

from autotensor.codegen.llvm.assembly import asm_facts

TEMPORARY = """
.LBB0_1:
	vmovups	%zmm3, 64(%rsp)
	vfmadd231ps	(%rdi), %zmm1, %zmm2
	vaddps	64(%rsp), %zmm2, %zmm2
	jne	.LBB0_1
"""
CARRIED = """
.LBB0_1:
	vmovups	64(%rsp), %zmm3
	vfmadd231ps	128(%rsp), %zmm1, %zmm2
	vfmadd231ps	(%rdi), %zmm1, %zmm3
	vmovups	%zmm3, 64(%rsp)
	vmovups	%zmm2, 128(%rsp)
	jne	.LBB0_1
"""
ARM = """
.LBB0_1:
	ldr	q3, [sp, #64]
	fmla	v3.4s, v1.4s, v0.s[0]
	str	q3, [sp, #64]
	str	q5, [sp]
	b.ne	.LBB0_1
"""


@pytest.mark.parametrize(
    ("asm", "carried", "spills"),
    [
        (TEMPORARY, 0, 1),  # a memory operand is not a move
        (CARRIED, 2, 3),
        (CARRIED.replace("vfmadd231ps", "vaddps"), 0, 3),  # no multiply-add: no register tile
        (CARRIED.replace("(%rsp)", "(%rax)"), 0, 0),  # an array of the caller's
        (CARRIED.replace("(%rsp)", "(%rsp,%rax)"), 0, 0),  # an array of its own
        (CARRIED.replace("%zmm2, 128", "%zmm2, 192"), 1, 3),  # read only: an invariant
        (ARM, 1, 3),
    ],
)
def test_what_goes_round_by_way_of_the_stack(asm: str, carried: int, spills: int) -> None:
    found = asm_facts(asm)
    assert (found.carried, found.spills) == (carried, spills)


def test_the_worst_loop_counts() -> None:
    assert asm_facts(TEMPORARY + CARRIED.replace("LBB0_1", "LBB0_2")).carried == 2
