"""A model whose inputs' extents are open: a graph for each set of shapes, and a family of all of them.

    open graph ──at({"x": (8, 128)})──▶ Graph
               ──family({"x": (8, 128)})──▶ GraphFamily, n from 1 to 1024: one program

A front end makes an open graph; `compile_model` compiles it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from autotensor.graph.ir import Graph
from autotensor.graph.symbols.graph_families import GraphFamily

Shapes = Mapping[str, tuple[int, ...]]  # the shape of every input, by name
REACH = 1024  # an extent without upper end is compiled up to this number, or to twice the extent of the call
# programs reach at least this number, even if the model ends before (its table of positions, for example)
NEAREST = 16


class OpenGraph(ABC):
    """See the module's docstring."""

    name: str

    @property
    @abstractmethod
    def shapes(self) -> Shapes:
        """Shapes that the model takes: those of its example inputs."""

    @property
    @abstractmethod
    def is_bounded(self) -> bool:
        """Whether each extent of the model has an upper end."""

    @abstractmethod
    def open_axes(self, name: str) -> tuple[int, ...]:
        """The axes of an input whose extents a call may choose."""

    @abstractmethod
    def at(self, shapes: Shapes) -> Graph:
        """The graph for inputs of these shapes.

        Raises ArgumentError, which names the axis that does not fit.
        """

    @abstractmethod
    def family(self, shapes: Shapes, end: int = REACH) -> GraphFamily:
        """The graphs of all extents. Those without upper end reach to `end`, or as far as these shapes need.

        Raises ArgumentError as `at` does.
        """


def reached(extent: int, end: int) -> int:
    """The greatest extent of a program for this extent and for others up to `end`.

    An extent beyond `end` gets at most one eighth to spare.

    >>> reached(90, 64), reached(90, 1024)
    (96, 1024)
    """
    step = max(1, power_of_two(extent) // 8)
    return max(end, -(-extent // step) * step)


def power_of_two(extent: int) -> int:
    """The least power of two that is not less than the extent."""
    return 1 << max(0, extent - 1).bit_length()
