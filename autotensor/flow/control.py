"""Control flow in a static graph: switch and merge, `cond`, `while_loop`.

    x ──▶ Switch ──▶ Taken(true)  ──▶ x + z ─┐
    p ──▶   │                                Merge ──▶
            └──────▶ Taken(false) ──▶ y ** 2 ┘

A switch forwards its input to one side. On the other side the value is *dead*, like every node that reads it.
A merge forwards its one input that is not dead. `cond` writes switches and merges: every outer node that a
branch reads goes through a switch, and all nodes of the branch wait for the switch of the predicate (the
pivot). A loop runs its condition and its body as separate programs until the condition is false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from autotensor.base.dtype import bool_
from autotensor.base.errors import GraphError
from autotensor.flow import scope
from autotensor.flow.node_origin import here
from autotensor.flow.nodes import Effect, Literal, Node, Operation, Spec, as_node, operation, spec_of
from autotensor.flow.variables import Variable


class Switch(Effect):
    """A switch with the inputs data and predicate. Its two sides are `Taken` nodes."""

    def __init__(self, data: Node, predicate: Node) -> None:
        super().__init__("switch", data.spec, (data, predicate))


class Taken(Node):
    """One side of a switch: its data if the predicate equals `side`, else dead."""

    def __init__(self, switch: Switch, side: bool) -> None:
        self.switch = switch
        self.side = side
        super().__init__(f"{switch.name}_{str(side).lower()}", switch.spec, ())
        self.after = (*self.after, switch)


class Merge(Node):
    """The one input that is not dead."""

    def __init__(self, inputs: Sequence[Node]) -> None:
        super().__init__("merge", _common(inputs), inputs)


def _common(inputs: Sequence[Node]) -> Spec:
    """The common part of all specs. Raises GraphError when types differ."""
    first = inputs[0].spec
    for x in inputs[1:]:
        if x.dtype != first.dtype:
            raise GraphError(f"{here()}: branches give {first} and {x.spec}; they must agree.")
        if first.shape is None or x.shape is None or len(first.shape) != len(x.shape):
            first = Spec(first.dtype, None)
        else:
            pairs = zip(first.shape, x.shape, strict=True)
            first = Spec(first.dtype, tuple(a if a == b else None for a, b in pairs))
    return first


def switch(data: Any, predicate: Any) -> tuple[Node, Node]:
    """Two nodes: the data if the predicate is false, and the data if it is true. One of the two is dead."""
    made = Switch(as_node(data), _predicate(predicate))
    return Taken(made, False), Taken(made, True)


def merge(inputs: Sequence[Any]) -> Node:
    """The one input that is not dead."""
    return Merge([as_node(x) for x in inputs])


def _predicate(value: Any) -> Node:
    node = as_node(value)
    if node.shape is not None and any(n not in (1, None) for n in node.shape):
        raise GraphError(f"{here()}: a predicate is one value, {node.name} is {node.spec}.")
    return node


def cond(predicate: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
    """The result of `true_fn()` if the predicate holds, else that of `false_fn()`; only one is computed.

    Both functions are called now, to write their branches. They must give the same number of nodes.
    """
    test = _predicate(predicate)
    branches = [_branch(test, True, true_fn), _branch(test, False, false_fn)]
    if len(branches[0]) != len(branches[1]):
        raise GraphError(
            f"{here()}: the branches of cond give {len(branches[0])} and {len(branches[1])} nodes; "
            "both must give the same number."
        )
    merged = [merge(pair) for pair in zip(*branches, strict=True)]
    return merged[0] if len(merged) == 1 else tuple(merged)


def _branch(test: Node, side: bool, fn: Callable[[], Any]) -> list[Node]:
    """The result nodes of a branch, whose inputs go through switches."""
    switches: dict[Node, Node] = {}

    def guarded(x: Node) -> Node:
        if x not in switches:
            switches[x] = Taken(Switch(x, test), side)
        return switches[x]

    pivot = guarded(test)
    with scope.watching() as made:
        given = fn()
        results = [as_node(r) for r in (given if isinstance(given, (list, tuple)) else (given,))]
    inside = set(made)
    in_loops = {n for loop in made if isinstance(loop, Loop) for n in loop.inside}
    for node in made:
        if isinstance(node, (Switch, Taken, Literal)) or node in in_loops:
            continue  # these switches belong to an inner cond, see below; loops are guarded as a whole
        node.inputs = tuple(x if x in inside or not _is_data(node, x) else guarded(x) for x in node.inputs)
        node.after = (*node.after, pivot)
    for node in made:
        if isinstance(node, Switch) and node not in in_loops:
            node.inputs = tuple(x if x in inside else guarded(x) for x in node.inputs)
    return [r if r in inside else guarded(r) for r in results]


def _is_data(node: Node, x: Node) -> bool:
    """Whether the node reads x as data. Variables do not count: a branch must see its own assignments."""
    return not isinstance(x, (Variable, Literal))


# -- loops -----------------------------------------------------------------------------------------------


class LoopVariable(Node):
    """A value carried by a loop, inside its condition and body."""


class LoopResult(Node):
    """The final value of a loop variable."""

    def __init__(self, loop: Loop, number: int) -> None:
        variable = loop.variables[number]
        super().__init__(f"{loop.name}_{number}", variable.spec, ())
        self.after = (loop,)


class Loop(Effect):
    """While the condition holds, the variables become the results of the body.

    inputs: initial values, then outer nodes that condition or body read.
    """

    def __init__(
        self,
        variables: Sequence[LoopVariable],
        initial: Sequence[Node],
        condition: Node,
        results: Sequence[Node],
        made: Sequence[Node],
    ) -> None:
        self.variables = tuple(variables)
        self.condition = condition
        self.results = tuple(results)
        self.inside = frozenset((*variables, *made))
        outside = [x for node in made for x in (*node.inputs, *node.after) if x not in self.inside]
        orders = [producers_first(w, ends=outside) for w in ([condition], self.results)]
        self.captured = tuple(
            dict.fromkeys(
                x for x in (*orders[0], *orders[1]) if x not in self.inside and not isinstance(x, Literal)
            )
        )
        self.condition_order, self.body_order = ([n for n in o if n not in self.captured] for o in orders)
        super().__init__("while", Spec(bool_, ()), (*initial, *self.captured))
        self.outputs = tuple(LoopResult(self, n) for n in range(len(variables)))


def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Sequence[Any],
    shape_invariants: Sequence[Any] | None = None,
) -> Any:
    """`while cond(*v): v = body(*v)`, in the graph; gives the final values.

    shape_invariants: shapes of the variables, with None for extents that change between iterations.
    """
    initial = [as_node(v) for v in loop_vars]
    shapes = shape_invariants or [v.shape for v in initial]
    with scope.watching() as made, scope.control_dependencies(None):
        variables = [
            LoopVariable(f"loop_{n}", spec_of(v.dtype, s))
            for n, (v, s) in enumerate(zip(initial, shapes, strict=True))
        ]
        test = _predicate(cond(*variables))
        given = body(*variables)
        results = [
            as_node(r, v.dtype)
            for r, v in zip(given if isinstance(given, (list, tuple)) else (given,), variables, strict=True)
        ]
        results = [operation("identity", r) if not isinstance(r, Operation) else r for r in results]
    for r, v in zip(results, variables, strict=True):
        if r.dtype != v.dtype:
            raise GraphError(f"{here()}: loop variable {v.name} is {v.spec}, the body gives {r.spec}.")
    loop = Loop(variables, initial, test, results, made)
    return loop.outputs[0] if len(loop.outputs) == 1 else list(loop.outputs)


def producers_first(wanted: Sequence[Node], ends: Iterable[Node] = ()) -> list[Node]:
    """`wanted` and all nodes that they need. Inputs and control dependencies come before their readers.

    ends: nodes whose own inputs are left out.
    """
    order: list[Node] = []
    done: set[Node] = set()
    last = frozenset(ends)
    stack = [(w, False) for w in reversed(list(wanted))]
    while stack:
        node, ready = stack.pop()
        if node in done:
            continue
        if ready or node in last:
            done.add(node)
            order.append(node)
            continue
        stack.append((node, True))
        stack.extend((x, False) for x in reversed((*node.inputs, *node.after)))
    return order
