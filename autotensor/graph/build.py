"""Writing graphs: `input`, `ops.<operator>`, `call`.

x = input((1, 3, 224, 224), name="x")
y = ops.conv2d(x, weight, padding=1)       # NumPy arrays and numbers become constants
y = call(my_te_function, y)                # the author's own operator
graph = Graph((x,), (ops.relu(y) + 1.0,), "small")
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Any

import numpy as np

from autotensor.base.dtype import DType, dtype_of
from autotensor.base.errors import GraphError, InputError, TensorError
from autotensor.graph.constant_data import Data
from autotensor.graph.function import TeFunction
from autotensor.graph.ir import Apply, Constant, GraphNode, Input, Parameter, apply, as_node, constant
from autotensor.operators import OPERATORS, Kind, TensorType
from autotensor.te.tensor import Tensor, check_shape

__all__ = ["call", "constant", "input", "ops", "parameter"]

_serial = itertools.count(1)


def input(shape: Iterable[int], dtype: DType | str = "float32", name: str = "x") -> Input:
    """A new argument of a graph. Two calls with the same shape and name make two arguments."""
    made: Input = Input(name, TensorType.of(check_shape(shape, f"input {name!r}"), dtype), next(_serial))
    return made


def parameter(array: Any, name: str = "w") -> Parameter:
    """A new argument of a graph that `training_step` changes, starting from `array`."""
    data = Data.of(np.asarray(array))
    type_ = TensorType.of(data.array.shape, dtype_of(data.array.dtype))
    made: Parameter = Parameter(name, type_, next(_serial), data)
    return made


def call(fn: Callable[..., Any] | TeFunction, *inputs: Any, name: str = "") -> Any:
    """A te function applied to nodes: a node, or a tuple of them when the function returns several tensors.

    fn takes te tensors and returns the tensors that it computes. It is traced at once, on placeholders of the
    inputs' types, or is the trace of a function. Raises GraphError when the tracing fails.
    """
    if isinstance(fn, Tensor) or not (callable(fn) or isinstance(fn, TeFunction)):
        raise GraphError(
            f"at.call takes a te function first, which it calls with tensors; got {type(fn).__name__}.",
            fix="at.call(lambda x: te.compute(x.shape, ...), node).",
        )
    nodes = tuple(as_node(x) for x in inputs)
    function = fn if isinstance(fn, TeFunction) else TeFunction.trace(fn, [x.type for x in nodes], name)
    results = tuple(apply(function, nodes, output=n) for n in range(len(function.outputs)))
    return results if len(results) > 1 else results[0]


class Operators:
    """Every registered operator as a function on nodes: `ops.relu(x)`, `ops.conv2d(x, w, padding=1)`."""

    def __getattr__(self, name: str) -> Callable[..., GraphNode]:
        """All operators of the library have one result; with several, a user's operator gives a tuple."""
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            OPERATORS.get(name)
        except InputError as error:
            raise GraphError(error.what, fix=error.fix) from error
        return _as_function(name)

    def __dir__(self) -> list[str]:
        return list(OPERATORS.names())

    def __repr__(self) -> str:
        return f"<Operators: {len(OPERATORS)} functions on nodes>"


ops = Operators()


_SAYS = {  # kind of operators whose names explain them → the text of their help
    Kind.ELEMENTWISE: ", element by element; shapes are broadcast as in NumPy",
    Kind.REDUCTION: " along `axis`",
}


@lru_cache(maxsize=512)
def _as_function(name: str) -> Callable[..., Any]:
    """The operator with its own name, arguments and text, as `help` and editors show them."""

    def operator(*args: Any, **kwargs: Any) -> Any:
        return _apply_operator(name, *args, **kwargs)

    operator.__name__, operator.__qualname__ = name, f"ops.{name}"
    known = OPERATORS.get(name)
    operator.__doc__ = known.compute.__doc__ or f"`{name}`{_SAYS.get(known.kind, '')}."
    operator.__signature__ = _signature(name)  # type: ignore[attr-defined]  # inspect reads it
    return operator


def _apply_operator(op: str, *args: Any, **kwargs: Any) -> Any:
    """Sorts the arguments into tensors and attributes, by the annotations of the operator's te function."""
    try:
        bound = _signature(op).bind(*args, **kwargs)
    except TypeError as error:
        raise GraphError(f"{op}: {error}.", fix=f"Its arguments are {_signature(op)}.") from error
    tensors: list[Any] = []
    attrs: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        parameter = bound.signature.parameters[name]
        if parameter.kind is parameter.VAR_KEYWORD:
            attrs.update(value)
        elif "Tensor" not in str(parameter.annotation):
            attrs[name] = value
        elif parameter.kind is parameter.VAR_POSITIONAL or isinstance(value, (list, tuple)):
            tensors.extend(value)
        elif value is not None:
            tensors.append(value)
    likes = [t.dtype for t in tensors if isinstance(t, GraphNode)]
    nodes = tuple(as_node(t, *likes) for t in tensors)
    _require_known(op, nodes)
    first = apply(op, nodes, attrs)
    results = (first, *(apply(op, nodes, attrs, n) for n in range(1, first.results)))
    return results if len(results) > 1 else results[0]


@cache
def _signature(op: str) -> inspect.Signature:
    return inspect.signature(OPERATORS.get(op).compute)


def _require_known(op: str, inputs: Iterable[GraphNode]) -> None:
    """Raises GraphError for a constant that the operator cannot take, such as a scale of 0."""
    if (check := OPERATORS.get(op).require_known) is None:
        return
    try:
        check(*(x.array if isinstance(x, Constant) else None for x in inputs))
    except TensorError as error:
        raise GraphError(error.what, fix=error.fix) from error


def application(node: Apply) -> tuple[Any, ...]:
    """The key that all results of one application of an operator share."""
    return node.op, node.inputs, repr(node.attrs)
