"""Saved kernels and models. To load and run them, only NumPy and llvmlite are needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autotensor.base.errors import ArtifactError, CodegenError
from autotensor.runtime import saved_model
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.module import Module
from autotensor.runtime.modules_by_shape import ByShape
from autotensor.runtime.open_artifact import Function


def load(path: str | Path, *, threads: int | None = None, recompile: bool = False) -> Function:
    """A saved kernel or model, ready to call. If it was saved for several shapes, it takes each of them.

    threads: the number for every call; None means OMP_NUM_THREADS or all cores. recompile: make its code anew
    for this CPU. Raises ArtifactError for a file that is broken, too new, or needs a CPU feature that this
    machine lacks; TargetError for a file whose kernels need something that its target lacks.
    """
    if str(path).endswith(".onnx"):
        raise ArtifactError(
            f"{path} is an ONNX model, not a compiled one.",
            fix="at.OnnxModel calls it; `autotensor tune` makes an .atm file of it.",
        )
    if str(path).endswith((".pt2", ".pt", ".pth")):
        raise ArtifactError(
            f"{path} is a file of torch, not a compiled model.",
            fix="`autotensor tune` makes an .atm file of it; at.from_torch(torch.export.load(path)) reads it."
            if str(path).endswith(".pt2")
            else "Export the module: torch.export.save(torch.export.export(net, (x,)), 'net.pt2').",
        )
    if not recompile:
        return saved_model.load(path, threads=threads, check=_fitting)
    return saved_model.load(path, threads=threads, recompile=True, compiler=_compile_text)


def by_shape(modules: Sequence[Module]) -> ByShape:
    """Makes one function of modules that were compiled for different shapes, for example batch sizes.

    A call goes to the module that was compiled for the shapes of its inputs. `save` writes all modules to one
    file, and shared weights only once. Raises ArgumentError for modules that differ in more than shapes, or
    that have the same shapes.
    """
    return ByShape(modules)


def _fitting(artifact: Artifact) -> Artifact:
    """The artifact. Raises TargetError if a card cannot launch its kernels."""
    if artifact.target.kind == "cuda":  # other targets need no code generation for loading
        from autotensor.codegen.c.resources import refuse_unfit

        return refuse_unfit(artifact)
    return artifact


def _compile_text(text: str) -> tuple[bytes, tuple[str, ...]]:
    """Object code of LLVM text for this machine, and the CPU features it needs. A child compiles it: the text
    of a file may crash LLVM."""
    from autotensor.base.target import host
    from autotensor.codegen.llvm.backend import needs
    from autotensor.codegen.llvm.build_child import build_apart
    from autotensor.codegen.llvm.foreign_text import adapted

    here = host()
    text, features = adapted(text, here)
    try:
        code, _ = build_apart(text, here.triple, here.arch, features)
    except CodegenError as error:
        raise ArtifactError(f"its LLVM text cannot be compiled: {error.what}") from error
    return code, needs(here)
