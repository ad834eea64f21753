"""A tuning run on this machine: calibrated rates, the local measurer, the loop, progress lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from autotensor.base.errors import InputError
from autotensor.base.target import host
from autotensor.runtime.place import here
from autotensor.schedule.primitives.algorithm import algorithm_tolerance
from autotensor.search.events import Event, Listener
from autotensor.search.measuring.measure_request import MeasureOptions, Measurer, checked_measurer
from autotensor.search.options import TuneOptions
from autotensor.search.report import LATE, TuneReport, untouched
from autotensor.search.run import TuningRun, silent
from schedules.registry import BROUGHT

# Least number of trials for which the micro-kernels are timed: such a run takes minutes, and timing the
# micro-kernels takes seconds, once.
KERNELS_WORTH = 256
KERNELS_WORTH_S = 300.0  # with less time until the deadline, the micro-kernels are not timed
LEAST_SEARCH_S = 4.0  # least time for a search: children start, sketches are made, one batch is measured
LEAST_BUILD_S = 5.0  # every candidate may compile for this long, however near the deadline is
WAIT_SHARE = 0.2  # share of the deadline for which calibration waits while other processes time something
CALIBRATION_WORTH_S = 120.0  # with less time until the deadline the calibration is brief


def run_tuning(run: TuningRun, measurer: Measurer | None = None) -> TuneReport:
    """Tunes tasks, all for one target, on this machine or with the given measurer.

    A given measurer is not closed.
    """
    # Imported here: a run that is complete in the log ends earlier, and needs neither the search nor the code
    # that measures.
    from autotensor.search import loop
    from autotensor.search.machine.calibration import calibrated, known_rates
    from autotensor.search.measuring.measurer import LocalMeasurer, check_measurable
    from schedules.prior.rates import Rates

    until, store, target = run.deadline, run.store, run.tasks[0].target
    if measurer is not None:
        rates = known_rates(store, here(target).fingerprint, target)
        return loop.tune(run, checked_measurer(measurer), rates)
    if until.left_s() < LEAST_SEARCH_S:
        return untouched(run.tasks, LATE)
    check_measurable(target)  # before calibrating a processor, which takes seconds
    kernels = run.options.trials >= KERNELS_WORTH and until.given_s >= KERNELS_WORTH_S
    brief = until.given_s < CALIBRATION_WORTH_S
    if target.on_card:
        rates = Rates.guess(target)  # rates of cards are not measured; the run's session says so
    else:  # OpenCL's kernels run on this processor
        processor = host().with_threads(target.num_cores) if target.is_gpu else target
        rates = calibrated(store, processor, kernels=kernels, brief=brief, patience=until.share(WAIT_SHARE))
    measuring = MeasureOptions(
        seeds=run.seeds,
        residency=run.residency,
        peak_flops=None if target.is_gpu else rates.peak(target.num_cores),
        asm=not target.is_gpu or target.kind == "cuda",  # for CUDA, ptxas reports registers and spills
        build_timeout_s=min(MeasureOptions().build_timeout_s, max(LEAST_BUILD_S, until.given_s / 6)),
    )
    raced = until.less(loop.RACE_S + run.options.means.race_s)  # results that come later could not be raced

    def peak_again() -> float:
        return calibrated(store, target, again=True, brief=brief).peak(target.num_cores)

    with closing(
        LocalMeasurer(
            target,
            measuring,
            modules=BROUGHT.modules(),  # rules may bring steps of their own
            numerics=algorithm_tolerance,
            recalibrate=peak_again,
            left_s=raced.left_s,
        )
    ) as local:
        return loop.tune(run, local, rates)


@contextmanager
def shown(options: TuneOptions, listener: Listener | None, progress: bool) -> Iterator[Listener]:
    """The listener of a run inside the block: `listener`, and lines on standard error if `progress`."""
    if listener is not None and not callable(listener):
        raise InputError(
            f"listener {listener!r} cannot be called.", fix="Give a function of one event (docs/extend.md)."
        )
    if not progress:
        yield listener or silent
        return
    from autotensor.insight.progress import Progress

    with Progress(options.trials, options.limit_s) as lines:

        def hear(event: Event) -> None:
            lines.hear(event)
            if listener is not None:
                listener(event)

        yield hear
