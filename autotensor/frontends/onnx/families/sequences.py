"""Sequences and optionals. The importer keeps them as tuples of values; the graph has no nodes for them."""

from __future__ import annotations

import numpy as np

from autotensor.frontends.onnx.families.shape import divided, joined, stacked
from autotensor.frontends.onnx.node_call import Call, Value
from autotensor.frontends.onnx.registry import converts
from autotensor.graph.build import constant, ops


def _items(c: Call, n: int = 0) -> tuple[Value, ...]:
    found = c.value(n)
    if not isinstance(found, tuple):
        raise c.malformed(f"operand {n} is not a sequence.")
    return found


def _place(c: Call, n: int, count: int) -> int:
    """A position in a sequence, counted from the front."""
    at = int(c.scalar(n))
    if not -count <= at < count:
        raise c.malformed(f"position {at} does not exist; the sequence has {count}.")
    return at % count


@converts("SequenceConstruct")
def construct(c: Call) -> Value:
    return [c.tensors]


@converts("SequenceEmpty")
def empty(c: Call) -> Value:
    return [()]


@converts("SequenceLength")
def length(c: Call) -> Value:
    return constant(np.asarray(len(_items(c)), np.int64))


@converts("SequenceAt")
def at(c: Call) -> Value:
    items = _items(c)
    return items[_place(c, 1, len(items))]


@converts("SequenceInsert")
def insert(c: Call) -> Value:
    items = list(_items(c))
    place = len(items)
    if c.get(2) is not None:
        place = int(c.scalar(2))
        if not -len(items) <= place <= len(items):
            raise c.malformed(f"position {place} does not exist; the sequence has {len(items)}.")
    items.insert(place, c.value(1))
    return [tuple(items)]


@converts("SequenceErase")
def erase(c: Call) -> Value:
    items = list(_items(c))
    del items[_place(c, 1, len(items)) if c.get(1) is not None else -1]
    return [tuple(items)]


@converts("ConcatFromSequence")
def concat(c: Call) -> Value:
    items, axis = _items(c), c.whole("axis")
    if not items:
        raise c.malformed("the sequence is empty.")
    if c.attr("new_axis", 0):
        place = axis % (items[0].ndim + 1)
        return stacked(items, place)
    return joined(items, c.axes((axis,), items[0].ndim)[0])


@converts("SplitToSequence")
def split(c: Call) -> Value:
    axis = c.axis(0)
    n = c[0].shape[axis]
    if c.get(1) is None:
        sizes = [1] * n
    elif c[1].shape == ():
        each = int(c.scalar(1))
        sizes = [min(each, n - start) for start in range(0, n, max(each, 1))]
    else:
        sizes = list(c.ints(1))
    parts = divided(c, axis, sizes)
    if c.get(1) is None and not c.attr("keepdims", 1):
        parts = [ops.squeeze(p, axes=(axis,)) for p in parts]
    return [tuple(parts)]


@converts("SequenceMap")
def map_(c: Call) -> Value:
    """Runs the body on each element. Operands that are not sequences go to every run."""
    body, items = c.attr("body"), _items(c)
    results = []
    for n in range(len(items)):
        given = [v[n] if isinstance(v, tuple) else v for v in c.inputs]
        feeds = {i.name: v for i, v in zip(body.input, given, strict=True)}
        results.append(c.importer.graph(body, feeds, c.opsets, c.outer_attrs))
    return [tuple(r[n] for r in results) for n in range(len(body.output))]


# -- optionals -------------------------------------------------------------------------------------------


@converts("Optional")
def optional(c: Call) -> Value:
    return [c.value(0)]


@converts("OptionalHasElement")
def has_element(c: Call) -> Value:
    return constant(np.asarray(c.value(0) is not None))


@converts("OptionalGetElement")
def get_element(c: Call) -> Value:
    if c.value(0) is None:
        raise c.malformed("the optional has no value.")
    return [c.value(0)]
