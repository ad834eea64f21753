"""Loading a saved `.atm`: a kernel or a whole model, which to the runtime are the same; or several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from autotensor.base.errors import ArtifactError
from autotensor.runtime.files import artifact_file as artifacts
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.module import Module
from autotensor.runtime.modules_by_shape import ByShape
from autotensor.runtime.open_artifact import Function, open_artifact
from autotensor.runtime.variants import best_here

# LLVM text ──▶ object code for this machine, and the CPU features that it needs. Code generation lives above
# the runtime, so who loads with `recompile` brings it along.
Compiler = Callable[[str], tuple[bytes, tuple[str, ...]]]


# Gives an artifact back before it is opened, or refuses it: brought along for the same reason.
Check = Callable[[Artifact], Artifact]


def load(
    path: str | Path,
    threads: int | None = None,
    recompile: bool = False,
    compiler: Compiler | None = None,
    check: Check = lambda artifact: artifact,
) -> Function:
    """The module saved at `path`, ready to run. Nothing but numpy and llvmlite is imported.

    recompile: make its code anew for this machine, with `compiler`, from the LLVM text kept inside.
    Raises ArtifactError if the file is damaged or its code does not fit this machine.
    """
    found = artifacts.load_all(path)
    if recompile:
        found = tuple(rebuilt(a, compiler) for a in found)
    return _opened(tuple(map(check, found)), threads)


def unpickled(data: bytes, threads: int | None) -> Function:
    """The module whose `.atm` file holds these bytes; how modules leave a pickle.

    Raises ArtifactError for code that does not fit this machine.
    """
    return _opened(artifacts.load_all("the pickled module", data), threads)


def _opened(found: tuple[Artifact, ...], threads: int | None) -> Function:
    found = best_here(found)
    if len(found) == 1:
        return open_artifact(found[0], threads=threads)
    return ByShape([Module(a, threads=threads) for a in found])


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
