"""The device for a target, opened once per process."""

from __future__ import annotations

import os
from functools import cache

from autotensor.base.errors import TargetError
from autotensor.base.target import Target
from autotensor.runtime.device.contract import Device
from autotensor.runtime.files.launches import DEVICE_KINDS


def device_of(target: Target) -> Device:
    """The device for a target. An OpenCL target may name the platform, and says whether a card or a processor
    is preferred."""
    if target.kind == "opencl":
        return open_device("opencl", target.arch, card=target.on_card)
    return open_device(target.kind)


def open_device(kind: str, platform: str = "", *, card: bool = False) -> Device:
    """The device of one kind, opened once per process. Raises a TargetError of one sentence if there is none.

    card: for OpenCL, whether a card or a processor is preferred.
    """
    device = opened(kind, platform, card)
    check_process(device)
    return device


_homes: dict[int, int] = {}  # identity of a device ▶ the process that opened it


def check_process(device: Device) -> None:
    """Raises TargetError in a forked child of the process that opened the device. The child lacks the
    driver's threads, so a call would fail, or wait for ever for them."""
    if _homes.get(id(device), os.getpid()) != os.getpid():
        raise TargetError(
            f"target {device.kind!r} cannot be used in this forked process: its parent has opened it.",
            fix="Use it after the fork only, or start processes by spawn.",
        )


@cache
def opened(kind: str, platform: str, card: bool) -> Device:
    """The device that `open_device` keeps. (Card and processor are different devices, even on PoCL.)"""
    device = _open(kind, platform, card)
    _homes[id(device)] = os.getpid()
    return device


def _open(kind: str, platform: str, card: bool) -> Device:
    match kind:
        case "opencl":
            from autotensor.runtime.device.opencl import OpenCLDevice

            return OpenCLDevice(platform, card=card)
        case "cuda":
            from autotensor.runtime.device.cuda import CudaDevice

            return CudaDevice()
        case _:
            raise TargetError(
                f"there is no device of kind {kind!r}.", fix=f"Known: {', '.join(DEVICE_KINDS)}."
            )
