"""Tensors without elements. No kernel computes them, and results that depend only on them are constants.

relu(x: [0, 3])  ──▶ a constant without elements
sum(x: [0, 3])   ──▶ the constant 0, computed by torch: none of its inputs has elements
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_map

from autotensor.base.dtype import dtype_of
from autotensor.frontends.torch.element_types import dtype_name, to_array
from autotensor.graph.ir import GraphNode, constant


def of_nothing(node: torch.fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The node's results as constants, if they have no elements, or if no tensor that it reads has elements.
    None for all other nodes."""
    if str(node.target) == "with_effects":  # its token has no elements, but the node has an effect
        return None
    wanted = node.meta.get("val")
    results = [w for w in tree_flatten(wanted)[0] if isinstance(w, torch.Tensor)]
    known = all(isinstance(n, int) for w in results for n in w.shape)
    if not results or not known or any(w.dtype.is_complex for w in results):
        return None
    if all(w.numel() == 0 for w in results):
        return tree_map(_empty, wanted)
    read = [x for x in tree_flatten((list(args), dict(kwargs)))[0] if isinstance(x, GraphNode)]
    if not read or any(0 not in x.shape for x in read):
        return None
    full_args, full_kwargs = tree_map(_tensor, (list(node.args), dict(node.kwargs)))
    return tree_map(_constant, node.target(*full_args, **full_kwargs))


def _empty(wanted: Any) -> Any:
    if not isinstance(wanted, torch.Tensor):
        return wanted
    return constant(np.empty(tuple(wanted.shape), dtype_of(dtype_name(wanted.dtype)).numpy))


def _tensor(argument: Any) -> Any:
    """An argument in the form that torch accepts."""
    value = argument.meta["val"] if isinstance(argument, torch.fx.Node) else argument
    return torch.empty(tuple(value.shape), dtype=value.dtype) if isinstance(value, torch.Tensor) else value


def _constant(result: Any) -> Any:
    return constant(to_array(result).copy()) if isinstance(result, torch.Tensor) else result
