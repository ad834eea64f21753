"""Opening an artifact, whatever it was compiled for."""

from __future__ import annotations

from autotensor.runtime.artifact import Artifact
from autotensor.runtime.device import DEVICE_KINDS
from autotensor.runtime.device_module import DeviceModule
from autotensor.runtime.module import Module

Function = Module | DeviceModule


def open_artifact(artifact: Artifact, threads: int | None = None) -> Function:
    """The function to call: on this processor, or on the device that the artifact's target names.

    Raises ArtifactError or TargetError when this machine cannot run it.
    """
    if artifact.target.kind in DEVICE_KINDS:
        return DeviceModule(artifact)
    return Module(artifact, threads=threads)
