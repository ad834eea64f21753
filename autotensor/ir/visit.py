"""Looking at trees: walk, collect, free variables. Every distinct node is visited once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from autotensor.ir.expr import Load, Var
from autotensor.ir.node import Node, children

N = TypeVar("N", bound=Node)


def walk(root: Node) -> Iterator[Node]:
    """Every distinct node below and including `root`, parents first."""
    seen = {root}
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        for child in reversed(tuple(children(node))):
            if child not in seen:
                seen.add(child)
                stack.append(child)


def collect(root: Node, cls: type[N]) -> tuple[N, ...]:
    """Distinct nodes of one class, parents first."""
    return tuple(n for n in walk(root) if isinstance(n, cls))


def any_node(root: Node, test: Callable[[Node], bool]) -> bool:
    return any(test(n) for n in walk(root))


def free_vars(root: Node) -> frozenset[Var]:
    """All variables read in `root` (bindings inside are not subtracted: names are unique in a function)."""
    return frozenset(n for n in walk(root) if isinstance(n, Var))


def loads(root: Node) -> tuple[Load, ...]:
    return collect(root, Load)
