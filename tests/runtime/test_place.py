"""Times are valid for a machine, a target and a card: the facts that make two places different, and those
that do not."""

from __future__ import annotations

from dataclasses import replace

import psutil
import pytest

from autotensor.base.errors import TargetError
from autotensor.base.machine import HostMachine, host_machine
from autotensor.base.target import parse
from autotensor.runtime import place
from autotensor.runtime.device.device_identity import ABSENT, DeviceIdentity
from autotensor.runtime.device.devices import open_device
from autotensor.runtime.place import Place, here

MACHINE = HostMachine("Some CPU (1/2/3)", ("avx2", "fma"), 8, (32768, 1048576))
CARD = DeviceIdentity("NVIDIA H100 80GB HBM3", 85_520_809_984, 132, "570.86.15")
CUDA = parse("cuda -arch=sm_90")


def test_a_processor_keeps_its_fingerprint() -> None:
    """Old logs contain it in many rows."""
    assert MACHINE.fingerprint == "14461c92e63576fc2331fcdb"
    assert Place(MACHINE, parse("llvm")).fingerprint == MACHINE.fingerprint
    assert here(parse("llvm")).fingerprint == host_machine().fingerprint


@pytest.mark.parametrize(
    "other",
    [
        replace(CARD, name="NVIDIA H200"),
        replace(CARD, memory=150_754_820_096),
        replace(CARD, units=114),
        replace(CARD, driver="580.65.06"),
    ],
)
def test_cards_of_one_architecture_are_told_apart(other: DeviceIdentity) -> None:
    assert Place(MACHINE, CUDA, other).fingerprint != Place(MACHINE, CUDA, CARD).fingerprint


def test_the_same_card_is_the_same() -> None:
    one = Place(MACHINE, CUDA, CARD)
    assert one.fingerprint == Place(MACHINE, CUDA, replace(CARD, driver="570.133.20")).fingerprint
    assert one.fingerprint not in (MACHINE.fingerprint, Place(MACHINE, CUDA, ABSENT).fingerprint)
    assert one.fingerprint != Place(replace(MACHINE, cores=16), CUDA, CARD).fingerprint
    assert one.task("w") == ("w", CUDA.key(), one.fingerprint)


def test_without_the_card_nothing_was_measured_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(target: object) -> object:
        raise TargetError("no card.")

    monkeypatch.setattr(place, "device_of", absent)
    here.cache_clear()
    try:
        assert here(CUDA).device == ABSENT
    finally:
        here.cache_clear()


@pytest.mark.opencl
def test_a_device_that_stands_for_a_card_has_its_own_fingerprint() -> None:
    found = here(parse("opencl -device=gpu"))
    assert found.device is not None
    assert found.device.memory > 0
    assert found.device.units > 0
    assert found.fingerprint != host_machine().fingerprint
    assert here(parse("opencl")).fingerprint == host_machine().fingerprint  # the processor's schedules


@pytest.mark.opencl
def test_a_processor_that_stands_for_a_card_is_the_same_whatever_memory_is_free() -> None:
    """PoCL's own number differs from process to process: a run would not find what it had measured."""
    device = open_device("opencl", "Portable Computing", card=True)
    assert device.identity.memory == psutil.virtual_memory().total
