"""Looking at trees: walk, collect, free variables. Every distinct node is visited once."""

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
    """Whether `root` or a node below it is of this class. A node has that as a bit: no search."""
    return bool(root._kinds & cls._classes)  # type: ignore[attr-defined]


def collect(root: Node, cls: type[N]) -> tuple[N, ...]:
    """Distinct nodes of one class, parents first; looks only where there are some."""
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


# Levels of a stage's expression: passes recurse, at up to five frames a level, and Python allows 1000 frames.
MOST_NESTED = 128
# Nodes of an expression that is written out: 100 kB of text or so. More, and it is of few parts, used again.
MOST_WRITTEN = 20_000
LEAST_SHARED = 8  # nodes of a part that is worth a number


def height(root: Node) -> int:
    """Nodes on the longest way down from `root`, itself included."""
    found: dict[Node, int] = {}
    for node in _upwards(root):
        found[node] = 1 + max((found[c] for c in children(node)), default=0)
    return found[root]


def sizes(root: Node) -> dict[Node, int]:
    """Nodes of the tree that is written out below each node, itself included; children before parents.

    An expression that uses a part twice at each of n levels has 2^n of them, of few distinct nodes.
    """
    found: dict[Node, int] = {}
    for node in _upwards(root):
        found[node] = 1 + sum(found[c] for c in children(node))
    return found


def _upwards(root: Node) -> Iterator[Node]:
    """Every node once, children before parents. Iterative: there may be too many for recursion."""
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
    """The parts to write once in a text of these, children first: none unless an expression is too large."""
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
    """All variables read in `root` (bindings inside are not subtracted: names are unique in a function).

    Remembered in the node: passes ask this of every expression.
    """
    if isinstance(root, Var):
        return frozenset((root,))  # not remembered: it would hold itself
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
    """The load below casts that keep every value; None for anything else."""
    while isinstance(e, Cast) and e.dtype.holds(e.a.dtype):
        e = e.a
    return e if isinstance(e, Load) else None
