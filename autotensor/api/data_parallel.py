"""Data-parallel training over processes of this machine: synchronous, with backup workers.

    batch ─cut─▶ part 0 ─▶ worker 0 ─▶ gradient 0 ┐
                 part 1 ─▶ worker 1 ─▶ gradient 1 ┼─ mean of the first that come ─▶ update, here
                 part 2 ─▶ worker 2 ─▶ (too late) ┘

    with DataParallel(loss, optimizer=SGD(0.1), workers=2, backups=1) as step:
        print(step(x, y))               # x, y: (workers + backups) times as many rows as the graph's inputs

Without backups a step is the same as a step of one process on the whole batch, if the loss is a mean over
rows. With backups, a step takes the gradients of the requested number of workers and drops later ones. A late
worker gets no new part until it is done. Source: Chen et al., "Revisiting Distributed Synchronous SGD", 2016.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import MappingProxyType

import numpy as np

from autotensor.api.log import Log
from autotensor.api.models import linked, plan_model
from autotensor.autodiff.optimizers import SGD, Optimizer
from autotensor.autodiff.training_steps import gradient_graph, update_graph
from autotensor.base.errors import InputError, MeasureError
from autotensor.base.target import Target
from autotensor.graph.ir import Array, GraphNode, Parameter
from autotensor.runtime.arrays import aligned_copy
from autotensor.runtime.files import artifact_file as artifacts
from autotensor.runtime.files.artifact import ArgSpec
from autotensor.runtime.module import Module
from autotensor.runtime.workers.children import Child, Reply, Status
from autotensor.runtime.workers.gradient_worker import Mapped, split

WORKER = "autotensor.runtime.workers.gradient_worker"
Delay = Callable[[int, int], float]  # (step, worker) → seconds


class DataParallel:
    """A training step whose gradients are computed by several processes."""

    def __init__(
        self,
        loss: GraphNode,
        parameters: Iterable[Parameter] | None = None,
        optimizer: Optimizer = SGD(),  # noqa: B008  # frozen
        *,
        workers: int = 2,
        backups: int = 0,
        threads: int = 1,
        timeout_s: float = 60.0,
        delay: Delay = lambda step, worker: 0.0,
        target: str | Target | None = None,
        db: Log = None,
    ) -> None:
        """workers: the number of gradients that a step waits for. backups: the number of further workers.
        threads: the number of threads for each process.

        delay: a function that makes workers late, for experiments. Raises InputError for impossible numbers
        of workers.
        """
        check_workers("data parallel training", workers, backups)
        self.workers, self.backups = workers, backups
        self.timeout_s, self.delay, self.steps, self.dropped = timeout_s, delay, 0, 0
        graph, chosen = gradient_graph(loss, parameters)
        self._folder = tempfile.TemporaryDirectory(prefix="autotensor_")
        folder = Path(self._folder.name)
        program = linked(plan_model(graph, target), db)
        artifacts.save(folder / "gradients.atm", program)
        mine, common = split(Module(program).args, len(chosen))
        self._batch = tuple(a for a in mine if a.role == "input")
        self._own = [Mapped.of(folder / f"{n}.bin", mine).arrays for n in range(workers + backups)]
        self._shared = Mapped.of(folder / "parameters.bin", common).arrays
        for array, p in zip(self._shared, chosen, strict=True):
            array[...] = p.start.array
        names = [a.name for a in common]
        self._updating = Updating(chosen, optimizer, names, self._shared, db, target)
        self._state = self._updating.state
        self._children = [
            Child(
                WORKER,
                [str(folder / "gradients.atm"), str(threads), str(len(chosen)),
                 str(folder / "parameters.bin"), str(folder / f"{n}.bin")],
            )
            for n in range(workers + backups)
        ]  # fmt: skip
        self._pool = ThreadPoolExecutor(workers + backups)
        self._busy: dict[Future[Reply], int] = {}

    @property
    def parameters(self) -> Mapping[str, Array]:
        """Copies of the current parameters, by name."""
        return self._updating.parameters

    def __call__(self, *arrays: Array) -> float:
        """Does one step. Gives the mean loss, before the update, of the parts that were taken.

        arrays: one for every input. Its first axis holds one part for each worker, backups included.
        Raises InputError for arrays that cannot be cut in this way, MeasureError when too many workers
        failed.
        """
        parts = parts_of(self._batch, arrays, len(self._children))
        fresh: dict[Future[Reply], int] = {}
        for n in self._idle():
            for own, part in zip(self._own[n], parts[n], strict=False):
                own[...] = part
            request = json.dumps({"sleep": self.delay(self.steps, n)})
            fresh[self._pool.submit(self._children[n].request, request, self.timeout_s)] = n
        self._busy |= fresh
        taken = self._first(fresh)
        self.dropped += len(fresh) - len(taken)
        self.steps += 1
        return self._updating.step([self._own[n][len(self._batch) :] for n in taken])

    def _first(self, fresh: Mapping[Future[Reply], int]) -> list[int]:
        """The first workers that answer, ordered by index: a sum must not depend on which was first."""
        taken: list[int] = []
        failures: list[str] = []
        waiting = set(fresh)
        while len(taken) < self.workers:
            if not waiting:
                raise MeasureError(
                    f"{len(failures)} of {len(fresh)} workers failed, {self.workers} are needed: "
                    f"{failures[0]}"
                )
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in sorted(done, key=lambda f: fresh[f]):
                del self._busy[future]
                reply = future.result()
                if reply.status is not Status.OK:
                    failures.append(f"{reply.detail} {reply.output.strip()[-500:]}")
                elif len(taken) < self.workers:
                    taken.append(fresh[future])
        return sorted(taken)

    def _idle(self) -> list[int]:
        """Waits until enough workers for a step have finished earlier steps. Gives all workers that have."""
        self._busy = {f: n for f, n in self._busy.items() if not f.done()}
        while len(self._children) - len(self._busy) < self.workers:
            done, _ = wait(self._busy, return_when=FIRST_COMPLETED)
            self._busy = {f: n for f, n in self._busy.items() if f not in done}
        return [n for n in range(len(self._children)) if n not in self._busy.values()]

    def settle(self) -> None:
        """Waits for workers that are late."""
        wait(self._busy)

    def close(self) -> None:
        """Ends the workers and removes their files."""
        for child in self._children:
            child.kill()  # a late worker may be sleeping
        self._pool.shutdown(wait=True)
        self._folder.cleanup()

    def __enter__(self) -> DataParallel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Updating:
    """Parameters and the optimiser's state, and the program that changes them by gradients, in place."""

    def __init__(
        self,
        parameters: Sequence[Parameter],
        optimizer: Optimizer,
        names: Iterable[str],
        weights: Sequence[Array],
        db: Log = None,
        target: str | Target | None = None,
    ) -> None:
        """weights: arrays of the parameters' types, which hold their values and will be written to."""
        update = update_graph(parameters, optimizer)
        self.names, self.weights = tuple(names), tuple(weights)
        self._gradients = tuple(np.empty(a.shape, a.dtype) for a in weights)
        self.state = {n: aligned_copy(a) for n, a in update.start.items() if n not in update.parameters}
        known = {**self.state, **dict(zip(update.parameters, weights, strict=True))}
        self._given = tuple(known[n] for n in update.graph.input_names[len(parameters) :])
        self._module = Module(linked(plan_model(update.graph, target, updates=update.updates), db))

    @property
    def parameters(self) -> Mapping[str, Array]:
        """Copies of the current parameters, by name."""
        return MappingProxyType({n: a.copy() for n, a in zip(self.names, self.weights, strict=True)})

    def step(self, answers: Sequence[Sequence[Array]]) -> float:
        """Does one update with the mean of the gradients and gives the mean loss. answers: loss and gradients
        of each worker, in a fixed order, because sums depend on the order."""
        for k, gradient in enumerate(self._gradients):
            np.mean([answer[1 + k] for answer in answers], axis=0, out=gradient)
        self._module(*self._gradients, *self._given)
        return float(np.mean([answer[0] for answer in answers]))


def check_workers(what: str, workers: int, backups: int) -> None:
    """Raises InputError for impossible numbers of workers."""
    if workers < 1 or backups < 0:
        raise InputError(
            f"{what} needs at least 1 worker and no fewer than 0 backups; "
            f"it was given {workers} and {backups}."
        )


def parts_of(specs: Sequence[ArgSpec], arrays: Sequence[Array], count: int) -> list[list[Array]]:
    """Every array cut into `count` parts along its first axis; each part has the shape and type of its input.

    Raises InputError for arrays that cannot be cut in this way.
    """
    if len(arrays) != len(specs):
        names = ", ".join(s.name for s in specs)
        raise InputError(f"a step takes {names}; it was given {len(arrays)} arrays.")
    for spec, array in zip(specs, arrays, strict=True):
        wanted = (count * spec.shape[0], *spec.shape[1:]) if spec.shape else ()
        if array.shape != wanted or str(array.dtype) != spec.dtype:
            raise InputError(
                f"{spec.name!r} is {array.dtype}{list(array.shape)}, expected {spec.dtype}{list(wanted)}: "
                f"{count} parts, one for each worker."
            )
    cut = [np.split(a, count) if a.ndim else [a] * count for a in arrays]
    return [[c[n] for c in cut] for n in range(count)]
