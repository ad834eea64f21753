"""Tensors of a te program: placeholders, and results of computes.

Objects compare by identity: two unnamed placeholders of one shape are two tensors. Indexing a tensor gives a
`Load`, so that `A[i, k] * B[k, j]` is an expression. Start reading at `te/compute.py`.
"""

from __future__ import annotations

import enum
import itertools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from autotensor.base.absent_names import absent, takes_its_names
from autotensor.base.counted import counted
from autotensor.base.dtype import DType, dtype_of, int64
from autotensor.base.errors import TensorError
from autotensor.ir.arithmetic import Arithmetic, Equality
from autotensor.ir.expr import NUMBERS, Cmp, Expr, Load, Var, as_expr, cast
from autotensor.ir.printer import to_text
from autotensor.ir.visit import walk
from autotensor.te.symbols import checked_extent, greatest

_fresh = itertools.count()
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MOST_ELEMENTS = (1 << 60) - 1  # elements of a tensor: with eight bytes each, its size still fits 63 bits


class AxisKind(enum.Enum):
    """Whether an axis belongs to the tensor's shape or is summed over."""

    SPATIAL = "spatial"  # data-parallel
    REDUCE = "reduce"  # summed over

    __hash__ = object.__hash__


class Operable(Arithmetic):
    """Objects that can be used as an expression."""

    __slots__ = ()

    # As in Expr: the comparison is an expression; used as a bool, it says whether both are the same object.
    # Tensors compare by identity only.
    def __eq__(self, other: object) -> Any:
        if isinstance(other, (Expr, *NUMBERS)) or (isinstance(self, IterVar) and isinstance(other, IterVar)):
            return Equality(as_expr(self), as_expr(other), Cmp.EQ)
        return self is other

    def __ne__(self, other: object) -> Any:
        if isinstance(other, (Expr, *NUMBERS)) or (isinstance(self, IterVar) and isinstance(other, IterVar)):
            return Equality(as_expr(self), as_expr(other), Cmp.NE)
        return self is not other

    __hash__ = object.__hash__


class Range(NamedTuple):
    """The numbers min … min + extent - 1."""

    min: int
    extent: int


class IterVar(Operable):
    """One axis of a compute: a variable running over 0 … extent - 1."""

    __slots__ = ("extent", "kind", "name", "var")

    def __init__(self, name: str, extent: int, kind: AxisKind) -> None:
        self.name = name
        self.extent = extent
        self.kind = kind
        # users repeat names ("k" twice in one expression) and vars are interned by name, so a number is added
        self.var = Var(f"{name}#{next(_fresh)}", int64)

    @property
    def dom(self) -> Range:
        """Its range, in TVM's spelling: `axis.dom.extent`."""
        return Range(0, self.extent)

    def __repr__(self) -> str:
        return f"IterVar({self.name}, {self.extent}, {self.kind.value})"


@dataclass(eq=False, slots=True)
class Placeholder:
    """An input. A constant input (weights) gets its value once, by `bind`, and may be prepared in advance."""

    name: str
    constant: bool = False


_VALUES = "a tensor of te has no values; at.build makes a function, which takes and gives NumPy arrays"
_INDICES = "write a te.compute over the new axes: te.compute((n, m), lambda i, j: A[j, i])"
_SAME = "write a is b"
_OP_ELSEWHERE = {  # attributes of TVM's operations → what to write here
    "attrs": "leave it out; attributes have no effect here",
    "num_outputs": "it is len(C.op.body)",
    "same_as": _SAME,
    "scan_axis": "the steps of te.scan are the first axis: C.op.axis[0]",
}
_ELSEWHERE = {  # attributes of other systems' tensors → what to write here
    "axis": "the axes of the stage that computes a tensor are C.op.axis and C.op.reduce_axis",
    **dict.fromkeys(("asnumpy", "numpy", "item", "tolist", "copyto"), _VALUES),
    **dict.fromkeys(("T", "reshape", "transpose", "flatten", "sum", "mean"), _INDICES),
    "same_as": _SAME,
    "value_index": "it is A.index",
}


class Tensor(Operable):
    """A tensor: its `shape` (ints), the `op` that defines it, and the `index` among the op's outputs."""

    __slots__ = ("dtype", "index", "op", "shape")

    if not TYPE_CHECKING:  # type checkers should still report unknown names

        def __getattr__(self, name: str) -> Any:
            raise absent("A", name, self, _ELSEWHERE)

    def __init__(
        self, shape: tuple[int, ...], dtype: DType, op: Placeholder | Compute, index: int = 0
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.op = op
        self.index = index

    @property
    def name(self) -> str:
        return self.op.name if self.index == 0 else f"{self.op.name}_v{self.index}"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, indices: Any) -> Load:
        given = indices if isinstance(indices, tuple) else (indices,)
        if len(given) != len(self.shape):
            indices = counted(len(given), "index", "indices")
            all_axes = ", ".join("ijklmn"[: self.ndim] if self.ndim <= 6 else ("i", "j", "..."))
            raise TensorError(
                f"tensor {self.name!r} of shape {self.shape} was indexed with {indices}; "
                f"it has {counted(self.ndim, 'axis', 'axes')}.",
                fix=f"Write all indices in one pair of brackets: {self.name}[{all_axes}].",
            )
        exprs = tuple(as_expr(i) for i in given)
        for axis, e in enumerate(exprs):
            if not (e.dtype.is_int or e.dtype.is_bool):
                raise TensorError(
                    f"index {axis} of tensor {self.name!r} has type {e.dtype}; indices are integers.",
                    fix="Convert it with .astype('int64').",
                )
        return Load(self, tuple(cast(int64, e) for e in exprs))

    def __call__(self, *indices: Any) -> Load:
        return self[indices]

    def __iter__(self) -> Iterator[Any]:
        raise TensorError(f"tensor {self.name!r} cannot be iterated over.", fix="Index it: A[i, j].")

    def __len__(self) -> int:
        raise TensorError(f"tensor {self.name!r} has no length.", fix="Its extents are in A.shape.")

    def __bool__(self) -> bool:  # without it, Python would use the length
        return True

    def __repr__(self) -> str:
        return f"Tensor({self.name}, shape={self.shape}, {self.dtype})"

    def __str__(self) -> str:
        return str(self.op) if not isinstance(self.op, Placeholder) else repr(self)


class Compute:
    """A stage: `bodies[n]` over `axes` (and over `reduce_axes` inside a reduction) defines output n."""

    __slots__ = ("axes", "bodies", "name", "reduce_axes", "states", "tag")

    if not TYPE_CHECKING:  # type checkers should still report unknown names

        def __getattr__(self, name: str) -> Any:
            raise absent("C.op", name, self, _OP_ELSEWHERE)

    def __init__(
        self,
        name: str,
        axes: tuple[IterVar, ...],
        reduce_axes: tuple[IterVar, ...],
        bodies: tuple[Expr, ...],
        tag: str,
        states: tuple[Placeholder, ...] = (),
    ) -> None:
        """states: for a scan, the placeholders of earlier steps, one for each output."""
        self.name = name
        self.axes = axes
        self.reduce_axes = reduce_axes
        self.bodies = bodies
        self.tag = tag
        self.states = states

    def __repr__(self) -> str:
        return f"Compute({self.name}, shape={tuple(a.extent for a in self.axes)})"

    @property
    def axis(self) -> tuple[IterVar, ...]:
        """Spatial axes, in TVM's spelling."""
        return self.axes

    @property
    def body(self) -> tuple[Expr, ...]:
        """The bodies, in TVM's spelling."""
        return self.bodies

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        return self.reduce_axes

    def output(self, index: int) -> Tensor:
        """The tensor that body `index` defines."""
        return Tensor(tuple(a.extent for a in self.axes), self.bodies[index].dtype, self, index)

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """Tensors read, in order of first appearance."""
        seen: dict[int, Tensor] = {}
        for body in self.bodies:
            for node in walk(body):
                if isinstance(node, Load):
                    seen.setdefault(id(node.buffer), node.buffer)
        return tuple(seen.values())

    def __str__(self) -> str:
        shape = ", ".join(f"{a.name}: {a.extent}" for a in self.axes)
        names = {a.var.name: a.name for a in (*self.axes, *self.reduce_axes)}
        return f"{self.name}[{shape}] = {', '.join(to_text(b, names=names) for b in self.bodies)}"


def check_shape(shape: Any, where: str) -> tuple[int, ...]:
    """The shape as a tuple of non-negative ints; an int means rank one. Raises TensorError for anything else.

    Extents that are known only at run time (te/symbols.py) stay expressions.
    """
    items = tuple(shape) if isinstance(shape, Iterable) and not isinstance(shape, (str, Tensor)) else (shape,)
    out: list[Any] = []
    for n in items:
        if isinstance(n, Expr):
            out.append(checked_extent(n, where))
            continue
        if isinstance(n, (bool, Arithmetic)) or not hasattr(n, "__index__") or int(n) < 0:
            raise TensorError(
                f"{where}: shape {items!r} must consist of non-negative integers.",
                fix="Divide by //, which gives whole numbers." * isinstance(n, float),
            )
        out.append(int(n))
    if math.prod(map(greatest, out)) > MOST_ELEMENTS:
        raise TensorError(f"{where}: shape {tuple(out)} has more elements than addresses.")
    return tuple(out)


def check_name(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise TensorError(
            f"name {name!r} must be letters, digits and _ "
            "(schedules use . * : and brackets for derived names)."
        )
    return name


@takes_its_names("te.placeholder", {})
def placeholder(
    shape: Any, dtype: DType | str = "float32", name: str = "placeholder", constant: bool = False
) -> Tensor:
    """An input tensor; `constant=True` marks weights, which are prepared once.

    shape: ints. Raises TensorError for a bad shape, dtype or name.
    """
    return Tensor(
        check_shape(shape, f"placeholder {name!r}"), dtype_of(dtype), Placeholder(check_name(name), constant)
    )
