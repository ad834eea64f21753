"""From the static graph to graph nodes of known types, in the order in which a run needs them.

    Placeholder, Variable, Source   ──▶  Input, and the array that it has in this run
    Operation                       ──▶  its graph nodes; a dead input makes it dead
    Switch                          ──▶  its input on the side that the predicate takes, DEAD on the other
    Merge                           ──▶  its one live input
    Loop                            ──▶  inputs that hold the final values

A predicate is computed when the lowering comes to it. Nodes of the branch that is not taken are never
lowered. The rest of a run is then one program. Without predicates and loops, the lowering computes nothing,
and its result serves every run of the same types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from autotensor.base.errors import AutotensorError, GraphError
from autotensor.flow.control import Loop, LoopVariable, Merge, Switch, Taken
from autotensor.flow.flow_gradients import Gradient, Stopped
from autotensor.flow.loops import LoopRun, slopes
from autotensor.flow.nodes import Array, Literal, Node, Operation, Placeholder, Source
from autotensor.flow.variables import Assign, Group, Host, Variable
from autotensor.graph.build import constant
from autotensor.graph.build import input as graph_input
from autotensor.graph.ir import GraphNode, Input


class Dead:
    """The value of a node in a branch not taken."""

    def __repr__(self) -> str:
        return "DEAD"


DEAD = Dead()
NO_VALUE = None
Lowered = GraphNode | Dead | None
Compute = Callable[[Sequence[GraphNode], Mapping[GraphNode, Array], Mapping[GraphNode, GraphNode]], Any]


class Leaves(Protocol):
    """The source of arrays in a run."""

    def array(self, node: Node) -> Array:
        """The array that a leaf has now."""


class Lowering:
    """One run's graph nodes. `of` maps static nodes to them; `arrays` holds the leaves' values."""

    def __init__(self, leaves: Leaves, compute: Compute, fed: Iterable[Node]) -> None:
        self.leaves = leaves
        self.compute = compute
        self.fed = frozenset(fed)
        self.of: dict[Node, Lowered] = {}
        self.sources: dict[Input, Node] = {}  # leaf → its static node
        self.arrays: dict[GraphNode, Array] = {}
        self.defined: dict[GraphNode, GraphNode] = {}
        self.before: dict[Node, frozenset[Assign]] = {}  # assignments that come before a node
        self.assigned: list[Assign] = []  # assignments that happen, in order
        self.hosts: list[Host] = []
        self.loops: list[LoopRun] = []  # loops that ran, in order
        self.dynamic = False  # whether something was computed while lowering
        self.events: list[str] = []  # what switches, merges and loops did, for people

    def lower(self, order: Sequence[Node]) -> None:
        """Lowers nodes, producers first."""
        for node in order:
            if node not in self.of:
                self.before[node] = self._before(node)
                self.of[node] = self._lower(node)

    def value(self, node: Node) -> Lowered:
        return self.of[node]

    def _before(self, node: Node) -> frozenset[Assign]:
        found: frozenset[Assign] = frozenset()
        if node in self.fed:
            return found
        for x in (*node.inputs, *node.after):
            found |= self.before.get(x, found)  # inside a loop, nodes outside it have no entry
            if isinstance(x, Assign) and self.of.get(x) not in (DEAD, None):
                found |= {x}
        return found

    def _lower(self, node: Node) -> Lowered:
        if node in self.fed:
            return self._leaf(node)
        if any(self.of.get(x) is DEAD for x in node.after):
            return DEAD
        match node:
            case Merge():
                return self._merge(node)
            case Placeholder() | Variable() | Source() | LoopVariable():
                return self._leaf(node)
            case Literal():
                return constant(node.value, dtype=node.dtype)
        inputs = [self.read(node, x) for x in node.inputs]
        live = [x for x in inputs if isinstance(x, GraphNode)]
        if len(live) < len(inputs):
            return DEAD
        match node:
            case Switch():
                return NO_VALUE
            case Taken():
                return self._taken(node)
            case Stopped():
                stand_in = graph_input(live[0].shape, live[0].dtype, "stopped")
                self.defined[stand_in] = live[0]
                return stand_in
            case Gradient():
                live[node.count] = self._as_seen(node, live[node.count])
                return self._operation(node, live) if not self.loops else self._gradient(node, live)
            case Operation():
                return self._operation(node, live)
            case Assign():
                self.assigned.append(node)
                return live[0]
            case Loop():
                self._loop(node, live)
                return NO_VALUE
            case Host():
                self.hosts.append(node)
                return NO_VALUE
            case Group():
                return NO_VALUE
        raise GraphError(f"{node!r} ({node.at}) cannot be run.")

    # -- leaves and variables ----------------------------------------------------------------------------

    def _leaf(self, node: Node) -> Input:
        array = self.leaves.array(node)
        leaf = graph_input(array.shape, node.dtype, node.name.replace("/", "_"))
        self.sources[leaf] = node
        self.arrays[leaf] = array
        return leaf

    def read(self, node: Node, x: Node) -> Lowered:
        """The value that `node` reads from its input x. For a variable, this is the last value that was
        assigned before `node`."""
        if not isinstance(x, Variable) or x in self.fed:
            return self.of[x]
        last = latest(x, [a for a in self.before[node] if a.variable is x], self.before)
        return self.of[x] if last is None else self.of[last]

    def _as_seen(self, node: Gradient, x: GraphNode) -> GraphNode:
        """The value of x for which the gradient is computed. For a variable, this is the value that the loss
        read, which may be older than the last assignment."""
        variable = node.inputs[node.count]
        if not isinstance(variable, Variable):
            return x
        for y in node.inputs[: node.count]:
            last = latest(variable, [a for a in self.before[y] if a.variable is variable], self.before)
            seen = self.of[variable] if last is None else self.of[last]
            if isinstance(seen, GraphNode):
                return seen
        return x

    def _operation(self, node: Operation, inputs: Sequence[GraphNode]) -> GraphNode:
        try:
            return node.lower(*inputs)
        except AutotensorError as error:
            raise GraphError(f"{node.at}: {node.what}: {error.what}", fix=error.fix) from error

    def _gradient(self, node: Gradient, inputs: Sequence[GraphNode]) -> GraphNode:
        ys, x, seeds = node.parts(inputs)
        try:
            return slopes(self, ys, [x], seeds)[0]
        except AutotensorError as error:
            raise GraphError(f"{node.at}: {node.what}: {error.what}", fix=error.fix) from error

    # -- control -----------------------------------------------------------------------------------------

    def numbers(self, nodes: Sequence[GraphNode]) -> list[Array]:
        """Computes the arrays of nodes now, and keeps them."""
        self.dynamic = True
        made = self.compute(nodes, self.arrays, self.defined)
        self.arrays.update(zip(nodes, made, strict=True))
        return list(made)

    def _taken(self, node: Taken) -> Lowered:
        switch = node.switch
        data, predicate = (self.read(switch, x) for x in switch.inputs)
        if not isinstance(predicate, GraphNode):
            return DEAD
        holds = truth(self.numbers([predicate])[0], switch)
        self.events.append(f"{node.name}: {'live' if holds == node.side else 'dead'}")
        return data if holds == node.side else DEAD

    def _merge(self, node: Merge) -> Lowered:
        inputs = [self.read(node, x) for x in node.inputs]
        live = [(x, y) for x, y in zip(node.inputs, inputs, strict=True) if y is not DEAD]
        if len(live) > 1:
            both = " and ".join(x.name for x, _ in live)
            raise GraphError(f"{node.at}: merge {node.name} has more than one live input: {both}.")
        self.events.append(f"{node.name}: {live[0][0].name if live else 'dead'}")
        return live[0][1] if live else DEAD

    def _loop(self, loop: Loop, initial: Sequence[GraphNode]) -> None:
        """Runs the loop; its results become leaves with the final values."""
        count = len(loop.variables)
        known = self.numbers(initial) if initial else []
        outer = dict(zip(loop.captured, known[count:], strict=True))
        values = known[:count]
        for variable, value in zip(loop.variables, values, strict=True):
            _check_carried(variable, value)
        turns: list[tuple[Array, ...]] = []
        while truth(self._inside(loop, values, outer, loop.condition_order, [loop.condition])[0], loop):
            turns.append(tuple(values))
            values = self._inside(loop, values, outer, loop.body_order, loop.results)
            for variable, value in zip(loop.variables, values, strict=True):
                _check_carried(variable, value)
        self.events.append(f"{loop.name}: {len(turns)} times")
        leaves = []
        for result, value in zip(loop.outputs, values, strict=True):
            leaf = graph_input(value.shape, result.dtype, result.name)
            self.arrays[leaf] = value
            self.of[result] = leaf
            self.before[result] = self.before[loop]
            leaves.append(leaf)
        self.loops.append(LoopRun(loop, tuple(initial), outer, tuple(turns), tuple(leaves)))

    def _inside(
        self,
        loop: Loop,
        values: Sequence[Array],
        outer: Mapping[Node, Array],
        order: Sequence[Node],
        wanted: Sequence[Node],
    ) -> list[Array]:
        """One evaluation of the loop's condition or body."""
        inner = self.inside(loop, values, outer, order)
        nodes = [inner.of[w] for w in wanted]
        assert all(isinstance(n, GraphNode) for n in nodes)
        self.events += inner.events
        return inner.numbers([n for n in nodes if isinstance(n, GraphNode)])

    def inside(
        self, loop: Loop, values: Sequence[Array], outer: Mapping[Node, Array], order: Sequence[Node]
    ) -> Lowering:
        """A separate lowering of the loop's condition or body, for given values of its variables."""
        held: dict[Node, Array] = dict(zip(loop.variables, values, strict=True))
        held.update(outer)
        inner = Lowering(_Held(self.leaves, held), self.compute, held)
        inner.lower([*held, *order])
        if inner.assigned or inner.hosts:
            effect = (*inner.assigned, *inner.hosts)[0]
            raise GraphError(
                f"{effect.at}: {effect.name} is inside a loop, where assignments are not allowed."
            )
        return inner


class _Held:
    """The leaves inside a loop: the values that it carries, and the values that it reads from outside."""

    def __init__(self, leaves: Leaves, held: Mapping[Node, Array]) -> None:
        self.leaves = leaves
        self.held = held

    def array(self, node: Node) -> Array:
        return self.held[node] if node in self.held else self.leaves.array(node)


def latest(
    variable: Variable, found: Sequence[Assign], before: Mapping[Node, frozenset[Assign]]
) -> Assign | None:
    """The last of several assignments to one variable. Raises GraphError when they are not ordered."""
    if not found:
        return None
    last = max(found, key=lambda a: sum(b in before[a] for b in found))
    for other in found:
        if other is not last and other not in before[last]:
            raise GraphError(
                f"variable {variable.name} is assigned at {other.at} and {last.at}, in an "
                "order that is not defined.",
                fix="Write the later one under flow.control_dependencies([the earlier one]).",
            )
    return last


def truth(array: Array, node: Node) -> bool:
    """A predicate's value. Raises GraphError unless it is one number."""
    if array.size != 1:
        raise GraphError(
            f"{node.at}: the predicate of {node.name} must be one value, its shape is {array.shape}."
        )
    return bool(np.asarray(array).reshape(-1)[0])


def _check_carried(variable: LoopVariable, value: Array) -> None:
    if not variable.spec.admits(value.shape):
        raise GraphError(
            f"{variable.at}: loop variable {variable.name} is {variable.spec}, a turn of the loop gives "
            f"shape {list(value.shape)}.",
            fix="Name extents that change as None in shape_invariants.",
        )
