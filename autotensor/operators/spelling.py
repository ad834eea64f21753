"""Elementwise operators as functions of a style: the library's operators, on the style's own values.

    Spelling("flow", elementwise, {"negative": "neg"})("negative")        node ──▶ node
    Spelling("imperative", apply)("asinh")                                tensor ──▶ tensor

A new operator exists in each style at once. A style writes functions itself only if their arguments differ.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from autotensor.base.absent_names import absent
from autotensor.base.functions import binary, unary
from autotensor.operators.operator import OPERATORS, Kind

T = TypeVar("T")


class Spelling(Generic[T]):
    """Gives functions by name; they take one or two values, and the operator's attributes by name.

    where: how a person writes the style. apply: the style's `(operator, values, attributes) ──▶ value`.
    others: the style's name → the library's name of an operator, if they differ.
    """

    def __init__(self, where: str, apply: Callable[..., T], others: Mapping[str, str] | None = None) -> None:
        self.where = where
        self.apply = apply
        self.others = dict(others or {})
        self._functions: dict[str, Callable[..., T]] = {}

    def __call__(self, name: str, owner: object = None) -> Callable[..., T]:
        """The function of this name, always the same object.

        If there is none, raises the AttributeError of an `owner` without that attribute.
        """
        operator = self.others.get(name, name)
        if operator not in self._functions:
            values = _values(operator)
            if values not in (1, 2):
                raise absent(self.where, name, owner, {})
            function = (unary if values == 1 else binary)(operator, self.apply)
            function.__module__ = f"autotensor.{self.where}"  # where pickle looks for it
            self._functions.setdefault(operator, function)
        return self._functions[operator]

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted({*(n for n in OPERATORS if _values(n) in (1, 2)), *self.others})


def _values(name: str) -> int:
    """How many tensors an elementwise operator takes; 0 for other operators, and for those with tables."""
    found = OPERATORS.get(name) if name in OPERATORS else None
    if found is None or found.kind is not Kind.ELEMENTWISE or found.tables:
        return 0
    parameters = inspect.signature(found.compute).parameters.values()
    return sum("Tensor" in str(p.annotation) for p in parameters)
