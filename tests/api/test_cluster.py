"""Training by an executor that runs functions elsewhere: equal to one process; late and failed calls;
Dask."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from perceptrons import ROWS, batch, perceptron

import autotensor as at
from autotensor.api.cluster import ClusterTraining
from autotensor.autodiff.optimizers import Adam, Momentum
from autotensor.base.errors import InputError, MeasureError

pytestmark = pytest.mark.usefixtures("own_log")


def equals_one_process(executor: Any, workers: int, optimizer: Any) -> None:
    one = at.training_step(perceptron(workers * ROWS), optimizer=optimizer)
    step = ClusterTraining(perceptron(ROWS), optimizer=optimizer, executor=executor, workers=workers)
    for n in range(5):
        data = batch(n, workers * ROWS)
        assert step(*data) == pytest.approx(one(*data), rel=1e-5)
    for name, value in step.parameters.items():
        np.testing.assert_allclose(value, one.parameters[name], rtol=1e-4, atol=1e-6, err_msg=name)
    assert step.dropped == 0


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as executor:
        yield executor


@pytest.mark.parametrize("workers", [1, 3])
def test_equal_to_one_process(threads: ThreadPoolExecutor, workers: int) -> None:
    equals_one_process(threads, workers, Momentum(0.1))


class Disturbed(Executor):
    """Runs calls at once, except for some parts of some steps. These wait for `go`, or fail."""

    def __init__(self, late: set[tuple[int, int]] = frozenset(), failing: set[tuple[int, int]] = frozenset()):
        self.late, self.failing, self.go = late, failing, threading.Event()
        self.threads: list[threading.Thread] = []

    def submit(self, fn: Any, /, *args: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        place = (args[4], args[5])

        def work() -> None:
            if place in self.late:
                self.go.wait()
            if not future.set_running_or_notify_cancel():
                return
            if place in self.failing:
                future.set_exception(OSError(f"part {place[1]} lost its machine"))
            else:
                future.set_result(fn(*args))

        if place in self.late:
            self.threads.append(threading.Thread(target=work))
            self.threads[-1].start()
        else:
            work()
        return future

    def settle(self) -> None:
        self.go.set()
        for t in self.threads:
            t.join()


@pytest.mark.parametrize("how", ["late", "failing"])
def test_a_part_that_is_late_or_fails_is_done_without(how: str) -> None:
    """Part 1 is missing in step 0: parts 0 and 2 are taken, as one process on their rows would."""
    one = at.training_step(perceptron(2 * ROWS), optimizer=Momentum(0.1))
    executor = Disturbed(**{how: {(0, 1)}})
    step = ClusterTraining(perceptron(ROWS), optimizer=Momentum(0.1), executor=executor, workers=2, backups=1)
    x, y = batch(0, 3 * ROWS)
    rows = np.r_[0:ROWS, 2 * ROWS : 3 * ROWS]
    assert step(x, y) == pytest.approx(one(x[rows], y[rows]), rel=1e-5)
    assert step.dropped == 1
    executor.settle()
    for name, value in step.parameters.items():
        np.testing.assert_allclose(value, one.parameters[name], rtol=1e-4, atol=1e-6, err_msg=name)
    assert step(*batch(1, 3 * ROWS)) > 0


def test_too_many_failures_name_the_first() -> None:
    executor = Disturbed(failing={(0, 0)})
    step = ClusterTraining(perceptron(ROWS), executor=executor, workers=2)
    with pytest.raises(MeasureError, match="1 of 2 workers failed, 2 are needed: OSError: part 0 lost its"):
        step(*batch(0, 2 * ROWS))
    executor.failing = set()
    assert step(*batch(1, 2 * ROWS)) > 0  # the next step uses all parts


def test_who_never_answers_is_given_up() -> None:
    executor = Disturbed(late={(0, 1)})
    step = ClusterTraining(perceptron(ROWS), executor=executor, workers=2, timeout_s=0.1)
    with pytest.raises(MeasureError, match=r"1 of 2 workers answered within 0\.1 s, 2 are needed"):
        step(*batch(0, 2 * ROWS))
    executor.settle()


def test_refusals(threads: ThreadPoolExecutor) -> None:
    with pytest.raises(InputError, match="at least 1 worker and no fewer than 0 backups"):
        ClusterTraining(perceptron(ROWS), executor=threads, workers=0)
    step = ClusterTraining(perceptron(ROWS), executor=threads, workers=2)
    with pytest.raises(InputError, match=r"'x' is float32\[8, 6\], expected float32\[16, 6\]: 2 parts"):
        step(*batch(0, ROWS))


@pytest.mark.cluster
def test_dask() -> None:
    """Two processes under Dask's scheduler: equal to one, and with a backup part."""
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster) as client:
        equals_one_process(client, 2, Adam(0.01))
        step = ClusterTraining(perceptron(ROWS), executor=client, workers=2, backups=1)
        data = batch(0, 3 * ROWS)
        losses = [step(*data) for _ in range(5)]
        assert losses[-1] < losses[0]
        assert step.dropped == 5
