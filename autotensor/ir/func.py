"""Functions of the loop IR: buffers, kernels and programs.

A `Program` is the result of lowering one schedule: `prepare` kernels, which depend on constants only and run
once, and `run` kernels, which run at every call. All of them see the same list of parameters (`args`).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from math import prod
from typing import Any

from autotensor.base.dtype import DType
from autotensor.ir.expr import Expr, const
from autotensor.ir.node import Node
from autotensor.ir.notebook import ShownInNotebooks
from autotensor.ir.stmt import Stmt

Extents = tuple[Expr, ...]


class Scope(enum.Enum):
    """Where a buffer lives."""

    GLOBAL = "global"
    SHARED = "shared"  # of a GPU block
    LOCAL = "local"  # of one thread: stack or per-thread workspace
    REGISTER = "register"  # one value per element; every index must become a constant

    __hash__ = object.__hash__


class Buffer(Node):
    """A named array. `strides` are in elements, outermost first; () means row-major. `shape` are ints.

    extents: where the shape is known at run time only, what it is; `shape` is then the greatest one.
    swizzle: (chunk, line) in elements: lowering will exchange chunks within lines, see ir/swizzle.py.
    turns: of how many turns of a loop boxes are kept here, if copies may be on their way; else 0.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    scope: Scope = Scope.GLOBAL
    strides: tuple[int, ...] = ()
    swizzle: tuple[int, ...] = ()
    turns: int = 0
    extents: Extents = ()

    @property
    def dims(self) -> tuple[Expr, ...]:
        """The shape at run time."""
        return self.extents or tuple(map(const, self.shape))

    @property
    def size(self) -> int:
        """Elements."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * self.dtype.bytes

    @property
    def span(self) -> int:
        """Elements from the first to the last, those that strides leave out included."""
        if 0 in self.shape:
            return 0
        return 1 + sum((n - 1) * step for n, step in zip(self.shape, self.row_major(), strict=True))

    def row_major(self) -> tuple[int, ...]:
        """Strides in elements, given or implied."""
        if self.strides:
            return self.strides
        out, step = [], 1
        for n in reversed(self.shape):
            out.append(step)
            step *= n
        return tuple(reversed(out))


@dataclass(frozen=True, slots=True)
class Launch:
    """GPU launch dimensions."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PrimFunc(ShownInNotebooks):
    """One kernel: `params` are the global buffers it touches, in the program's order."""

    name: str
    params: tuple[Buffer, ...]
    body: Stmt
    launch: Launch | None = None
    attrs: tuple[tuple[str, Any], ...] = ()

    def attr(self, key: str, default: Any = None) -> Any:
        return dict(self.attrs).get(key, default)

    def __str__(self) -> str:
        from autotensor.ir.printer import to_text  # the printer imports all nodes

        return to_text(self)


class Role(enum.Enum):
    """The role of a program's argument for its caller."""

    INPUT = "input"
    CONSTANT = "constant"  # given once, with bind
    PREPARED = "prepared"  # written by the prepare part, read by the run part
    OUTPUT = "output"
    WORKSPACE = "workspace"  # written and read within one call

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Program(ShownInNotebooks):
    """Kernels in order and the arguments that they share.

    overlapping: names of arguments that may lie in the same bytes as one another; all others share nothing.
    index_ranges: by name of an argument that holds indices, the least and the largest that are inside.
    """

    args: tuple[tuple[Buffer, Role], ...]
    prepare: tuple[PrimFunc, ...]
    run: tuple[PrimFunc, ...]
    texts: dict[str, str] = field(default_factory=dict, compare=False)  # "te", "nest", "ir": kept for people
    overlapping: frozenset[str] = frozenset()
    index_ranges: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __str__(self) -> str:
        from autotensor.ir.printer import to_text

        return to_text(self)

    def buffers(self, *roles: Role) -> tuple[Buffer, ...]:
        return tuple(b for b, r in self.args if not roles or r in roles)
