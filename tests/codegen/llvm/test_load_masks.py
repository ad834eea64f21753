"""Masked loads keep their masks, although LLVM joins them with operations that have the same mask."""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
import pytest
from codegen_kernels import buffer, program, run
from fences import ended_by, fenced

import autotensor as at
from autotensor import te
from autotensor.base.dtype import DType, float32, int64
from autotensor.base.errors import ArtifactError
from autotensor.base.target import parse
from autotensor.codegen.llvm.backend import module_text
from autotensor.codegen.llvm.build import build
from autotensor.ir.expr import Broadcast, Cmp, Load, Ramp, Select, compare, const
from autotensor.ir.func import Role, Scope
from autotensor.ir.stmt import Alloc, Store, seq

COPY = '"=^Yk,0"'
AVX2 = parse("llvm -mcpu=x86-64-v3 -threads=1")
needs_avx2 = pytest.mark.skipif(not llvm.get_host_cpu_features().get("avx2"), reason="for code with AVX2")


@pytest.mark.parametrize("mcpu", ["x86-64-v3", "x86-64-v4"])
def test_sums_of_part_of_a_vector_read_nothing_behind_their_operands(mcpu: str) -> None:
    """LLVM took the load of B out of its masked multiply-add, without the mask."""
    m = te.var("m", range=(1, 8))
    A, B = te.placeholder((2, m // 2 + 1), name="A"), te.placeholder((m * 2, m // 2 + 1), name="B")
    k = te.reduce_axis(m // 2 + 1, name="k")
    C = te.compute((2, m * 2), lambda i, j: te.sum(A[i, k] * B[j, k], axis=k), name="C")
    s = te.create_schedule(C)
    s["C"].split("j", factors=[8])
    s["C"].fuse("i", "j.0")
    s["C"].split("k", factors=[8])
    s["C"].reorder("(i*j.0)", "j.1", "k.1", "k.0")
    s["C"].vectorize("k.1")
    try:
        f = at.build(s, [A, B, C], target=f"llvm -mcpu={mcpu} -threads=1")
    except ArtifactError as error:
        if "which this processor lacks" not in str(error):
            raise
        pytest.skip(str(error))
    for n in range(1, 9):
        a, b = (np.ones((rows, n // 2 + 1), np.float32) for rows in (2, 2 * n))
        assert ended_by(lambda a=a, b=b: f(fenced(a), fenced(b))) == 0  # type: ignore[misc]
        np.testing.assert_array_equal(f(a, b), np.full((2, 2 * n), n // 2 + 1, np.float32))


def test_elements_that_a_mask_leaves_out_do_not_come_back_by_a_shuffle() -> None:
    """Neighbours are exchanged under the mask under which they were loaded: LLVM exchanged them in memory."""
    x, y, n = buffer("x", 8), buffer("y", 8), buffer("n", 1, dtype=int64)
    near = buffer("near", 8, scope=Scope.REGISTER)
    lanes = Ramp(const(0), 1, 8)
    some = compare(Cmp.LT, lanes, Broadcast(Load(n, (const(0),)), 8))
    loaded = Store(near, (lanes,), Load(x, (lanes,), some))
    exchanged = Load(near, (lanes + 1 - lanes % 2 * 2,))
    chosen = Select(some, exchanged, Broadcast(const(0.0, float32), 8))
    p = program(
        Alloc(near, seq(loaded, Store(y, (lanes,), chosen))),
        (x, Role.INPUT),
        (n, Role.INPUT),
        (y, Role.OUTPUT),
    )
    found = np.empty(8, np.float32)
    run(p, np.arange(1, 9, dtype=np.float32), np.array([3]), found)
    np.testing.assert_array_equal(found, [2, 1, 0, 0, 0, 0, 0, 0])


@needs_avx2
@pytest.mark.parametrize("dtype", [float32, int64], ids=str)
@pytest.mark.parametrize("lanes", [6, 10, 19, 24, 32])
def test_lanes_that_are_always_left_out_are_not_read(lanes: int, dtype: DType) -> None:
    """LLVM loaded whole registers of such lanes (10, 19), or ended the process (24, 32)."""
    x, y, n = buffer("x", 3, dtype=dtype), buffer("y", lanes, dtype=dtype), buffer("n", 1, dtype=int64)
    at_ = Ramp(const(0), 1, lanes)
    some = compare(Cmp.LT, at_, Broadcast(const(3), lanes)) & compare(
        Cmp.LT, at_, Broadcast(Load(n, (const(0),)), lanes)
    )
    p = program(Store(y, (at_,), Load(x, (at_,), some)), (x, Role.INPUT), (n, Role.INPUT), (y, Role.OUTPUT))

    def check() -> None:
        found = np.ones(lanes, dtype.numpy)
        run(p, fenced(np.arange(1, 4, dtype=dtype.numpy)), np.array([5]), found, target=AVX2)
        np.testing.assert_array_equal(found, [1, 2, 3] + [0] * (lanes - 3))

    assert ended_by(check) == 0


@needs_avx2
def test_a_schedule_may_leave_out_half_of_its_vectors() -> None:
    A = te.placeholder((5, 4), "float64", name="A")
    C = te.compute((5,), lambda i: A[i, i // 5].astype("float32") * 2 + 1, name="C")
    s = te.create_schedule(C)
    s["C"].split("i", factors=[2, 6])
    s["C"].vectorize("i.2")
    f = at.build(s, [A, C], target="llvm -mcpu=x86-64-v3 -threads=1")
    a = np.arange(20.0).reshape(5, 4)
    assert ended_by(lambda: f(fenced(a), fenced(np.zeros(5, np.float32)))) == 0
    np.testing.assert_array_equal(f(a), a[:, 0].astype(np.float32) * 2 + 1)


@pytest.mark.parametrize(
    ("mcpu", "lanes", "copies"),
    [("x86-64-v3", 8, 0), *(("x86-64-v4", n, 1 + n // 65) for n in (2, 5, 8, 64, 100)), ("knl", 33, 3)],
)
def test_masks_of_any_length_are_copied_in_whole_registers(mcpu: str, lanes: int, copies: int) -> None:
    x, y, n = buffer("x", lanes), buffer("y", lanes), buffer("n", 1, dtype=int64)
    at_ = Ramp(const(0), 1, lanes)
    some = compare(Cmp.LT, at_, Broadcast(Load(n, (const(0),)), lanes))
    p = program(Store(y, (at_,), Load(x, (at_,), some)), (x, Role.INPUT), (n, Role.INPUT), (y, Role.OUTPUT))
    target = parse(f"llvm -mcpu={mcpu} -threads=1")
    assert module_text(p, target)[0].count(COPY) == copies
    build(module_text(p, target)[0], target)
    if mcpu == "x86-64-v4":
        found = np.empty(lanes, np.float32)
        run(p, np.ones(lanes, np.float32), np.array([lanes - 2]), found)
        np.testing.assert_array_equal(found, [1] * (lanes - 2) + [0, 0])
