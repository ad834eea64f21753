"""The state of construction: the graph that nodes enter, names already taken, control dependencies.

Nodes and sessions are typed as Any, because `nodes.py` and `session.py` import this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from autotensor.base.errors import GraphError


class StaticGraph:
    """All variables and names of one program. It does not keep nodes alive."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.variables: list[Any] = []  # flow.variables.Variable, in order of creation

    @contextmanager
    def as_default(self) -> Iterator[StaticGraph]:
        """Inside the block new nodes enter this graph."""
        token = _graph.set(self)
        try:
            yield self
        finally:
            _graph.reset(token)


_first = StaticGraph()
running: ContextVar[Any] = ContextVar("autotensor_flow_session", default=None)  # a flow.Session
_graph: ContextVar[StaticGraph] = ContextVar("autotensor_flow_graph", default=_first)
_control: ContextVar[tuple[Any, ...]] = ContextVar("autotensor_flow_control", default=())
_watchers: ContextVar[tuple[list[Any], ...]] = ContextVar("autotensor_flow_watchers", default=())


def session() -> Any:
    """The session of the current `with` block. Raises GraphError when there is none."""
    if (found := running.get()) is None:
        raise GraphError("there is no session here.", fix="Write `with flow.Session() as sess:` around it.")
    return found


def current() -> StaticGraph:
    """The graph that nodes enter now."""
    return _graph.get()


def reset_default_graph() -> None:
    """Forgets the variables and names of the current graph."""
    graph = current()
    graph.names.clear()
    graph.variables.clear()


def unique(name: str) -> str:
    """The name, or name_1, name_2 … when it is taken."""
    names = current().names
    count = names.get(name, 0)
    names[name] = count + 1
    return name if count == 0 else unique(f"{name}_{count}")


def enter(node: Any) -> None:
    """Adds a new node to the lists of `watching` (for a branch of a `cond`, say)."""
    for made in _watchers.get():
        made.append(node)


@contextmanager
def watching() -> Iterator[list[Any]]:
    """A list that gets the nodes made inside the block, in order."""
    made: list[Any] = []
    token = _watchers.set((*_watchers.get(), made))
    try:
        yield made
    finally:
        _watchers.reset(token)


def control() -> tuple[Any, ...]:
    """The nodes that must run before any node made now."""
    return _control.get()


@contextmanager
def control_dependencies(nodes: Iterable[Any] | None) -> Iterator[None]:
    """Nodes made inside the block run after `nodes` (None: after nothing), and see the values assigned by
    these."""
    token = _control.set(() if nodes is None else (*_control.get(), *nodes))
    try:
        yield
    finally:
        _control.reset(token)
