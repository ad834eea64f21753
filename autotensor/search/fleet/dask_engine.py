"""dask.distributed as the engine of a fleet (`pip install 'autotensor[cluster]'`).

dask itself handles certificates: it reads them from its configuration (`distributed.comm.tls`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from autotensor.base.errors import InputError, MeasureError
from autotensor.search.fleet.addresses import checked_address
from autotensor.search.fleet.engine import WorkerLost
from autotensor.search.fleet.machine_class import EXCLUSIVE, MachineClass
from autotensor.search.fleet.on_worker import describe
from autotensor.search.measuring.measure_request import Who

if TYPE_CHECKING:
    from distributed import Client

CONNECT_S = 10.0


def _require_dask() -> None:
    """Raises InputError when dask.distributed is not installed."""
    if find_spec("distributed") is None:
        raise InputError("a fleet needs dask.distributed.", fix="pip install 'autotensor[cluster]'.")


class DaskEngine:
    """A client of a scheduler. `close` does not change the scheduler and its workers."""

    def __init__(self, address: str) -> None:
        """Raises InputError for a scheduler without certificates on another machine, and if certificates or
        dask are missing. Raises MeasureError if no scheduler answers."""
        checked = checked_address(address)
        _require_dask()
        from distributed import Client
        from distributed.security import Security

        if checked.startswith("tls:") and not Security().get_connection_args("client").get("ssl_context"):
            raise InputError(
                f"{address} needs certificates, and dask's configuration names none.",
                fix="Set distributed.comm.tls (docs/fleet.md).",
            )
        try:
            self._client: Client = Client(checked, timeout=CONNECT_S, set_as_default=False)
        except OSError as error:
            raise MeasureError(f"no scheduler answers at {address}: {error}") from error
        self._keys = (f"autotensor-{uuid4().hex}-{n}" for n in itertools.count())

    def submit(self, function: Callable[..., Any], *args: Any, tag: str) -> Future[tuple[str, Any]]:
        answer: Future[tuple[str, Any]] = Future()
        asked = self._client.submit(
            named, function, *args, pure=False, key=next(self._keys), resources={EXCLUSIVE: 1, tag: 1}
        )
        answer.add_done_callback(lambda a: asked.cancel() if a.cancelled() else None)
        asked.add_done_callback(lambda done: _hand_on(done, answer))
        return answer

    def workers(self) -> Mapping[str, frozenset[str]]:
        return {name: frozenset(t for t, n in w["resources"].items() if n) for name, (_, w) in self._now()}

    def described(self) -> Mapping[str, tuple[MachineClass, Who]]:
        names = {address: name for name, (address, _) in self._now()}
        said = self._client.run(describe, on_error="ignore")
        return {names[a]: found for a, found in said.items() if a in names}

    def withdraw(self, worker: str, tag: str) -> None:
        addresses = [address for name, (address, _) in self._now() if name == worker]
        if addresses:
            self._client.run(_offer_no_longer, tag, workers=addresses, on_error="ignore")

    def close(self) -> None:
        self._client.close()

    def _now(self) -> list[tuple[str, tuple[str, dict[str, Any]]]]:
        found = self._client.scheduler_info(n_workers=-1)["workers"]
        return [(str(w["name"]), (address, w)) for address, w in found.items()]


def named(function: Callable[..., Any], *args: Any) -> tuple[str, Any]:
    """Runs on a worker. Returns the worker's name and the function's result."""
    from distributed import get_worker

    return str(get_worker().name), function(*args)


async def _offer_no_longer(tag: str, dask_worker: Any) -> None:
    await dask_worker.set_resources(**{tag: 0})


def _hand_on(done: Any, answer: Future[tuple[str, Any]]) -> None:
    """Passes the result of dask's future to Python's future. Its errors contain advice."""
    from distributed import KilledWorker

    if not answer.set_running_or_notify_cancel():
        return
    try:
        answer.set_result(done.result())
    except KilledWorker as error:
        answer.set_exception(WorkerLost(str(error)))
    except Exception as error:  # an error of the worker, or of the connection
        answer.set_exception(MeasureError(f"the fleet lost a batch: {type(error).__name__}: {error}"))


__all__ = ["DaskEngine", "named"]
