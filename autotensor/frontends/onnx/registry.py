"""Converters: from one ONNX node to nodes of autotensor's graph.

    @converts("LeakyRelu", since=6)
    def leaky_relu(c: Call) -> Value:
        return ops.leaky_relu(c[0], alpha=c.attr("alpha", 0.01))

`since` is the opset from which on the converter is valid. A model gets the newest converter that is not newer
than its opset. A converter reads operands by `c[0]` (required) and `c.get(1)` (None if left out), attributes
by `c.attr`, and numbers that must be known now by `c.array(1)` or `c.ints(1)`.
"""

from __future__ import annotations

from collections.abc import Callable

from autotensor.frontends.onnx.node_call import Call, Value

Converter = Callable[[Call], Value]

_CONVERTERS: dict[tuple[str, str], list[tuple[int, Converter]]] = {}


def converts(*operators: str, since: int = 1, domain: str = "") -> Callable[[Converter], Converter]:
    """Registers a converter for one or several operators of a domain ("" is ONNX's own)."""

    def register(fn: Converter) -> Converter:
        for op in operators:
            versions = _CONVERTERS.setdefault((domain, op), [])
            assert since not in [s for s, _ in versions], f"{op} since {since} is registered twice"
            versions.append((since, fn))
            versions.sort(key=lambda pair: pair[0])
        return fn

    return register


def converter_of(domain: str, op: str, opset: int) -> Converter | None:
    """The converter for an operator in a model with this opset."""
    fitting = [fn for since, fn in _CONVERTERS.get((domain, op), []) if since <= opset]
    return fitting[-1] if fitting else None


def operators(domain: str = "") -> tuple[str, ...]:
    """Names of all operators of a domain that have a converter."""
    return tuple(sorted(op for d, op in _CONVERTERS if d == domain))
