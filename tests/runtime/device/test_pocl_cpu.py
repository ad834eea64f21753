"""The name of the processor in a device's record is replaced, and nothing else."""

from __future__ import annotations

import ctypes
import sys

import pytest

from autotensor.runtime.device.pocl_cpu import GENERIC, ZEN_3, name_processor

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/mem")

WORDS = 640  # of a record; name_processor looks at 512
OLD = "+sse2,+avx2,+fma,+bmi2,+f16c"
NEW = OLD + ",+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"


def record(*texts: bytes) -> tuple[ctypes.Array[ctypes.c_uint64], list[ctypes.Array[ctypes.c_char]]]:
    """Memory like a device's: numbers, and from the 100th word on pointers to texts. Returns the memory and
    the texts."""
    words = (ctypes.c_uint64 * WORDS)(*range(WORDS))
    held = [ctypes.create_string_buffer(t) for t in texts]
    for n, text in enumerate(held):
        words[100 + n] = ctypes.addressof(text)
    return words, held


def name_at(words: ctypes.Array[ctypes.c_uint64], n: int) -> bytes:
    return ctypes.string_at(words[n])


@pytest.mark.parametrize(("features", "given"), [(OLD, b"haswell"), (NEW, b"skylake-avx512")])
@pytest.mark.parametrize("called", [GENERIC, ZEN_3])
def test_a_name_gives_way_to_one_that_is_known(features: str, given: bytes, called: str) -> None:
    words, held = record(b"pthread-cpu", called.encode(), b"generic-not", b"znver3x")
    before = list(words)
    assert name_processor(ctypes.addressof(words), features, called)
    assert name_at(words, 101) == given
    assert [n for n in range(WORDS) if words[n] != before[n]] == [101]
    assert held[1].value == called.encode()  # what others may point to is left as it was


def test_a_record_without_the_name_is_left_alone() -> None:
    words, _ = record(b"pthread-cpu", b"znver4", b"")
    before = list(words)
    assert not name_processor(ctypes.addressof(words), NEW, ZEN_3)
    assert list(words) == before
