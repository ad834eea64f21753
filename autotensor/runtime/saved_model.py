"""Loads a saved `.atm` file: a kernel, a whole model (for the runtime these are the same), or several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from autotensor.base.errors import ArtifactError
from autotensor.runtime.files import artifact_file as artifacts
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.files.object_cache import object_key
from autotensor.runtime.module import Module
from autotensor.runtime.modules_by_shape import ByShape
from autotensor.runtime.open_artifact import Function, open_artifact
from autotensor.runtime.variants import best_here

# LLVM text ──▶ object code for this machine, and the CPU features that the code needs. Code generation is in
# a higher layer than the runtime, so the caller that loads with `recompile` passes this function.
Compiler = Callable[[str], tuple[bytes, tuple[str, ...]]]


# Returns an artifact before it is opened, or refuses it. The caller passes this function for the same reason.
Check = Callable[[Artifact], Artifact]


def load(
    path: str | Path,
    threads: int | None = None,
    recompile: bool = False,
    compiler: Compiler | None = None,
    check: Check = lambda artifact: artifact,
) -> Function:
    """The module saved at `path`, ready to run. Apart from autotensor, only numpy and llvmlite are imported.

    recompile: compile the code again for this machine, with `compiler`, from the LLVM text in the file.
    Raises ArtifactError if the file is damaged or its code does not fit this machine.
    """
    key, found = artifacts.load_known(path)
    if recompile:
        return _opened(tuple(check(rebuilt(a, compiler)) for a in best_here(found, anew=True)), threads)
    return _opened(tuple(map(check, found)), threads, key)


def unpickled(data: bytes, threads: int | None) -> Function:
    """The module whose `.atm` file has these bytes. Unpickling calls this.

    Raises ArtifactError for code that does not fit this machine.
    """
    return _opened(artifacts.load_all("the pickled module", data), threads)


def _opened(found: tuple[Artifact, ...], threads: int | None, key: str = "") -> Function:
    """key: a hash of the file, under which other processes may find prepared arrays (see `Module`)."""
    of = {id(a): object_key(key, str(n)) if key else "" for n, a in enumerate(found)}
    # of several variants, another machine that shares the folder may take another one
    found = best_here(found)
    keys = [of[id(a)] for a in found]
    if len(found) == 1:
        opened: Function = open_artifact(found[0], threads, keys[0])
    else:
        opened = ByShape([Module(a, threads=threads, key=k) for a, k in zip(found, keys, strict=True)])
    artifacts.give_back(found)
    return opened


def rebuilt(artifact: Artifact, compiler: Compiler | None) -> Artifact:
    """`artifact` with code for this machine. Raises ArtifactError if its text or the compiler is missing."""
    if "llvm" not in artifact.texts:
        raise ArtifactError(f"{artifact.name} keeps no LLVM text, so it cannot be recompiled.")
    if compiler is None:
        raise ArtifactError(
            f"{artifact.name}: recompiling needs a compiler.", fix="Load it through autotensor.load."
        )
    code, needs = compiler(artifact.texts["llvm"])
    here = replace(artifact.target, arch="", features="", triple="")
    return replace(artifact, objects=(code,), needs=needs, target=here)
