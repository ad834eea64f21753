"""`compile`: a Python function on tensors, traced once for each signature and run as one program.

    @at.compile
    def f(x, y): …             first call: it runs on tensors without values; its operations are compiled
    f(a, b)                    later calls with the same shapes and types: one native call

Tensors that the function reads from outside (parameters) are arguments of the program, and every call reads
them anew. Parameters that the function changes under `no_grad` are results of the program. So a whole
training step can be compiled. For arrays, the function returns arrays. For tensors it returns tensors, which
go on the tape as if the function had not been compiled. Other Python effects happen only while tracing.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotensor.api.style_programs import Program, cut
from autotensor.base.errors import GraphError, InputError
from autotensor.graph.build import input as graph_input
from autotensor.graph.graph_rewriting import with_inputs
from autotensor.graph.ir import Apply, Array, Constant, GraphNode
from autotensor.imperative import engine
from autotensor.imperative.tensor import Tensor


class Trace:
    """The state of tracing a function."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.made: weakref.WeakSet[Tensor] = weakref.WeakSet()  # tensors made by the function
        self.outside: dict[Tensor, GraphNode] = {}  # tensor from outside → its node when it was read

    def read(self, t: Tensor) -> None:
        """Notes a tensor from outside."""
        if t in self.made or t in self.outside:
            return
        token = engine.tracing.set(None)  # it is computed as without tracing
        try:
            engine.settle_pending(t._node)
            engine.arrays_of([t._node])
        finally:
            engine.tracing.reset(token)
        self.outside[t] = t._node


@dataclass(frozen=True, slots=True)
class Traced:
    """A compiled signature."""

    program: Program
    read: tuple[tuple[Tensor, GraphNode], ...]  # tensors from outside
    order: tuple[int, ...]  # the program's arguments among (*arguments, *read)
    template: Any  # the function's result, with `_Place`s instead of tensors
    outputs: tuple[GraphNode, ...]
    needs_grad: tuple[bool, ...]
    changed: tuple[Tensor, ...]
    nodes: tuple[GraphNode, ...]  # nodes of the arguments


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a tensor in a result."""

    number: int


class CompiledFunction:
    """A function that is traced once for each signature. `traces` is the number of traces."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.name = getattr(fn, "__name__", "function")
        self._made: dict[Any, Traced] = {}

    @property
    def traces(self) -> int:
        """The number of signatures that were compiled."""
        return len(self._made)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """The function as a method: it is traced separately for each object, because it reads its tensors."""
        if instance is None:
            return self
        bound = CompiledFunction(self.fn.__get__(instance, owner))
        instance.__dict__[self.name] = bound
        return bound

    def __call__(self, *args: Any) -> Any:
        if engine.tracing.get() is not None:
            return self.fn(*args)  # another compiled function is traced, and this call is a part of it
        tensors = [a for a in args if isinstance(a, (Tensor, np.ndarray))]
        key = (tuple(_signature(self.name, a) for a in args), engine.is_recording())
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = self._trace(args)
        arrays = [a.numpy() if isinstance(a, Tensor) else a for a in tensors]
        read = engine.arrays_of([_current(t, node, self.name) for t, node in found.read])
        values = found.program([(*arrays, *read)[n] for n in found.order])
        for t, value in zip(found.changed, values[len(found.outputs) :], strict=True):
            t._node = engine.leaf(value, "w")
            if t.requires_grad:
                engine.own(t._node, t)
        if tensors and not any(isinstance(a, Tensor) for a in tensors):
            return _filled(found.template, values)
        return _filled(found.template, self._on_tape(found, tensors, values))

    def _trace(self, args: Sequence[Any]) -> Traced:
        """Runs the function on tensors without values and compiles its operations."""
        trace = Trace(self.name)
        token = engine.tracing.set(trace)
        held: list[Tensor] = []
        try:
            inputs = [_argument(a, held) for a in args]
            result = self.fn(*inputs)
        finally:
            engine.tracing.reset(token)
            written = [(t, t._node) for t, before in trace.outside.items() if t._node is not before]
            for t, before in trace.outside.items():
                t._node = before  # the program will give the new value
                t.grad = None if t.grad in trace.made else t.grad
        results: list[Tensor] = []
        template = _template(result, results)
        nodes = tuple(t._node for t in held)
        outside = tuple(trace.outside.items())
        arguments = (*nodes, *(node for _, node in outside))
        wanted = (*(r._node for r in results), *(node for _, node in written))
        if not wanted:
            raise GraphError(
                f"{self.name} neither returns nor changes a tensor, so there is nothing to compile."
            )
        part = cut(wanted, frozenset(arguments), engine.defined)
        program = engine.programs().program(part)
        order = tuple(arguments.index(x) for x in part.leaves)
        return Traced(
            program,
            outside,
            order,
            template,
            tuple(r._node for r in results),
            tuple(r.requires_grad for r in results),
            tuple(t for t, _ in written),
            nodes,
        )

    def _on_tape(self, found: Traced, args: Sequence[Any], values: Sequence[Array]) -> list[Tensor]:
        """The results as tensors: nodes of the actual arguments, whose values are known."""
        recorded = engine.is_recording() and any(found.needs_grad)
        if not recorded:
            return [Tensor(engine.leaf(v)) for v in values[: len(found.outputs)]]
        swap: dict[GraphNode, GraphNode] = dict(
            zip(
                found.nodes,
                (a.node if isinstance(a, Tensor) else engine.leaf(a.copy()) for a in args),
                strict=True,
            )
        )
        for t, node in found.read:
            swap.setdefault(node, t._node if t not in found.changed else node)
        made = []
        for node, needs, value in zip(found.outputs, found.needs_grad, values, strict=False):
            new = _substituted(node, swap)
            engine.settle(new, value) if isinstance(new, Apply) else None
            made.append(Tensor(new, needs) if needs else Tensor(engine.leaf(value.copy())))
        return made


def compile(fn: Callable[..., Any]) -> CompiledFunction:
    """A decorator: the function is traced once for each signature of its arguments, and compiled.

    Raises InputError for other objects.
    """
    if any(f"{k.__module__}.{k.__name__}" == "torch.nn.modules.module.Module" for k in type(fn).__mro__):
        raise InputError(
            "at.compile takes a function on tensors, not a torch module.",
            fix='at.compile_model(at.from_torch(module, (x,))), or torch.compile(..., backend="autotensor").',
        )
    if not callable(fn):
        raise InputError(
            f"at.compile takes a function on tensors, not a {type(fn).__name__}.",
            fix="Models (graphs and their nodes) are compiled by at.compile_model, operators by at.build.",
        )
    return CompiledFunction(fn)


def _signature(name: str, value: Any) -> Any:
    """The key of a trace: the types of tensors and arrays, and the values of all other arguments."""
    match value:
        case Tensor():
            return "tensor", value.shape, str(value.dtype), value.requires_grad
        case np.ndarray():
            return "array", value.shape, str(value.dtype)
    try:
        hash(value)
    except TypeError as error:
        raise GraphError(
            f"{name}: an argument of type {type(value).__name__} cannot be part of a signature.",
            fix="Pass tensors, arrays, numbers, texts or tuples.",
        ) from error
    return type(value), value


def _argument(value: Any, held: list[Tensor]) -> Any:
    """The argument of the function while it is traced."""
    if not isinstance(value, (Tensor, np.ndarray)):
        return value
    needs = isinstance(value, Tensor) and value.requires_grad
    made = Tensor(graph_input(value.shape, str(value.dtype), "arg"), needs)
    held.append(made)
    return made


def _current(t: Tensor, before: GraphNode, name: str) -> GraphNode:
    engine.settle_pending(t._node)
    if t._node.type != before.type:
        raise GraphError(f"{name}: a tensor that it reads changed from {before.type} to {t._node.type}.")
    return t._node


def _template(result: Any, results: list[Tensor]) -> Any:
    match result:
        case Tensor():
            results.append(result)
            return _Place(len(results) - 1)
        case tuple() | list():
            return type(result)(_template(r, results) for r in result)
        case dict():
            return {k: _template(r, results) for k, r in result.items()}
    return result


def _filled(template: Any, values: Sequence[Any]) -> Any:
    match template:
        case _Place():
            return values[template.number]
        case tuple() | list():
            return type(template)(_filled(t, values) for t in template)
        case dict():
            return {k: _filled(t, values) for k, t in template.items()}
    return template


def _substituted(node: GraphNode, swap: dict[GraphNode, GraphNode]) -> GraphNode:
    """The node with its leaves replaced. `swap` maps old to new nodes; more are added."""
    stack = [node]
    while stack:
        top = stack[-1]
        if top in swap:
            stack.pop()
            continue
        if not isinstance(top, Apply):
            swap[top] = (
                top if isinstance(top, Constant) or top in engine.known else _cut_off(top, swap, stack)
            )
            continue
        missing = [x for x in top.inputs if x not in swap]
        if missing:
            stack.extend(missing)
        else:
            swap[top] = with_inputs(top, tuple(swap[x] for x in top.inputs))
    return swap[node]


def _cut_off(leaf: GraphNode, swap: dict[GraphNode, GraphNode], stack: list[GraphNode]) -> GraphNode:
    """A new stand-in that takes the place of a stand-in of the trace, computed from the actual arguments."""
    return engine.stand_in(_substituted(engine.defined[leaf], swap))
