"""Sessions: values of variables, and runs of requested nodes.

    with flow.Session() as sess:
        sess.run(flow.initialize_all_variables())
        loss, _ = sess.run([cross_entropy, train_step], feed_dict={x: images, y_: labels})

A run takes only the nodes that the fetches need, gives them the types that were fed, and runs them as one
native program. The program is kept for the next run with the same fetches and types. Forward pass, backward
pass and update are in one program. A run that fails changes no variable.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from autotensor.api.style_programs import Program, Programs, cut
from autotensor.base.errors import ArgumentError, GraphError, InputError, TargetError
from autotensor.base.target import Target, parse
from autotensor.flow.control import producers_first
from autotensor.flow.flow_to_graph import Dead, Lowering, latest
from autotensor.flow.nodes import Array, Node, Placeholder, Source
from autotensor.flow.scope import current, running
from autotensor.flow.variables import Variable, stored_value
from autotensor.graph.ir import Graph, GraphNode
from autotensor.runtime.files import checkpoint


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a lowering: graph nodes of fetches, new values of variables, arguments of hosts."""

    fetches: tuple[GraphNode | None, ...]
    updates: tuple[tuple[Variable, GraphNode], ...]
    calls: tuple[tuple[Callable[..., None], tuple[GraphNode, ...]], ...]

    @property
    def wanted(self) -> tuple[GraphNode, ...]:
        nodes = [f for f in self.fetches if f is not None]
        nodes += [value for _, value in self.updates]
        nodes += [x for _, inputs in self.calls for x in inputs]
        return tuple(dict.fromkeys(nodes))


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run without decisions: one program, and the nodes of its arguments."""

    outcome: Outcome
    program: Program | None  # None: every fetched node is a leaf
    arguments: tuple[Node, ...]  # arguments of the program
    computed: tuple[GraphNode, ...]  # results of the program
    leaves: tuple[tuple[GraphNode, Node], ...]  # fetched nodes that are leaves
    shapes: tuple[tuple[int, ...], ...]  # shapes of the arguments
    keep: tuple[Node, ...]  # nodes whose ids are in the key, so they must stay alive


class Session:
    """Runs static graphs on one device.

    device: "cpu"; "gpu" (GPUs are not supported: this is the CPU, and a message says so once); "reference"
    (the operators' NumPy references); or a target such as "llvm -threads=1". seed: the seed of the random
    numbers in runs.
    """

    def __init__(self, device: str | Target | None = None, config: Any = None, seed: int = 0) -> None:
        wanted = device if device is not None else config if isinstance(config, str) else None
        self.target = device_target(wanted)
        self.programs = Programs(self.target)
        self.events: tuple[str, ...] = ()  # what control flow did in the last run
        self._values: dict[Variable, Array] = {}
        self._prepared: dict[Any, Prepared] = {}
        self._rng = np.random.default_rng(seed)
        self._lock = threading.RLock()
        self._tokens: list[Any] = []

    def __reduce__(self) -> tuple[Any, ...]:
        raise InputError(
            "a session cannot be pickled or copied: its graph is of this process.",
            fix="Build the graph in the other process, and load the variables from a Saver's file.",
        )

    # -- runs --------------------------------------------------------------------------------------------

    def run(self, fetches: Any, feed_dict: Mapping[Node, Any] | None = None) -> Any:
        """The values of `fetches`, a node or nested lists, tuples and dictionaries of nodes.

        Nodes without a value (groups, saves) give None. Any node may be fed instead of being computed.
        """
        nodes, feeds = _asked(fetches, feed_dict)
        with self._lock:
            values = self._run(nodes, feeds)
        found = iter(values)
        return _rebuild(fetches, lambda: next(found))

    def _run(self, nodes: Sequence[Node], feeds: Mapping[Node, Array]) -> list[Array | None]:
        key = (tuple(map(id, nodes)), tuple((id(n), a.shape) for n, a in feeds.items()))
        run = _Run(self, feeds)
        prepared = self._prepared.get(key)
        if prepared is not None:
            arrays = [run.array(n) for n in prepared.arguments]
            if tuple(a.shape for a in arrays) == prepared.shapes:
                made = prepared.program(arrays) if prepared.program is not None else ()
                values = dict(zip(prepared.computed, made, strict=True))
                values.update({leaf: run.array(n) for leaf, n in prepared.leaves})
                return self._finish(prepared.outcome, values)
        lowering = self._lowered(nodes, run)
        outcome = _outcome(nodes, lowering)
        self.events = tuple(lowering.events)
        made = self.programs.run(outcome.wanted, lowering.arrays, lowering.defined)
        if not lowering.dynamic:
            self._prepared[key] = self._prepare(outcome, lowering, (*nodes, *feeds))
        return self._finish(outcome, dict(zip(outcome.wanted, made, strict=True)))

    def _lowered(self, nodes: Sequence[Node], run: _Run) -> Lowering:
        lowering = Lowering(run, self.programs.run, run.feeds)
        lowering.lower(producers_first(nodes, ends=run.feeds))
        return lowering

    def _prepare(self, outcome: Outcome, lowering: Lowering, keep: tuple[Node, ...]) -> Prepared:
        known, sources = lowering.arrays, lowering.sources
        computed = tuple(n for n in outcome.wanted if n not in known)
        leaves = tuple((n, sources[n]) for n in outcome.wanted if n in known)  # type: ignore[index]
        if not computed:
            return Prepared(outcome, None, (), (), leaves, (), keep)
        part = cut(computed, known, lowering.defined)
        arguments = tuple(sources[x] for x in part.leaves)  # type: ignore[index]
        shapes = tuple(known[x].shape for x in part.leaves)
        return Prepared(outcome, self.programs.program(part), arguments, computed, leaves, shapes, keep)

    def _finish(self, outcome: Outcome, values: Mapping[GraphNode, Array]) -> list[Array | None]:
        """Calls the hosts, then updates the variables. Gives the arrays of the fetches."""
        for call, inputs in outcome.calls:
            call(*(values[x] for x in inputs))
        for variable, node in outcome.updates:
            if not variable.spec.admits(values[node].shape):
                raise GraphError(
                    f"variable {variable.name} ({variable.at}) is {variable.spec}; it was assigned shape "
                    f"{list(values[node].shape)}."
                )
        for variable, node in outcome.updates:
            self._values[variable] = values[node]
        # Copies, because a user may change the arrays; variables and constants must not change.
        kept = {id(a) for a in self._values.values()}
        return [None if f is None else _own(values[f], id(values[f]) in kept) for f in outcome.fetches]

    def graph(self, fetches: Any, feed_dict: Mapping[Node, Any] | None = None) -> Graph:
        """The graph that `run` would compile. To look at it: `print(sess.graph(loss, feeds).explain())`."""
        nodes, feeds = _asked(fetches, feed_dict)
        with self._lock:
            lowering = self._lowered(nodes, _Run(self, feeds))
            outcome = _outcome(nodes, lowering)
        wanted = [n for n in outcome.wanted if n not in lowering.arrays]
        if not wanted:
            raise GraphError("these fetches need no computation: all of them are values already.")
        return cut(wanted, lowering.arrays, lowering.defined).graph()

    # -- variables ---------------------------------------------------------------------------------------

    def value(self, variable: Variable) -> Array:
        """The variable's array. Raises GraphError before it was assigned."""
        if variable not in self._values:
            raise GraphError(
                f"variable {variable.name} ({variable.at}) has no value yet.",
                fix="Run flow.initialize_all_variables() first.",
            )
        return self._values[variable]

    def save(self, path: str | Path) -> None:
        """Writes all variables that have values, and the state of the random numbers. At every moment the
        file is either the old one or the new one."""
        with self._lock:
            arrays = {v.name: a for v, a in self._values.items()}
            if len(arrays) < len(self._values):
                raise GraphError("two variables of this session have one name.", fix="Rename one.")
            checkpoint.save(path, arrays, {"random": repr(self._rng.bit_generator.state)})

    def restore(self, path: str | Path) -> None:
        """Gives every variable of the current graph its value in the file, and restores the state of the
        random numbers.

        Raises InputError when the file lacks a variable or has it with another type; nothing is changed then.
        """
        import ast

        arrays, facts = checkpoint.load(path)
        found = {v: stored_value(arrays, v, path) for v in current().variables}
        with self._lock:
            self._values.update(found)
            if "random" in facts:
                self._rng.bit_generator.state = ast.literal_eval(facts["random"])

    # -- with --------------------------------------------------------------------------------------------

    def __enter__(self) -> Session:
        self._tokens.append(running.set(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running.reset(self._tokens.pop())

    def close(self) -> None:
        """Forgets programs and values."""
        self._prepared.clear()
        self._values.clear()


class _Run:
    """The source of the arrays in one run. Each leaf is made once."""

    def __init__(self, session: Session, feeds: Mapping[Node, Array]) -> None:
        self.session = session
        self.feeds = feeds
        self._made: dict[Node, Array] = {}

    def array(self, node: Node) -> Array:
        if node in self.feeds:
            return self.feeds[node]
        match node:
            case Variable():
                return self.session.value(node)
            case Source():
                if node not in self._made:
                    self._made[node] = node.make(self.session._rng)
                return self._made[node]
            case Placeholder():
                raise GraphError(
                    f"{node.name} ({node.at}) is needed and was not fed.",
                    fix=f"Give feed_dict an array {node.spec} for it.",
                )
        raise GraphError(f"{node!r} has no array.")


def _outcome(nodes: Sequence[Node], lowering: Lowering) -> Outcome:
    fetches: list[GraphNode | None] = []
    for node in nodes:
        value = lowering.of[node]
        if isinstance(value, Dead):
            raise GraphError(
                f"{node.name} ({node.at}) is in a branch that this run does not take.",
                fix="Fetch the merge of the branches instead.",
            )
        fetches.append(value)
    updates = []
    for variable in dict.fromkeys(a.variable for a in lowering.assigned):
        last = latest(variable, [a for a in lowering.assigned if a.variable is variable], lowering.before)
        value = lowering.of[last] if last is not None else None
        assert isinstance(value, GraphNode)
        updates.append((variable, value))
    calls = []
    for host in lowering.hosts:
        inputs = [lowering.read(host, x) for x in host.inputs]
        calls.append((host.call, tuple(x for x in inputs if isinstance(x, GraphNode))))
    return Outcome(tuple(fetches), tuple(updates), tuple(calls))


def _own(array: Array, shared: bool) -> Array:
    return array.copy() if shared or not array.flags.writeable else array


def _asked(fetches: Any, feed_dict: Mapping[Node, Any] | None) -> tuple[list[Node], dict[Node, Array]]:
    """The nodes to fetch, and the arrays that are fed."""
    nodes: list[Node] = []
    _collect(fetches, nodes)
    return nodes, {node: fed_array(node, value) for node, value in (feed_dict or {}).items()}


def _collect(fetches: Any, nodes: list[Node]) -> None:
    match fetches:
        case Node():
            nodes.append(fetches)
        case list() | tuple():
            for f in fetches:
                _collect(f, nodes)
        case dict():
            for f in fetches.values():
                _collect(f, nodes)
        case _:
            raise ArgumentError(
                f"run: a {type(fetches).__name__} cannot be fetched.", fix="Fetch nodes, or lists of nodes."
            )


def _rebuild(fetches: Any, value: Callable[[], Any]) -> Any:
    match fetches:
        case Node():
            return value()
        case dict():
            return {k: _rebuild(f, value) for k, f in fetches.items()}
        case tuple():
            return tuple(_rebuild(f, value) for f in fetches)
        case _:
            return [_rebuild(f, value) for f in fetches]


def fed_array(node: Node, value: Any) -> Array:
    """A fed value as an array of the node's type. Raises ArgumentError when it does not fit."""
    if not isinstance(node, Node):
        raise ArgumentError(
            f"feed_dict: {type(node).__name__} is not a node.", fix="Use the placeholder as the key."
        )
    array = np.ascontiguousarray(np.asarray(value), dtype=node.dtype.numpy).reshape(np.shape(value))
    if not node.spec.admits(array.shape):
        raise ArgumentError(
            f"{node.name} ({node.at}) is {node.spec}; an array of shape {list(array.shape)} was fed."
        )
    return array


_said: set[str] = set()


def device_target(device: str | Target | None) -> Target:
    """The target for a device's name. Raises TargetError for an unknown name."""
    if device is None or isinstance(device, Target):
        return parse(device)
    plain = device.lower().removeprefix("/").removeprefix("device:")
    kind, _, number = plain.partition(":")
    match kind:
        case "cpu":
            return parse("llvm")
        case "reference":
            return parse("interp")
        case "gpu":
            if "gpu" not in _said:
                _said.add("gpu")
                print(
                    "autotensor.flow: no GPU is supported here; the session runs on the CPU.", file=sys.stderr
                )
            return parse("llvm")
    if number and not number.isdigit():
        raise TargetError(
            f"device {device!r} is unknown.", fix='Known: "cpu", "gpu", "reference", or a target.'
        )
    return parse(kind if number else device)
