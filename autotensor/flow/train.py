"""Optimisers for static graphs: `flow.train`, in TensorFlow 1's spelling.

    step = flow.train.GradientDescentOptimizer(0.5).minimize(loss)

`minimize` adds to the graph the gradients of the loss by all trainable variables, and the updates of these
variables. Forward pass, backward pass and update of a run are one program. The formulas are those of
`autodiff/optimizers.py`. An optimiser keeps its state in variables, which are saved and restored with all
others.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from autotensor.autodiff.optimizers import SGD, Adagrad, Adam, Momentum, Optimizer
from autotensor.base.errors import GraphError
from autotensor.flow.flow_gradients import gradients
from autotensor.flow.node_origin import here
from autotensor.flow.nodes import Node, Operation, constant
from autotensor.flow.session import Session
from autotensor.flow.variables import Group, Variable, assign, group, trainable_variables
from autotensor.graph.ir import GraphNode
from autotensor.operators import TensorType

__all__ = [
    "AdagradOptimizer",
    "AdamOptimizer",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "Saver",
]


class GraphOptimizer:
    """An optimiser that adds its steps to a static graph."""

    def __init__(self, rule: Optimizer, name: str) -> None:
        self.rule = rule
        self.name = name

    def minimize(self, loss: Node, var_list: Sequence[Variable] | None = None) -> Group:
        """One step against the gradient of `loss`, or of its sum if it has several elements.

        var_list: the variables to change; by default all trainable variables that the loss depends on.
        Raises GraphError, with the line, when there is none.
        """
        return self.apply_gradients(self.compute_gradients(loss, var_list))

    def compute_gradients(
        self, loss: Node, var_list: Sequence[Variable] | None = None
    ) -> list[tuple[Node, Variable]]:
        """(gradient, variable) pairs."""
        chosen = list(below(loss) if var_list is None else var_list)
        if not chosen:
            raise GraphError(
                f"{here()}: {loss.name} depends on no trainable variable, so nothing can be minimised."
            )
        return list(zip(gradients(loss, chosen), chosen, strict=True))

    def apply_gradients(self, pairs: Sequence[tuple[Node, Variable]]) -> Group:
        """One step with given gradients. They may be changed before (clipped, say) or come from elsewhere."""
        return group(*(n for g, v in pairs for n in self._step(g, v)), name=self.name)

    def _step(self, g: Node, w: Variable) -> list[Node]:
        if w.shape is None:
            return self._assigned(g, w, self._late_slots(w))
        first = self.rule.state(TensorType(tuple(n or 0 for n in w.shape), w.dtype))
        slots = [self._slot(w, n, constant(a)) for n, a in enumerate(first)]
        return self._assigned(g, w, slots)

    def _slot(self, w: Variable, n: int, initial: Node) -> Variable:
        return Variable(initial, trainable=False, name=f"{w.name}/{self.name}_{n}")

    def _late_slots(self, w: Variable) -> list[Variable]:
        """The state for a variable of unknown shape: (). Raises GraphError if the optimiser has a state."""
        if self.rule.state(TensorType((1,), w.dtype)):
            raise GraphError(
                f"{here()}: {self.name} keeps a state of the shape of variable {w.name}, which is not known.",
                fix="Give the variable an initial value, or use GradientDescentOptimizer.",
            )
        return []

    def _assigned(self, g: Node, w: Variable, slots: Sequence[Variable]) -> list[Node]:
        """The assignments of the variable and its state. Each node contains the whole update; equal parts of
        the graph are computed once."""
        inputs = (w, g, *slots)
        made: list[Node] = []
        for k, target in enumerate((w, *slots)):

            def lower(w: GraphNode, g: GraphNode, *state: GraphNode, k: int = k) -> GraphNode:
                new, rest = self.rule.update(w, g, state)
                return (new, *rest)[k]

            update = Operation(f"{self.name}_{target.name}", lower, inputs, target.spec)
            made.append(assign(target, update))
        return made


def below(loss: Node) -> list[Variable]:
    """The trainable variables on which `loss` depends, in order of creation."""
    from autotensor.flow.control import producers_first

    found = set(producers_first([loss]))
    return [v for v in trainable_variables() if v in found]


class GradientDescentOptimizer(GraphOptimizer):
    """w ← w - rate * gradient"""

    def __init__(self, learning_rate: float, name: str = "GradientDescent") -> None:
        super().__init__(SGD(learning_rate), name)


class MomentumOptimizer(GraphOptimizer):
    """v ← momentum * v + gradient;  w ← w - rate * v"""

    def __init__(self, learning_rate: float, momentum: float = 0.9, name: str = "Momentum") -> None:
        super().__init__(Momentum(learning_rate, momentum), name)


class AdagradOptimizer(GraphOptimizer):
    """s ← s + gradient²;  w ← w - rate * gradient / sqrt(s)

    initial_accumulator_value: the first value of s; 0.1 in TensorFlow.
    """

    def __init__(
        self, learning_rate: float, initial_accumulator_value: float = 0.1, name: str = "Adagrad"
    ) -> None:
        super().__init__(Adagrad(learning_rate), name)
        self.initial = initial_accumulator_value

    def _slot(self, w: Variable, n: int, initial: Node) -> Variable:
        assert initial.shape is not None
        start = np.full([k or 0 for k in initial.shape], self.initial, w.dtype.numpy)
        return super()._slot(w, n, constant(start))


class AdamOptimizer(GraphOptimizer):
    """Adam, with TensorFlow's argument names."""

    def __init__(
        self,
        learning_rate: float = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        name: str = "Adam",
    ) -> None:
        super().__init__(Adam(learning_rate, beta1, beta2, epsilon), name)


class Saver:
    """TensorFlow's spelling of `Session.save` and `Session.restore`."""

    def save(self, sess: Session, save_path: str | Path) -> str:
        """Writes the session's variables and gives the path back."""
        sess.save(save_path)
        return str(save_path)

    def restore(self, sess: Session, save_path: str | Path) -> None:
        sess.restore(save_path)
