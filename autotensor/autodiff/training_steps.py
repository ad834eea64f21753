"""A step of training as a graph: forward pass, backward pass, update.

training_graph(loss, …)     batch, parameters, state  ──▶  loss, new parameters, new state
gradient_graph(loss, …)     batch, parameters         ──▶  loss, gradients            a worker computes this
update_graph(…)             gradients, parameters, state  ──▶  new parameters, new state
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autotensor.autodiff.optimizers import SGD, Optimizer
from autotensor.autodiff.rematerialise import TradeOff, within_budget
from autotensor.autodiff.reverse_mode import gradients
from autotensor.base.dtype import dtype_of
from autotensor.base.errors import GraphError
from autotensor.graph.infer_types import type_text
from autotensor.graph.ir import Array, Graph, GraphNode, Input, Parameter, topological
from autotensor.graph.rules import canonicalize, channels_last
from autotensor.operators import TensorType

Changes = Mapping[Input, tuple[Array, GraphNode]]  # input that changes → its first and its new value


@dataclass(frozen=True, slots=True)
class TrainingGraph:
    """A step as a graph: outputs are the loss, the requested nodes, and new values of `start`."""

    graph: Graph
    updates: Mapping[str, str]  # output → input, by name
    start: Mapping[str, Array]  # first values of parameters and of the optimiser's state, by input
    parameters: Mapping[str, Parameter]  # by input
    results: int  # number of outputs that are not updates
    trade_off: TradeOff | None = None


def training_graph(
    loss: GraphNode,
    parameters: Iterable[Parameter] | None = None,
    optimizer: Optimizer = SGD(),  # noqa: B008  # frozen
    outputs: Sequence[GraphNode] = (),
    rate: GraphNode | None = None,
    memory_budget: int | None = None,
    name: str = "training_step",
) -> TrainingGraph:
    """Forward, backward and update as one graph; see `training_step`."""
    chosen = _chosen(loss, parameters)
    forward = _forward((loss, *outputs, *(() if rate is None else (rate,))), name)
    results = forward[: 1 + len(outputs)]
    ordered = _last_first(chosen, results)
    slopes: Sequence[GraphNode] = gradients(results[0], ordered)
    trade_off = None
    if memory_budget is not None:
        slopes, trade_off = within_budget(results, slopes, memory_budget)
    changes = _changes(ordered, slopes, optimizer, None if rate is None else forward[-1])
    return _assembled(name, results, changes, trade_off)


def gradient_graph(
    loss: GraphNode, parameters: Iterable[Parameter] | None = None, name: str = "gradients"
) -> tuple[Graph, tuple[Parameter, ...]]:
    """The graph of the loss and its gradients, and the parameters of these gradients.

    Inputs are the batch, then the parameters.
    """
    chosen = _chosen(loss, parameters)
    (result,) = _forward((loss,), name)
    ordered = tuple(_last_first(chosen, (result,)))
    slopes = gradients(result, ordered)
    inputs = (*_data((result, *slopes), ordered), *ordered)
    names = ("loss", *(f"gradient_{n}" for n in range(len(slopes))))
    return Graph(inputs, (result, *slopes), name, names), ordered


def update_graph(
    parameters: Sequence[Parameter], optimizer: Optimizer, name: str = "update"
) -> TrainingGraph:
    """The update alone; the first inputs are the gradients, in the order of the parameters."""
    slopes = tuple(Input(f"gradient_{n}", p.of, n) for n, p in enumerate(parameters))
    return _assembled(name, (), _changes(parameters, slopes, optimizer, None), None)


def _changes(
    parameters: Sequence[Parameter],
    slopes: Sequence[GraphNode],
    optimizer: Optimizer,
    rate: GraphNode | None,
) -> Changes:
    changes: dict[Input, tuple[Array, GraphNode]] = {}
    for p, g in zip(parameters, slopes, strict=True):
        first = optimizer.state(p.type)
        own = len(first) - optimizer.shared
        state = tuple(
            _state_input(f"{p.name}.{k}", p.serial, a)
            if k < own
            else _state_input(f"optimizer.{k - own}", -1, a)
            for k, a in enumerate(first)
        )
        new, changed = optimizer.update(p, g, state, rate)
        values = zip((p.start.array, *first), (new, *changed), strict=True)
        changes |= dict(zip((p, *state), values, strict=True))
    return changes


def _state_input(name: str, serial: int, array: Array) -> Input:
    return Input(name, TensorType.of(array.shape, dtype_of(array.dtype)), serial)


def _assembled(
    name: str,
    results: tuple[GraphNode, ...],
    changes: Changes,
    trade_off: TradeOff | None,
) -> TrainingGraph:
    everything = (*results, *(new for _, new in changes.values()))
    state = tuple(changes)
    data = _data(everything, state)
    graph = Graph(
        (*data, *state),
        everything,
        name,
        (
            *("loss", *(f"output_{n}" for n in range(len(results) - 1)))[: len(results)],
            *(f"new_{n}" for n in range(len(changes))),
        ),
    )
    names = graph.input_names[len(data) :]
    return TrainingGraph(
        graph,
        {f"new_{n}": old for n, old in enumerate(names)},
        {old: first for old, (first, _) in zip(names, changes.values(), strict=True)},
        {old: x for old, x in zip(names, state, strict=True) if isinstance(x, Parameter)},
        len(results),
        trade_off,
    )


def _data(results: Iterable[GraphNode], changing: Iterable[Input]) -> list[Input]:
    """The inputs of the results that are not in `changing`, in order of creation."""
    below = {x for x in topological(results) if isinstance(x, Input)}
    return sorted(below.difference(changing), key=lambda x: x.serial)


def _last_first(parameters: Sequence[Parameter], results: Iterable[GraphNode]) -> list[Parameter]:
    """Parameters of the last layers first, because gradients are computed in this order."""
    place = {x: n for n, x in enumerate(topological(results))}
    return sorted(parameters, key=lambda p: -place[p])


def _chosen(loss: GraphNode, parameters: Iterable[Parameter] | None) -> tuple[Parameter, ...]:
    """The trainable parameters, checked."""
    if not isinstance(loss, GraphNode) or loss.shape != () or not loss.dtype.is_float:
        what = type_text(loss.type) if isinstance(loss, GraphNode) else type(loss).__name__
        raise GraphError(
            f"training_step: the loss is {what}; it must be one float.",
            fix="Take its mean: at.ops.mean(loss).",
        )
    below = [x for x in topological([loss]) if isinstance(x, Parameter)]
    chosen = sorted(below, key=lambda p: p.serial) if parameters is None else list(parameters)
    if not chosen:
        raise GraphError(
            "training_step: the loss depends on no parameter.", fix="Make weights with at.parameter(array)."
        )
    for p in chosen:
        if not isinstance(p, Parameter):
            raise GraphError(
                f"training_step: {p!r} is not a parameter.", fix="Make weights with at.parameter(array)."
            )
        if p not in below:
            raise GraphError(f"training_step: the loss does not depend on parameter {p.name!r}.")
        if not p.dtype.is_float:
            raise GraphError(f"training_step: parameter {p.name!r} is {p.dtype}; only floats can be trained.")
    return tuple(chosen)


def _forward(nodes: Sequence[GraphNode], name: str) -> tuple[GraphNode, ...]:
    """The forward pass with channels last, so that its backward pass also has channels last."""
    inputs = tuple(x for x in topological(nodes) if isinstance(x, Input))
    names = tuple(f"result_{n}" for n in range(len(nodes)))
    return canonicalize(channels_last(canonicalize(Graph(inputs, tuple(nodes), name, names)))).outputs
