"""Recognises GELU that is written out in single operators, as exporters write it.

    x * 0.5 * (1 + erf(x / √2))                               ──▶  gelu(x)
    x * 0.5 * (1 + tanh(√(2/π) * (x + 0.044715 * x³)))         ──▶  gelu(x, approximate="tanh")

Factors may be in any order and on either side. x³ may be a power or a product, and x may be factored out of
the inner sum. Constants must be exactly these numbers: x * sigmoid(1.702 x) and other relatives stay as they
are.
Source: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), for both forms.
"""

from __future__ import annotations

import math

from autotensor.graph.graph_rewriting import Uses, rewrite_graph
from autotensor.graph.ir import Apply, Graph, GraphNode, apply
from autotensor.graph.rules.scalar_constants import close, is_wide_float, number_of, product, scaled, shifted
from autotensor.ir.rewrite import Rules, rule

CUBIC = 0.044715


@rule(Apply)
def gelu(node: Apply, uses: Uses) -> GraphNode | None:
    """x * 0.5 * (1 + f(x)) ──▶ gelu(x)"""
    if node.op not in ("multiply", "divide") or not is_wide_float(node):
        return None
    whole = product(node, uses)
    if not close(whole.number, 0.5) or len(whole.factors) != 2:
        return None
    for x, other in (whole.factors, whole.factors[::-1]):
        found = _form(x, other, uses)
        if found is not None and x.shape == node.shape:
            return apply("gelu", (x,), {"approximate": found})
    return None


def _form(x: GraphNode, other: GraphNode, uses: Uses) -> str | None:
    """The form of GELU that is the product of x and `other` = 1 + f(…); None if it is not a GELU."""
    one = shifted(other)
    if one is None or one[0] != 1.0 or uses[other] != 1:
        return None
    match one[1]:
        case Apply("erf", (inner,)) as f if uses[f] == 1 and _is_halved_root(inner, x):
            return "none"
        case Apply("tanh", (inner,)) as f if uses[f] == 1 and _is_cubic(inner, x, uses):
            return "tanh"
    return None


def _is_halved_root(inner: GraphNode, x: GraphNode) -> bool:
    """x / √2"""
    part = scaled(inner)
    return part is not None and part[1] is x and close(part[0], math.sqrt(0.5))


def _is_cubic(inner: GraphNode, x: GraphNode, uses: Uses) -> bool:
    """√(2/π) * (x + 0.044715 * x³), or √(2/π) * x * (1 + 0.044715 * x²)"""
    whole = product(inner, uses)
    if not close(whole.number, math.sqrt(2 / math.pi)):
        return False
    rest = list(whole.factors)
    if x in rest:
        rest.remove(x)
        one = shifted(rest[0]) if len(rest) == 1 else None
        return one is not None and one[0] == 1.0 and _is_power(one[1], x, 2, uses)
    match rest:
        case [Apply("add", (a, b))]:
            return any(p is x and _is_power(q, x, 3, uses) for p, q in ((a, b), (b, a)))
    return False


def _is_power(node: GraphNode, x: GraphNode, exponent: int, uses: Uses) -> bool:
    """0.044715 * x ** exponent"""
    whole = product(node, uses)
    return close(whole.number, CUBIC) and sum(_degree(f, x) for f in whole.factors) == exponent


def _degree(factor: GraphNode, x: GraphNode) -> float:
    """How many times x is a factor: 1 for x, n for x ** n; NaN for anything else."""
    match factor:
        case Apply("power", (base, exponent)) if base is x and factor.shape == x.shape:
            number = number_of(exponent)
            return number if number is not None and number in (2.0, 3.0) else math.nan
        case Apply("multiply", (a, b)) if a is x and b is x:  # a square that others read, too
            return 2
    return 1 if factor is x else math.nan


GELU = Rules(gelu)


def recognise_gelu(graph: Graph) -> Graph:
    return rewrite_graph(graph, GELU, name="gelu from parts")
