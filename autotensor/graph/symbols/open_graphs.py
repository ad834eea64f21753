"""A model whose inputs' extents are open: a graph for each set of shapes, and a family of all of them.

    open graph ──at({"x": (8, 128)})──▶ Graph
               ──family({"x": (8, 128)})──▶ GraphFamily, n from 1 to 1024: one program

A front end makes one; `compile_model` compiles it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from autotensor.graph.ir import Graph
from autotensor.graph.symbols.graph_families import GraphFamily

Shapes = Mapping[str, tuple[int, ...]]  # the shape of every input, by name
REACH = 1024  # an extent without upper end is compiled up to here, or to twice the one that is called
NEAREST = 16  # at least up to here, even if the model ends before (its table of positions, say)


class OpenGraph(ABC):
    """See the module's docstring."""

    name: str

    @property
    @abstractmethod
    def shapes(self) -> Shapes:
        """Shapes that the model takes: those of the examples."""

    @property
    @abstractmethod
    def is_bounded(self) -> bool:
        """Whether each of its extents has an upper end."""

    @abstractmethod
    def open_axes(self, name: str) -> tuple[int, ...]:
        """Axes of an input whose extent a call may choose."""

    @abstractmethod
    def at(self, shapes: Shapes) -> Graph:
        """The graph for inputs of these shapes. Raises ArgumentError naming the axis that does not fit."""

    @abstractmethod
    def family(self, shapes: Shapes, end: int = REACH) -> GraphFamily:
        """The graphs of all extents; of those without upper end up to `end`, or as far as these shapes need.

        Raises ArgumentError as `at` does.
        """


def reached(extent: int, end: int) -> int:
    """The greatest extent of a program that is to serve this one, and others up to `end`: beyond it, this one
    with one eighth to spare at most.

    >>> reached(90, 64), reached(90, 1024)
    (96, 1024)
    """
    step = max(1, power_of_two(extent) // 8)
    return max(end, -(-extent // step) * step)


def power_of_two(extent: int) -> int:
    """The least power of two that is not less than the number."""
    return 1 << max(0, extent - 1).bit_length()
