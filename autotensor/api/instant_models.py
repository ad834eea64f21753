"""A graph as a function that answers before it is compiled.

    f(x) ──▶ NumPy's answer     meanwhile child processes compile, a second later or once an answer is there
    f(x) ──▶ the compiled one   from the call on that finds it

A call takes whichever is there first: an operator that NumPy is slow at costs no more than compiling does.
NumPy's products of matrices are code that was compiled ahead, for each class of processors.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TYPE_CHECKING, Any

import numpy as np

from autotensor.base import fork_locks
from autotensor.base.errors import TargetError
from autotensor.base.target import Target, parse
from autotensor.graph.evaluate import bound, evaluated
from autotensor.graph.ir import Graph

if TYPE_CHECKING:
    from autotensor.api.log import Log
    from autotensor.runtime.open_artifact import Function

HEAD_START_S = 1.0  # in which all cores are the first answer's


class InstantModel:
    """See the module's docstring. Calls are re-entrant."""

    def __init__(self, graph: Graph, target: str | Target | None = None, db: Log = None) -> None:
        self._graph, self._target, self._db = graph, target, db
        self._lock = fork_locks.renewed(threading.Lock())
        self._process = 0  # the one that compiles; a forked child does it anew
        self._ready: Function | None = None
        self._future()

    def __call__(self, *arrays: Any) -> Any:
        """The outputs: one array, or a tuple. Raises any error of compiling."""
        if self._ready is not None:
            return self._ready(*arrays)
        made = self._future()
        if not made.done():
            answer = _in_background(lambda: answer_by_numpy(self._graph, arrays, made.done))
            wait((made, answer), return_when=FIRST_COMPLETED)
            if answer.done() and answer.exception() is None and answer.result() is not None:
                self._answered.set()
                return answer.result()
        return self.compiled()(*arrays)

    def compiled(self) -> Function:
        """The compiled function, for which this waits. Raises any error of compiling."""
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
        # here, because an answer does not need them
        from autotensor.api.models import linked, plan_model
        from autotensor.runtime.open_artifact import open_artifact

        plan = plan_model(self._graph, self._target)
        return open_artifact(linked(plan, self._db, aside=True), threads=plan.target.num_cores)


def check_numerics(target: str | Target | None) -> None:
    """Raises TargetError for numerics that prescribe the order of sums, which is NumPy's own."""
    if target is not None and parse(target).is_strict:
        raise TargetError(
            "instant=True: the first answers are NumPy's, which adds in another order than strict numerics "
            "prescribe.",
            fix="Leave one of them out.",
        )


def answer_by_numpy(graph: Graph, arrays: tuple[Any, ...], is_late: Callable[[], bool]) -> Any:
    """The outputs, as a compiled function gives them: fresh arrays. None as soon as they are late."""
    values = bound(graph, arrays, {})
    for _ in evaluated(graph, values):
        if is_late():
            return None
    outputs = [np.array(values[o], order="C") for o in graph.outputs]
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _in_background(work: Callable[[], Any]) -> Future[Any]:
    """The result of `work`, in a thread that no process waits for at its end."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # of whoever takes the result
            future.set_exception(error)

    threading.Thread(target=run, name="autotensor-instant", daemon=True).start()
    return future


__all__ = ["InstantModel", "answer_by_numpy", "check_numerics"]
