"""The time of each kernel of a linked model on a device, at its position in the model, by the device's clock.

This has the same members as kernel_times.py for processors: `kernels` are the model's kernels, and `round()`
gives seconds for each of them in the plan's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotensor.runtime.arrays import Array
from autotensor.runtime.device.contract import Run
from autotensor.runtime.device.module import DeviceModule
from autotensor.runtime.files.artifact import Artifact


class DeviceKernelClock:
    """A linked model that is run kernel by kernel on its device."""

    def __init__(self, artifact: Artifact, arrays: Sequence[Array]) -> None:
        """arrays: the model's inputs."""
        self.kernels: Sequence[dict[str, Any]] = artifact.meta.get("kernels") or ()
        self._module = DeviceModule(artifact)
        self._runs: list[Run] = self._module.plans([int(k["launches"]) for k in self.kernels], arrays)

    def round(self) -> list[float]:
        """Seconds of every kernel in one inference, in the plan's order."""
        device = self._module.device
        with device.lock:
            return [device.seconds(run, 1) for run in self._runs]

    def spans(self) -> list[tuple[tuple[int, float, float], ...]]:
        """When each kernel ran in one inference, from 0 on. A device runs one kernel after another."""
        spans: list[tuple[tuple[int, float, float], ...]] = []
        began = 0.0
        for seconds in self.round():
            spans.append(((0, began, began + seconds),))
            began += seconds
        return spans
