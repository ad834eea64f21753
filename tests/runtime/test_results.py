"""The memory of results is used again, but never while something refers to it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotensor import te
from autotensor.api.kernels import build
from autotensor.runtime import results

F32 = np.dtype(np.float32)
SIDE = 256  # float32 [256, 256] is 256 KiB


@pytest.fixture(autouse=True)
def _nothing_idle() -> Iterator[None]:
    results._blocks.clear()
    yield
    results._blocks.clear()


@pytest.mark.parametrize("name", ["float32", "float64", "int8", "bool", "float16"])
def test_a_result_is_aligned_and_of_its_type(name: str) -> None:
    made = results.result_array((3, 128 * 1024), np.dtype(name))
    assert (made.shape, made.dtype, made.ctypes.data % 64) == ((3, 128 * 1024), np.dtype(name), 0)
    assert made.flags.c_contiguous
    assert made.flags.writeable
    assert type(made) is np.ndarray


def test_a_block_serves_again() -> None:
    made = results.result_array((SIDE, SIDE), F32)
    first = made.ctypes.data
    del made
    assert results.result_array((SIDE * SIDE,), F32).ctypes.data == first


@pytest.mark.parametrize("size", [results.LEAST - 1, results.MOST + 1])
def test_small_and_huge_results_are_the_systems_affair(size: int) -> None:
    made = results.result_array((size,), np.dtype(np.uint8))
    del made
    assert not results._blocks


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[3:],
        lambda x: x.T[5].reshape(-1)[::2],
        lambda x: x.view(np.int32)[1:][1:],
        lambda x: memoryview(x)[2:],
        lambda x: np.from_dlpack(x)[1:],
        lambda x: np.lib.stride_tricks.sliding_window_view(x, (3, 3))[0],
        lambda x: np.asarray(memoryview(x))[4:].T,
    ],
)  # fmt: skip
def test_a_view_holds_the_block(view: object) -> None:
    made = results.result_array((SIDE, SIDE), F32)
    first = made.ctypes.data
    held = view(made)  # type: ignore[operator]
    del made
    other = results.result_array((SIDE, SIDE), F32)
    second = other.ctypes.data
    assert second != first
    del held
    gc.collect()
    assert results.result_array((SIDE, SIDE), F32).ctypes.data == first
    del other


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["make", "view", "drop"]), st.integers(0, 5)), max_size=40))
def test_what_is_held_never_changes(steps: list[tuple[str, int]]) -> None:
    held: list[tuple[np.ndarray, float]] = []
    for turn, (what, which) in enumerate(steps):
        if what == "make":
            made = results.result_array((2 + which % 2, SIDE, SIDE), F32)
            made[...] = turn
            held.append((made, turn))
        elif held and what == "view":
            array, value = held[which % len(held)]
            held[which % len(held)] = array[..., 1:].T, value
        elif held:
            del held[which % len(held)]
    assert all((array == value).all() for array, value in held)


def test_what_is_below_a_result_holds_the_block_too() -> None:
    made = results.result_array((SIDE, SIDE), F32)
    first, below = made.ctypes.data, made.base
    del made
    assert results.result_array((SIDE, SIDE), F32).ctypes.data != first
    part = below[: results.LEAST + 8192]
    del below
    assert results.result_array((SIDE, SIDE), F32).ctypes.data != first
    del part
    both = [results.result_array((SIDE, SIDE), F32) for _ in range(2)]
    assert first in [array.ctypes.data for array in both]


def test_what_is_kept_idle_is_bounded() -> None:
    kept = [results.result_array((1024 * 1024,), F32) for _ in range(12)]
    kept += [results.result_array((1024 * 1024 + k,), F32) for k in range(40)]
    kept.clear()
    assert sum(len(blocks) for blocks in results._blocks.values()) <= results._SIZES * results._BLOCKS
    big = [results.result_array((results.MOST // 4,), F32) for _ in range(3)]
    big.clear()
    assert len(results._blocks[results.MOST]) == 1


def test_threads_never_share_a_block() -> None:
    wrong: list[float] = []

    def work(value: int) -> None:
        for _ in range(200):
            made = results.result_array((SIDE, SIDE), F32)
            made[...] = value
            wrong.extend(made[made != value])

    threads = [threading.Thread(target=work, args=(value,)) for value in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_kernels_result_goes_where_a_dropped_one_was() -> None:
    x = te.placeholder((SIDE, SIDE), name="x")
    f = build([x, te.compute((SIDE, SIDE), lambda i, j: x[i, j] + 1.0, name="y")])
    given = np.zeros((SIDE, SIDE), np.float32)
    first, second = f(given), f(given)
    assert first.ctypes.data != second.ctypes.data
    place = first.ctypes.data
    del first
    third = f(given + 1)
    assert abs(third.ctypes.data - place) < 4096
    assert (second == 1).all()
    assert (third == 2).all()


@given(st.lists(st.integers(0, 4095), min_size=1, max_size=5))
def test_a_result_begins_far_from_its_inputs_in_the_page(low: list[int]) -> None:
    found = results._middle_of_the_widest_gap(tuple(low))
    distance = min(min((found - a) % 4096, (a - found) % 4096) for a in low)
    assert found % 64 == 0
    assert distance >= 4096 // (2 * len(low)) - 64


def test_results_of_one_call_begin_in_different_places() -> None:
    x = te.placeholder((SIDE, SIDE), name="x")
    y = te.compute((SIDE, SIDE), lambda i, j: x[i, j] + 1.0, name="y")
    z = te.compute((SIDE, SIDE), lambda i, j: x[i, j] * 2.0, name="z")
    f = build([x, y, z])
    given = np.ones((SIDE, SIDE), np.float32)
    for _ in range(3):
        low = sorted(a.ctypes.data % 4096 for a in (given, *f(given)))
        assert min(b - a for a, b in zip(low, [*low[1:], low[0] + 4096], strict=True)) >= 512
