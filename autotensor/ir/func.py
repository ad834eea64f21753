"""Functions of the loop IR: buffers, kernels and programs.

A `Program` is the result of lowering one schedule. Its `prepare` kernels depend only on constants and run
once; its `run` kernels run at every call. All of them have the same list of parameters (`args`).
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
    """The memory in which a buffer lies."""

    GLOBAL = "global"
    SHARED = "shared"  # shared by a GPU block
    LOCAL = "local"  # of one thread: on the stack or in a per-thread workspace
    REGISTER = "register"  # one value for each element; every index must become a constant

    __hash__ = object.__hash__


class Buffer(Node):
    """A named array. `strides` are in elements, outermost first; () means row-major. `shape` are ints.

    extents: the shape as expressions, if it is known only at run time; `shape` is then the greatest shape.
    swizzle: (chunk, line) in elements: lowering will exchange chunks within lines, see ir/swizzle.py.
    turns: number of iterations of a loop whose boxes the buffer holds, if copies may be under way; else 0.
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
        """The number of elements."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * self.dtype.bytes

    @property
    def span(self) -> int:
        """The number of elements from the first to the last, with those that strides leave out."""
        if 0 in self.shape:
            return 0
        return 1 + sum((n - 1) * step for n, step in zip(self.shape, self.row_major(), strict=True))

    def row_major(self) -> tuple[int, ...]:
        """The strides in elements, whether given or implied."""
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
    """One kernel. `params` are the global buffers that it reads or writes, in the program's order."""

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
    CONSTANT = "constant"  # given once, by `bind`
    PREPARED = "prepared"  # written by the prepare part, read by the run part
    OUTPUT = "output"
    WORKSPACE = "workspace"  # written and read within one call

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Program(ShownInNotebooks):
    """Kernels in order and the arguments that they share.

    overlapping: names of arguments that may share bytes with one another; all other arguments share none.
    index_ranges: name of an argument that holds indices → the least and the largest index inside the tensor.
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
