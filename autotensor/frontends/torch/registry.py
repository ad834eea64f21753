"""Which function converts which ATen operator.

    @converts("aten.relu.default")
    def relu(x: GraphNode) -> GraphNode:
        return ops.relu(x)

A converter gets the operator's arguments: tensors as graph nodes, types as names ("float32"), numbers, lists
and None as they are. It gives a node, or a tuple of them where the operator has several results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from autotensor.base.errors import GraphError

Converter = Callable[..., Any]
F = TypeVar("F", bound=Converter)

CONVERTERS: dict[str, Converter] = {}


class Unsupported(GraphError):
    """A model asks for something that cannot be converted."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A result that a converter does not give; an error only if somebody reads it."""

    what: str


def converts(*targets: str) -> Callable[[F], F]:
    """Files the decorated function as the converter of these operators (`namespace.name.overload`)."""

    def file(function: F) -> F:
        for target in targets:
            if target in CONVERTERS:
                raise GraphError(f"operator {target!r} has two converters.")
            CONVERTERS[target] = function
        return function

    return file
