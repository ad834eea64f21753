"""The PTX that NVRTC makes of our CUDA, executed by NVIDIA's published semantics: all kernels of the tests,
and faults."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import numpy as np
import pytest
from comparison import Different
from gpu_cases import CASES
from gpu_traces import gpu_trace
from ptx_runs import check_ptx, run_ptx
from random_dags import random_dag
from simulated_card import ptx_warps
from simulated_card.ptx_memory import CardFault, GlobalMemory
from simulated_card.ptx_values import operation
from warp_oracle import CHECKED

from autotensor.base.target import parse
from autotensor.codegen.c import nvrtc
from autotensor.compiler import compile_trace
from autotensor.runtime.arrays import Array
from autotensor.te.reference import evaluate, random_inputs

pytestmark = pytest.mark.skipif(nvrtc.library() is None, reason=f"NVRTC is not installed. {nvrtc.INSTALL}.")

ARCHS = ("sm_80", "sm_90")
SPECIAL = ("ldmatrix", "mma.sync", "cp.async", "shfl.sync", "bar.sync")  # that no other check executes
TOGETHER = re.compile(
    r"\b((?:mma|wmma|ldmatrix|stmatrix|movmatrix|cp|shfl|vote|match|redux|activemask|bar|barrier|dp[24]a|cvt\.rna)"
    r"\.[\w.:]+)"
)
Edit = Callable[[str], str]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.sample(16)
def test_every_kernel_of_the_tests(name: str, arch: str) -> None:
    """The results are right, and the oracle has checked all instructions of whole warps."""
    s = CASES[name]()
    assert set(TOGETHER.findall(check_ptx(s.dag, s.trace, arch))) <= CHECKED


def test_the_instructions_are_really_there() -> None:
    text = "".join(
        check_ptx(CASES[n]().dag, CASES[n]().trace) for n in ("tensor_cores_swizzled", "block_sums")
    )
    assert [i for i in SPECIAL if i not in text] == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(0, 200, 25))
def test_drawn_schedules(first: int) -> None:
    for seed in range(first, first + 25):
        rng = random.Random(seed)
        dag = random_dag(rng, 3)
        check_ptx(dag, gpu_trace(rng, dag), seed=seed)


# -- faults --------------------------------------------------------------------------------------------------


def swap(instruction: str, group: int, x: int, y: int) -> Edit:
    """Registers x and y of a group of an instruction change places."""

    def change(found: re.Match[str]) -> str:
        groups = re.findall(r"\{[^}]*\}", found[0])
        registers = [r.strip() for r in groups[group][1:-1].split(",")]
        registers[x], registers[y] = registers[y], registers[x]
        return found[0].replace(groups[group], "{" + ", ".join(registers) + "}", 1)

    return lambda text: re.sub(rf"{re.escape(instruction)}[^;]*;", change, text)


def instead(old: str, new: str, count: int = 0) -> Edit:
    return lambda text: re.sub(old, new, text, count=count)


def without(number: int, instruction: str) -> Edit:
    """The instruction left out where it stands for the n-th time."""

    def edit(text: str) -> str:
        found = list(re.finditer(rf"{re.escape(instruction)}[^;]*;", text))
        return text[: found[number].start()] + text[found[number].end() :]

    return edit


MMA, LD4, LD2 = "mma.sync", "ldmatrix.sync.aligned.m8n8.x4", "ldmatrix.sync.aligned.m8n8.x2"
FAULTS: dict[str, tuple[str, Edit]] = {
    "fragment of A: rows 8 apart exchanged": ("tensor_cores_f16", swap(MMA, 1, 0, 1)),
    "fragment of A: halves of k exchanged": ("tensor_cores_tf32", swap(MMA, 1, 1, 2)),
    "fragment of B: halves of k exchanged": ("tensor_cores_f16", swap(MMA, 2, 0, 1)),
    "accumulators: columns exchanged": ("tensor_cores_tf32", swap(MMA, 0, 0, 1)),
    "ldmatrix: matrices in another order": ("tensor_cores_swizzled", swap(LD4, 0, 1, 2)),
    "ldmatrix: not turned": ("tensor_cores_f16", instead(r"\.x2\.trans\.", ".x2.")),
    "barrier left out": ("matmul", without(1, "bar.sync")),
    "barrier left out before the next tile": (
        "tensor_cores_f16",
        without(2, "bar.sync"),
    ),  # 0: nothing is there yet
    "barrier left out around copies": ("copied_ahead", without(0, "bar.sync")),
    "cp.async: one group more is left on its way": (
        "tensor_cores_swizzled",
        instead(r"wait_group 0", "wait_group 1"),
    ),
    "cp.async: not committed": ("copied_ahead", instead(r"cp\.async\.commit_group;", "")),
    "cp.async: not awaited": ("double_buffered", instead(r"cp\.async\.wait_group \d+;", "")),
    "cp.async: half of the bytes": ("copied_ahead", instead(r"(cp\.async\.ca[^;]*), 8", r"\1, 4")),
    "swizzle: or in place of xor": ("swizzled_rows", instead(r"xor\.b32", "or.b32")),
    "swizzle: none where rows are read": (
        "tensor_cores_swizzled",
        instead(r"xor\.b32(\s+%r\d+), (%r\d+), %r\d+", r"mov.b32\1, \2", 1),
    ),
    "shuffle: another lane": ("warp_sums", instead(r"mov\.u32(\s+%r\d+), 16;", r"mov.u32\1, 15;")),
    "shuffle: lanes named that do not come": ("block_sums", instead(r"(shfl[^;]*), %r\d+;", r"\1, 7;", 1)),
    "address: the neighbour's element": ("elementwise", instead(r"(ld\.global[^\[]*\[%rd\d+)\]", r"\1+4]")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    name, edit = FAULTS[fault]
    s = CASES[name]()
    changed: list[bool] = []

    def planted(text: str) -> str:
        changed.append(edit(text) != text)
        return edit(text)

    with pytest.raises((CardFault, Different)) as caught:
        check_ptx(s.dag, s.trace, edit=planted)
    assert any(changed)
    assert str(caught.value)


def test_operands_of_tf32_are_rounded_and_not_cut() -> None:
    """The card drops bits that do not fit. Small integers fit, so only other numbers show this."""
    s = CASES["tensor_cores_tf32"]()
    inputs = random_inputs(s.dag, 0)
    wanted = evaluate(s.dag, {name: nearest_tf32(x) for name, x in inputs.items()})
    artifact = compile_trace(s.dag, s.trace, parse("cuda -arch=sm_80"), "k")

    def worst(edit: Edit) -> float:
        found, _ = run_ptx(artifact, inputs, "sm_80", edit)
        return max(float(np.abs(found[n] - wanted[n]).max()) for n in found)

    assert worst(str) < 1e-5
    assert worst(instead(r"cvt\.rna\.tf32\.f32", "mov.b32")) > 1e-4


def nearest_tf32(x: Array) -> Array:
    """To the nearest of 11 significant bits, ties away from zero."""
    mantissa, exponent = np.frexp(x.astype(np.float64))
    return np.ldexp(np.copysign(np.floor(np.abs(mantissa) * 2**11 + 0.5), x), exponent - 11).astype(x.dtype)


# -- the oracle ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ptx_warps.FRAGMENTS)
def test_fragments_hold_each_element_once(kind: str) -> None:
    k, a, b = ptx_warps.FRAGMENTS[kind]
    for place, count, shape in ((a, 16 * k // 32, (16, k)), (b, k * 8 // 32, (k, 8))):
        held = np.zeros(shape, int)
        for i in range(count):
            np.add.at(held, place(i), 1)
        assert (held == 1).all()


def test_tf32_keeps_what_is_no_number() -> None:
    given = np.array([1.0, 1 + 2**-11, -(1 + 2**-11), np.inf, np.nan], np.float32)
    given = np.append(given.view(np.uint32), np.uint32(0x7FFFFFFF))  # NaN as the card makes it
    made = operation("cvt.rna.tf32.f32").function(given).view(np.float32)
    np.testing.assert_array_equal(made, [1.0, 1 + 2**-10, -(1 + 2**-10), np.inf, np.nan, np.nan])


def test_ldmatrix_gives_rows_or_columns() -> None:
    rows = np.arange(64, dtype=np.uint16).reshape(1, 1, 8, 8)
    plain, turned = (ptx_warps.ldmatrix(rows, t)[0, 0] for t in (False, True))
    assert [int(x) & 0xFFFF for x in plain[:5]] == [0, 2, 4, 6, 8]  # lane 4 begins row 1
    assert [(int(x) & 0xFFFF, int(x) >> 16) for x in turned[:5]] == [
        (0, 8),
        (16, 24),
        (32, 40),
        (48, 56),
        (1, 9),
    ]


def test_shuffles_by_the_manuals_cases() -> None:
    lanes = np.arange(32, dtype=np.uint32)[None]

    def moved(mode: str, by: int, c: int) -> list[int]:
        return [int(x) for x in ptx_warps.shuffle(mode, lanes, lanes * 0 + by, lanes * 0 + c)[0][0]]

    assert moved("bfly", 1, 31)[:4] == [1, 0, 3, 2]
    assert moved("down", 1, 31)[-2:] == [31, 31]
    assert moved("up", 1, 0)[:3] == [0, 0, 1]
    assert moved("idx", 3, 31) == [3] * 32
    assert moved("down", 1, 31 | 24 << 8)[:9] == [1, 2, 3, 4, 5, 6, 7, 7, 9]  # in parts of eight


def test_memory_ends_where_it_ends() -> None:
    memory = GlobalMemory(1 << 20)
    base, _ = memory.allocate(12)
    memory.load(np.array([base, base + 8]), np.dtype(np.float32))
    for address, code in (
        (base + 12, "IllegalAddress"),
        (base - 4, "IllegalAddress"),
        (base + 2, "Misaligned"),
    ):
        with pytest.raises(CardFault, match=code):
            memory.load(np.array([base, address]), np.dtype(np.float32))
    with pytest.raises(CardFault, match="MemoryAllocation"):
        memory.allocate(1 << 21)
