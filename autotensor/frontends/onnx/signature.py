"""The inputs and outputs of a model: names, element types, shapes with symbolic dimensions.

x: float32[batch, 3, 224, 224]      shapes={"batch": 8}  or  shapes={"x": (8, 3, 224, 224)}
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autotensor.base.dtype import DType
from autotensor.base.errors import InputError
from autotensor.base.registry import suggest
from autotensor.frontends.errors import Unsupported
from autotensor.frontends.onnx.element_types import element_type
from autotensor.frontends.onnx.messages import ValueInfoProto
from autotensor.frontends.onnx.onnx_file import Loaded
from autotensor.frontends.onnx.tensors import MAX_BYTES

Dim = int | str  # a number, or the name of a symbolic dimension; "?" if the dimension has no name
# some exporters write this extent for "any": it is 0 unless a call or `shapes` gives another number
UNSAID = 0
# name of an input → its shape, name of a symbolic dimension → its value
Shapes = Mapping[str, int | Sequence[int]]
_SPELLED = 'Write {"batch": 1} for a dimension, {"x": (1, 3, 224, 224)} for an input.'


@dataclass(frozen=True, slots=True)
class Argument:
    """One input or output of a model."""

    name: str
    dtype: DType | None  # None: not a tensor
    dims: tuple[Dim, ...] | None  # None: any rank

    def __str__(self) -> str:
        shape = "…" if self.dims is None else ", ".join(map(str, self.dims))
        return f"{self.name}: {self.dtype}[{shape}]" if self.dtype else f"{self.name}: not a tensor"

    def takes(self, shape: Sequence[int]) -> bool:
        """Whether an array of this shape fits the number of axes and the fixed extents."""
        if self.dims is None:
            return True
        return len(self.dims) == len(shape) and all(
            isinstance(d, str) or d in (n, UNSAID) for d, n in zip(self.dims, shape, strict=True)
        )


def inputs_of(model: Loaded) -> tuple[Argument, ...]:
    """The inputs that a call must give. Raises Unsupported for an element type that autotensor lacks."""
    return tuple(_argument(v) for v in given_by_calls(model))


def given_by_calls(model: Loaded) -> list[ValueInfoProto]:
    """The inputs without an initializer, of any kind."""
    held = {t.name for t in model.proto.graph.initializer}
    return [v for v in model.proto.graph.input if v.name not in held]


def outputs_of(model: Loaded) -> tuple[str, ...]:
    return tuple(v.name for v in model.proto.graph.output)


def _argument(v: ValueInfoProto) -> Argument:
    if v.type.WhichOneof("value") not in ("tensor_type", None):
        return Argument(v.name, None, None)
    t = v.type.tensor_type
    dtype = element_type(t.elem_type, f"input {v.name!r}")
    if not t.HasField("shape"):
        return Argument(v.name, dtype, None)
    dims: list[Dim] = []
    for d in t.shape.dim:
        # PaddleOCR writes -1 for an open extent
        is_number = d.WhichOneof("value") == "dim_value" and d.dim_value >= 0
        dims.append(int(d.dim_value) if is_number else d.dim_param or "?")
    return Argument(v.name, dtype, tuple(dims))


def bound(arguments: Sequence[Argument], shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """Every input's shape as numbers.

    Raises InputError for a dimension that stays unknown, a name that does not exist, a value that is not a
    size, or shapes that contradict the model or one another.
    """
    shapes = _checked(shapes)
    names = {a.name for a in arguments}
    dims = {d for a in arguments for d in a.dims or () if isinstance(d, str)}
    for name in shapes:
        if name not in names | dims:
            raise InputError(
                f"shapes: the model has no input and no dimension {name!r}.",
                fix=suggest(name, tuple(sorted(names | dims))),
            )
    numbers = {name: v for name, v in shapes.items() if isinstance(v, int) and name not in names}
    found: dict[str, tuple[int, ...]] = {}
    for a in arguments:
        if a.dtype is None:
            raise Unsupported(
                f"input {a.name!r} is not a tensor.", fix="Call the model through autotensor.OnnxModel."
            )
        if a.name in shapes:
            given = shapes[a.name]
            found[a.name] = _agreed(a, (given,) if isinstance(given, int) else given, numbers)
    for a in arguments:
        if a.name not in found:
            found[a.name] = _filled(a, numbers)
        if math.prod(found[a.name]) > MAX_BYTES:
            raise InputError(f"input {a.name!r} of shape {found[a.name]} is too large.")
    return found


def _checked(shapes: Shapes) -> dict[str, int | tuple[int, ...]]:
    """The shapes with plain ints, because sizes may be NumPy integers."""
    if not isinstance(shapes, Mapping):
        raise InputError(f"shapes is a {type(shapes).__name__}, not a dictionary.", fix=_SPELLED)
    found: dict[str, int | tuple[int, ...]] = {}
    for name, given in shapes.items():
        sizes = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
        if any(isinstance(n, bool) or not hasattr(n, "__index__") or n < 0 for n in sizes):
            raise InputError(
                f"shapes: {name!r} is {given!r}, which is neither a size nor a shape.", fix=_SPELLED
            )
        plain = tuple(int(n) for n in sizes)
        found[name] = plain if isinstance(given, Iterable) else plain[0]
    return found


def _agreed(a: Argument, shape: tuple[int, ...], numbers: dict[str, int]) -> tuple[int, ...]:
    named = [(d, n) for d, n in zip(a.dims or (), shape, strict=False) if isinstance(d, str) and d != "?"]
    if not a.takes(shape) or any(numbers.setdefault(d, n) != n for d, n in named):
        raise InputError(f"shapes: {shape} does not fit the input {a}.")
    return shape


def _filled(a: Argument, numbers: Mapping[str, int]) -> tuple[int, ...]:
    open_ = list(dict.fromkeys(d for d in a.dims or () if isinstance(d, str) and d not in numbers))
    if a.dims is None or open_:
        what = "has no shape" if a.dims is None else f"leaves {', '.join(map(repr, open_))} open"
        is_named = bool(open_) and "?" not in open_
        given = ", ".join(f"{d!r}: 1" for d in open_) if is_named else f"{a.name!r}: (1, …)"
        raise InputError(
            f"input {a} {what}.",
            fix=f"Give it: shapes={{{given}}}; or call the model through autotensor.OnnxModel, which takes "
            "it from the arrays.",
        )
    return tuple(numbers[d] if isinstance(d, str) else d for d in a.dims)
