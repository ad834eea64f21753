"""Optimisers for tensors: `step` changes parameters by the gradients that `backward` has computed.

    opt = optim.SGD(model.parameters(), 0.1)
    opt.zero_grad(); loss.backward(); opt.step()

The formulas are those of `autodiff/optimizers.py`, which the static style uses as well.
"""

from __future__ import annotations

from collections.abc import Iterable

from autotensor.autodiff import optimizers as rules
from autotensor.base.errors import GraphError
from autotensor.graph.ir import GraphNode
from autotensor.imperative import engine
from autotensor.imperative.tensor import Tensor, tensor


class Optimizer:
    """Parameters, the state of each, and the rule of a step."""

    def __init__(self, parameters: Iterable[Tensor], rule: rules.Optimizer) -> None:
        self.parameters = tuple(parameters)
        self.rule = rule
        if not self.parameters:
            raise GraphError(f"{type(self).__name__}: there are no parameters.")
        if wrong := [p for p in self.parameters if not (p.requires_grad and p.is_leaf)]:
            raise GraphError(
                f"{type(self).__name__}: {wrong[0]!r} is not a parameter.",
                fix="Give leaves that require_grad.",
            )
        self.state = [tuple(tensor(a) for a in rule.state(p._node.type)) for p in self.parameters]

    def zero_grad(self) -> None:
        for p in self.parameters:
            p.grad = None

    def step(self) -> None:
        """Changes every parameter that has a gradient."""
        with engine.no_grad():
            for p, state in zip(self.parameters, self.state, strict=True):
                if p.grad is None:
                    continue
                nodes: tuple[GraphNode, ...] = tuple(s.node for s in state)
                new, rest = self.rule.update(p.node, p.grad.node, nodes)
                for target, node in zip((p, *state), (new, *rest), strict=True):
                    target.rebind(node)


class SGD(Optimizer):
    """w ← w - rate * gradient; with momentum, v ← momentum * v + gradient, then w ← w - rate * v."""

    def __init__(self, parameters: Iterable[Tensor], lr: float, momentum: float = 0.0) -> None:
        super().__init__(parameters, rules.Momentum(lr, momentum) if momentum else rules.SGD(lr))


class Adagrad(Optimizer):
    def __init__(self, parameters: Iterable[Tensor], lr: float = 0.01) -> None:
        super().__init__(parameters, rules.Adagrad(lr))


class Adam(Optimizer):
    def __init__(
        self, parameters: Iterable[Tensor], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999)
    ) -> None:
        super().__init__(parameters, rules.Adam(lr, *betas))
