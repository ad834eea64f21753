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


def open_artifact(artifact: Artifact, threads: int | None = None) -> Function:
    """The function to call: on this processor, on the device that the artifact's target names, or as a
    plug-in's target does it.

    Raises ArtifactError or TargetError when this machine cannot run it.
    """
    if artifact.target.kind in DEVICE_KINDS:
        return DeviceModule(artifact)
    brought = plugin(artifact.target.kind)
    if brought is not None:
        opened: Hosted = brought.open(artifact, threads)
        return opened
    return module_of(artifact, threads)


def module_of(artifact: Artifact, threads: int | None = None) -> Module:
    """The function of this processor's code."""
    return (OpenModule if artifact.meta.get(OPEN_SHAPES) else Module)(artifact, threads=threads)
