"""Compiled functions as C libraries: for programs without Python."""

from __future__ import annotations

from pathlib import Path

from autotensor.base.errors import InputError
from autotensor.codegen.library.write import Library, write_library
from autotensor.runtime.function import CompiledFunction


def write_c(function: CompiledFunction, folder: str | Path, *, name: str = "") -> Library:
    """Writes a kernel or model as a C library: header, object, weights, an example and, where a linker is
    found, a shared library. The library's results have the same bits as those of `function`.

    name: the beginning of the names of its C functions and files; the function's own name if it is empty.
    The function's constants must be bound. docs/deploy.md shows the C side.
    Raises InputError for a name that C does not allow, a folder that cannot be written, and an object that is
    not a single compiled function; TargetError for a function that runs on a device; ArtifactError for
    constants without values.
    """
    artifacts = function._bound() if isinstance(function, CompiledFunction) else ()
    if len(artifacts) != 1:
        raise InputError(
            f"a C library holds one compiled function; this is a {type(function).__name__}.",
            fix="Give what at.build, at.compile_model or at.load returned for one set of shapes.",
        )
    return write_library(artifacts[0], folder, name)


__all__ = ["write_c"]
