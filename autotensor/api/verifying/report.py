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
class Distance:
    """How far a result of the model is from the reference's, at the element where it is farthest."""

    result: str
    reference: str  # "float64", "onnxruntime", …
    absolute: float  # infinite if one of the two is not a number
    relative: float  # the same as a share of the reference's largest element
    at: tuple[int, ...]
    ours: float
    theirs: float

    def __str__(self) -> str:
        if self.absolute == 0:
            return f"Result {self.result!r} equals that of {self.reference}."
        return (
            f"Result {self.result!r} differs from that of {self.reference} by at most {self.absolute:.2g} "
            f"({self.relative:.2g} of its largest element), at {list(self.at)}: {self.ours:.9g} here, "
            f"{self.theirs:.9g} there."
        )


@dataclass(frozen=True, slots=True)
class Report:
    """All kernels of a model, and the model as a whole."""

    model: str
    kernels: tuple[KernelCheck, ...]
    complaints: tuple[str, ...]  # about the whole, not about one kernel
    seconds: float
    script: Path | None = None  # a script that shows the first wrong kernel
    unwritten: str = ""  # why the requested script was not written
    distances: tuple[Distance, ...] = ()  # of the model's results from each reference of `against`

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
            lack = f" ({self.unwritten})" if self.unwritten else ""
            return f"{self.model}: kernel {first.number}, {first.name}, is wrong: {first.complaint}{lack}"
        if self.complaints:
            return f"{self.model}: {self.complaints[0]}"
        return f"{self.model}: {_all(len(self.kernels))} right ({self.seconds:.0f} s)."


def _all(kernels: int) -> str:
    """
    >>> _all(1), _all(3)
    ('its one kernel is', 'all 3 kernels are')
    """
    return "its one kernel is" if kernels == 1 else f"all {kernels} kernels are"
