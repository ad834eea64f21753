"""Programs inside a program: `torch.cond`, `torch.scan`, `map`, and regions of a torch mode.

    cond(p, then, else, xs) ──▶ where(p, then(xs), else(xs))       both are computed
    scan, map of n steps    ──▶ the step n times                   in a row

A loop whose number of steps is data (`while_loop`) is not one graph, and is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotensor.frontends.errors import Unsupported
from autotensor.frontends.torch.families.shape import select, stack
from autotensor.frontends.torch.importer import import_part
from autotensor.frontends.torch.registry import converts
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode

MOST_STEPS = 512  # of a loop that is written out


@converts("cond")
def cond(predicate: Any, then: Any, otherwise: Any, operands: Sequence[Any] = ()) -> Any:
    """The results of the branch that the predicate names. Both are computed, so a branch must not be counted
    on to be spared."""
    if not isinstance(predicate, GraphNode):
        return tuple(import_part(then if predicate else otherwise, operands))
    both = zip(import_part(then, operands), import_part(otherwise, operands), strict=True)
    chosen = ops.reshape(predicate, shape=())
    return tuple(a if a is b else _where(chosen, a, b) for a, b in both)


def _where(chosen: GraphNode, a: Any, b: Any) -> Any:
    if not isinstance(a, GraphNode) and a == b:  # None, or a number
        return a
    return ops.where(chosen, a, b)


@converts("scan")
def scan(step: Any, state: Sequence[Any], rows: Sequence[GraphNode], more: Sequence[Any] = ()) -> Any:
    """The last state, then what each step gives, stacked."""
    carried, given = list(state), []
    for n in range(_steps(rows)):
        made = import_part(step, [*carried, *(select(x, 0, n) for x in rows), *more])
        carried = made[: len(carried)]
        given.append(made[len(carried) :])
    return (*carried, *(stack(column) for column in zip(*given, strict=True)))


@converts("map_impl")
def map_(step: Any, rows: Sequence[GraphNode], more: Sequence[Any] = ()) -> Any:
    made = [import_part(step, [*(select(x, 0, n) for x in rows), *more]) for n in range(_steps(rows))]
    return tuple(stack(column) for column in zip(*made, strict=True))


def _steps(rows: Sequence[GraphNode]) -> int:
    count = rows[0].shape[0] if rows else 0
    if not 0 < count <= MOST_STEPS:
        raise Unsupported(
            f"a loop of {count} steps is not written out; 1 to {MOST_STEPS} are.",
            fix="Write it as operators.",
        )
    return count


@converts("while_loop")
def while_loop(*_: Any, **__: Any) -> Any:
    raise Unsupported(
        "how often the loop runs only the data know.", fix="Run a fixed number of steps, and torch.where."
    )


@converts("wrap_with_set_grad_enabled")
def with_gradients(_: bool, body: Any, *operands: Any) -> Any:
    """`with torch.no_grad():` changes no value."""
    return tuple(import_part(body, operands))


@converts("wrap_with_autocast")
def with_autocast(device: str, dtype: Any, enabled: bool, cache: Any, body: Any, *operands: Any) -> Any:
    if enabled:
        raise Unsupported(
            "torch.autocast is not followed.", fix="Give the model its type: module.bfloat16()."
        )
    return tuple(import_part(body, operands))
