"""Innermost loops of listings, wherever their blocks stand."""

from __future__ import annotations

import pytest

from autotensor.codegen.llvm.assembly import asm_facts
from autotensor.codegen.llvm.assembly_loops import blocks, innermost

# A tile as LLVM lays it out: what ends it stands before the loop that sums it.
TILE = """
kernel:
	xorl	%ecx, %ecx
	jmp	.LBB0_1
.LBB0_3:
	vaddps	64(%rsp), %zmm1, %zmm1
	vmovups	128(%rsp), %zmm4
	vmovups	%zmm1, (%rdi)
	incq	%rcx
	cmpq	%rdx, %rcx
	je	.LBB0_4
.LBB0_1:
	vxorps	%xmm1, %xmm1, %xmm1
.LBB0_2:
	vfmadd231ps	(%rsi), %zmm0, %zmm1
	decq	%rax
	jne	.LBB0_2
	jmp	.LBB0_3
.LBB0_4:
	retq
"""
ARM = """
kernel:
	mov	x1, #16
.LBB0_1:
	fmla	v3.4s, v1.4s, v0.s[0]
	cbz	x2, .LBB0_3
	str	q3, [sp, #64]
.LBB0_3:
	subs	x1, x1, #1
	b.ne	.LBB0_1
	ret
"""


def lines_of(asm: str) -> list[list[str]]:
    listing = blocks(asm)
    return [[line.split()[0] for n in loop for line in listing[n].lines] for loop in innermost(listing)]


def test_what_ends_a_tile_is_outside_of_its_loop() -> None:
    assert lines_of(TILE) == [["vfmadd231ps", "decq", "jne"]]


def test_a_spill_counts_where_the_loop_is() -> None:
    assert asm_facts(TILE).spills == 0
    planted = TILE.replace("\tdecq", "\tvmovups\t%zmm1, 64(%rsp)\n\tdecq")
    assert asm_facts(planted).spills == 1


def test_a_loop_of_several_blocks_begins_at_its_head() -> None:
    """Without the inner loop, the tile's loop is innermost. The listing begins with this loop's last
    block."""
    straight = TILE.replace("\tjne\t.LBB0_2\n", "")
    (found,) = lines_of(straight)
    assert (found[0], found[-1]) == ("vxorps", "je")
    assert asm_facts(straight).spills == 1


def test_a_block_that_is_sometimes_left_out_is_inside() -> None:
    assert lines_of(ARM) == [["fmla", "cbz", "str", "subs", "b.ne"]]
    assert asm_facts(ARM).spills == 1


@pytest.mark.parametrize("asm", ["", "a:\n\tretq\n", "a:\n\tjmp\tb\nb:\n\tjmp\t.LBB1_1\n.LBB1_1:\n\tretq\n"])
def test_no_loop(asm: str) -> None:
    assert lines_of(asm) == []


def test_functions_do_not_run_into_each_other() -> None:
    assert lines_of(TILE + ARM.replace("LBB0", "LBB1")) == [*lines_of(TILE), *lines_of(ARM)]
