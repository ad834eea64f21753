"""The native code of C libraries under ASan, TSan and valgrind: clean, and planted mistakes are found.

kit/sanitized.py adds to our LLVM IR the calls that gcc adds to C: in kernels, launcher, pool and interface.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from c_programs import Edit, caller, changed, edited_object, needs_compiler, ran
from sanitized import for_addresses, for_threads

import autotensor as at
from autotensor.runtime.module import Module

pytestmark = [needs_compiler, pytest.mark.timeout(1200)]  # sanitizers on a busy machine take minutes
RACE = 66  # exit code of TSan
RUNS = 5  # of a program with a race: on a busy machine its threads may never be at the place together
MANY = ("many", "none", 2, 3, 60, 2)  # words of caller.c: three callers, two handles of two threads each
THREADS, ADDRESSES = ("-fsanitize=thread", "-O2"), ("-fsanitize=address,undefined",)


def program(f: Module, folder: Path, watched: Edit, options: tuple[str, ...], **edits: Edit) -> Path:
    """caller.c and the library of `f`, both under the sanitizer. edits: changes of the library's texts."""
    at.write_c(f, folder)
    object_ = folder / "watched.o"
    object_.write_bytes(edited_object(f.artifact, "meeting", watched, **edits))
    return caller(folder, "meeting", *options, library=object_)


def test_addresses_are_clean(meeting: Module, tmp_path: Path) -> None:
    made = program(meeting, tmp_path, for_addresses, ADDRESSES)
    assert ran(made, *MANY) == "0 wrong of 180\n"
    assert ran(made, "guarded", "none", 2) == "0 wrong\n"


def test_a_buffer_that_is_too_small_is_found(meeting: Module, tmp_path: Path) -> None:
    made = program(meeting, tmp_path, for_addresses, (*ADDRESSES, "-DSHORT=4"))
    assert "heap-buffer-overflow" in ran(made, *MANY, code=1)


def test_threads_are_clean(meeting: Module, tmp_path: Path) -> None:
    made = program(meeting, tmp_path, for_threads, THREADS)
    assert ran(made, *MANY) == "0 wrong of 180\n"
    assert ran(made, "many", "none", 3, 2, 40, 1) == "0 wrong of 80\n"


def without_mutex(text: str) -> str:
    for verb in ("lock", "unlock"):
        text = changed(f"call i32 @pthread_mutex_{verb}(ptr %mutex)", "add i32 0, 0")(text)
    return text


RACES = {
    "blocks are taken without the mutex": {"interface": without_mutex},
    "every thread does the work of all": {
        "kernels": changed("i32 %tid, i32 %nthreads, ptr null)", "i32 0, i32 1, ptr null)")
    },
    "nobody waits at a meeting": {"kernels": changed("icmp slt i32 %nthreads, 2", "icmp slt i32 2, 3")},
    "work is handed out without release": {
        "launcher": changed("store atomic i32 4, ptr %wg release", "store atomic i32 4, ptr %wg monotonic")
    },
}


@pytest.mark.parametrize("planted", RACES)
@pytest.mark.sample(1)
def test_a_planted_race_is_found(planted: str, meeting: Module, tmp_path: Path) -> None:
    made = program(meeting, tmp_path, for_threads, THREADS, **RACES[planted])
    assert any("ThreadSanitizer: data race" in ran(made, *MANY, code=(0, 1, RACE)) for _ in range(RUNS))


@pytest.mark.skipif(not shutil.which("valgrind"), reason="there is no valgrind")
class TestValgrind:
    WATCHED = (
        "valgrind",
        "-q",
        "--error-exitcode=9",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite",
    )

    def test_clean(self, meeting_of_avx2: Module, tmp_path: Path) -> None:
        at.write_c(meeting_of_avx2, tmp_path)
        made = caller(tmp_path, "meeting")
        assert "0 wrong of 40" in ran([*self.WATCHED, str(made)], "many", "none", 2, 2, 20, 2)

    def test_a_buffer_that_is_too_small_is_found(self, meeting_of_avx2: Module, tmp_path: Path) -> None:
        at.write_c(meeting_of_avx2, tmp_path)
        made = caller(tmp_path, "meeting", "-DSHORT=4")
        assert "Invalid write" in ran([*self.WATCHED, str(made)], "many", "none", 1, 1, 2, 1, code=9)
