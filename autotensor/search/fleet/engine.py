"""The interface of an engine that runs functions on a fleet's machines. `dask_engine.py` implements it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from autotensor.base.errors import MeasureError
from autotensor.search.fleet.machine_class import MachineClass
from autotensor.search.measuring.measure_request import Who


class WorkerLost(MeasureError):
    """The workers that had a batch were killed, one after another. The batch may be sent to other workers."""


class Engine(Protocol):
    """Runs functions on workers, one at a time on each."""

    def submit(self, function: Callable[..., Any], *args: Any, tag: str) -> Future[tuple[str, Any]]:
        """Runs the function on a worker that offers the tag. The future has the worker's name and the
        function's result. It raises WorkerLost, the function's error, or MeasureError if the scheduler is
        lost.
        """
        ...

    def workers(self) -> Mapping[str, frozenset[str]]:
        """The tags that each worker offers now, by the worker's name. The name stays the same after a
        restart."""
        ...

    def described(self) -> Mapping[str, tuple[MachineClass, Who]]:
        """The identities of the workers, by name."""
        ...

    def withdraw(self, worker: str, tag: str) -> None:
        """Makes the worker stop offering the tag."""
        ...

    def close(self) -> None: ...


def own_tag(worker: str) -> str:
    """The tag that only this worker offers."""
    return f"worker-{worker}"


__all__ = ["Engine", "WorkerLost", "own_tag"]
