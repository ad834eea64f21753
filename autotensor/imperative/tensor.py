"""Tensors of the imperative style: graph nodes, which are computed when their values are read.

    x = tensor(3.0, requires_grad=True)
    z = x - y                      # a node; nothing is computed
    if z > 0: …                    # now z is computed
    square(z).backward()           # x.grad is again a node

A tensor names a graph node. An in-place change gives the name another node, so earlier expressions keep their
meaning. The graph records the operations from which a result came; `backward` differentiates the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from autotensor.autodiff import gradients
from autotensor.base.dtype import DType, dtype_of, float32
from autotensor.base.errors import GraphError
from autotensor.base.operator_overloads import Overloads
from autotensor.graph.build import constant
from autotensor.graph.build import ops as library
from autotensor.graph.ir import Array, GraphNode, Input, topological
from autotensor.imperative import engine
from autotensor.imperative.tensor_pieces import Spans, written
from autotensor.operators.spelling import Spelling


class Tensor(Overloads["Tensor"]):
    """An array that may not have been computed yet."""

    __slots__ = ("__weakref__", "_node", "grad", "requires_grad")

    def __init__(self, node: GraphNode, requires_grad: bool = False) -> None:
        self._node = node
        self.requires_grad = requires_grad
        self.grad: Tensor | None = None
        trace = engine.tracing.get()
        if trace is not None:
            trace.made.add(self)
        if requires_grad and isinstance(node, Input):
            engine.own(node, self)

    # -- what it is --------------------------------------------------------------------------------------

    @property
    def node(self) -> GraphNode:
        """The tensor's graph node, for reading. Pending changes of parameters are computed first."""
        trace = engine.tracing.get()
        if trace is not None:
            trace.read(self)
        else:
            engine.settle_pending(self._node)
        return self._node

    @property
    def shape(self) -> tuple[int, ...]:
        return self._node.shape

    @property
    def dtype(self) -> DType:
        return self._node.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def is_leaf(self) -> bool:
        """Whether the tensor is data: it was given, or it was cut off from its computation."""
        return isinstance(self._node, Input)

    @property
    def T(self) -> Tensor:
        return apply("transpose", self)

    # -- its value ---------------------------------------------------------------------------------------

    def numpy(self) -> Array:
        """The tensor's value, read-only. It is computed now if necessary."""
        return engine.arrays_of([self.node])[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        value = self.numpy()
        return value.copy() if dtype is None else value.astype(dtype)

    def item(self) -> Any:
        """The tensor's only element as a Python number. Raises GraphError if it has several."""
        value = self.numpy()
        if value.size != 1:
            raise GraphError(f"a tensor of shape {self.shape} is not one number.", fix="Reduce it first.")
        return value.reshape(-1)[0].item()

    def tolist(self) -> Any:
        return self.numpy().tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without axes has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[n] for n in range(len(self)))

    def __repr__(self) -> str:
        if self._node not in engine.known and engine.tracing.get() is not None:
            return f"tensor(?, {self.dtype}{list(self.shape)})"
        tail = ", requires_grad=True" if self.requires_grad else ""
        return f"tensor({np.array2string(self.numpy(), separator=', ')}{tail})"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(self.item() if spec else repr(self), spec)

    # -- arithmetic --------------------------------------------------------------------------------------

    def _binary(self, op: str, a: Any, b: Any) -> Tensor:
        return apply(op, a, b)

    def __matmul__(self, other: Any) -> Tensor:
        right = as_tensor(other)
        return apply("matmul" if self.ndim == right.ndim == 2 else "batch_matmul", self, right)

    def __neg__(self) -> Tensor:
        return apply("neg", self)

    # -- changes -----------------------------------------------------------------------------------------

    def __iadd__(self, other: Any) -> Tensor:
        return self.assign(self + other)

    def __isub__(self, other: Any) -> Tensor:
        return self.assign(self - other)

    def __imul__(self, other: Any) -> Tensor:
        return self.assign(self * other)

    def __itruediv__(self, other: Any) -> Tensor:
        return self.assign(self / other)

    def assign(self, value: Any) -> Tensor:
        """Gives the tensor another value of its type. Results that were written before keep their values.

        Raises GraphError for a parameter outside `no_grad`, because its gradient would be for the old value.
        """
        new = as_tensor(value, self.dtype)
        if new.shape != self.shape or new.dtype != self.dtype:
            raise GraphError(
                f"a tensor {self.dtype}{list(self.shape)} cannot become {new.dtype}{list(new.shape)}."
            )
        if self.requires_grad and self.is_leaf:
            if engine.is_recording():
                raise GraphError(
                    "a parameter (a leaf that requires a gradient) is changed while operations are recorded.",
                    fix="Write `with no_grad():` around the change.",
                )
            self.rebind(new.node)
            return self
        self._node = new.node
        self.requires_grad = new.requires_grad
        return self

    def rebind(self, node: GraphNode) -> None:
        """Gives the tensor the value of `node`, cut off from the tape. The value is computed together with
        other parameters when one of them is read."""
        self._node = engine.stand_in(node, "w")
        engine.postpone(self._node)
        if self.requires_grad:
            engine.own(self._node, self)

    def __getitem__(self, index: Any) -> Tensor:
        spans, squeezed = _spans(index, self.shape)
        part = apply("slice", self, begin=tuple(b for b, _ in spans), end=tuple(e for _, e in spans))
        shape = tuple(n for a, n in enumerate(part.shape) if a not in squeezed)
        return apply("reshape", part, shape=shape) if squeezed else part

    def __setitem__(self, index: Any, value: Any) -> None:
        spans, squeezed = _spans(index, self.shape)
        part = tuple(e - b for b, e in spans)
        kept = tuple(n for a, n in enumerate(part) if a not in squeezed)
        full = apply("broadcast_to", as_tensor(value, self.dtype), shape=kept)
        self.assign(result(written(spans), [self, apply("reshape", full, shape=part)]))

    # -- gradients ---------------------------------------------------------------------------------------

    def backward(self, gradient: Any = None) -> None:
        """Adds the gradient of this number to `.grad` of every leaf that requires a gradient.

        gradient: adjoints of the tensor's shape, if it is not one number.
        """
        if gradient is None and self._node.shape != () and int(np.prod(self.shape)) != 1:
            raise GraphError(
                f"backward of a tensor of shape {self.shape} needs its gradient.", fix="Or sum it first."
            )
        if not self.requires_grad:
            raise GraphError("backward: no tensor that this one depends on requires a gradient.")
        node = self.node
        leaves = [(n, t) for n in topological([node]) if (t := engine.owner(n)) is not None]
        seeds = None if gradient is None else (as_tensor(gradient, self.dtype).node,)
        engine.remember_root(node)
        with engine.no_grad():
            for (_, t), g in zip(leaves, gradients((node,), tuple(n for n, _ in leaves), seeds), strict=True):
                new = Tensor(engine.stand_in(g, "grad"))
                t.grad = new if t.grad is None else t.grad + new

    def detach(self) -> Tensor:
        """The same value, as data."""
        return Tensor(
            self._node if self._node in engine.known and self.is_leaf else engine.stand_in(self.node)
        )

    def zero_grad(self) -> None:
        self.grad = None

    # -- methods with the meaning of functions -----------------------------------------------------------

    def sum(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        return apply("sum", self, axis=axis, keepdims=keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        return apply("mean", self, axis=axis, keepdims=keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        return apply("max", self, axis=axis, keepdims=keepdims)

    def reshape(self, *shape: Any) -> Tensor:
        extents = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return apply("reshape", self, shape=tuple(int(n) for n in extents))

    def flatten(self) -> Tensor:
        """[n, …] ──▶ [n, all the rest]"""
        return apply("flatten", self)

    def astype(self, dtype: Any) -> Tensor:
        return apply("cast", self, dtype=str(dtype_of(dtype)))

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        """Elementwise operators: `x.exp()`, `x.maximum(y)`."""
        return partial(SPELLING(name, self), self)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *SPELLING.names()]


# -- making tensors --------------------------------------------------------------------------------------


def tensor(value: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """A copy of a number, nested lists or an array. Whole numbers become int64, other numbers float32; arrays
    keep their type."""
    array = engine.as_array(value, dtype)
    if requires_grad and array.dtype.kind != "f":
        raise GraphError(
            f"a tensor of {array.dtype} cannot require a gradient.", fix="Write its numbers as floats."
        )
    return Tensor(engine.leaf(array), requires_grad)


def as_tensor(value: Any, like: DType | None = None) -> Tensor:
    """A tensor from itself, an array or a number; a number takes the type `like`."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (bool, int, float)):
        return Tensor(constant(value, dtype=number_type(value, like)))
    return tensor(value)


def number_type(value: bool | int | float, like: DType | None) -> DType | str:
    """The type of a number next to a tensor: the tensor's, but a fraction next to integers is float32."""
    if like is None or like.is_bool:
        return "bool" if isinstance(value, bool) else "float32" if isinstance(value, float) else "int64"
    return float32 if isinstance(value, float) and not like.is_float else like


def apply(op: str, *operands: Any, **attrs: Any) -> Tensor:
    """An operator of the library on tensors, arrays and numbers."""
    like = next((x.dtype for x in operands if isinstance(x, Tensor) and not x.dtype.is_bool), None)
    return result(getattr(library, op), [as_tensor(x, like) for x in operands], **attrs)


def result(fn: Any, inputs: Sequence[Tensor], **attrs: Any) -> Tensor:
    """A tensor for the node that `fn` makes of the inputs' nodes."""
    node = cast(GraphNode, fn(*(x.node for x in inputs), **attrs))
    needs = any(x.requires_grad for x in inputs)
    if needs and not engine.is_recording():
        return Tensor(engine.stand_in(node))
    return Tensor(node, needs and node.dtype.is_float)


SPELLING = Spelling("imperative", apply)


# -- indices ---------------------------------------------------------------------------------------------


def _spans(index: Any, shape: tuple[int, ...]) -> tuple[Spans, tuple[int, ...]]:
    """(begin, end) along every axis, and the axes that a single index removes.

    >>> _spans((1, slice(None, -1)), (4, 5))
    (((1, 2), (0, 4)), (0,))
    """
    given = index if isinstance(index, tuple) else (index,)
    if len(given) > len(shape):
        raise GraphError(f"a tensor of shape {shape} takes at most {len(shape)} indices, got {len(given)}.")
    spans: list[tuple[int, int]] = []
    squeezed: list[int] = []
    for axis, n in enumerate(shape):
        i = given[axis] if axis < len(given) else slice(None)
        if isinstance(i, slice):
            begin, end, step = i.indices(n)
            if step != 1:
                raise GraphError(
                    f"index {i!r}: only steps of 1 are supported.", fix="Use the library's slice."
                )
            spans.append((begin, max(begin, end)))
        elif hasattr(i, "__index__"):
            at = int(i.__index__())
            if not -n <= at < n:
                raise GraphError(f"index {at} is outside of axis {axis}, which has {n} elements.")
            spans.append((at % n, at % n + 1))
            squeezed.append(axis)
        else:
            raise GraphError(f"index {i!r} must be a whole number or a slice.")
    return tuple(spans), tuple(squeezed)
