"""Constants of a program for another processor, prepared by this one.

    text of the artifact ──entry of `run` made internal, so that LLVM drops it──▶ object of `prepare` for here

What prepares constants (copies, panels, transforms of filters) is written in plain LLVM, whatever the target:
dot instructions and their like stand in `run` only. Layouts are the target's own, for the loops are.
"""

from __future__ import annotations

from dataclasses import replace

from autotensor.base.target import host
from autotensor.codegen.llvm.backend import needs
from autotensor.codegen.llvm.build import build
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.linking.loader import fits_here


def preparing_here(artifact: Artifact) -> Artifact:
    """An artifact that this machine can bind constants in: the same if it can run it, else one that only
    prepares."""
    text = artifact.texts.get("llvm")
    if artifact.target.kind != "llvm" or artifact.prepare is None or text is None or fits_here(artifact):
        return artifact
    run = f"define void @{artifact.entry}("
    text = text.replace(run, run.replace("void", "internal void", 1))
    here = replace(host(), denormals=artifact.target.denormals, num_cores=artifact.target.num_cores)
    code = build(text, here).object
    return replace(artifact, target=here, entry=artifact.prepare, objects=(code,), needs=needs(here))


__all__ = ["preparing_here"]
