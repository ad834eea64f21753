"""The one rewriting engine: rules, fixed point, substitution.

A rule is a function `node -> node | None` marked with the classes it fires on:

    @rule(Binary)
    def add_zero(e): ...

`Rules(a, b, c)` is an ordered list indexed by class; `+` joins two lists. `rewrite(root, RULES,
name="simplify")` applies them bottom-up until no rule fires. `substitute` replaces all keys in one pass, and
does not visit the values that it puts in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from autotensor.base.errors import LoweringError
from autotensor.ir.node import Node, map_children

N = TypeVar("N", bound=Node)
Rule = Callable[..., Any]

FUEL = 64  # rewrites of one position before the rules are called endless; real chains have fewer than 10

_observers: list[Callable[[Rule, Node, Node], None]] = []


def rule(*classes: type, when: Callable[[Any], bool] | None = None) -> Callable[[Rule], Rule]:
    """Marks a function as a rule for nodes of these classes; `when` is a condition on their `dtype`."""

    def mark(fn: Rule) -> Rule:
        fn.classes = classes  # type: ignore[attr-defined]
        fn.when = when  # type: ignore[attr-defined]
        return fn

    return mark


class Rules:
    """An ordered list of rules, found by the class of a node, and by its type for rules that need it."""

    def __init__(self, *rules: Rule) -> None:
        self.rules = rules
        self._by_class: dict[type, tuple[Rule, ...]] = {}
        self._by_type: dict[Any, tuple[Rule, ...]] = {}

    def __add__(self, other: Rules) -> Rules:
        return Rules(*self.rules, *other.rules)

    def for_class(self, cls: type) -> tuple[Rule, ...]:
        found = self._by_class.get(cls)
        if found is None:
            found = tuple(r for r in self.rules if issubclass(cls, r.classes))  # type: ignore[attr-defined]
            self._by_class[cls] = found
        return found

    def for_node(self, node: Node) -> tuple[Rule, ...]:
        """The rules for a node's class, without those that its `dtype` (if it has one) excludes."""
        dtype = getattr(node, "dtype", None)
        found = self._by_type.get((node.__class__, dtype))
        if found is None:
            of_class = self.for_class(node.__class__)
            found = tuple(r for r in of_class if r.when is None or r.when(dtype))  # type: ignore[attr-defined]
            self._by_type[node.__class__, dtype] = found
        return found


@contextmanager
def on_rewrite(observer: Callable[[Rule, Node, Node], None]) -> Iterator[None]:
    """Calls `observer(rule, before, after)` for every rule that fires inside the block."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def rewrite(root: N, rules: Rules, *, name: str, ctx: Any = None) -> N:
    """`root` with the rules applied bottom-up to a fixed point.

    ctx: passed to every rule as second argument, unless it is None. Raises LoweringError, which names the
    rules that keep undoing one another.
    """
    memo: dict[Node, Node] = {}

    def visit(node: Any) -> Any:
        done = memo.get(node)
        if done is not None:
            return done
        new = map_children(node, visit)
        for _ in range(FUEL):
            fired = fire(new, rules, ctx)
            if fired is None:
                break
            new = memo.get(fired) or map_children(fired, visit)
        else:
            raise LoweringError(f"{name}: rules do not settle on {type(node).__name__}; last form {new!r}.")
        memo[node] = new
        return new

    done = visit(root)
    memo.clear()  # the function refers to itself, so it and everything that it holds would be freed late
    return done  # type: ignore[no-any-return]


def fire(node: Node, rules: Rules, ctx: Any = None) -> Any:
    """The result of the first rule that applies to `node`, or None. Observers are called with this result."""
    for r in rules.for_node(node):
        new = r(node) if ctx is None else r(node, ctx)
        if new is not None and new is not node:
            for observer in _observers:
                observer(r, node, new)
            return new
    return None


def substitute(root: N, mapping: Mapping[Any, Any]) -> N:
    """`root` with every node that is a key replaced by its value, all at once."""
    if not mapping:
        return root
    memo: dict[Node, Any] = dict(mapping)

    def visit(node: Any) -> Any:
        done = memo.get(node)
        if done is None:
            done = map_children(node, visit)
            memo[node] = done
        return done

    done = visit(root)
    memo.clear()  # the function refers to itself, so it and everything that it holds would be freed late
    return done  # type: ignore[no-any-return]


def transform(root: N, fn: Callable[[Any], Any]) -> N:
    """`root` with `fn` applied once to every node, bottom-up. If `fn` returns None, the node stays."""
    memo: dict[Node, Any] = {}

    def visit(node: Any) -> Any:
        done = memo.get(node)
        if done is None:
            done = map_children(node, visit)
            new = fn(done)
            done = done if new is None else new
            memo[node] = done
        return done

    done = visit(root)
    memo.clear()  # the function refers to itself, so it and everything that it holds would be freed late
    return done  # type: ignore[no-any-return]
