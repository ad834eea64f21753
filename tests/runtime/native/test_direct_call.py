"""The short way of a call: it takes only arguments that fit. What the long way refuses is refused with the
same message."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from runtime_kernels import N, add_artifact, indexed_artifact

from autotensor.base.errors import ArgumentError
from autotensor.runtime.module import Module
from autotensor.runtime.native import direct_call, threads

RNG = np.random.default_rng(0)
A, B = (RNG.random(N, dtype=np.float32) for _ in range(2))


@pytest.fixture
def add() -> Module:
    """a + b, called once: the next call takes the short way."""
    module = Module(add_artifact(), threads=2)
    module(A, B)
    return module


def _read_only() -> np.ndarray:
    c = np.empty(N, np.float32)
    c.flags.writeable = False
    return c


def _misaligned() -> np.ndarray:
    return np.zeros(4 * N + 1, np.uint8)[1:].view(np.float32)


REFUSED: dict[str, Callable[[], object]] = {
    "list": lambda: [0.0] * N,
    "none": lambda: None,
    "int": lambda: 7,
    "scalar": lambda: np.float32(3),
    "other dtype": lambda: np.zeros(N, np.float64),
    "foreign byte order": lambda: np.zeros(N, ">f4"),
    "same size, other dtype": lambda: np.zeros(N, np.int32),
    "too long": lambda: np.zeros(N + 1, np.float32),
    "rank 0": lambda: np.zeros((), np.float32),
    "rank 2": lambda: np.zeros((N, 1), np.float32),
    "strided": lambda: np.zeros(2 * N, np.float32)[::2],
    "misaligned": _misaligned,
    "empty": lambda: np.zeros(0, np.float32),
}


def test_this_interpreter_is_known() -> None:
    assert direct_call.layout_is_known()


def test_what_fits_takes_it(add: Module) -> None:
    c = np.zeros(N, np.float32)
    assert add._runs_directly((A, B, c))
    assert (c == A + B).all()
    assert add._runs_directly((A, A, c))
    assert (c == A + A).all()
    fresh = add(A, B)
    assert (fresh == A + B).all()
    assert fresh.ctypes.data % 64 == 0
    assert fresh is not add(A, B)


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_does_not_fit_is_refused_in_the_same_words(add: Module, what: str, place: int) -> None:
    arrays: list[object] = [A, B, np.zeros(N, np.float32)]
    arrays[place] = REFUSED[what]()
    assert not add._runs_directly(tuple(arrays))
    words = []
    for module in (add, Module(add_artifact(), threads=2)):
        with pytest.raises(ArgumentError) as error:
            module(*arrays)
        words.append(str(error.value))
    assert words[0] == words[1]


def test_outputs_are_writeable_and_apart(add: Module) -> None:
    room = np.zeros(2 * N, np.float32)
    assert not add._runs_directly((A, B, _read_only()))
    assert not add._runs_directly((room[:N], B, room[:N]))
    assert not add._runs_directly((A, room[1 : N + 1], room[:N]))
    assert not add._runs_directly((room[N - 1 : 2 * N - 1], B, room[:N]))
    assert add._runs_directly((A, room[N:], room[:N]))
    assert add._runs_directly((room[:N], B, room[N:]))
    with pytest.raises(ArgumentError, match="shares memory"):
        add(A, room[1 : N + 1], room[:N])


def test_the_number_of_arrays_counts(add: Module) -> None:
    c = np.zeros(N, np.float32)
    assert not add._runs_directly((A, B))
    assert not add._runs_directly((A, B, c, c))
    assert not add._runs_directly(())


def test_subclasses_take_the_long_way(add: Module) -> None:
    class Mine(np.ndarray):
        pass

    c = np.zeros(N, np.float32)
    assert not add._runs_directly((A.view(Mine), B, c))
    add(A.view(Mine), B, c)
    assert (c == A + B).all()


def test_it_follows_the_number_of_threads(add: Module) -> None:
    c = np.zeros(N, np.float32)
    add.threads = 3
    assert not add._runs_directly((A, B, c))
    add(A, B, c)
    assert add._runs_directly((A, B, c))


def test_the_first_call_of_a_forked_child_takes_the_long_way(
    add: Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as child:
        child.setattr(threads, "_forked", True)
        assert not add._runs_directly((A, B, np.zeros(N, np.float32)))
    assert add._runs_directly((A, B, np.zeros(N, np.float32)))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize(("least", "most"), [(0, 6), (2, 100), (-7, 6)])
@pytest.mark.parametrize("vectors", [0, 1])
def test_no_index_is_outside(dtype: str, least: int, most: int, vectors: int) -> None:
    """The wrong index is in one of the vectors that are checked together, or after the last of them."""
    holds, c = np.iinfo(dtype), np.zeros(1, np.float32)
    ends = (max(least, holds.min), most)
    some = [*ends, *ends, most - 1]
    inside = np.resize(np.array(some, dtype), len(some) + vectors * 64 // np.dtype(dtype).itemsize)
    indexed = Module(indexed_artifact(dtype, inside.size, least, most))
    indexed(inside, c)
    assert indexed._runs_directly((inside, c))
    for wrong in {least - 1, most + 1, holds.min, holds.max, -(1 << 31)}:
        if least <= wrong <= most or not holds.min <= wrong <= holds.max:
            continue
        for place in range(inside.size):
            array = inside.copy()
            array[place] = wrong
            assert not indexed._runs_directly((array, c))
            words = rf"indices from {least} to {most}; N\[{place}\] is {wrong}\."
            with pytest.raises(ArgumentError, match=words):
                indexed(array, c)


def test_no_indices_are_none_outside() -> None:
    c, none = np.zeros(1, np.float32), np.zeros(0, np.int64)
    indexed = Module(indexed_artifact("int64", 0, 0, 6))
    indexed(none, c)
    assert indexed._runs_directly((none, c))


def test_a_type_that_holds_no_index_inside() -> None:
    c = np.zeros(1, np.float32)
    for size in (3, 100):
        indexed = Module(indexed_artifact("uint8", size, 300, 400))
        assert not indexed._runs_directly((np.full(size, 255, np.uint8), c))
