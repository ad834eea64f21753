"""How operators are taken apart into those that have converters: torch's own decompositions, and ours.

    aten._cdist_forward ──▶ sub, abs, pow, sum …        functions of torch tensors, which torch traces

    @decomposes("aten.addbmm.default")
    def addbmm(c, a, b, *, beta=1, alpha=1):
        return beta * c + alpha * torch.bmm(a, b).sum(0)

Ours say what torch's kernels compute where torch has no decomposition, or one that it cannot trace itself.
They live in the files next to this one, one for each family.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch._decomp import decomposition_table

from autotensor.frontends.torch.registry import CONVERTERS

Decomposition = Callable[..., Any]
F = TypeVar("F", bound=Decomposition)

# operators that torch would decompose and a schedule needs whole, whoever traces the program
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
    """Files the decorated function as the decomposition of these operators (`aten.name.overload`), where this
    version of torch has them."""

    def file(function: F) -> F:
        for target in targets:
            _, name, overload = target.split(".")
            packet = getattr(torch.ops.aten, name, None)
            if packet is not None and overload in packet.overloads():
                OURS[getattr(packet, overload)] = function
        return function

    return file


def extended(table: dict[Any, Decomposition]) -> dict[Any, Decomposition]:
    """The table, with all that torch or we can take apart and that has no converter."""
    more = {o: how for o, how in decomposition_table.items() if _is_wanted(o)}
    return {**more, **table, **OURS}


# Torch's decompositions of these write in place what it then cannot trace.
_UNTRACED = frozenset({"aten.complex.default", "aten.polar.default"})


def _is_wanted(operator: Any) -> bool:
    """Functional operators without a converter of their own."""
    return (
        isinstance(operator, torch._ops.OpOverload)
        and str(operator) not in _UNTRACED
        and operator.namespace == "aten"
        and not operator._schema.is_mutable
        and str(operator) not in CONVERTERS
    )
