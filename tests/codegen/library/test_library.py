"""C libraries: what an object defines and needs, answers without any tool, and by a compiler that is here."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_programs import STRICT, caller, compiled, needs_compiler, ran

import autotensor as at
from autotensor import te
from autotensor.base.errors import ArtifactError, InputError, TargetError
from autotensor.base.target import parse
from autotensor.codegen.library import processor_check, shared_object
from autotensor.codegen.library.interface import exported
from autotensor.codegen.library.write import check_library, write_library
from autotensor.models import MODELS
from autotensor.runtime.linking import elf
from autotensor.runtime.linking.linker import link
from autotensor.runtime.module import Module

Array = np.ndarray[Any, np.dtype[Any]]
LIBC = {  # and libm: all that an object may ask for
    *("bcmp", "memcmp", "memcpy", "memset", "calloc", "free", "usleep", "clock_gettime", "getpid", "syscall"),
    *("open", "close", "lseek", "mmap", "munmap", "madvise", "fopen", "fscanf", "fclose", "sched_getcpu"),
    *("sched_getaffinity", "sched_setaffinity", "pthread_setaffinity_np", "pthread_create", "pthread_detach"),
    *(f"pthread_mutex_{what}" for what in ("init", "destroy", "lock", "unlock")),
    *(f"pthread_cond_{what}" for what in ("init", "wait", "signal")),
    *("erff", "expf", "logf", "sinf", "cosf", "tanhf", "powf"),
}
STATE = re.compile("autotensor_threads_[0-9a-f]{16}")


class Called:
    """The functions of a library, from Python, by our own linker: no tool has a part in it."""

    def __init__(self, f: Module, folder: Path, name: str, threads: int = 2) -> None:
        self.files = write_library(f._bound()[0], folder, name)
        names = exported(name)
        data = self.files.object.read_bytes()
        self._code = link(name, [data], tuple(names.values())).keep_for_ever()  # the pool's threads run it
        self._at = {what: self._code.addresses[symbol] for what, symbol in names.items()}
        self.handle = ctypes.c_void_p()
        self.status = self.create(self.files.weights, threads)

    def _call(self, what: str, kind: Any, *arguments: Any) -> Any:
        return ctypes.CFUNCTYPE(kind, *(type(a) for a in arguments))(self._at[what])(*arguments)

    def create(self, weights: Path | None, threads: int) -> int:
        path = ctypes.c_char_p(os.fsencode(weights) if weights else None)
        place = ctypes.c_void_p(ctypes.addressof(self.handle))
        return int(self._call("create", ctypes.c_int, place, path, ctypes.c_int(threads)))

    def run(self, inputs: list[Array], outputs: list[Array]) -> int:
        given, results = (
            (ctypes.c_void_p * len(arrays))(*(a.ctypes.data if a is not None else None for a in arrays))
            for arrays in (inputs, outputs)
        )
        return int(self._call("run", ctypes.c_int, self.handle, given, results))

    def error(self, status: int) -> str:
        return self._call("error", ctypes.c_char_p, ctypes.c_int(status)).decode()

    def array(self, what: str, n: int) -> tuple[str, str, list[int], int] | None:
        """Name, type, shape and bytes of an input or output."""

        class Described(ctypes.Structure):
            _fields_ = (
                ("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p), ("rank", ctypes.c_int32),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("bytes", ctypes.c_size_t),
            )  # fmt: skip

        at_ = self._call(what, ctypes.c_void_p, ctypes.c_int(n))
        if not at_:
            return None
        a = Described.from_address(at_)
        return a.name.decode(), a.dtype.decode(), a.shape[: a.rank], a.bytes

    def destroy(self) -> None:
        self._call("destroy", None, self.handle)


def same_bits(a: Array, b: Array) -> bool:
    return a.tobytes() == b.tobytes()


@pytest.fixture(scope="module")
def digits() -> Module:
    """A model with weights, an arena, and no parallel loop."""
    f = at.compile_model(MODELS.get("small_cnn").build(), target="llvm -threads=2")
    assert isinstance(f, Module)
    return f


@pytest.fixture(scope="module")
def looked_up() -> Module:
    """A function of indices, which may be outside."""
    table, ids = te.placeholder((10, 4), name="table"), te.placeholder((3,), "int64", name="ids")
    f = at.build([table, ids, te.compute((3, 4), lambda i, j: table[ids[i], j], name="rows")], name="look_up")
    assert isinstance(f, Module)
    return f


class TestWithoutATool:
    def test_what_the_object_defines_and_needs(self, digits: Module, meeting: Module, tmp_path: Path) -> None:
        for name, f in (("digits", digits), ("meeting", meeting)):
            library = write_library(f._bound()[0], tmp_path, name)
            found = elf.read(library.object.read_bytes())
            seen = {s.name for s in found.symbols if s.name and not s.is_undefined}
            state = {s for s in seen if STATE.fullmatch(s)}
            assert seen == {*exported(name).values(), *state}
            assert len(state) == 1
            assert {s.name for s in found.symbols if s.name and s.is_undefined} <= LIBC
            assert len(library.object.read_bytes()) < 60_000

    def test_same_bits_as_in_python(self, digits: Module, meeting: Module, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        for name, f in (("digits", digits), ("meeting", meeting)):
            c = Called(f, tmp_path, name)
            assert c.status == 0, c.error(c.status)
            inputs = [rng.standard_normal(a.shape, dtype=np.float32) for a in f.artifact.role("input")]
            outputs = [np.empty(a.shape, np.float32) for a in f.artifact.role("output")]
            for _ in range(3):
                outputs[0].fill(np.nan)
                assert c.run(inputs, outputs) == 0
                assert same_bits(outputs[0], f(*inputs))
            c.destroy()

    def test_names_and_shapes(self, digits: Module, looked_up: Module, tmp_path: Path) -> None:
        c = Called(digits, tmp_path, "digits")
        assert c.array("input", 0) == ("x", "float32", [1, 1, 8, 8], 256)
        assert c.array("output", 0) == ("logits", "float32", [1, 10], 40)
        assert [c.array(what, n) for what in ("input", "output") for n in (1, -1)] == [None] * 4
        c = Called(looked_up, tmp_path, "look_up")
        assert c.array("input", 1) == ("ids", "int64", [3], 24)

    def test_arrays_that_do_not_fit(self, looked_up: Module, tmp_path: Path) -> None:
        c = Called(looked_up, tmp_path, "look_up")
        table, ids, rows = np.ones((10, 4), np.float32), np.array([0, 9, 3]), np.empty((3, 4), np.float32)
        assert c.run([table, ids], [rows]) == 0

        def said(inputs: list[Any], outputs: list[Any]) -> str:
            rows.fill(7.0)
            status = c.run(inputs, outputs)
            assert status > 0
            assert (rows == 7.0).all()
            return c.error(status)

        for outside in (10, -1, 1 << 40):
            sentence = "input 'ids' holds an index that is not from 0 to 9."
            assert said([table, np.array([0, outside, 3])], [rows]) == sentence
        assert said([None, ids], [rows]) == "input 'table' is a null pointer."
        assert said([table, ids], [None]) == "output 'rows' is a null pointer."
        assert said([table, ids], [table]) == "output 'rows' shares memory with another argument."
        crooked = np.zeros(200, np.uint8)[1:].view()
        assert said([crooked, ids], [rows]) == "input 'table' is not aligned to its elements of 4 bytes."
        c.destroy()

    def test_weights_of_others(self, digits: Module, tmp_path: Path) -> None:
        c = Called(digits, tmp_path, "digits")
        path = c.files.weights
        assert path is not None
        whole = path.read_bytes()
        other = tmp_path / "other.weights"
        other.write_bytes(whole[:-1])
        cut = c.error(c.create(other, 1))
        assert cut == "the file of weights is cut short, or of another model or version."
        other.write_bytes(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
        assert c.error(c.create(other, 1)) == cut
        assert c.handle.value is None
        for nowhere in (None, tmp_path / "nowhere", tmp_path):
            assert c.create(nowhere, 1) != 0
        assert c.error(c.create(None, 1)) == "the file of weights cannot be opened; errno says why."

    def test_threads_and_unknown_statuses(self, meeting: Module, tmp_path: Path) -> None:
        c = Called(meeting, tmp_path, "meeting")
        for threads in (-1, 258):
            assert c.error(c.create(None, threads)) == "the number of threads must be from 0 to 257."
        assert c.create(None, 0) == 0
        assert c.error(0) == "no error."
        assert c.error(9) == c.error(10_000) == c.error(-1) == "unknown status."

    def test_a_processor_that_lacks_something(
        self, meeting: Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lacking = "unheard-of"
        monkeypatch.setitem(processor_check.X86, lacking, (7, 0, "d", 0))  # a bit that is never set
        f = Module(meeting.artifact)
        f.artifact = replace(meeting.artifact, needs=(*meeting.artifact.needs, lacking))
        c = Called(f, tmp_path, "meeting")
        assert re.fullmatch(rf"this processor, or its system, lacks one of .*{lacking}\.", c.error(c.status))

    def test_bound_constants_are_weights_and_free_ones_are_refused(self, tmp_path: Path) -> None:
        a, w = te.placeholder((8, 16), name="A"), te.placeholder((16, 16), name="W", constant=True)
        k = te.reduce_axis(16, name="k")
        d = te.compute((8, 16), lambda i, j: te.sum(a[i, k] * w[k, j], axis=k), name="D")
        f = at.build([a, w, d], name="product")
        with pytest.raises(
            ArtifactError, match=r"^product: the constants W have no values, .*f\.bind\(W=w\)"
        ):
            at.write_c(f, tmp_path)
        x, y = np.eye(8, 16, dtype=np.float32), np.arange(256, dtype=np.float32).reshape(16, 16)
        bound = f.bind(W=y)
        assert isinstance(bound, Module)
        c = Called(bound, tmp_path, "product")
        out = np.empty((8, 16), np.float32)
        assert c.run([x], [out]) == 0
        assert same_bits(out, bound(x))


class TestRefusals:
    @pytest.mark.parametrize("name", ["a-b", "7up", "a b", "ä", "x" * 101, "", "pthread"])
    def test_names_that_are_none_in_c(self, name: str, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"cannot begin the names of C functions. .*letters, digits"):
            check_library(parse("llvm"), tmp_path, name)

    def test_targets(self, tmp_path: Path) -> None:
        with pytest.raises(
            TargetError,
            match=r"^target 'opencl' cannot become a C library; only code for processors can\. Compile",
        ):
            check_library(at.Target("opencl"), tmp_path, "f")
        with pytest.raises(
            TargetError, match=r"^C libraries are written for Linux \(ELF\); this target is arm64-"
        ):
            check_library(replace(parse("llvm"), triple="arm64-apple-darwin"), tmp_path, "f")

    def test_places(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        for place in (Path("/proc/nowhere"), tmp_path / "file"):
            with pytest.raises(InputError, match=f"^{place} cannot be written: .*Choose a place"):
                check_library(parse("llvm"), place, "f")

    def test_what_is_no_single_function(self, meeting: Module, tmp_path: Path) -> None:
        with pytest.raises(
            InputError, match=r"holds one compiled function; this is a builtin.*\. Give what at\.build"
        ):
            at.write_c(print, tmp_path)  # type: ignore[arg-type]

    def test_names_of_arguments_cannot_end_a_comment(self, tmp_path: Path) -> None:
        x = at.input((2, 2), name="x*/ int y; /*")
        f = at.compile_model(at.ops.relu(x))
        library = at.write_c(f, tmp_path, name="evil")
        assert "*/ int" not in library.header.read_text()


class TestSharedLibraries:
    def test_without_a_linker_it_says_so(
        self, meeting: Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        library = at.write_c(meeting, tmp_path)
        assert library.shared is None
        assert library.note == "no libmeeting.so: of cc, gcc, clang, ld.lld, ld none is here"

    def test_a_linker_that_fails_is_told(
        self, meeting: Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "cc").write_text("#!/bin/sh\necho no room >&2\nexit 1\n")
        (tmp_path / "cc").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
        assert at.write_c(meeting, tmp_path).note == f"no libmeeting.so: {tmp_path}/cc says: no room"

    @pytest.mark.parametrize("compilers", [shared_object._COMPILERS, ()])
    def test_it_answers_in_a_process_of_its_own(
        self, compilers: tuple[str, ...], meeting: Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shared_object, "_COMPILERS", compilers)
        library = at.write_c(meeting, tmp_path)
        if library.shared is None:  # a linker that is there must link
            assert library.note.endswith("none is here"), library.note
            pytest.skip(library.note)
        program = (
            "import ctypes, sys\n"
            "lib = ctypes.CDLL(sys.argv[1])\n"
            "h = ctypes.c_void_p()\n"
            "assert lib.meeting_create(ctypes.byref(h), None, 2) == 0\n"
            "full = lambda n, x: (ctypes.c_float * n)(*[x] * n)\n"
            "x, y, z = full(384, 0.5), full(480, 0.25), full(320, 0.0)\n"
            "p = lambda *a: (ctypes.c_void_p * len(a))(*map(ctypes.addressof, a))\n"
            "assert lib.meeting_run(h, p(x, y), p(z)) == 0\n"
            "lib.meeting_destroy(h)\n"
            "print(set(z))\n"
        )
        said = ran([sys.executable, "-c", program, str(library.shared)])
        expected = meeting(np.full((16, 24), 0.5, np.float32), np.full((24, 20), 0.25, np.float32))
        assert said == f"{set(expected.ravel().tolist())}\n"


@needs_compiler
class TestPrograms:
    def test_the_example_builds_as_its_first_line_says(self, digits: Module, tmp_path: Path) -> None:
        library = at.write_c(digits, tmp_path, name="digits")
        text = library.example.read_text()
        assert 18 <= len(text.splitlines()) <= 22
        line = text.splitlines()[0].removeprefix("/* ").removesuffix(" */")
        done = subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout == "logits: 40 bytes of float32\n"
        for standard in ("-std=c99", "-std=c11"):
            options = (standard, *STRICT[1:], f"-I{tmp_path}")
            compiled([library.example, library.object], tmp_path / "strict", *options)

    @pytest.mark.parametrize("threads", [1, 2])
    def test_same_bits_as_in_python(
        self, threads: int, digits: Module, meeting: Module, tmp_path: Path
    ) -> None:
        rng = np.random.default_rng(threads)
        for name, f in (("digits", digits), ("meeting", meeting)):
            library = at.write_c(f, tmp_path, name=name)
            program = caller(tmp_path, name)
            arrays = [rng.standard_normal(a.shape, dtype=np.float32) for a in f.artifact.role("input")]
            for n, array in enumerate(arrays):
                array.tofile(tmp_path / f"in{n}")
            files = [tmp_path / f"in{n}" for n in range(len(arrays))]
            ran(program, "run", library.weights or "none", threads, 3, *files, tmp_path / "out")
            assert (tmp_path / "out").read_bytes() == f(*arrays).tobytes()

    def test_many_callers(self, digits: Module, meeting: Module, tmp_path: Path) -> None:
        weights = at.write_c(digits, tmp_path, name="digits").weights
        assert ran(caller(tmp_path, "digits"), "many", weights, 1, 8, 1000, 1) == "0 wrong of 8000\n"
        at.write_c(meeting, tmp_path)
        assert ran(caller(tmp_path, "meeting"), "many", "none", 2, 8, 100, 3) == "0 wrong of 800\n"

    @pytest.mark.slow
    def test_many_more_calls(self, digits: Module, meeting: Module, tmp_path: Path) -> None:
        weights = at.write_c(digits, tmp_path, name="digits").weights
        assert ran(caller(tmp_path, "digits"), "many", weights, 2, 8, 10_000, 2) == "0 wrong of 80000\n"
        at.write_c(meeting, tmp_path)
        assert ran(caller(tmp_path, "meeting"), "many", "none", 2, 8, 10_000, 2) == "0 wrong of 80000\n"

    def test_nothing_outside_the_arrays_is_touched(
        self, digits: Module, meeting: Module, tmp_path: Path
    ) -> None:
        weights = at.write_c(digits, tmp_path, name="digits").weights
        assert ran(caller(tmp_path, "digits"), "guarded", weights, 2) == "0 wrong\n"
        at.write_c(meeting, tmp_path)
        assert ran(caller(tmp_path, "meeting"), "guarded", "none", 2) == "0 wrong\n"
        ran(caller(tmp_path, "meeting", "-DSHORT=4"), "guarded", "none", 2, code=-11)

    def test_a_forked_child_has_threads_of_its_own(self, meeting: Module, tmp_path: Path) -> None:
        at.write_c(meeting, tmp_path)
        said = ran(caller(tmp_path, "meeting"), "fork", "none", 2)
        found = re.fullmatch(r"child Threads:\s+(\d+)\n", said)
        assert found is not None, said
        assert int(found[1]) >= 2

    def test_two_libraries_of_a_program_share_their_threads(self, meeting: Module, tmp_path: Path) -> None:
        for name in ("first", "second"):
            at.write_c(meeting, tmp_path, name=name)
        (tmp_path / "both.c").write_text(BOTH)
        parts = [tmp_path / "both.c", tmp_path / "first.o", tmp_path / "second.o"]
        said = ran(compiled(parts, tmp_path / "both", *STRICT, f"-I{tmp_path}"))
        one, both = re.findall(r"Threads:\s+(\d+)", said)
        assert one == both
        assert int(both) >= 2


BOTH = """\
#include <stdio.h>
#include <string.h>
#include "first.h"
#include "second.h"

static float a[384], b[480], c[320];

static void threads(void) {
  char line[256];
  FILE *status = fopen("/proc/self/status", "r");
  while (status && fgets(line, sizeof line, status))
    if (!strncmp(line, "Threads:", 8)) fputs(line, stdout);
  fclose(status);
}

int main(void) {
  const void *inputs[] = {a, b};
  void *outputs[] = {c};
  first_handle *f;
  second_handle *s;
  if (first_create(&f, NULL, 2) || first_run(f, inputs, outputs)) return 1;
  threads();
  if (second_create(&s, NULL, 2) || second_run(s, inputs, outputs)) return 1;
  threads();
  first_destroy(f);
  second_destroy(s);
  return 0;
}
"""
