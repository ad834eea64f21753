"""Tensor instructions: the elements of each lane follow the PTX manual, and the results equal the loops."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_cases import CASES, product, tensor_cores

from autotensor.base.errors import LoweringError, ScheduleError
from autotensor.base.target import parse
from autotensor.codegen.c.tensor_intrinsics import Fragments, Matrices, fragments, is_tensorized
from autotensor.compiler import compile_state
from autotensor.ir.expr import Expr, Load, Var
from autotensor.ir.stmt import For, Store
from autotensor.ir.visit import collect, free_vars
from autotensor.lowering.gpu.index_values import values_of
from autotensor.lowering.pipeline import lower
from autotensor.schedule.schedule import Schedule

TARGET = parse("cuda -arch=sm_80")


def marked(s: Schedule) -> For:
    (kernel,) = lower(s.state, TARGET).run
    (loop,) = [n for n in collect(kernel.body, For) if is_tensorized(n)]
    return loop


def at(e: Expr, **values: int) -> int:
    """An index, variables that are not given being 0."""
    env = {v: np.asarray(values.get(v.name, 0)) for v in free_vars(e)}
    found = values_of(e, env)
    assert found is not None
    return int(found)


def by_loops(loop: For, memory: dict[str, np.ndarray], lane: int) -> dict[int, float]:
    """The sum that the loops add to each accumulator of a lane."""
    sums: dict[int, float] = {}
    loops = [loop, *(n for n in collect(loop.body, For))]
    (store,) = collect(loop.body, Store)
    x, y = (n for n in collect(store.value, Load) if n.buffer is not store.buffer)
    for point in np.ndindex(*(int(n.extent.value) for n in loops)):
        values = {n.var.name: int(i) for n, i in zip(loops, point, strict=True)} | {"threadIdx.x": lane}
        place = at(store.indices[0], **values)
        a, b = (memory[n.buffer.name][at(n.indices[0], **values)] for n in (x, y))
        sums[place] = sums.get(place, 0.0) + float(a) * float(b)
    return sums


def fetched(
    m: Matrices, memory: dict[str, np.ndarray], values: dict[str, int], lane: int, number: int
) -> tuple[float, float]:
    """Register `number` of a lane after ldmatrix: two neighbours in row lane // 4 of that matrix, or, turned,
    in its column; row r of it begins where lane 8 * number + r says."""
    group, member = divmod(lane, 4)

    def element(row: int, col: int) -> float:
        begin = at(m.at, **values, **{"threadIdx.x": 8 * number + row})
        assert begin % 8 == 0  # 16 bytes
        return float(memory[m.buffer.name][begin + col])

    pair = (
        ((2 * member, group), (2 * member + 1, group))
        if m.turned
        else ((group, 2 * member), (group, 2 * member + 1))
    )
    return element(*pair[0]), element(*pair[1])


def by_instruction(f: Fragments, memory: dict[str, np.ndarray]) -> list[dict[int, float]]:
    """The same for all lanes, by the tables of the PTX manual."""
    depth, packed = f.intrinsic.depth, f.intrinsic.packed
    sums: list[dict[int, float]] = [{} for _ in range(32)]
    for tile in np.ndindex(*(int(n.extent.value) for n in f.outer)):
        values = {n.var.name: int(i) for n, i in zip(f.outer, tile, strict=True)}
        a, b = np.full((16, depth), np.nan), np.full((depth, 8), np.nan)
        for lane in range(32):
            group, member = divmod(lane, 4)
            here = {**values, "threadIdx.x": lane}
            # a0 (g, t), a1 (g+8, t), a2 (g, t+half), a3 (g+8, t+half)
            for register, loads in enumerate(f.a if f.a_rows is None else ()):
                row = group + 8 * (register % 2)
                for n, load in enumerate(loads):
                    k = member * packed + n + (depth // 2) * (register // 2)
                    a[row, k] = memory[load.buffer.name][at(load.indices[0], **here)]
            for register, loads in enumerate(f.b if f.b_rows is None else ()):  # b0 (t, g), b1 (t+half, g)
                for n, load in enumerate(loads):
                    k = member * packed + n + (depth // 2) * register
                    b[k, group] = memory[load.buffer.name][at(load.indices[0], **here)]
        for lane in range(32):
            group, member = divmod(lane, 4)
            for n in range(4 if f.a_rows is not None else 0):
                for half, x in enumerate(fetched(f.a_rows, memory, values, lane, n)):
                    a[group + 8 * (n % 2), member * 2 + half + 8 * (n // 2)] = x
            for n in range(2 if f.b_rows is not None else 0):
                for half, x in enumerate(fetched(f.b_rows, memory, values, lane, n)):
                    b[member * 2 + half + 8 * n, group] = x
        d = a @ b
        for lane in range(32):
            group, member = divmod(lane, 4)
            for register, index in enumerate(f.sums):  # c0 c1 (g, 2t), c2 c3 (g+8, 2t)
                row, col = group + 8 * (register // 2), 2 * member + register % 2
                sums[lane][at(index, **values, **{"threadIdx.x": lane})] = d[row, col]
    return sums


@pytest.mark.parametrize("name", ["tensor_cores_tf32", "tensor_cores_f16", "tensor_cores_swizzled"])
@pytest.mark.sample(1)
def test_the_instruction_computes_what_the_loops_do(name: str) -> None:
    loop = marked(CASES[name]())
    f = fragments(loop)
    rng = np.random.default_rng(0)
    used = {x.buffer for part in (*f.a, *f.b) for x in part}
    memory = {b.name: rng.integers(-3, 4, b.size).astype(np.float64) for b in used}
    whole = by_instruction(f, memory)
    for lane in range(32):
        assert whole[lane] == by_loops(loop, memory, lane)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tensor_cores_tf32", ""),  # of 32 bits: lanes would get pairs of 16
        ("tensor_cores_f16", "at_ldmatrix4(a, A_shared"),
        ("tensor_cores_swizzled", "at_ldmatrix2t(b, B_shared"),
    ],
)
def test_rows_are_fetched_together(name: str, text: str) -> None:
    source = compile_state(CASES[name]().state, TARGET).texts["cuda"]
    assert text in source if text else "ldmatrix" not in source


def test_rows_that_begin_anywhere_are_fetched_one_by_one() -> None:
    s = CASES["tensor_cores_f16"]()
    s["A.shared:C.local"].storage_align("i0", 2, 1)  # 17 elements apart
    f = fragments(marked(s))
    assert f.a_rows is None
    assert f.b_rows is not None


def test_messages() -> None:
    s = tensor_cores(product(32, 16, 16), 8, "mma.m16n8k8.tf32")
    with pytest.raises(
        ScheduleError, match=r"tensorize: axis 'i' of stage 'C.local' is not a plain reduction loop"
    ):
        s["C.local"].tensorize("i", "mma.m16n8k8.tf32")
    with pytest.raises(
        ScheduleError, match=r"tensorize: instruction 'wmma' is unknown. Known: mma.m16n8k8.tf32"
    ):
        s["C.local"].tensorize("k.0", "wmma")
    with pytest.raises(
        LoweringError, match=r"mma.m16n8k8.tf32 does not fit: loop .* has 4 iterations, not 8"
    ):
        lower(tensor_cores(product(32, 16, 16), 4, "mma.m16n8k8.tf32").state, TARGET)
    with pytest.raises(LoweringError, match=r"does not fit: .* is not a float32 sum of products of float16"):
        lower(tensor_cores(product(32, 16, 16), 16, "mma.m16n8k16.f16").state, TARGET)
    with pytest.raises(LoweringError, match=r"tensorize: mma.m16n8k8.tf32 "):
        lower(tensor_cores(product(30, 16, 16), 8, "mma.m16n8k8.tf32").state, TARGET)


def test_variables_are_those_of_the_warp() -> None:
    loop = marked(CASES["tensor_cores_tf32"]())
    assert Var("threadIdx.x", loop.var.type) in free_vars(loop.body)
