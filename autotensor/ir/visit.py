"""Visits trees: walk, collect, free variables. Every distinct node is visited once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from autotensor.ir.expr import Cast, Expr, Load, Var
from autotensor.ir.node import Node, children

N = TypeVar("N", bound=Node)


def walk(root: Node) -> Iterator[Node]:
    """Every distinct node below and including `root`, parents first."""
    seen = {root}
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        for child in reversed(children(node)):
            if child not in seen:
                seen.add(child)
                stack.append(child)


def contains(root: Node, cls: type[Node]) -> bool:
    """Whether `root` or a node below it is of this class. This needs no search: nodes hold this as a bit."""
    return bool(root._kinds & cls._classes)  # type: ignore[attr-defined]


def collect(root: Node, cls: type[N]) -> tuple[N, ...]:
    """Distinct nodes of one class, parents first; visits only parts that contain such nodes."""
    wanted = cls._classes
    if not root._kinds & wanted:  # type: ignore[attr-defined]
        return ()
    seen = {root}
    stack: list[Any] = [root]
    found: list[N] = []
    while stack:
        node = stack.pop()
        if isinstance(node, cls):
            found.append(node)
        for child in reversed(node._children()):
            if child._kinds & wanted and child not in seen:
                seen.add(child)
                stack.append(child)
    return tuple(found)


def any_node(root: Node, test: Callable[[Node], bool]) -> bool:
    return any(test(n) for n in walk(root))


# Most levels of a stage's expression: passes recurse with up to five frames a level, and Python allows 1000.
MOST_NESTED = 128
# Most nodes of an expression that is written out, about 100 kB of text. Larger ones repeat a few parts.
MOST_WRITTEN = 20_000
LEAST_SHARED = 8  # fewest nodes of a part that gets a number


def height(root: Node) -> int:
    """The number of nodes on the longest way down from `root`, `root` included."""
    found: dict[Node, int] = {}
    for node in _upwards(root):
        found[node] = 1 + max((found[c] for c in children(node)), default=0)
    return found[root]


def sizes(root: Node) -> dict[Node, int]:
    """For each node, the number of nodes in the tree below it, itself included; children before parents.

    Shared parts count each time. If each of n levels uses a part twice, there are 2^n nodes, but few distinct
    ones.
    """
    found: dict[Node, int] = {}
    for node in _upwards(root):
        found[node] = 1 + sum(found[c] for c in children(node))
    return found


def _upwards(root: Node) -> Iterator[Node]:
    """Every node once, children before parents. It does not recurse, because trees may be too deep."""
    done: set[Node] = set()
    stack = [root]
    while stack:
        waiting = [c for c in children(stack[-1]) if c not in done]
        if waiting:
            stack += waiting
        elif (node := stack.pop()) not in done:
            done.add(node)
            yield node


def shared(*roots: Node) -> list[Expr]:
    """The parts to write once in a text of `roots`, children first; none if no expression is too large."""
    found: dict[Node, int] = {}
    for root in roots:
        found |= sizes(root)
    if all(size <= MOST_WRITTEN for node, size in found.items() if isinstance(node, Expr)):
        return []
    uses = Counter(child for node in found for child in children(node))
    return [n for n, size in found.items() if isinstance(n, Expr) and size >= LEAST_SHARED and uses[n] > 1]


_NONE: frozenset[Var] = frozenset()
_remember: Any = Node._free.__set__  # type: ignore[attr-defined]


def free_vars(root: Node) -> frozenset[Var]:
    """All variables read in `root` (variables bound inside count, too: names are unique in a function).

    The result is kept in the node, because passes need it for every expression.
    """
    if isinstance(root, Var):
        return frozenset((root,))  # not kept in the node, which would hold itself
    try:
        return root._free  # type: ignore[attr-defined, no-any-return]
    except AttributeError:
        found = _NONE
        for child in children(root):
            more = free_vars(child)
            found = more if not found else found if more <= found else found | more
        _remember(root, found)
        return found


def loads(root: Node) -> tuple[Load, ...]:
    return collect(root, Load)


def widened(e: Expr) -> Load | None:
    """The load below casts that keep every value; None for any other expression."""
    while isinstance(e, Cast) and e.dtype.holds(e.a.dtype):
        e = e.a
    return e if isinstance(e, Load) else None
