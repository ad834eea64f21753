"""Facts that rules use about constants: one number for all elements, factors of a product, near equality.

x * 0.5 * (1 + erf(x / 1.4142135))   ──products──▶   0.5, [x, 1 + erf(…)]
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autotensor.graph.graph_rewriting import Uses
from autotensor.graph.ir import Apply, Constant, GraphNode

# constants of a formula have 7 digits; a constant that differs by more belongs to another formula
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Product:
    """number * factors[0] * factors[1] * …; factors in a denominator are not included."""

    number: float
    factors: tuple[GraphNode, ...]


def is_wide_float(node: GraphNode) -> bool:
    """Whether rounding between a formula's operators is so fine that leaving it out does not matter."""
    return node.dtype.is_float and node.dtype.bits >= 32


def number_of(node: GraphNode) -> float | None:
    """The finite number that all elements of a constant equal, or None."""
    value = uniform(node)
    return value if value is not None and math.isfinite(value) else None


def uniform(node: GraphNode) -> float | None:
    """The number, finite or not, that all elements of a constant of floats equal; None if they differ."""
    if not isinstance(node, Constant) or not node.dtype.is_float or node.array.size == 0:
        return None
    first = node.array.reshape(-1)[0]
    return float(first) if bool((node.array == first).all()) else None


def close(a: float | None, b: float) -> bool:
    """Whether both are equal, except for the rounding of a constant."""
    return a is not None and math.isclose(a, b, rel_tol=ROUNDING)


def scaled(node: GraphNode) -> tuple[float, GraphNode] | None:
    """(c, x) of a node that is x * c or x / c and has x's shape; None for others."""
    match node:
        case Apply("multiply", (x, Constant() as c)) | Apply("multiply", (Constant() as c, x)):
            number, invert = number_of(c), False
        case Apply("divide", (x, Constant() as c)):
            number, invert = number_of(c), True
        case _:
            return None
    if number is None or number == 0 or x.shape != node.shape:
        return None
    return (1 / number if invert else number), x


def product(node: GraphNode, uses: Uses) -> Product:
    """The node as a number times other factors. Products that have only this reader are split, too."""
    number = 1.0
    factors: list[GraphNode] = []
    waiting = [node]
    while waiting:
        x = waiting.pop()
        inner = x is node or uses[x] == 1
        part = scaled(x) if inner else None
        if part is not None:
            number *= part[0]
            waiting.append(part[1])
        elif (
            inner
            and isinstance(x, Apply)
            and x.op == "multiply"
            and all(i.shape == x.shape for i in x.inputs)
        ):
            waiting.extend(reversed(x.inputs))
        else:
            factors.append(x)
    return Product(number, tuple(factors))


def shifted(node: GraphNode) -> tuple[float, GraphNode] | None:
    """(c, x) of a node that is x + c and has x's shape; None for others."""
    match node:
        case Apply("add", (x, Constant() as c)) | Apply("add", (Constant() as c, x)):
            number = number_of(c)
            return None if number is None or x.shape != node.shape else (number, x)
    return None
