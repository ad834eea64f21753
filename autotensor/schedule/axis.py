"""Axes of a stage, their marks, and the rules for names.

Names are predictable, so that traces, golden files and messages use the same names:

    split of `i` in n parts      i.0 … i.(n-1), outer to inner
    fuse of `a` and `b`          (a*b)
    copy of `A` read by `C`      A.local:C   (scope in the middle)
    write cache of `C`           C.local
    partial results of `C`       C.rf, C.rf1, …
    `W` in another layout        W.packed

Different things never get the same name, because the names that users give contain none of `. * : ( )`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from autotensor.te.tensor import AxisKind


class Mark(enum.Enum):
    """How a loop runs."""

    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    UNROLLED = "unrolled"
    BOUND = "bound"  # bound to an axis of GPU threads, which Axis.thread names

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Axis:
    """One loop of a stage. `extents.py` derives its extent, because attaching a stage changes it."""

    name: str
    kind: AxisKind
    mark: Mark = Mark.SERIAL
    thread: str = ""


def split_names(name: str, parts: int) -> tuple[str, ...]:
    return tuple(f"{name}.{n}" for n in range(parts))


def fuse_name(a: str, b: str) -> str:
    return f"({a}*{b})"


def fresh(name: str, taken: set[str], reader: str = "") -> str:
    """`name` + `reader`. If that is taken, the first free number comes between: `A.local:C`, `A.local1:C`."""
    candidate, n = name + reader, 0
    while candidate in taken:
        n += 1
        candidate = f"{name}{n}{reader}"
    return candidate
