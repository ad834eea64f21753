"""Nodes of a static graph: they are defined now, and get shapes and values when a session runs them.

    Placeholder [?, 784] ──▶ Operation matmul ──▶ Operation softmax …      Variable: state of a session
                                                                            Source: an array made by the host

A node's type may be known only in part. At construction, it is computed for two different sizes of all
unknown extents (`PROBES`). An extent for which both results agree is known; an extent for which they differ
depends on a feed. So every operator's ordinary type rule also serves for unknown shapes. A mistake is an
error at the line that makes it. Extents that depend on a feed are checked again when the feed is known.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from autotensor.base.dtype import DType, bool_, dtype_of, float32, int32
from autotensor.base.errors import AutotensorError, GraphError
from autotensor.base.operator_overloads import Overloads
from autotensor.flow import scope
from autotensor.flow.node_origin import here
from autotensor.graph.build import ops as library
from autotensor.graph.ir import GraphNode, Input
from autotensor.operators import TensorType

Array = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int | None, ...]
Lower = Callable[..., GraphNode]  # graph nodes of the inputs ──▶ graph node

PROBES = (1009, 5003)  # primes, far apart: no stride, pool or product makes them equal
_serial = itertools.count()


@dataclass(frozen=True, slots=True)
class Spec:
    """The known part of a type before a run. `shape` is None if not even the number of axes is known."""

    dtype: DType
    shape: Shape | None

    @property
    def known(self) -> bool:
        return self.shape is not None and None not in self.shape

    def type(self, size: int = 0) -> TensorType:
        """The type with `size` for every unknown extent."""
        assert self.shape is not None
        return TensorType(tuple(size if n is None else n for n in self.shape), self.dtype)

    def admits(self, shape: Sequence[int]) -> bool:
        """Whether an array of this shape fits."""
        if self.shape is None:
            return True
        return len(self.shape) == len(shape) and all(
            a is None or a == b for a, b in zip(self.shape, shape, strict=True)
        )

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.dtype}[any shape]"
        return f"{self.dtype}[{', '.join('?' if n is None else str(n) for n in self.shape)}]"


class Node(Overloads["Node"]):
    """A tensor of the static graph. Compares by identity; arithmetic makes operations."""

    def __init__(self, name: str, spec: Spec, inputs: Sequence[Node] = ()) -> None:
        self.name = scope.unique(name)
        self.spec = spec
        self.inputs = tuple(inputs)
        self.after: tuple[Node, ...] = scope.control()  # nodes that must run before this one
        self.at = here()
        self.serial = next(_serial)
        scope.enter(self)

    @property
    def dtype(self) -> DType:
        return self.spec.dtype

    @property
    def shape(self) -> Shape | None:
        return self.spec.shape

    def get_shape(self) -> Shape | None:
        """TensorFlow's spelling of `shape`."""
        return self.spec.shape

    def eval(self, feed_dict: Any = None, session: Any = None) -> Array:
        """Its value in `session`, or in the session of the current `with` block."""
        return cast(Array, (session or scope.session()).run(self, feed_dict))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.spec}>"

    def __bool__(self) -> bool:
        raise GraphError(
            f"{self.name} ({here()}) has no value while the graph is being written, so Python cannot branch "
            "on it.",
            fix="Use flow.cond or flow.where, or the imperative style.",
        )

    def __iter__(self) -> Any:
        raise GraphError(f"{self.name} ({here()}) cannot be iterated over.", fix="Use flow.slice.")

    def _binary(self, op: str, a: Any, b: Any) -> Node:
        return elementwise(op, a, b)

    def __matmul__(self, other: Any) -> Node:
        return product(self, other)

    def __neg__(self) -> Node:
        return elementwise("neg", self)


class Placeholder(Node):
    """A node that is fed in every run that needs it."""


class Source(Node):
    """An array that the host makes: a constant, or random numbers drawn anew in every run."""

    def __init__(self, name: str, spec: Spec, make: Callable[[np.random.Generator], Array]) -> None:
        super().__init__(name, spec)
        self.make = make


class Literal(Node):
    """A number written in the program; part of the code, not of the data."""

    def __init__(self, value: bool | int | float, dtype: DType) -> None:
        super().__init__("number", Spec(dtype, ()))
        self.after = ()  # it waits for nothing
        self.value = value


class Operation(Node):
    """A pure function of its inputs. `lower` writes it on graph nodes of known types."""

    def __init__(
        self, name: str, lower: Lower, inputs: Sequence[Node], spec: Spec | None = None, what: str = ""
    ) -> None:
        self.lower = lower
        self.what = what or name
        if empty := [x for x in inputs if isinstance(x, Effect)]:
            raise GraphError(f"{here()}: {self.what} reads {empty[0].name}, which has no value.")
        super().__init__(name, spec or inferred(self.what, lower, inputs), inputs)


class Effect(Node):
    """An action of a run that computes nothing. Its value is None, unless a subclass says otherwise."""


def inferred(what: str, lower: Lower, inputs: Sequence[Node]) -> Spec:
    """The known part of the result. Raises GraphError, with the user's line, when the inputs do not fit."""
    specs = [x.spec for x in inputs]
    if any(s.shape is None for s in specs):
        return Spec(_dtype_without_shapes(lower, inputs), None)
    try:
        if all(s.known for s in specs):
            return _known(_types(lower, specs, 0))
        first, second = (_types(lower, specs, size) for size in PROBES)
    except AutotensorError as error:
        found = _with_a_known_size(lower, specs)
        if found is None:
            raise GraphError(f"{here()}: {_shown(what, specs, error)}", fix=error.fix) from error
        return _known(found)
    if len(first.shape) != len(second.shape):
        return Spec(first.dtype, None)
    shape = tuple(a if a == b else None for a, b in zip(first.shape, second.shape, strict=True))
    return Spec(first.dtype, shape)


def _known(t: TensorType) -> Spec:
    return Spec(t.dtype, t.shape)


def _types(lower: Lower, specs: Sequence[Spec], size: int) -> TensorType:
    return lower(*(Input(f"x{n}", s.type(size), n) for n, s in enumerate(specs))).type


def _with_a_known_size(lower: Lower, specs: Sequence[Spec]) -> TensorType | None:
    """The type if unknown extents equal a known extent of an input ([?, 10] with [100, 10]); None if no known
    extent fits."""
    if all(s.known for s in specs):
        return None
    for size in dict.fromkeys(n for s in specs for n in s.shape or () if n is not None):
        try:
            return _types(lower, specs, size)
        except AutotensorError:
            continue  # the next one may fit; the first error is the one reported
    return None


def _shown(what: str, specs: Sequence[Spec], error: AutotensorError) -> str:
    """The operator's error, with a question mark for each probed size."""
    text = error.what.rstrip(".")
    for size in PROBES:
        text = text.replace(str(size), "?")
    return f"{what}({', '.join(map(str, specs))}) cannot be: {text}."


def _dtype_without_shapes(lower: Lower, inputs: Sequence[Node]) -> DType:
    """The element type if shapes are unknown: the type for scalars if the operator takes them, else the type
    of the first input."""
    scalars = [Spec(x.dtype, () if x.shape is None else x.shape) for x in inputs]
    try:
        return _types(lower, scalars, PROBES[0]).dtype
    except (AutotensorError, IndexError, ValueError, TypeError):
        return inputs[0].dtype


def spec_of(dtype: Any, shape: Any = None) -> Spec:
    """A spec from a user's arguments: dtype names or NumPy types; shapes with None."""
    if shape is None:
        return Spec(dtype_of(dtype), None)
    extents = shape if isinstance(shape, (list, tuple)) else (shape,)
    if not all(n is None or (isinstance(n, (int, np.integer)) and n >= 0) for n in extents):
        raise GraphError(f"{here()}: shape {shape!r} must hold extents of at least 0, or None.")
    return Spec(dtype_of(dtype), tuple(None if n is None else int(n) for n in extents))


# -- nodes of a program's calls ----------------------------------------------------------------------------


def constant(value: Any, dtype: Any = None, shape: Any = None, name: str = "constant") -> Node:
    """A constant array. Python's whole numbers become int32, its other numbers float32."""
    array = _array(value, dtype)
    if shape is not None:
        array = np.array(np.broadcast_to(array, tuple(shape)))
    array.flags.writeable = False
    return Source(name, Spec(dtype_of(array.dtype), array.shape), lambda rng: array)


def _array(value: Any, dtype: Any) -> Array:
    if isinstance(value, Node):
        raise GraphError(f"{here()}: {value!r} is a node already, not an array.")
    if dtype is not None:
        return np.array(value, dtype_of(dtype).numpy)
    array = np.array(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return array
    return array.astype({"i": np.int32, "f": np.float32}.get(array.dtype.kind, array.dtype))


def as_node(value: Any, like: DType | None = None) -> Node:
    """A node from a node, a number or an array; a number takes the type `like`."""
    if isinstance(value, Node):
        return value
    if isinstance(value, (bool, int, float)):
        return Literal(value, _literal_type(value, like))
    return constant(value)


def _literal_type(value: bool | int | float, like: DType | None) -> DType:
    if isinstance(value, bool) and (like is None or like.is_bool):
        return bool_
    if like is None or like.is_bool:
        return float32 if isinstance(value, float) else int32
    return float32 if isinstance(value, float) and not like.is_float else like


def operation(name: str, *inputs: Any, what: str = "", **attrs: Any) -> Operation:
    """An operator of the library, by the library's name."""
    lower: Lower = functools.partial(getattr(library, name), **attrs)
    return Operation(what or name, lower, [as_node(x) for x in inputs])


def elementwise(name: str, *inputs: Any, **attrs: Any) -> Operation:
    """An operator whose operands all have one type."""
    return operation(name, *alike(*inputs), **attrs)


def alike(*values: Any) -> list[Node]:
    """The values as nodes; a number gets the type of the first node."""
    like = next((x.dtype for x in values if isinstance(x, Node)), None)
    return [as_node(x, like) for x in values]


def product(a: Any, b: Any, **turned: bool) -> Operation:
    """The product of matrices, or over the last two axes of tensors."""

    def lower(x: GraphNode, y: GraphNode) -> GraphNode:
        flat = len(x.shape) == len(y.shape) == 2
        return (library.matmul if flat else library.batch_matmul)(x, y, **turned)

    return Operation("matmul", lower, (as_node(a), as_node(b)))
