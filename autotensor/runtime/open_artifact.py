"""Opens an artifact for any target."""

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
    """The function to call. It runs on this processor, on the device that the artifact's target names, or in
    the way of a plug-in's target. key: as for `Module`.

    Raises ArtifactError or TargetError when this machine cannot run the artifact.
    """
    if artifact.target.kind in DEVICE_KINDS:
        return DeviceModule(artifact)
    brought = plugin(artifact.target.kind)
    if brought is not None:
        opened: Hosted = brought.open(artifact, threads)
        return opened
    return module_of(artifact, threads, key)


def module_of(artifact: Artifact, threads: int | None = None, key: str = "") -> Module:
    """The function of code for this processor. key: as for `Module`."""
    kind = OpenModule if artifact.meta.get(OPEN_SHAPES) else Module
    return kind(artifact, threads=threads, key=key)


def ready(artifact: Artifact, threads: int | None = None) -> Artifact:
    """The artifact with all arrays prepared that calls read, if its constants have values.

    Raises ArtifactError or TargetError when this machine cannot prepare the artifact.
    """
    unmade = [a for a in artifact.role("prepared") if a.name not in artifact.values]
    free = [a for a in artifact.role("constant") if a.name not in artifact.values]
    if free or not unmade:
        return artifact
    return open_artifact(artifact, threads).ready
