"""The table of converters: a function for each ATen operator.

    @converts("aten.relu.default")
    def relu(x: GraphNode) -> GraphNode:
        return ops.relu(x)

A converter gets the operator's arguments: tensors as graph nodes, types as names ("float32"), and numbers,
lists and None unchanged. It returns a node, or a tuple of nodes if the operator has several results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from autotensor.base.errors import GraphError
from autotensor.graph.ir import GraphNode

Converter = Callable[..., Any]
F = TypeVar("F", bound=Converter)

CONVERTERS: dict[str, Converter] = {}
READS_MEMORY: set[str] = set()  # operators whose converter reads the strides of its first argument
BETTER_KNOWN: set[str] = set()  # operators that torch runs once if they depend on no input


@dataclass(frozen=True, slots=True)
class Missing:
    """A result that a converter does not compute. Reading it is an error."""

    what: str


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a tensor's elements lie in its memory, counted in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Held:
    """A converted tensor, and its layout in torch's memory."""

    node: GraphNode
    layout: Layout


def converts(*targets: str, memory: bool = False, known: bool = False) -> Callable[[F], F]:
    """Registers the decorated function as the converter of these operators (`namespace.name.overload`).

    memory: the function also takes `memory`: a `Held` for its first argument and for each tensor of which
    that is a view. known: torch itself computes the operator if it depends on no input.
    """

    def file(function: F) -> F:
        for target in targets:
            if target in CONVERTERS:
                raise GraphError(f"operator {target!r} has two converters.")
            CONVERTERS[target] = function
            if memory:
                READS_MEMORY.add(target)
            if known:
                BETTER_KNOWN.add(target)
        return function

    return file
