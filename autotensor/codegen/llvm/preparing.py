"""Prepares, on this machine, the constants of a program for another processor.

    text of the artifact ──entry of `run` made internal, so that LLVM drops it──▶ object of `prepare` for here

The code that prepares constants (copies, panels, transforms of filters) is plain LLVM for every target: dot
instructions and similar ones stand only in `run`. The layouts are still the target's, because the loops are
those of the target.
"""

from __future__ import annotations

from dataclasses import replace

from autotensor.base.target import host
from autotensor.codegen.llvm.backend import needs
from autotensor.codegen.llvm.build import build
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.linking.loader import fits_here


def preparing_here(artifact: Artifact) -> Artifact:
    """An artifact in which this machine can bind constants. This is the same artifact if this machine can run
    it, else one that only prepares."""
    text = artifact.texts.get("llvm")
    if artifact.target.kind != "llvm" or artifact.prepare is None or text is None or fits_here(artifact):
        return artifact
    run = f"define void @{artifact.entry}("
    text = text.replace(run, run.replace("void", "internal void", 1))
    here = replace(host(), denormals=artifact.target.denormals, num_cores=artifact.target.num_cores)
    code = build(text, here).object
    return replace(artifact, target=here, entry=artifact.prepare, objects=(code,), needs=needs(here))


__all__ = ["preparing_here"]
