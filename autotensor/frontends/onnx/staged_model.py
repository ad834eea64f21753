"""A model that runs in stages: compiled parts, and between them decisions that depend on values.

    Point(compiled part) ──value of a shape──▶ Point(Loop on the host) ──shapes──▶ Point(the rest) ──▶ outputs
                         └─another value────▶ …

A model that can be imported without values is one point. Otherwise the importer stops where it needs a
number. The part so far is compiled and run. Then the importer continues with the number, which is called the
answer. Next time, the same answer leads to the same compiled parts, and nothing is imported. For each set of
input types, points form a tree. After a new answer the importer starts again at the beginning and uses the
points that exist.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autotensor.base import fork_locks
from autotensor.base.dtype import dtype_of
from autotensor.frontends.onnx.element_types import Array, checked_array
from autotensor.frontends.onnx.importer import Build, Live, OnHost, tensors_in
from autotensor.frontends.onnx.node_call import Value
from autotensor.graph.build import input as new_input
from autotensor.graph.evaluate import evaluate_node
from autotensor.graph.ir import Apply, Constant, Graph, GraphNode, Input, topological
from autotensor.graph.replace_nodes import replaced

Arrays = dict[GraphNode, Array]
Compile = Callable[[Graph], Callable[..., Any]]

# most answers remembered at one point, such as the rounds of a decoder; the oldest is dropped first
KEPT = 512
SMALL = 4096  # elements: values of inputs of at most this size are computed in NumPy, not compiled
FEW = 256  # nodes: the same for values of at most this many nodes


@dataclass(eq=False)
class Point:
    """One action, and the next point for each answer."""

    act: Callable[[Arrays], tuple[Any, Any]]  # ▶ (key of the answer, the answer)
    next: dict[Any, Point] = field(default_factory=dict)
    # values computed here ▶ the inputs that replace them
    cut: dict[GraphNode, GraphNode] = field(default_factory=dict)
    is_last: bool = False


class Staged:
    """A callable model: arrays in, arrays out. `build` imports it for inputs of given types.

    name, inputs: the names of the model and its inputs in messages.
    """

    def __init__(
        self, build: Build, compile: Compile, name: str = "part", inputs: Sequence[str] = ()
    ) -> None:
        self._build = build
        self._compile = compile
        self.name = name
        self._inputs = tuple(inputs)
        self._starts: dict[Any, _Start] = {}
        self._lock = fork_locks.renewed(threading.Lock())

    @property
    def specialisations(self) -> int:
        """The number of sets of input types for which the model has been compiled."""
        return len(self._starts)

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Runs the model. arrays: the inputs in order, each an array, a list of arrays (a sequence), or None
        (an optional that is left out)."""
        key = tuple(_signature(a) for a in arrays)
        start = self._starts.get(key)
        if start is not None:
            found = start.follow(arrays)
            if found is not None:
                return found
        with self._lock:
            start = self._starts.get(key)
            if start is None:
                names = self._inputs or [f"x{n}" for n in range(len(arrays))]
                start = _Start(tuple(map(_inputs, arrays, names)))
                _remember(self._starts, key, start)
            return _Session(self, start, arrays).run()


class _Start:
    """Input nodes of one specialisation, and its first point."""

    def __init__(self, inputs: tuple[Value, ...]) -> None:
        self.inputs = inputs
        self.next: dict[Any, Point] = {}

    def bind(self, arrays: Sequence[Any]) -> Arrays:
        out: Arrays = {}
        for value, given in zip(self.inputs, arrays, strict=True):
            nodes = list(tensors_in(value))
            items = given if isinstance(given, (list, tuple)) else [given]
            out.update(zip(nodes, map(np.asarray, items), strict=False))
        return out

    def follow(self, arrays: Sequence[Any]) -> tuple[Any, ...] | None:
        """The outputs, if the tree has a point for every answer on the way; else None."""
        known = self.bind(arrays)
        point = self.next.get(())
        while point is not None:
            key, answer = point.act(known)
            if point.is_last:
                return tuple(answer)
            point = point.next.get(key)
        return None


class _Session:
    """The runtime of one import. It gets answers by running points, and adds the missing points."""

    def __init__(self, model: Staged, start: _Start, arrays: Sequence[Any]) -> None:
        self.model = model
        self.start = start
        self.known = start.bind(arrays)
        self.cut: dict[GraphNode, GraphNode] = {}
        self.slot: tuple[dict[Any, Point], Any] = (start.next, ())

    def run(self) -> tuple[Any, ...]:
        outputs = self.model._build(self, self.start.inputs)
        point = self._point(lambda: self._finish(outputs))
        _, answer = point.act(self.known)
        return tuple(answer)

    # -- calls of the importer -----------------------------------------------------------------------------
    def ask(self, node: GraphNode, live: Live, where: str) -> Array:
        point = self._point(lambda: self._question(node, live))
        answer: Array = self._go(point)
        return answer

    def host(
        self,
        fn: OnHost,
        operands: Sequence[GraphNode],
        live: Live,
        where: str,
    ) -> tuple[GraphNode, ...]:
        wanted = [x for x in operands if not isinstance(x, Constant)]
        self._go(self._point(lambda: self._compiled([*wanted, *live()])))
        answer: tuple[GraphNode, ...] = self._go(self._point(lambda: self._on_host(fn, operands)))
        return answer

    def nested(self, build: Build) -> Staged:
        return Staged(build, self.model._compile)

    # -- points --------------------------------------------------------------------------------------------
    def _point(self, make: Callable[[], Point]) -> Point:
        table, key = self.slot
        if key not in table:
            _remember(table, key, make())
        return table[key]

    def _go(self, point: Point) -> Any:
        key, answer = point.act(self.known)
        self.cut |= point.cut
        self.slot = (point.next, key)
        return answer

    def _question(self, node: GraphNode, live: Live) -> Point:
        (target,) = replaced((node,), self.cut)
        below = list(topological((target,)))
        inputs = [n for n in below if isinstance(n, Input)]
        if len(below) <= FEW and all(_size(n) <= SMALL for n in below):
            return Point(lambda known: _keyed(_by_numpy(target, below, known)))
        point = self._compiled([node, *live()])
        stands = point.cut.get(node, inputs[0] if target in inputs else target)

        def act(known: Arrays) -> tuple[Any, Array]:
            part(known)
            return _keyed(known[stands])

        part = point.act
        return Point(act, cut=point.cut)

    def _compiled(self, nodes: Sequence[GraphNode]) -> Point:
        """The point that computes these nodes and keeps their values. From then on, an input replaces each
        node."""
        targets = replaced(nodes, self.cut)
        wanted = {
            node: target
            for node, target in zip(nodes, targets, strict=True)
            if isinstance(target, Apply) and any(isinstance(n, Input) for n in topological((target,)))
        }
        if not wanted:
            return Point(lambda known: ((), None))
        by_target = {
            t: new_input(t.shape, t.dtype, f"v{n}") for n, t in enumerate(dict.fromkeys(wanted.values()))
        }
        run = self._part(tuple(by_target))
        stand_ins = tuple(by_target.values())

        def act(known: Arrays) -> tuple[Any, None]:
            known.update(zip(stand_ins, run(known), strict=True))
            return (), None

        return Point(act, cut={node: by_target[target] for node, target in wanted.items()})

    def _on_host(self, fn: OnHost, operands: Sequence[GraphNode]) -> Point:
        targets = replaced(operands, self.cut)
        made: dict[Any, tuple[Input, ...]] = {}

        def act(known: Arrays) -> tuple[Any, tuple[Input, ...]]:
            results = fn(*(t.array if isinstance(t, Constant) else known[t] for t in targets))
            key = tuple(_signature(r) for r in results)
            if key not in made:
                made[key] = tuple(
                    new_input(r.shape, dtype_of(r.dtype), f"h{n}") for n, r in enumerate(results)
                )
            known.update(zip(made[key], results, strict=True))
            return key, made[key]

        return Point(act)

    def _finish(self, outputs: Sequence[Value]) -> Point:
        flat = replaced([t for o in outputs for t in tensors_in(o)], self.cut)
        run = self._part(flat)

        def act(known: Arrays) -> tuple[Any, list[Any]]:
            values = iter(run(known))
            return (), [_shaped(o, values) for o in outputs]

        return Point(act, is_last=True)

    def _part(self, outputs: Sequence[GraphNode]) -> Callable[[Arrays], list[Array]]:
        """Compiled code for the nodes, as a function of the known values."""
        computed = tuple(dict.fromkeys(o for o in outputs if isinstance(o, Apply)))
        inputs = tuple(n for n in topological(computed) if isinstance(n, Input))
        if computed:
            graph = Graph(inputs, computed, self.model.name)
            module = self.model._compile(graph)

        def run(known: Arrays) -> list[Array]:
            made: dict[GraphNode, Array] = {}
            if computed:
                results = module(*(known[x] for x in inputs))
                made = dict(zip(computed, results if isinstance(results, tuple) else (results,), strict=True))
            return [
                o.array if isinstance(o, Constant) else made[o] if o in made else known[o] for o in outputs
            ]

        return run


# -- helpers ---------------------------------------------------------------------------------------------


def _by_numpy(target: GraphNode, below: Sequence[GraphNode], known: Arrays) -> Array:
    values: Arrays = {}
    for n in below:
        if isinstance(n, Apply):
            values[n] = evaluate_node(n, [values[x] for x in n.inputs])
        else:
            values[n] = n.array if isinstance(n, Constant) else known[n]
    return values[target]


def _keyed(answer: Array) -> tuple[Any, Array]:
    return (str(answer.dtype), answer.shape, answer.tobytes()), answer


def _size(node: GraphNode) -> int:
    return int(np.prod(node.shape, dtype=np.int64))


def _remember(table: dict[Any, Any], key: Any, value: Any) -> None:
    table[key] = value
    while len(table) > KEPT:
        del table[next(iter(table))]


def _signature(value: Any) -> Any:
    """The type of an argument, in a form that can be a key."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return tuple(_signature(v) for v in value)
    array = np.asarray(value)
    return array.shape, str(array.dtype)


def _inputs(value: Any, name: str) -> Value:
    """Input nodes for an argument."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return tuple(_inputs(v, name) for v in value)
    array = checked_array(np.asarray(value), f"input {name!r}")
    return new_input(array.shape, dtype_of(array.dtype), name)


def _shaped(value: Value, arrays: Any) -> Any:
    """Arrays in the structure of a value."""
    if value is None:
        return None
    return next(arrays) if isinstance(value, GraphNode) else [_shaped(v, arrays) for v in value]
