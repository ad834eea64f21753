"""Whole runs with a measurer of made-up times, for the tests of loop and race."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fakes import TARGET, FakeMeasurer, task
from zoo import conv, gemm

from autotensor.base.deadline import Deadline
from autotensor.search.events import Listener
from autotensor.search.loop import tune
from autotensor.search.options import TuneOptions
from autotensor.search.report import TuneReport
from autotensor.search.run import TuningRun, silent
from autotensor.search.task import Task
from autotensor.te.workload import Workload
from schedules.prior.rates import Rates
from tuning_db import TrialStore, connect

RATES = replace(Rates.guess(TARGET), guessed=False)  # as if they were measured: they bound a search
PRODUCT, SMALL_PRODUCT, CONVOLUTION = gemm(96, 192, 64), gemm(24, 64, 40), conv(9, 5, 40, 3)


def run(
    workloads: Sequence[Workload | Task] = (PRODUCT,),
    trials: int = 40,
    store: TrialStore | None = None,
    measurer: FakeMeasurer | None = None,
    listener: Listener = silent,
    stopped: Callable[[], bool] = lambda: False,
    rates: Rates = RATES,
    **options: Any,
) -> TuneReport:
    asked = TuningRun(
        [w if isinstance(w, Task) else task(w) for w in workloads],
        chosen := TuneOptions(trials=trials, **options),
        connect(":memory:") if store is None else store,
        Deadline.after(chosen.limit_s),
        listener,
        stopped=stopped,
    )
    return tune(asked, measurer or FakeMeasurer(), rates)
