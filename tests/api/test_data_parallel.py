"""Several processes: their step equals a step of a single process, and a late process is not waited for."""

from __future__ import annotations

import time

import numpy as np
import pytest
from perceptrons import ROWS, batch, perceptron

import autotensor as at
from autotensor.api.data_parallel import DataParallel
from autotensor.autodiff.optimizers import Momentum
from autotensor.base.errors import InputError, MeasureError

pytestmark = pytest.mark.usefixtures("own_log")


def test_two_processes_are_one() -> None:
    one = at.training_step(perceptron(2 * ROWS), optimizer=Momentum(0.1))
    with DataParallel(perceptron(ROWS), optimizer=Momentum(0.1), workers=2) as step:
        for n in range(5):
            data = batch(n, 2 * ROWS)
            assert step(*data) == pytest.approx(one(*data), rel=1e-5)
        for name, value in step.parameters.items():
            np.testing.assert_allclose(value, one.parameters[name], rtol=1e-4, atol=1e-6, err_msg=name)
        assert step.dropped == 0


def test_a_late_worker_is_not_waited_for_and_its_gradient_is_dropped() -> None:
    """Worker 1 sleeps in step 1: the step takes workers 0 and 2, as one process on their rows would."""
    one = at.training_step(perceptron(2 * ROWS), optimizer=Momentum(0.1))
    late = 30.0

    def delay(step: int, worker: int) -> float:
        return late if (step, worker) == (1, 1) else 0.0

    with DataParallel(perceptron(ROWS), optimizer=Momentum(0.1), workers=2, backups=1, delay=delay) as step:
        first = batch(0, 3 * ROWS)
        step(*first)  # with the processes that answer first
        step.settle()  # all processes run now
        one.assign(step.parameters)
        velocity = {n: a for n, a in step._state.items()}
        one.assign(velocity)
        second = batch(1, 3 * ROWS)
        began = time.monotonic()
        loss = step(*second)
        assert time.monotonic() - began < late
        rows = np.r_[0:ROWS, 2 * ROWS : 3 * ROWS]
        assert loss == pytest.approx(one(*(a[rows] for a in second)), rel=1e-5)
        assert step(*batch(2, 3 * ROWS)) > 0  # with those that are free
        assert step.dropped >= 2


def test_a_process_that_dies_is_named() -> None:
    with DataParallel(perceptron(ROWS), workers=2, timeout_s=0.05, delay=lambda s, w: 5.0 * (s == 1)) as step:
        step.timeout_s = 60.0
        step(*batch(0, 2 * ROWS))
        step.timeout_s = 0.05
        with pytest.raises(MeasureError, match=r"of 2 workers failed, 2 are needed: no answer within 0.05 s"):
            step(*batch(1, 2 * ROWS))
        step.timeout_s = 60.0
        assert step(*batch(2, 2 * ROWS)) > 0  # new processes take their places


def test_refusals() -> None:
    with pytest.raises(InputError, match="at least 1 worker and no fewer than 0 backups"):
        DataParallel(perceptron(ROWS), workers=0)
    with DataParallel(perceptron(ROWS), workers=2) as step:
        with pytest.raises(InputError, match="takes x, y; it was given 1 arrays"):
            step(batch(0, 2 * ROWS)[0])
        with pytest.raises(InputError, match=r"'x' is float32\[8, 6\], expected float32\[16, 6\]: 2 parts"):
            step(*batch(0, ROWS))
