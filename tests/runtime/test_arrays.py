"""Aligned and guarded arrays, trap values, random values."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor.base.errors import InputError
from autotensor.runtime import arrays


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7, 17), (33, 1, 5)])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "bfloat16"])
def test_aligned(shape: tuple[int, ...], dtype: str) -> None:
    made = arrays.aligned_empty(shape, dtype)
    assert (made.shape, made.flags.c_contiguous, made.flags.writeable) == (shape, True, True)
    assert made.ctypes.data == arrays.address(made)
    assert arrays.address(made) % 64 == 0
    assert arrays.aligned_empty(shape, dtype, alignment=4096).ctypes.data % 4096 == 0


def test_addresses_of_views() -> None:
    base = np.zeros((6, 8), np.float32)
    for view in (base, base[2:], base[:, 3:], base.T, base[::-1], base.view(np.uint8)):
        assert arrays.address(view) == view.ctypes.data


def test_random_values_are_seeded_and_small() -> None:
    for dtype in ("float32", "float16", "int8", "uint8", "int64", "bool"):
        x = arrays.random((100,), dtype, np.random.default_rng(3))
        assert (x == arrays.random((100,), dtype, np.random.default_rng(3))).all()
        assert len(np.unique(x)) > 1
        assert np.abs(x.astype(np.float64)).max() <= 8


@pytest.mark.parametrize("guard", [64, 256, 4096])
@pytest.mark.parametrize(("shape", "dtype"), [((5, 3), "float32"), ((), "int32"), ((7,), "bool")])
def test_guards_notice_stray_writes(guard: int, shape: tuple[int, ...], dtype: str) -> None:
    made = arrays.guarded(shape, dtype, guard)
    size = made.array.nbytes
    assert made.array.ctypes.data % 64 == 0
    made.array[...] = 1
    assert made.check_guards() is None
    made.raw[guard + size + 2] = 0
    assert made.check_guards() == "wrote 3 bytes beyond its end"
    made.raw[guard - 4] = 0
    assert made.check_guards() == "wrote 4 bytes before its start"


def test_fill_and_traps() -> None:
    assert np.isnan(arrays.guarded((4,), "float32").array).all()
    assert (arrays.guarded((4,), "int16").array.view(np.uint8) == 0xA5).all()
    assert (arrays.guarded((4,), "float32", fill=np.arange(4.0)).array == np.arange(4)).all()
    with pytest.raises(InputError, match="guard of 100 bytes: it must be a multiple of 64 from 64 to 4096"):
        arrays.guarded((4,), "float32", 100)


def test_arrays_together_lie_apart_and_aligned() -> None:
    shapes = {"a": ((3, 5), "float32"), "b": ((), "int8"), "c": ((7,), "float64")}
    block = arrays.aligned_empty((arrays.bytes_together(shapes),), "uint8")
    made = arrays.views_together(block, shapes)
    assert {n: (a.shape, str(a.dtype)) for n, a in made.items()} == {
        "a": ((3, 5), "float32"),
        "b": ((), "int8"),
        "c": ((7,), "float64"),
    }
    for n, array in enumerate(made.values()):
        assert arrays.address(array) % arrays.ALIGNMENT == 0
        array[...] = n
    assert [a.reshape(-1)[0] for a in made.values()] == [0, 1, 2]
    assert arrays.bytes_together({}) == 0
    assert arrays.views_together(block, {}) == {}
