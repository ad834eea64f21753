"""Turns a loaded model into one graph before it runs, or into parts that `staged_model.py` builds on
demand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autotensor.base.errors import InputError
from autotensor.base.registry import suggest
from autotensor.frontends.errors import Unsupported
from autotensor.frontends.onnx.importer import Ahead, Importer, Runtime
from autotensor.frontends.onnx.node_call import Value
from autotensor.frontends.onnx.onnx_file import Loaded
from autotensor.frontends.onnx.signature import Argument, Shapes, bound, given_by_calls, inputs_of, outputs_of
from autotensor.graph.build import constant
from autotensor.graph.build import input as new_input
from autotensor.graph.ir import Graph, GraphNode


def graph_of(model: Loaded, shapes: Shapes | None = None, values: Mapping[str, Any] | None = None) -> Graph:
    """The whole model as one graph.

    values: inputs that get a value now, so that the graph no longer has them.
    Raises NeedsValue if shapes depend on values of other inputs, Unsupported for operators without a
    converter.
    """
    if values is not None and not isinstance(values, Mapping):
        raise InputError(f"values is a {type(values).__name__}, not a dictionary of inputs by name.")
    fixed = dict(values or {})
    arguments = inputs_of(model)
    for name in fixed:
        if name not in {a.name for a in arguments}:
            raise InputError(
                f"values: the model has no input {name!r}.",
                fix=suggest(name, tuple(a.name for a in arguments)),
            )
    found = bound([a for a in arguments if a.name not in fixed], shapes or {})
    feeds: dict[str, Value] = {}
    for a in arguments:
        if a.name in fixed:
            feeds[a.name] = constant(_value(a, fixed[a.name]), a.name)
        else:
            assert a.dtype is not None  # bound() refuses inputs that are not tensors
            feeds[a.name] = new_input(found[a.name], a.dtype, a.name)
    outputs = Importer(model, Ahead()).graph(model.proto.graph, feeds)
    inputs = tuple(v for n, v in feeds.items() if n not in fixed)
    return Graph(inputs, _tensors(outputs), model.name, _names(model, inputs))


def _value(a: Argument, given: Any) -> Any:
    """The array for an input that gets its value now. Raises InputError for another shape or type."""
    if a.dtype is None:
        raise Unsupported(f"input {a.name!r} is not a tensor, and has no value that can be given.")
    try:
        array = np.asarray(given)
        with np.errstate(all="ignore"):
            found = array.astype(a.dtype.numpy)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"values: no array for the input {a}: {error}.") from error
    # floats are rounded to the type; other values must be exact
    rounds = a.dtype.is_float and array.dtype.kind in "iuf"
    if array.dtype.kind not in "iufb" and array.dtype != a.dtype.numpy:
        raise InputError(f"values: no array for the input {a}: it is {array.dtype}.")
    if not rounds and not (array == found).all():
        raise InputError(f"values: the input {a} cannot hold {given!r}.")
    if not a.takes(found.shape):
        raise InputError(f"values: got the shape {list(found.shape)} for the input {a}.")
    return found


def _tensors(outputs: tuple[Value, ...]) -> tuple[GraphNode, ...]:
    for o in outputs:
        if not isinstance(o, GraphNode):
            raise Unsupported(
                "an output of the model is not a tensor.", fix="Call the model through autotensor.OnnxModel."
            )
    return outputs


def _names(model: Loaded, inputs: tuple[Any, ...]) -> tuple[str, ...]:
    """The names of the outputs, changed where needed so that they differ from each other and from the inputs'
    names."""
    taken = {i.name for i in inputs}
    out: list[str] = []
    for name in outputs_of(model):
        while name in taken:
            name += "_out"
        taken.add(name)
        out.append(name)
    return tuple(out)


def build(model: Loaded, runtime: Runtime, values: tuple[Value, ...]) -> tuple[Value, ...]:
    """The model's outputs for these inputs, in the order of `inputs_of`. `Staged` calls this."""
    names = [v.name for v in given_by_calls(model)]
    return Importer(model, runtime).graph(model.proto.graph, dict(zip(names, values, strict=True)))
