"""The decompositions of operators into operators that have converters: torch's and autotensor's own.

    aten._cdist_forward ──▶ sub, abs, pow, sum …        functions of torch tensors, which torch traces

    @decomposes("aten.addbmm.default")
    def addbmm(c, a, b, *, beta=1, alpha=1):
        return beta * c + alpha * torch.bmm(a, b).sum(0)

autotensor has its own decomposition if torch has none, or cannot trace its own. These decompositions compute
the same as torch's kernels. They are in the files of this folder, one for each family.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch._decomp import decomposition_table

from autotensor.frontends.torch.registry import CONVERTERS

Decomposition = Callable[..., Any]
F = TypeVar("F", bound=Decomposition)

# operators that torch would decompose but that a schedule needs whole
WHOLE = (
    "aten.upsample_nearest2d.vec",
    "aten.upsample_bilinear2d.vec",
    "aten.silu.default",
    "aten.softplus.default",
    "aten.hardsigmoid.default",
    "aten.hardswish.default",
    "aten.pixel_shuffle.default",
)

OURS: dict[Any, Decomposition] = {}


def decomposes(*targets: str) -> Callable[[F], F]:
    """Registers the decorated function as the decomposition of those of these operators
    (`aten.name.overload`) that this version of torch has."""

    def file(function: F) -> F:
        for target in targets:
            _, name, overload = target.split(".")
            packet = getattr(torch.ops.aten, name, None)
            if packet is not None and overload in packet.overloads():
                OURS[getattr(packet, overload)] = function
        return function

    return file


def extended(table: dict[Any, Decomposition]) -> dict[Any, Decomposition]:
    """The table, extended by every operator without a converter that torch or autotensor can decompose."""
    more = {o: how for o, how in decomposition_table.items() if _is_wanted(o)}
    return {**more, **table, **OURS}


# Torch's decompositions of these write in place, and torch cannot trace that.
_UNTRACED = frozenset({"aten.complex.default", "aten.polar.default"})


def _is_wanted(operator: Any) -> bool:
    """Whether an operator is functional and has no converter."""
    return (
        isinstance(operator, torch._ops.OpOverload)
        and str(operator) not in _UNTRACED
        and operator.namespace == "aten"
        and not operator._schema.is_mutable
        and str(operator) not in CONVERTERS
    )
