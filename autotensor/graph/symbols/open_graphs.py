"""A model whose inputs' extents are open: a graph for each set of shapes.

    open graph ──at({"x": (8, 128)})──▶ Graph

A front end makes one; `compile_model` compiles the graphs of the shapes that come.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from autotensor.graph.ir import Graph

Shapes = Mapping[str, tuple[int, ...]]  # of every input, by name


class OpenGraph(ABC):
    """See the module's docstring."""

    name: str

    @property
    @abstractmethod
    def shapes(self) -> Shapes:
        """Shapes that it takes: those of the examples."""

    @abstractmethod
    def open_axes(self, name: str) -> tuple[int, ...]:
        """Axes of an input whose extent a call may choose."""

    @abstractmethod
    def at(self, shapes: Shapes) -> Graph:
        """The graph for inputs of these shapes. Raises ArgumentError naming the axis that does not fit."""
