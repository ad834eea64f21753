"""The interface of an engine that runs functions on a fleet's machines, as `dask_engine.py` implements it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from autotensor.base.errors import MeasureError
from autotensor.search.fleet.machine_class import MachineClass
from autotensor.search.measuring.measure_request import Who


class WorkerLost(MeasureError):
    """The workers that had a batch were killed, one after the other; the batch may go to others."""


class Engine(Protocol):
    """Runs functions on workers, one at a time on each."""

    def submit(self, function: Callable[..., Any], *args: Any, tag: str) -> Future[tuple[str, Any]]:
        """Runs it on some worker that offers the tag; gives the worker's name, and what the function gave.

        The future raises WorkerLost, or what the function raised, or MeasureError for a lost scheduler.
        """
        ...

    def workers(self) -> Mapping[str, frozenset[str]]:
        """The tags that each worker offers now, by its name, which outlives a restart."""
        ...

    def described(self) -> Mapping[str, tuple[MachineClass, Who]]:
        """Who the workers are, by name."""
        ...

    def withdraw(self, worker: str, tag: str) -> None:
        """The worker offers the tag no longer."""
        ...

    def close(self) -> None: ...


def own_tag(worker: str) -> str:
    """The tag that only one worker offers."""
    return f"worker-{worker}"


__all__ = ["Engine", "WorkerLost", "own_tag"]
