"""Opening an artifact, whatever it was compiled for."""

from __future__ import annotations

from autotensor.base.plugins import plugin
from autotensor.runtime.device.module import DeviceModule
from autotensor.runtime.files.artifact import OPEN_SHAPES, Artifact
from autotensor.runtime.files.launches import DEVICE_KINDS
from autotensor.runtime.module import Module
from autotensor.runtime.open_module import OpenModule
from autotensor.runtime.simulated import Hosted

Function = Module | DeviceModule | Hosted


def open_artifact(artifact: Artifact, threads: int | None = None, key: str = "") -> Function:
    """The function to call: on this processor, on the device that the artifact's target names, or as a
    plug-in's target does it. key: as in `Module`.

    Raises ArtifactError or TargetError when this machine cannot run it.
    """
    if artifact.target.kind in DEVICE_KINDS:
        return DeviceModule(artifact)
    brought = plugin(artifact.target.kind)
    if brought is not None:
        opened: Hosted = brought.open(artifact, threads)
        return opened
    return module_of(artifact, threads, key)


def module_of(artifact: Artifact, threads: int | None = None, key: str = "") -> Module:
    """The function of this processor's code. key: as in `Module`."""
    kind = OpenModule if artifact.meta.get(OPEN_SHAPES) else Module
    return kind(artifact, threads=threads, key=key)


def ready(artifact: Artifact, threads: int | None = None) -> Artifact:
    """The artifact with all prepared that calls read, if its constants have values.

    Raises ArtifactError or TargetError when this machine cannot prepare it.
    """
    unmade = [a for a in artifact.role("prepared") if a.name not in artifact.values]
    free = [a for a in artifact.role("constant") if a.name not in artifact.values]
    if free or not unmade:
        return artifact
    return open_artifact(artifact, threads).ready
