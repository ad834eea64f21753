"""Optimisers: how a parameter and its state change, as nodes of a graph.

    new_w, new_state = Adam(1e-3).update(w, g, state)

An optimiser is frozen data. `state(type)` gives the arrays that a parameter starts with, `update` the nodes
of one step. The caller, which runs the graph, replaces the old values by the new ones. The formulas are
elementwise te functions, one for each new value, so that each is at most one kernel. Formulas and defaults
are those of torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from autotensor import te
from autotensor.base.errors import GraphError
from autotensor.graph.build import call
from autotensor.graph.ir import Array, GraphNode
from autotensor.operators import TensorType
from autotensor.operators.operator_helpers import stage
from autotensor.te import Tensor

State = tuple[GraphNode, ...]
Rate = GraphNode | float


class Optimizer(Protocol):
    """The interface of an optimiser for `training_step`."""

    shared: ClassVar[int]  # number of entries, at the end of a state, that all parameters share

    def state(self, type_: TensorType) -> tuple[Array, ...]:
        """The initial state of one parameter of this type."""
        ...

    def update(
        self, w: GraphNode, g: GraphNode, state: State, rate: Rate | None = None
    ) -> tuple[GraphNode, State]:
        """The parameter and its state after one step against the gradient `g`.

        rate: the learning rate of this step, instead of the optimiser's.
        """
        ...


@dataclass(frozen=True, slots=True)
class SGD:
    """w ← w - rate * (g + decay * w)"""

    learning_rate: float = 0.01
    weight_decay: float = 0.0

    shared: ClassVar[int] = 0

    def __post_init__(self) -> None:
        _check(self)

    def state(self, type_: TensorType) -> tuple[Array, ...]:
        return ()

    def update(
        self, w: GraphNode, g: GraphNode, state: State, rate: Rate | None = None
    ) -> tuple[GraphNode, State]:
        return _moved(w, _decayed(w, g, self.weight_decay), rate, self.learning_rate), ()


@dataclass(frozen=True, slots=True)
class Momentum:
    """v ← momentum * v + g;  w ← w - rate * v"""

    learning_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0

    shared: ClassVar[int] = 0

    def __post_init__(self) -> None:
        _check(self, momentum=self.momentum)

    def state(self, type_: TensorType) -> tuple[Array, ...]:
        return (_zeros(type_),)

    def update(
        self, w: GraphNode, g: GraphNode, state: State, rate: Rate | None = None
    ) -> tuple[GraphNode, State]:
        (velocity,) = state
        slope = _decayed(w, g, self.weight_decay)
        new = _elementwise("velocity", lambda v, d: v * self.momentum + d, velocity, slope)
        return _moved(w, new, rate, self.learning_rate), (new,)


@dataclass(frozen=True, slots=True)
class Adagrad:
    """s ← s + g²;  w ← w - rate * g / (sqrt(s) + eps)

    Source: Duchi, Hazan and Singer, "Adaptive Subgradient Methods", 2011.
    """

    learning_rate: float = 0.01
    eps: float = 1e-10
    weight_decay: float = 0.0

    shared: ClassVar[int] = 0

    def __post_init__(self) -> None:
        _check(self, eps=self.eps)

    def state(self, type_: TensorType) -> tuple[Array, ...]:
        return (_zeros(type_),)

    def update(
        self, w: GraphNode, g: GraphNode, state: State, rate: Rate | None = None
    ) -> tuple[GraphNode, State]:
        (squares,) = state
        slope = _decayed(w, g, self.weight_decay)
        new = _elementwise("squares", lambda s, d: s + d * d, squares, slope)
        direction = _elementwise("direction", lambda d, s: d / (te.sqrt(s) + self.eps), slope, new)
        return _moved(w, direction, rate, self.learning_rate), (new,)


@dataclass(frozen=True, slots=True)
class Adam:
    """m ← β1 m + (1 - β1) g;  v ← β2 v + (1 - β2) g²;  w ← w - rate * m̂ / (sqrt(v̂) + eps)

    m̂ and v̂ are m and v divided by 1 - β**steps, because m and v start at 0. The state is (m, v, steps).
    Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015, algorithm 1.
    """

    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    shared: ClassVar[int] = 1  # steps

    def __post_init__(self) -> None:
        _check(self, beta1=self.beta1, beta2=self.beta2, eps=self.eps)

    def state(self, type_: TensorType) -> tuple[Array, ...]:
        return _zeros(type_), _zeros(type_), np.zeros((), type_.dtype.numpy)

    def update(
        self, w: GraphNode, g: GraphNode, state: State, rate: Rate | None = None
    ) -> tuple[GraphNode, State]:
        mean, square, steps = state
        slope = _decayed(w, g, self.weight_decay)
        new_mean = _elementwise("mean", lambda m, d: m * self.beta1 + d * (1 - self.beta1), mean, slope)
        new_square = _elementwise(
            "square", lambda v, d: v * self.beta2 + d * d * (1 - self.beta2), square, slope
        )
        now = steps + 1.0
        # Two numbers for each step, which are computed once: the factors by which m and v are too small.
        mean_scale = _elementwise("mean_scale", lambda n: 1 / (1 - te.pow(self.beta1, n)), now)
        square_scale = _elementwise("square_scale", lambda n: 1 / (1 - te.pow(self.beta2, n)), now)
        direction = _elementwise(
            "direction",
            lambda m, v, a, b: m * a / (te.sqrt(v * b) + self.eps),
            new_mean,
            new_square,
            mean_scale,
            square_scale,
        )
        return _moved(w, direction, rate, self.learning_rate), (new_mean, new_square, now)


def _elementwise(name: str, formula: Callable[..., Any], first: GraphNode, *others: GraphNode) -> GraphNode:
    """A te function of one stage over the shape of `first`. The others may be scalars, for all elements."""

    def compute(*xs: Tensor) -> Tensor:
        return stage(xs[0].shape, lambda *i: formula(*(x[i] if x.ndim else x[()] for x in xs)), name)

    return call(compute, first, *others, name=name)  # type: ignore[no-any-return]


def _moved(w: GraphNode, direction: GraphNode, rate: Rate | None, default: float) -> GraphNode:
    return w - direction * (default if rate is None else rate)


def _decayed(w: GraphNode, g: GraphNode, decay: float) -> GraphNode:
    """The gradient of the loss and of decay/2 * |w|²."""
    return g if decay == 0 else g + w * decay


def _zeros(type_: TensorType) -> Array:
    return np.zeros(type_.shape, type_.dtype.numpy)


def _check(optimizer: SGD | Momentum | Adagrad | Adam, **below_one: float) -> None:
    name = type(optimizer).__name__
    if optimizer.learning_rate < 0:
        raise GraphError(f"{name}: learning_rate is {optimizer.learning_rate}; it must not be negative.")
    if optimizer.weight_decay < 0:
        raise GraphError(f"{name}: weight_decay is {optimizer.weight_decay}; it must not be negative.")
    for field, value in below_one.items():
        if not 0 <= value < 1:
            raise GraphError(f"{name}: {field} is {value}; it must be in [0, 1).")
