"""A graph as a function that answers before it is compiled.

    f(x) ──▶ NumPy's answer      child processes begin to compile after a second, or after the first answer
    f(x) ──▶ the compiled answer, as soon as a call finds the compiled code

A call takes the answer that is there first. So an operator on which NumPy is slow costs no more time than
compiling does. NumPy's products of matrices are code that was compiled ahead, for each class of processors.
The option is `instant=True` in at.OnnxModel, at.compile_model and torch.compile's options, and `--instant` on
the command line.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from autotensor.base import fork_locks
from autotensor.base.errors import InputError, TargetError
from autotensor.base.target import Target
from autotensor.graph.evaluate import bound, evaluated
from autotensor.graph.ir import Graph
from autotensor.graph.symbols.open_graphs import OpenGraph, Shapes
from autotensor.runtime.files.artifact import ArgSpec

if TYPE_CHECKING:
    from autotensor.api.log import Log
    from autotensor.runtime.open_artifact import Function

HEAD_START_S = 1.0  # seconds in which the first answer has all cores


class InstantModel:
    """See the module's docstring. Calls are re-entrant. All other members of a compiled function wait until
    the model is compiled."""

    def __init__(self, graph: Graph | OpenGraph, target: str | Target | None = None, db: Log = None) -> None:
        self._graph, self._target, self._db = graph, target, db
        self._lock = fork_locks.renewed(threading.Lock())
        self._process = 0  # the process that compiles; a forked child compiles anew
        self._ready: Function | None = None
        self._future()

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """The outputs: one array, or a tuple. The arguments are those of a compiled function. Raises any
        error of compiling."""
        if self._ready is not None:
            return self._ready(*arrays, **named)
        made = self._future()
        if not made.done() and "out" not in named:
            answer = _in_background(lambda: answer_by_numpy(self._graph, arrays, made.done, named))
            wait((made, answer), return_when=FIRST_COMPLETED)
            if answer.done() and answer.exception() is None and answer.result() is not None:
                self._answered.set()
                return answer.result()
        return self.compiled()(*arrays, **named)

    @property
    def args(self) -> tuple[ArgSpec, ...]:
        """Inputs, then outputs."""
        if not isinstance(self._graph, Graph):
            return self.compiled().args
        inputs = zip(self._graph.input_names, self._graph.inputs, strict=True)
        outputs = zip(self._graph.output_names, self._graph.outputs, strict=True)
        return (
            *(ArgSpec(n, "input", x.shape, str(x.dtype)) for n, x in inputs),
            *(ArgSpec(n, "output", x.shape, str(x.dtype)) for n, x in outputs),
        )

    @property
    def name(self) -> str:
        return self._graph.name

    def wait(self) -> None:
        """Waits until the model is compiled. Raises any error of compiling."""
        self.compiled()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.compiled(), name)

    def __reduce__(self) -> tuple[Any, ...]:
        return InstantModel, (self._graph, self._target, self._db)

    def __repr__(self) -> str:
        return f"<InstantModel {self.name}, not compiled yet>" if self._ready is None else repr(self._ready)

    def compiled(self) -> Function:
        """The compiled function; waits until it is there. Raises any error of compiling."""
        made = self._future()
        self._answered.set()
        self._ready = made.result()
        return self._ready

    def _future(self) -> Future[Function]:
        if self._process != os.getpid():
            with self._lock:
                if self._process != os.getpid():
                    self._answered = threading.Event()
                    self._made = _in_background(lambda: self._compile(self._answered))
                    self._process = os.getpid()
        return self._made

    def _compile(self, answered: threading.Event) -> Function:
        answered.wait(HEAD_START_S)
        # imported here, because an answer does not need them
        from autotensor.api.models import linked, plan_model
        from autotensor.api.open_models import OpenModel
        from autotensor.runtime.open_artifact import open_artifact

        def made(graph: Any) -> Function:
            plan = plan_model(graph, self._target)
            return open_artifact(linked(plan, self._db, aside=True), threads=plan.target.num_cores)

        return OpenModel(self._graph, made) if isinstance(self._graph, OpenGraph) else made(self._graph)


def check_numerics(target: str | Target | None) -> None:
    """Raises TargetError for numerics that prescribe the order of sums, because NumPy sums in its own
    order."""
    # looks at the target's text, because parsing a target imports LLVM
    if target.is_strict if isinstance(target, Target) else "-numerics=strict" in (target or "").split():
        raise TargetError(
            "instant=True: the first answers are NumPy's, which adds in another order than strict numerics "
            "prescribe.",
            fix="Leave one of them out.",
        )


def check_instant(target: str | Target | None, trials: int) -> None:
    """Raises InputError for trials, which take longer than compiling, TargetError for strict numerics."""
    if trials:
        raise InputError(
            f"instant=True: {trials} trials would be measured before the first answer.",
            fix="Measure them with at.tune_model, and call the model afterwards.",
        )
    check_numerics(target)


def answer_by_numpy(
    model: Graph | OpenGraph,
    arrays: tuple[Any, ...],
    is_late: Callable[[], bool],
    named: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """The outputs in new arrays, as a compiled function gives them. Gives None as soon as `is_late` says that
    they are no longer needed."""
    graph = model if isinstance(model, Graph) else model.at(_shapes(model, arrays, named))
    values = bound(graph, arrays, named)
    for _ in evaluated(graph, values):
        if is_late():
            return None
    outputs = [np.array(values[o], order="C") for o in graph.outputs]
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _shapes(model: OpenGraph, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> Shapes:
    given = {**dict(zip(model.shapes, arrays, strict=False)), **named}
    return {name: np.shape(array) for name, array in given.items()}


def _in_background(work: Callable[[], Any]) -> Future[Any]:
    """The result of `work`, done in a thread. The process does not wait for this thread at its end."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # raised again for the caller that takes the result
            future.set_exception(error)

    threading.Thread(target=run, name="autotensor-instant", daemon=True).start()
    return future


__all__ = ["InstantModel", "answer_by_numpy", "check_instant", "check_numerics"]
