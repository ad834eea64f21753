"""Saved kernels and models. NumPy and llvmlite are all that loading and running need."""

from __future__ import annotations

from pathlib import Path

from autotensor.runtime import model
from autotensor.runtime.module import Module


def load(path: str | Path, *, threads: int | None = None, recompile: bool = False) -> Module:
    """A saved kernel or model, ready to call.

    threads: for every call; None means OMP_NUM_THREADS or all cores. recompile: make its code anew for this CPU.
    Raises ArtifactError for a file that is broken, too new, or needs a CPU feature that is not here.
    """
    if not recompile:
        return model.load(path, threads=threads)
    from autotensor.codegen.llvm import compile_text  # only who recompiles pays for the code generator

    return model.load(path, threads=threads, recompile=True, compiler=compile_text)
