"""A tuning run on this machine: calibrated rates, the local measurer, the loop; and what is seen of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from autotensor.base.target import host
from autotensor.runtime.place import here
from autotensor.schedule.primitives.algorithm import algorithm_tolerance
from autotensor.search.events import Event, Listener
from autotensor.search.measuring.measure_request import MeasureOptions, Measurer, checked_measurer
from autotensor.search.options import TuneOptions
from autotensor.search.report import LATE, TuneReport, untouched
from autotensor.search.run import TuningRun, silent
from schedules.registry import BROUGHT

KERNELS_WORTH = 256  # trials: a run of minutes; seconds that micro-kernels take once do not matter
KERNELS_WORTH_S = 300.0  # of a deadline: the same
LEAST_SEARCH_S = 4.0  # until the deadline: children start, sketches are made, one batch is measured
LEAST_BUILD_S = 5.0  # that one candidate may take to compile, however near the deadline
WAIT_SHARE = 0.2  # of a deadline is over when we no longer wait for others who time something, to calibrate
CALIBRATION_WORTH_S = 120.0  # of a deadline: below it, calibrating for seconds costs more than it brings


def run_tuning(run: TuningRun, measurer: Measurer | None = None) -> TuneReport:
    """Tunes tasks (of one target) on this machine, or where the measurer does; that one is not closed."""
    # here: a run that the log holds whole ends before, without the search and what measures
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
    check_measurable(target)  # before seconds go into calibrating a processor
    kernels = run.options.trials >= KERNELS_WORTH and until.given_s >= KERNELS_WORTH_S
    brief = until.given_s < CALIBRATION_WORTH_S
    if target.on_card:
        rates = Rates.guess(target)  # no card's rates are measured: the run's session says so
    else:  # OpenCL's blocks run on this processor
        processor = host().with_threads(target.num_cores) if target.is_gpu else target
        rates = calibrated(store, processor, kernels=kernels, brief=brief, patience=until.share(WAIT_SHARE))
    measuring = MeasureOptions(
        seeds=run.seeds,
        residency=run.residency,
        peak_flops=None if target.is_gpu else rates.peak(target.num_cores),
        asm=not target.is_gpu or target.kind == "cuda",  # its registers and spills, by ptxas
        build_timeout_s=min(MeasureOptions().build_timeout_s, max(LEAST_BUILD_S, until.given_s / 6)),
    )
    raced = until.less(loop.RACE_S + run.options.means.race_s)  # what comes later would not be raced

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
