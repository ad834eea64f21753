"""Training steps: forward pass, backward pass and update, compiled to one native program.

    w = at.parameter(array, name="w")
    step = at.training_step(loss, optimizer=Adam(1e-3))
    for x, y in batches:
        print(step(x, y))                   # the loss; the parameters have changed, in place
    step.save("run.safetensors")            # parameters and the optimiser's state

The program takes the batch and the addresses of the arrays in `step.values`. The kernels that compute new
values write them over the old ones (`graph/in_place_values.py`), so a step allocates only the loss.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from autotensor.api.log import Log
from autotensor.api.model_tuning import tune_model
from autotensor.api.models import ModelPlan, linked, plan_model
from autotensor.autodiff.optimizers import SGD, Optimizer
from autotensor.autodiff.rematerialise import TradeOff
from autotensor.autodiff.training_steps import TrainingGraph, training_graph
from autotensor.base.errors import InputError, TargetError
from autotensor.base.registry import suggest
from autotensor.base.target import Target
from autotensor.graph.ir import Array, GraphNode, Parameter, constant
from autotensor.graph.replace_nodes import replaced
from autotensor.runtime.arrays import aligned_copy
from autotensor.runtime.files import checkpoint
from autotensor.runtime.module import Module
from autotensor.search.events import Listener
from autotensor.search.options import TuneOptions


def training_step(
    loss: GraphNode,
    parameters: Iterable[Parameter] | None = None,
    optimizer: Optimizer = SGD(),  # noqa: B008  # frozen
    outputs: Sequence[GraphNode] = (),
    *,
    rate: GraphNode | None = None,
    memory_budget: int | None = None,
    trials: int = 0,
    target: str | Target | None = None,
    db: Log = None,
    seed: int = 0,
    name: str = "training_step",
    listener: Listener | None = None,
    progress: bool = True,
) -> TrainingStep:
    """One step of training as one native program with its own state.

    loss: a scalar. parameters: None takes all parameters that the loss depends on. outputs: further values
    that a step gives, computed before the update. rate: a node (of type float, such as an `at.input(())`)
    that is the learning rate of the step. memory_budget: most bytes for intermediate values; if they take
    more, some are computed twice (`step.trade_off` has the time that this costs). trials: schedules to
    measure, as in `compile_model`.
    Raises GraphError when the loss is not a scalar, or does not depend on a parameter; TargetError for a GPU.
    """
    program = training_graph(loss, parameters, optimizer, outputs, rate, memory_budget, name)
    plan = plan_model(program.graph, target, updates=program.updates)
    if plan.target.is_gpu:  # GPU programs cannot write outputs over inputs yet
        raise TargetError(
            f"training steps run on the CPU, not on {plan.target.kind}.",
            fix="Leave the target out, or give an llvm target.",
        )
    if trials:
        options = TuneOptions(trials=trials, seed=seed)
        tuned = tune_model(plan, options, db=db, listener=listener, progress=progress).module
        module = Module(tuned.artifact, threads=plan.target.num_cores)
    else:
        module = Module(linked(plan, db), threads=plan.target.num_cores)
    return TrainingStep(program, plan, module)


class TrainingStep:
    """A compiled step and the arrays that it changes. Calls must come one after the other, from any
    thread."""

    def __init__(self, program: TrainingGraph, plan: ModelPlan, module: Module) -> None:
        self.program = program
        self.plan = plan
        self.module = module
        self._lock = threading.Lock()
        names = program.graph.input_names
        self._values = {n: aligned_copy(program.start[n]) for n in names if n in program.start}
        self._data = tuple(n for n in names if n not in program.start)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of a step's arguments, in order."""
        return self._data

    @property
    def values(self) -> Mapping[str, Array]:
        """The current parameters and optimiser's state by name; read-only."""
        return MappingProxyType({n: _frozen(a) for n, a in self._values.items()})

    @property
    def parameters(self) -> Mapping[str, Array]:
        """The current parameters by name; read-only."""
        return MappingProxyType({n: _frozen(self._values[n]) for n in self.program.parameters})

    @property
    def trade_off(self) -> TradeOff | None:
        """Memory saved and time lost by computing values twice; None when no budget was given."""
        return self.program.trade_off

    def __call__(self, *arrays: Array, **named: Array) -> Any:
        """Does one step on a batch. Gives the loss before the step as a float. If there are further outputs,
        it gives a tuple of the loss and these outputs.

        Raises ArgumentError for an array that does not fit; nothing has changed then.
        """
        with self._lock:
            data = self._batch(arrays, named)
            outs = [np.empty(s.shape, s.dtype) for s in self.module.args if s.role == "output"]
            self.module(*data, *self._values.values(), *outs)
        loss = float(outs[0])
        return loss if len(outs) == 1 else (loss, *outs[1:])

    def _batch(self, arrays: Sequence[Array], named: Mapping[str, Array]) -> list[Array]:
        given = {**dict(zip(self._data, arrays, strict=False)), **named}
        if len(arrays) > len(self._data) or set(given) != set(self._data):
            raise InputError(
                f"a step of {self.module.name} takes {', '.join(self._data) or 'nothing'}; "
                f"it was given {len(arrays)} arrays{''.join(f', {n}' for n in named)}."
            )
        return [np.asarray(given[n]) for n in self._data]

    def assign(self, values: Mapping[str, Array]) -> None:
        """Replaces parameters or state by new values.

        Raises InputError for an array that does not fit; all arrays are checked before any is written.
        """
        for name, array in values.items():
            if name not in self._values:
                raise InputError(
                    f"{self.module.name} has no value {name!r}.", fix=suggest(name, tuple(self._values))
                )
            own = self._values[name]
            if array.shape != own.shape or array.dtype != own.dtype:
                raise InputError(
                    f"{self.module.name}: {name!r} is {own.dtype}{list(own.shape)}, "
                    f"given was {array.dtype}{list(array.shape)}."
                )
        with self._lock:
            for name, array in values.items():
                self._values[name][...] = array

    def save(self, path: str | Path) -> None:
        """Writes parameters and state as a safetensors file; a reader sees the old file or the new one."""
        with self._lock:
            checkpoint.save(path, self._values)

    def restore(self, path: str | Path) -> None:
        """Takes parameters and state from a file that `save` wrote. Raises InputError or ArtifactError for
        other files."""
        values, _ = checkpoint.load(path)
        if missing := [n for n in self._values if n not in values]:
            raise InputError(f"{path} lacks {missing[0]!r}; it holds {', '.join(values) or 'nothing'}.")
        self.assign({n: values[n] for n in self._values})

    def trained(self, outputs: GraphNode | Sequence[GraphNode]) -> tuple[GraphNode, ...]:
        """Nodes of the model (predictions, say) in which the current parameters are constants."""
        given = (outputs,) if isinstance(outputs, GraphNode) else tuple(outputs)
        swap: dict[GraphNode, GraphNode] = {
            p: constant(self._values[n], n) for n, p in self.program.parameters.items()
        }
        return replaced(given, swap)

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle holds the program, its code, and the current parameters and state."""
        with self._lock:
            values = {n: a.copy() for n, a in self._values.items()}
        return _unpickled, (self.program, self.plan, self.module, values)

    def __repr__(self) -> str:
        return (
            f"<TrainingStep {self.module.name}({', '.join(self._data)}), "
            f"{len(self.program.parameters)} parameters>"
        )


def _unpickled(
    program: TrainingGraph, plan: ModelPlan, module: Module, values: Mapping[str, Array]
) -> TrainingStep:
    step = TrainingStep(program, plan, module)
    step.assign(values)
    return step


def _frozen(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


__all__ = ["TrainingGraph", "TrainingStep", "training_graph", "training_step"]
