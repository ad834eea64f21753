"""Nodes that depend on no input: torch runs their operators once, if these have no converter.

torch.inverse(weight), torch.matrix_exp(skew) ──▶ constants
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

from autotensor.frontends.errors import Unsupported
from autotensor.frontends.torch.element_types import to_tensor
from autotensor.frontends.torch.families.complex import Complex
from autotensor.frontends.torch.families.creation import from_tensor
from autotensor.frontends.torch.registry import Missing, converts
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph, GraphNode, Input, topological


def by_torch(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The operator's results as constants of the graph; None if it reads an input, draws random numbers or
    writes. Exceptions of torch pass through."""
    if not isinstance(operator, torch._ops.OpOverload) or operator._schema.is_mutable:
        return None
    if torch.Tag.nondeterministic_seeded in operator.tags:
        return None
    if any(_is_open(v) for v in tree_leaves((list(args), dict(kwargs)))):
        return None
    with torch.no_grad():
        made = operator(*(tree_map(_tensor, a) for a in args), **{k: _tensor(a) for k, a in kwargs.items()})
    return (
        tree_map(lambda v: from_tensor(v) if isinstance(v, torch.Tensor) else v, made)
        if made is not None
        else ()
    )


def _is_open(value: Any) -> bool:
    """Whether the value depends on inputs, or is not a value at all."""
    if isinstance(value, Complex):
        return _is_open(value.re) or _is_open(value.im)
    if isinstance(value, GraphNode):
        return any(isinstance(n, Input) for n in topological((value,)))
    return isinstance(value, Missing)


def _tensor(value: Any) -> Any:
    """A value that depends on no input, as a torch tensor."""
    if isinstance(value, Complex):
        return torch.complex(_tensor(value.re), _tensor(value.im))
    if isinstance(value, GraphNode):
        (array,) = evaluate(Graph((), (value,), "constant"))
        return to_tensor(np.array(array))  # a copy, because torch may write to it
    return value


# this operator checks data; autotensor computes without such checks
CHECK = "aten._linalg_check_errors.default"


@converts("with_effects")
def with_effects(token: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
    """Operators that must run in order, such as the check of a factored matrix. On constants they run now."""
    made = by_torch(operator, args, kwargs)
    if made is None and str(operator) == CHECK:
        return None, None
    if made is None:
        raise Unsupported(f"{operator} has effects besides its results, which are not supported.")
    results = made if isinstance(made, tuple) else (made,)
    return (None, *results) if results else (None, None)
