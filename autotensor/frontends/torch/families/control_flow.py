"""Programs inside a program: `torch.cond`, `torch.scan`, `map`, and regions like `with torch.no_grad():`.

    cond(p, then, else, xs) ──▶ where(p, then(xs), else(xs))       both are computed
    scan, map of n steps    ──▶ the step n times in a row, or for many steps a loop (`graph/steps.py`)

A loop whose number of steps depends on data (`while_loop`) cannot be a single graph and is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotensor.frontends.errors import Unsupported
from autotensor.frontends.torch.importer import import_part
from autotensor.frontends.torch.registry import converts
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode
from autotensor.graph.steps import over_steps


@converts("cond")
def cond(predicate: Any, then: Any, otherwise: Any, operands: Sequence[Any] = ()) -> Any:
    """The results of the branch that the predicate chooses. Both branches are computed, so the condition
    saves no time."""
    if not isinstance(predicate, GraphNode):
        return tuple(import_part(then if predicate else otherwise, operands))
    both = zip(import_part(then, operands), import_part(otherwise, operands), strict=True)
    chosen = ops.reshape(predicate, shape=())
    return tuple(a if a is b else _where(chosen, a, b) for a, b in both)


def _where(chosen: GraphNode, a: Any, b: Any) -> Any:
    if not isinstance(a, GraphNode) and a == b:  # both are None, or the same number
        return a
    return ops.where(chosen, a, b)


@converts("scan")
def scan(step: Any, state: Sequence[Any], rows: Sequence[GraphNode], more: Sequence[Any] = ()) -> Any:
    """The last state, then the stacked results of all steps."""
    _check_steps(rows)
    given, last = over_steps(lambda *x: import_part(step, [*x, *more]), state, rows)
    return (*last, *given[len(last) :])


@converts("map_impl")
def map_(step: Any, rows: Sequence[GraphNode], more: Sequence[Any] = ()) -> Any:
    _check_steps(rows)
    return over_steps(lambda *x: import_part(step, [*x, *more]), (), rows)[0]


def _check_steps(rows: Sequence[GraphNode]) -> None:
    if not rows or not rows[0].shape[0]:
        raise Unsupported("a loop of no steps.", fix="Give it at least one.")


@converts("while_loop")
def while_loop(*_: Any, **__: Any) -> Any:
    raise Unsupported(
        "the number of times that the loop runs depends on data.",
        fix="Run a fixed number of steps, and choose results by torch.where.",
    )


@converts("wrap_with_set_grad_enabled")
def with_gradients(_: bool, body: Any, *operands: Any) -> Any:
    """`with torch.no_grad():` changes no value."""
    return tuple(import_part(body, operands))


@converts("wrap_with_autocast")
def with_autocast(device: str, dtype: Any, enabled: bool, cache: Any, body: Any, *operands: Any) -> Any:
    if enabled:
        raise Unsupported(
            "torch.autocast is not supported.", fix="Convert the model instead: module.bfloat16()."
        )
    return tuple(import_part(body, operands))
