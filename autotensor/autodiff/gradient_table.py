"""Gradients of operators, by name: the operator's own gradient, or else the one that this table holds.

    @gradient("sigmoid")
    def _(node, g, k):                       # node: the application; g: adjoint of its result
        return g * node * (1.0 - node)       # adjoint of input k; None if it has none

If an operator has neither, its te body is differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from autotensor.base.errors import GraphError
from autotensor.base.registry import suggest
from autotensor.graph.ir import Apply, GraphNode
from autotensor.operators import OPERATORS

Rule = Callable[[Apply, GraphNode, int], GraphNode | None]
R = TypeVar("R", bound=Rule)

RULES: dict[str, Rule] = {}


def gradient(*names: str) -> Callable[[R], R]:
    """Registers the decorated function as the gradient of these operators.

    Raises GraphError for an unknown operator, or one that has a gradient.
    """

    def register(rule: R) -> R:
        for name in names:
            if name not in OPERATORS.names():
                raise GraphError(f"gradient: no operator {name!r}.", fix=suggest(name, OPERATORS.names()))
            if name in RULES:
                raise GraphError(
                    f"gradient: operator {name!r} has a gradient already.",
                    fix="Give the operator another name, or its own with @operator(…, gradient=…).",
                )
            RULES[name] = rule
        return rule

    return register


def rule_of(node: Apply) -> Rule | None:
    """The gradient of an application; None when its body is to be differentiated."""
    if not isinstance(node.op, str):
        return None
    own = OPERATORS.get(node.op).gradient
    return cast(Rule, own) if own is not None else RULES.get(node.op)
