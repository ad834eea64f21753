"""Data-parallel training over a cluster, by any executor that can run a Python function on other machines.

    from dask.distributed import Client
    step = ClusterTraining(loss, optimizer=SGD(0.1), executor=Client("scheduler:8786"), workers=4, backups=1)
    print(step(x, y))                   # x, y: (workers + backups) times as many rows as the graph's inputs

The executor has `submit(function, *arguments)`, which gives futures, as `concurrent.futures` and Dask's
`Client` do. The executor decides where machines are, how they come and go, and how arrays are sent.
Parameters and the optimiser's state stay in this process; every call sends the weights and returns gradients.
A step takes the first `workers` gradients that come and drops the others, as `DataParallel` does on one
machine. Without backups, it equals a step of one process. On one machine `DataParallel` is faster, because it
sends nothing over a network.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Protocol

from autotensor.api.data_parallel import Updating, check_workers, parts_of
from autotensor.api.log import Log
from autotensor.api.models import linked, plan_model
from autotensor.autodiff.optimizers import SGD, Optimizer
from autotensor.autodiff.training_steps import gradient_graph
from autotensor.base.errors import MeasureError
from autotensor.base.target import Target
from autotensor.graph.ir import Array, GraphNode, Parameter
from autotensor.runtime.files import artifact_file as artifacts
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.workers.remote_gradients import gradients_of


class Future(Protocol):
    """The result of `submit`: a future of `concurrent.futures` or of Dask."""

    def result(self) -> Any: ...

    def add_done_callback(self, fn: Callable[[Any], object]) -> Any: ...

    def cancel(self) -> Any: ...


class Executor(Protocol):
    """Runs functions on other machines."""

    def submit(self, fn: Callable[..., Any], *args: Any) -> Any: ...


class ClusterTraining:
    """A training step whose gradients are computed by an executor's workers."""

    def __init__(
        self,
        loss: GraphNode,
        parameters: Iterable[Parameter] | None = None,
        optimizer: Optimizer = SGD(),  # noqa: B008  # frozen
        *,
        executor: Executor,
        workers: int = 2,
        backups: int = 0,
        threads: int = 1,
        timeout_s: float = 60.0,
        target: str | Target | None = None,
        db: Log = None,
    ) -> None:
        """workers: the number of gradients that a step waits for. backups: the number of further parts.
        threads: the number of threads for each call.

        target: the target for the machines' processors; None: the same as this machine's. Raises InputError
        for impossible numbers of workers.
        """
        check_workers("training on a cluster", workers, backups)
        self.executor, self.workers, self.backups, self.threads = executor, workers, backups, threads
        self.timeout_s, self.steps, self.dropped = timeout_s, 0, 0
        graph, chosen = gradient_graph(loss, parameters)
        program = linked(plan_model(graph, target), db)
        self._program = _packed(program)
        inputs = program.role("input")
        self._batch = inputs[: len(inputs) - len(chosen)]
        names = [a.name for a in inputs[len(self._batch) :]]
        self._updating = Updating(chosen, optimizer, names, [p.start.array.copy() for p in chosen], db)

    @property
    def parameters(self) -> Mapping[str, Array]:
        """Copies of the current parameters, by name."""
        return self._updating.parameters

    def __call__(self, *arrays: Array) -> float:
        """Does one step. Gives the mean loss, before the update, of the parts that were taken.

        arrays: one for every input. Its first axis holds one part for each worker, backups included.
        Raises InputError for arrays that cannot be cut in this way, MeasureError when too many calls failed.
        """
        parts = parts_of(self._batch, arrays, self.workers + self.backups)
        answers: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        weights = [a.copy() for a in self._updating.weights]  # a late call may still read them
        futures: list[Any] = []
        for n, part in enumerate(parts):
            future = self.executor.submit(
                gradients_of, self._program, self.threads, weights, part, self.steps, n
            )
            futures.append(future)
            future.add_done_callback(lambda f, n=n: answers.put((n, f)))
        taken = self._first(answers, len(parts))
        for n, future in enumerate(futures):
            if n not in taken:
                future.cancel()
        self.dropped += len(parts) - len(taken)
        self.steps += 1
        return self._updating.step([taken[n] for n in sorted(taken)])

    def _first(self, answers: SimpleQueue[tuple[int, Any]], count: int) -> dict[int, Sequence[Array]]:
        """The first answers, by the index of their part."""
        taken: dict[int, Sequence[Array]] = {}
        failures: list[str] = []
        end = monotonic() + self.timeout_s
        while len(taken) < self.workers:
            if count - len(failures) < self.workers:
                raise MeasureError(
                    f"{len(failures)} of {count} workers failed, {self.workers} are needed: {failures[0]}"
                )
            try:
                n, future = answers.get(timeout=max(0.0, end - monotonic()))
            except Empty:
                raise MeasureError(
                    f"{len(taken)} of {count} workers answered within {self.timeout_s} s, "
                    f"{self.workers} are needed."
                ) from None
            try:
                taken[n] = future.result()
            except Exception as error:  # whatever a worker or the executor raised
                failures.append(f"{type(error).__name__}: {error}")
        return taken


def _packed(program: Artifact) -> bytes:
    """The program as the bytes of a file, without texts: every call sends these bytes."""
    with tempfile.TemporaryDirectory(prefix="autotensor_") as folder:
        path = Path(folder) / "gradients.atm"
        artifacts.save(path, replace(program, texts={}))
        return path.read_bytes()
