"""The facts that machines must share so that their times may be compared, and a tag made from these facts.

A worker offers the tag as a resource of dask. An address would not work, because a restarted worker has
another one.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotensor.base.machine import HostMachine, host_machine
from autotensor.base.target import Target, host
from autotensor.runtime.place import Place
from autotensor.search.measuring.measure_request import Who
from autotensor.search.measuring.provenance import code_here, host_here

EXCLUSIVE = "exclusive"  # each worker has one unit of this resource, and each batch takes one


@dataclass(frozen=True, slots=True)
class MachineClass:
    """Machines with one processor model, one number of threads and one version of the code."""

    machine: HostMachine
    target: Target  # the processor, with the number of threads that the workers use
    code: str  # key of the sources, because other sources compile other kernels

    @property
    def tag(self) -> str:
        return f"{self.machine.fingerprint[:12]}-t{self.target.num_cores}-{self.code[:8]}"

    @property
    def place(self) -> Place:
        return Place(self.machine, self.target)

    def __str__(self) -> str:
        return f"{self.tag} ({self.machine.cpu_model}, {self.target.num_cores} threads)"


def class_here(threads: int | None = None) -> MachineClass:
    """The class of this machine. threads: threads of a kernel; None: all that this process may use."""
    target = host()
    return MachineClass(host_machine(), target.with_threads(threads or target.num_cores), code_here().key)


def who_here() -> Who:
    return Who(host_here(), code_here())


__all__ = ["EXCLUSIVE", "MachineClass", "class_here", "who_here"]
