"""Arithmetic on a program's values: Python's operators call the library's operators by name.

x + 1    ──▶  x._binary("add", x, 1)          1 - x    ──▶  x._binary("subtract", 1, x)
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Overloads(Generic[T]):
    """Python's operators for nodes (flow) and tensors (imperative). The subclass defines their results.

    There is no `==`: nodes and tensors compare by identity, so that they can be in sets.
    """

    __slots__ = ()
    __array_ufunc__ = None  # `array * x` calls `x.__rmul__`

    @abstractmethod
    def _binary(self, op: str, a: Any, b: Any) -> T:
        """Applies the library's operator of that name to two operands; one of them is `self`."""

    def __add__(self, other: Any) -> T:
        return self._binary("add", self, other)

    def __radd__(self, other: Any) -> T:
        return self._binary("add", other, self)

    def __sub__(self, other: Any) -> T:
        return self._binary("subtract", self, other)

    def __rsub__(self, other: Any) -> T:
        return self._binary("subtract", other, self)

    def __mul__(self, other: Any) -> T:
        return self._binary("multiply", self, other)

    def __rmul__(self, other: Any) -> T:
        return self._binary("multiply", other, self)

    def __truediv__(self, other: Any) -> T:
        return self._binary("divide", self, other)

    def __rtruediv__(self, other: Any) -> T:
        return self._binary("divide", other, self)

    def __pow__(self, other: Any) -> T:
        return self._binary("power", self, other)

    def __lt__(self, other: Any) -> T:
        return self._binary("less", self, other)

    def __le__(self, other: Any) -> T:
        return self._binary("less_equal", self, other)

    def __gt__(self, other: Any) -> T:
        return self._binary("greater", self, other)

    def __ge__(self, other: Any) -> T:
        return self._binary("greater_equal", self, other)
