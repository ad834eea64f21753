"""Checks a linked plan value by value: where each value lies, and which arguments share bytes.

    step 3   dense(x, w) ─▶ y        reads w at w+0     ✓ the bytes hold w
    step 4   w - 0.1 * g ─▶ w'       writes w+0         ✓ reads w only where it writes w'
    step 5   dense(h, w) ─▶ z        reads w at w+0     ✗ the bytes hold w' by now

Kernels are compiled for arrays that share no bytes (`noalias` on every pointer), except for arguments that
the plan names. A result may lie where an input lies if each element of the input is read only for the
result's element in the same place, and if the kernel was compiled for that (`in_place_values.py` plans it).
Every plan is checked here, whichever part of the compiler made it: memory, updates or the order of kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotensor.base.errors import GraphError
from autotensor.graph.in_place_values import reads_in_place
from autotensor.graph.ir import GraphNode
from autotensor.te.dag import ComputeDAG


@dataclass(frozen=True, slots=True)
class Place:
    """Where an argument of a kernel lies: an argument of the model and an offset in bytes."""

    arg: str
    offset: int = 0
    bytes: int = 0

    def meets(self, other: Place) -> bool:
        """Whether the two places share a byte."""
        if self.arg != other.arg or not self.bytes or not other.bytes:
            return False
        return self.offset < other.offset + other.bytes and other.offset < self.offset + self.bytes

    def __str__(self) -> str:
        return f"{self.arg}+{self.offset}"


@dataclass(frozen=True, slots=True)
class Touch:
    """One argument of a kernel: its name in the kernel's workload, its value, and its place."""

    name: str
    place: Place
    written: bool
    value: GraphNode | None = None  # None: scratch, or an array outside the graph
    whole: Place | None = None  # the place of the whole value, if the kernel reads only a part of it

    @property
    def held(self) -> Place:
        """Where the value lies."""
        return self.whole or self.place


@dataclass(frozen=True, slots=True)
class KernelUse:
    """One kernel of a plan."""

    name: str
    dag: ComputeDAG
    touches: tuple[Touch, ...]
    overlapping: frozenset[str] = frozenset()  # arguments that may share bytes by design


def check_plan(kernels: Sequence[KernelUse], inputs: Mapping[GraphNode, Place]) -> None:
    """Raises GraphError for a kernel that reads bytes which no longer hold its argument.

    It also raises the error if a result lies where an argument lies, unless each element of the result needs
    only the argument's element in the same place.
    """
    contents = {place: value for value, place in inputs.items()}
    for kernel in kernels:
        _check_shared(kernel)
        for touch in kernel.touches:
            if touch.written or touch.value is None or not touch.place.bytes:
                continue
            if contents.get(touch.held) is not touch.value:
                raise GraphError(
                    f"kernel {kernel.name!r} reads {touch.name} at {touch.place}, where another value lies "
                    "by then: the plan's order is wrong."
                )
        for touch in kernel.touches:
            if touch.written:
                contents = {p: v for p, v in contents.items() if not p.meets(touch.place)}
        contents |= {t.held: t.value for t in kernel.touches if t.written and t.value is not None}


def _check_shared(kernel: KernelUse) -> None:
    """Checks a kernel's own arguments: a result may lie over another argument only elementwise."""
    for n, result in enumerate(kernel.touches):
        for m, other in enumerate(kernel.touches):
            if n == m or not result.written or not result.place.meets(other.place):
                continue
            exactly = result.place == other.place and not other.written
            if not exactly or not reads_in_place(kernel.dag, other.name, result.name):
                raise GraphError(
                    f"kernel {kernel.name!r} writes {result.name} at {result.place} over {other.name} at "
                    f"{other.place}, of which it reads other elements than the one it writes: it is compiled "
                    "for arrays that share nothing.",
                    fix="Compute the result apart, and store it when the kernel is done.",
                )
            if not kernel.overlapping.issuperset((result.name, other.name)):
                raise GraphError(
                    f"kernel {kernel.name!r} writes {result.name} over {other.name} at {other.place}; it is "
                    "compiled for arrays that share nothing.",
                    fix="Compile it with `overlapping` as `overlapping_arguments` says.",
                )
