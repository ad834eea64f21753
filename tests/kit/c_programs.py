"""C programs of a test: the installed compiler builds them with one of our C libraries; they run, and their
output is read."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autotensor.codegen.library.interface import exported, interface_ir
from autotensor.codegen.library.shared_threads import shared_symbol
from autotensor.codegen.library.weights_file import weights_of
from autotensor.codegen.llvm.build import build
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.linking.linker import host_machine
from autotensor.runtime.linking.merged_object import merged_object
from autotensor.runtime.native.launcher import launcher_ir

COMPILER = shutil.which("gcc") or shutil.which("cc") or ""
needs_compiler = pytest.mark.skipif(not COMPILER, reason="there is no C compiler")
CALLER = Path(__file__).parents[1] / "codegen" / "library" / "caller.c"
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic")


def compiled(
    sources: Sequence[Path],
    program: Path,
    *options: str,
    libraries: Sequence[str] = ("-lm", "-pthread"),
    compiler: str = COMPILER,
) -> Path:
    """The program."""
    words = [compiler, "-g", "-O1", *options, *map(str, sources), *libraries, "-o", str(program)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return program


def caller(
    folder: Path, name: str, *options: str, library: Path | None = None, compiler: str = COMPILER
) -> Path:
    """caller.c with the library `name` in a folder; `library` instead of its object."""
    names = (f"-DNAME={name}", f'-DHEADER="{name}.h"', f"-I{folder}")
    sources = [CALLER, library or folder / f"{name}.o"]
    return compiled(sources, folder / "caller", *STRICT, *names, *options, compiler=compiler)


def ran(program: Path | Sequence[str], *words: object, code: int | tuple[int, ...] = 0) -> str:
    """The text that a program printed on both outputs; it must end with `code`, or with one of them."""
    before = [str(program)] if isinstance(program, Path) else list(program)
    done = subprocess.run(
        [*before, *map(str, words)],
        env={
            **os.environ,
            "TSAN_OPTIONS": "halt_on_error=1",
        },  # reports of thousands of races would take minutes
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    codes = code if isinstance(code, tuple) else (code,)
    assert done.returncode in codes, f"{done.returncode}: {done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


Edit = Callable[[str], str]


def as_it_is(text: str) -> str:
    return text


def edited_object(
    artifact: Artifact,
    name: str,
    watched: Edit,
    kernels: Edit = as_it_is,
    launcher: Edit = as_it_is,
    interface: Edit = as_it_is,
) -> bytes:
    """The object of a library after changes of its texts: each text by the edit with its name, all texts by
    `watched`. artifact: one computation, without constants."""
    machine = host_machine()
    anywhere = replace(artifact.target, arch="", features="")
    texts = (
        (kernels(artifact.texts["llvm"]), artifact.target),
        (launcher(launcher_ir(machine, "linux")), anywhere),
        (interface(interface_ir(artifact, name, weights_of({}), machine)), anywhere),
    )
    objects = [build(watched(text), target, opt=1).object for text, target in texts]
    return merged_object(name, objects, (*exported(name).values(), shared_symbol(machine)))


def changed(old: str, new: str) -> Edit:
    """Puts `new` in the place of `old`, which must be there."""

    def edit(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return edit
