"""Loads and stores: vectors, strides, gathers, masks; and that masked-off lanes touch no memory."""

from __future__ import annotations

import ctypes
import itertools
import mmap
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from codegen_kernels import buffer, elementwise, loop, program, run

from autotensor.base.dtype import DType, bfloat16, bool_, float16, float32, float64, int8, int32, int64
from autotensor.base.errors import CodegenError
from autotensor.ir.expr import Broadcast, Cmp, Load, Ramp, Var, cast, compare, const
from autotensor.ir.func import Role, Scope
from autotensor.ir.stmt import Alloc, ForKind, Store, seq

TYPES = (float32, float64, float16, bfloat16, int8, int64, bool_)
N = 64
ASKED = {Cmp.EQ: np.equal, Cmp.NE: np.not_equal, Cmp.LT: np.less, Cmp.LE: np.less_equal,
         Cmp.GT: np.greater, Cmp.GE: np.greater_equal}  # fmt: skip


def values(t: DType, n: int = N) -> np.ndarray:
    x = np.arange(1, n + 1)
    return (x % 3 == 0) if t.is_bool else x.astype(np.float32).astype(t.numpy)


def copy(
    source, destination, index, target_index, mask=None, store_mask=None, lanes=8, t=float32, extent=None
):
    """destination[target_index(i)] = source[index(i)] for i in range(extent)."""
    x, y, i = buffer("x", source.size, dtype=t), buffer("y", destination.size, dtype=t), Var("i")
    body = Store(
        y,
        (target_index(i),),
        Load(x, (index(i),), mask(i) if mask else None),
        store_mask(i) if store_mask else None,
    )
    run(
        program(loop(i, extent or destination.size // lanes, body), (x, Role.INPUT), (y, Role.OUTPUT)),
        source,
        destination,
    )
    return destination


@pytest.mark.parametrize("t", TYPES, ids=str)
@pytest.mark.parametrize("stride", [1, 2, 3, -1, -2, 0])
def test_ramps(t: DType, stride: int) -> None:
    x = values(t, 512)
    start = 256
    got = copy(
        x,
        np.zeros(N, t.numpy),
        lambda i: Ramp(i * 8 * stride + start, stride, 8),
        lambda i: Ramp(i * 8, 1, 8),
        t=t,
    )
    steps = np.arange(N) * stride + start
    assert (got == x[steps]).all()


@pytest.mark.parametrize("t", TYPES, ids=str)
@pytest.mark.parametrize("size", [N, N - 3], ids=["whole vectors", "the last one is not whole"])
@pytest.mark.parametrize("chosen", [0, 1, 3])
def test_one_of_every_four_repeated(t: DType, size: int, chosen: int) -> None:
    """y[8*i + l] = x[8*i + l // 4 * 4 + chosen]: one vector and a shuffle, if all of it is in the buffer."""
    four = Broadcast(const(4), 8)
    got = copy(
        values(t, size),
        np.zeros(size // 8 * 8, t.numpy),
        lambda i: Ramp(i * 8, 1, 8) // four * four + Broadcast(const(chosen), 8),
        lambda i: Ramp(i * 8, 1, 8),
        t=t,
    )
    places = np.arange(size // 8 * 8) // 4 * 4 + chosen
    assert (got == values(t, size)[places]).all()


@pytest.mark.parametrize("t", TYPES, ids=str)
def test_strided_and_reversed_stores(t: DType) -> None:
    for stride in (2, -1):
        target = lambda i, s=stride: Ramp(i * 8 * s + (0 if s > 0 else N), s, 8)  # noqa: E731
        got = copy(values(t), np.zeros(2 * N, t.numpy), lambda i: Ramp(i * 8, 1, 8), target, t=t, extent=8)
        at = np.arange(N) * stride + (0 if stride > 0 else N)
        assert (got[at] == values(t)).all()
        assert got.sum() == values(t).sum()


@pytest.mark.parametrize("t", TYPES, ids=str)
def test_gather_and_scatter_by_loaded_indices(t: DType) -> None:
    rng = np.random.default_rng(0)
    order = rng.permutation(N).astype(np.int32)
    x, y, p, i = buffer("x", N, dtype=t), buffer("y", N, dtype=t), buffer("p", N, dtype=int32), Var("i")
    at = Ramp(i * 8, 1, 8)
    index = cast(int64, Load(p, (at,)))
    source = values(t)
    for load, store, want in (
        (index, at, source[order]),
        (at, index, source[np.argsort(order)]),
    ):
        got = np.zeros(N, t.numpy)
        body = Store(y, (store,), Load(x, (load,)))
        run(
            program(loop(i, N // 8, body), (x, Role.INPUT), (p, Role.INPUT), (y, Role.OUTPUT)),
            source,
            order,
            got,
        )
        assert (got == want).all()


@pytest.mark.parametrize("t", TYPES, ids=str)
def test_masks_per_lane(t: DType) -> None:
    limit = 41
    for stride in (1, 2, -1):
        load = lambda i, s=stride: Ramp(i * 8 * s + (64 if s < 0 else 0), s, 8)  # noqa: E731
        mask = lambda i: Ramp(i * 8, 1, 8) < Broadcast(const(limit), 8)  # noqa: E731
        at = np.arange(N) * stride + (64 if stride < 0 else 0)
        x = values(t, 160)
        got = copy(x, np.zeros(N, t.numpy), load, lambda i: Ramp(i * 8, 1, 8), mask=mask, t=t)
        assert (got == np.where(np.arange(N) < limit, x[at], np.zeros(1, t.numpy))).all()
        got = copy(
            x, np.zeros(160, t.numpy), lambda i: Ramp(i * 8, 1, 8), load, store_mask=mask, t=t, extent=8
        )
        want = np.zeros(160, t.numpy)
        want[at[:limit]] = x[:limit]
        assert (got == want).all()


@pytest.mark.parametrize("op", Cmp)
@pytest.mark.parametrize("stride", [1, 3])
def test_ends_far_from_the_lanes(op: Cmp, stride: int) -> None:
    """Lanes are compared in 32 bits, however far the end is."""
    x, ones = values(float32), np.zeros(N, np.float32)
    steps = lambda i: Ramp(i * 8 * stride, stride, 8)  # noqa: E731
    for end in (-(2**40), -(2**31), -1, 0, 17, 23, N, 3 * N, 2**31, 2**32, 2**32 + 17, 2**40):
        mask = lambda i, e=end: compare(op, steps(i), Broadcast(const(e), 8))  # noqa: E731
        got = copy(x, ones.copy(), lambda i: Ramp(i * 8, 1, 8), lambda i: Ramp(i * 8, 1, 8), mask=mask)
        assert (got == np.where(ASKED[op](np.arange(N) * stride, end), x, 0)).all()


@pytest.mark.parametrize("t", TYPES, ids=str)
def test_scalar_masks(t: DType) -> None:
    x = values(t)
    got = copy(x, np.zeros(N, t.numpy), lambda i: i, lambda i: i, mask=lambda i: i % 3 < 2, t=t, lanes=1)
    assert (got == np.where(np.arange(N) % 3 < 2, x, np.zeros(1, t.numpy))).all()
    got = copy(
        x, np.zeros(N, t.numpy), lambda i: i, lambda i: i, store_mask=lambda i: i % 3 < 2, t=t, lanes=1
    )
    assert (got == np.where(np.arange(N) % 3 < 2, x, np.zeros(1, t.numpy))).all()
    for stride in (1, 2):  # one mask for a whole vector
        x, load = values(t, 128), lambda i, s=stride: Ramp(i * 8 * s, s, 8)
        masks = {"mask": lambda i: i < 4, "store_mask": lambda i: i < 6}
        got = copy(x, np.zeros(N, t.numpy), load, lambda i: Ramp(i * 8, 1, 8), t=t, **masks)
        assert (
            got == np.where(np.arange(N) < 32, values(t, 128)[np.arange(N) * stride], np.zeros(1, t.numpy))
        ).all()


@contextmanager
def fenced(size: int, ends: bool) -> Iterator[np.ndarray]:
    """An array of float32 that ends (or begins) at an unmapped page, so an access beyond it kills the
    process."""
    page, libc = mmap.PAGESIZE, ctypes.CDLL(None)
    with mmap.mmap(-1, 2 * page) as memory:
        both = np.frombuffer(memory, np.float32)
        fence = ctypes.c_void_p(both.ctypes.data + (page if ends else 0))
        edge = both[page // 4 - size : page // 4] if ends else both[page // 4 : page // 4 + size]
        edge[:] = np.arange(size)
        assert libc.mprotect(fence, page, 0) == 0
        yield edge
        assert libc.mprotect(fence, page, 3) == 0
        del both, edge


@pytest.mark.parametrize("lanes", [1, 8])
def test_masked_off_accesses_touch_no_memory(lanes: int) -> None:
    n = 21
    at = (lambda i: i) if lanes == 1 else (lambda i: Ramp(i * 8, 1, 8))
    mask = (lambda i: i < n) if lanes == 1 else (lambda i: Ramp(i * 8, 1, 8) < Broadcast(const(n), 8))
    with fenced(n, ends=True) as edge:
        got = copy(edge, np.full(24, np.nan, np.float32), at, at, mask=mask, lanes=lanes)
        assert (got[:n] == np.arange(n)).all()
        assert (got[n:] == 0).all()
        source = np.arange(100, 124, dtype=np.float32)
        copy(source, edge, at, at, store_mask=mask, lanes=lanes, extent=24 // lanes)
        assert (edge == source[:n]).all()
        del edge


@pytest.mark.parametrize("ends", [True, False], ids=["fence behind", "fence before"])
@pytest.mark.parametrize("step", [2, 3, 4])
def test_vectors_around_lanes_of_one_step_stay_in_the_buffer(step: int, ends: bool) -> None:
    """Also where elements between the lanes are missing at either end."""
    for first, missing in itertools.product(range(step), repeat=2):
        with fenced(first + step * 16 - missing, ends) as edge:
            got = copy(
                edge,
                np.zeros(16, np.float32),
                lambda i, first=first: Ramp(i * 8 * step + first, step, 8),
                lambda i: Ramp(i * 8, 1, 8),
            )
            assert (got == first + step * np.arange(16)).all()
            del edge


def test_loads_are_repeated_after_a_store_to_their_buffer() -> None:
    x, i = buffer("x", 8), Var("i")
    step = Store(x, (const(0),), Load(x, (const(0),)) + Load(x, (i,)))
    got = np.arange(1, 9, dtype=np.float32)
    run(program(loop(i, 8, seq(step, step), begin=1), (x, Role.OUTPUT)), np.append(got, 0).astype(np.float32))
    array = np.arange(1, 10, dtype=np.float32)
    run(program(loop(i, 8, seq(step, step), begin=1), (x, Role.OUTPUT)), array)
    assert array[0] == 1 + 2 * sum(range(2, 10))


def test_register_buffers_mix_scalars_and_vectors_and_masks() -> None:
    x, y, r = buffer("x", 16), buffer("y", 16), buffer("r", 16, scope=Scope.REGISTER)
    i = Var("i")
    body = Alloc(
        r,
        seq(
            Store(r, (Ramp(const(0), 1, 16),), Load(x, (Ramp(const(0), 1, 16),))),
            loop(i, 16, Store(r, (i,), Load(r, (i,)) * const(2.0)), ForKind.UNROLLED),
            Store(
                r,
                (Ramp(const(0), 1, 8),),
                const(0.0, float32.with_lanes(8)),
                Ramp(const(0), 1, 8) < Broadcast(const(3), 8),
            ),
            Store(y, (Ramp(const(0), 1, 16),), Load(r, (Ramp(const(0), 1, 16),))),
        ),
    )
    a, b = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    run(program(body, (x, Role.INPUT), (y, Role.OUTPUT)), a, b)
    assert (b == np.where(np.arange(16) < 3, 0, 2 * a)).all()


@pytest.mark.parametrize("t", TYPES, ids=str)
@pytest.mark.parametrize("start", [0, 1])
def test_a_masked_store_beyond_a_register_buffer_writes_nothing_there(t: DType, start: int) -> None:
    """The vector is longer than the three elements that are allocated. The next buffer keeps its values."""
    lanes = 512 // t.bytes
    x, y, z = buffer("x", lanes, dtype=t), buffer("y", 3, dtype=t), buffer("z", lanes, dtype=t)
    r, near = (buffer(n, k, dtype=t, scope=Scope.REGISTER) for n, k in (("r", 3), ("near", lanes)))
    i, every = Var("i"), Ramp(const(0), 1, lanes)
    kept = every < Broadcast(const(3 - start), lanes)
    body = seq(
        Store(near, (every,), Load(z, (every,))),
        loop(i, 3, Store(r, (i,), Load(x, (i + 4,))), ForKind.UNROLLED),
        Store(r, (Ramp(const(start), 1, lanes),), Load(x, (every,)), kept),
        Store(z, (every,), Load(near, (every,))),
    )
    k = Var("k")
    out = loop(k, 3, Store(y, (k,), Load(r, (k,))), ForKind.UNROLLED)
    source, before = values(t, lanes), values(t, lanes)[::-1].copy()
    got, after = np.zeros(3, t.numpy), before.copy()
    arguments = ((x, Role.INPUT), (y, Role.OUTPUT), (z, Role.OUTPUT))
    run(program(Alloc(near, Alloc(r, seq(body, out))), *arguments), source, got, after)
    assert (after == before).all()
    assert (got == np.append(source[4 : 4 + start], source[: 3 - start])).all()


def test_a_register_index_must_be_a_constant() -> None:
    r, y, i = buffer("r", 16, scope=Scope.REGISTER), buffer("y", 16), Var("i")
    body = Alloc(r, loop(i, 16, Store(y, (i,), Load(r, (i * 2,)))))
    with pytest.raises(
        CodegenError, match=r"kernel 'k': index 2\*i of register buffer 'r' is not a constant"
    ):
        run(program(body, (y, Role.OUTPUT)), np.zeros(16, np.float32))


@pytest.mark.parametrize("elements", [64, 40_000])
@pytest.mark.parametrize("threads", [1, 3])
def test_local_buffers_on_the_stack_and_in_the_workspace(elements: int, threads: int) -> None:
    x, y, t = buffer("x", 6, elements), buffer("y", 6, elements), buffer("t", elements, scope=Scope.LOCAL)
    u = buffer("u", elements, scope=Scope.LOCAL)
    i, j, k, m = Var("i"), Var("j"), Var("k"), Var("m")
    fill = loop(j, elements, Store(t, (j,), Load(x, (i * elements + j,)) * const(2.0)))
    again = Alloc(u, seq(loop(k, elements, Store(u, (k,), Load(t, (const(elements - 1) - k,)))),
                         loop(m, elements, Store(y, (i * elements + m,), Load(u, (m,))))))  # fmt: skip
    p = program(loop(i, 6, Alloc(t, seq(fill, again)), ForKind.PARALLEL), (x, Role.INPUT), (y, Role.OUTPUT))
    a, b = np.random.default_rng(0).random((6, elements), np.float32), np.zeros((6, elements), np.float32)
    artifact = run(p, a, b, threads=threads)
    assert (b == 2 * a[:, ::-1]).all()
    assert [s.per_thread for s in artifact.args] == (
        [False, False] if elements == 64 else [False, False, True]
    )


def test_elementwise_helper_covers_all_lanes() -> None:
    assert (elementwise(lambda v: v, [np.arange(64)], lanes=4) == np.arange(64)).all()
