"""The result of verifying a model: a row for each kernel, and the complaints about the whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class KernelCheck:
    """The result for one kernel of a model."""

    number: int  # its index in the order in which kernels run
    name: str
    workload: str  # the workload's key; "" if not known
    error: float  # largest error of all elements, in units of the tolerance
    complaint: str = ""  # empty: the kernel is right
    beside: str = "float64"  # the reference
    drift: float | None = None  # largest difference from a float64 run, over the largest element
    trial: int | None = None  # the trial of the log that found its schedule
    trace: str = ""  # its schedule as text

    @property
    def is_right(self) -> bool:
        return not self.complaint


@dataclass(frozen=True, slots=True)
class Report:
    """All kernels of a model, and the model as a whole."""

    model: str
    kernels: tuple[KernelCheck, ...]
    complaints: tuple[str, ...]  # about the whole, not about one kernel
    seconds: float
    script: Path | None = None  # a script that shows the first wrong kernel

    @property
    def first(self) -> KernelCheck | None:
        """The first wrong kernel."""
        return next((k for k in self.kernels if not k.is_right), None)

    @property
    def is_right(self) -> bool:
        return self.first is None and not self.complaints

    def __str__(self) -> str:
        if self.first is not None:
            first = self.first
            return f"{self.model}: kernel {first.number}, {first.name}, is wrong: {first.complaint}"
        if self.complaints:
            return f"{self.model}: {self.complaints[0]}"
        return f"{self.model}: all {len(self.kernels)} kernels are right ({self.seconds:.0f} s)."
