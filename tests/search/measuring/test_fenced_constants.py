"""Arrays that candidates only read: a stray write into a small array is found and undone; into a large one,
it ends the process."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from autotensor.search.measuring.candidate_memory import Need
from autotensor.search.measuring.fenced_constants import PROTECTED_BYTES, Held

F32 = np.dtype(np.float32)
LARGE = (PROTECTED_BYTES // 4 + 3,)


def held(shift: int = 0) -> Held:
    made = Held([Need("small", (5, 3), F32, True), Need("large", LARGE, F32, True)], shift)
    for array in made.arrays.values():
        array[...] = 1.0
    made.seal()
    return made


@pytest.mark.parametrize("shift", [0, 1])
def test_small_arrays_are_mended(shift: int) -> None:
    h = held(shift)
    assert [f.address % 64 for f in h.fenced.values()] == [4 * shift] * 2
    assert h.complaint() == ""
    h.arrays["small"][1, 2] = 7.0
    assert h.complaint() == "it changed its input 'small'"
    h.fenced["small"].after[0] = 0
    assert h.complaint() == "it wrote up to 1 bytes beyond the end of 'small'"
    assert h.complaint() == ""
    assert (h.arrays["small"] == 1.0).all()


def test_beyond_them_there_is_nan() -> None:
    for f in held().fenced.values():
        assert np.isnan(f.before[-64:].view(F32)).all()
        assert np.isnan(f.after[:64].view(F32)).all()


def test_a_broken_fence_shows_before_they_are_sealed() -> None:
    made = Held([Need("large", LARGE, F32, True)])
    made.trap()
    assert np.isnan(made.arrays["large"]).all()
    assert made.broken() == ""
    made.fenced["large"].before[-1] = 0
    assert made.broken() == "it wrote up to 1 bytes before the start of 'large'"


@pytest.mark.parametrize("where", ["h.arrays['large'][17]", "h.fenced['large'].after[0]"])
def test_who_writes_into_a_large_one_ends(where: str) -> None:
    code = (
        "import numpy as np\n"
        "from autotensor.search.measuring.candidate_memory import Need\n"
        "from autotensor.search.measuring.fenced_constants import Held\n"
        f"h = Held([Need('large', {LARGE}, np.dtype(np.float32), True)])\n"
        "h.arrays['large'][...] = 1.0; h.seal()\n"
        "assert h.arrays['large'].sum() > 0; print('sealed', flush=True)\n"
        f"{where} = 2.0; print('written')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "sealed\n"
    assert done.returncode < 0


def test_memory_is_given_back() -> None:
    """When the last array in protected pages is freed, the pages are replaced by writable memory."""
    for _ in range(20):
        h = held()
    del h
    assert np.zeros(LARGE, F32).sum() == 0.0
