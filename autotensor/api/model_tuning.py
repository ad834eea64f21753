"""Tuning a whole model: search its tasks, race the winners inside it, and keep a runnable file all the while.

    first link ─▶ file ─▶ kernels timed in their places ─▶ search ─▶ race in the model ─▶ last link ─▶ file
                              │                              ├─ improved: link, file
                              │                              └─ ended: link, file, before kernels run here
                              └─▶ which tasks are heavy; whether weights come from memory; time to finish

If the same command is given again, the file and the log are already complete: it only reads both.

At every moment the file on disk is a whole model. It holds the schedules that `resolve` takes from the log at
that moment: default schedules, or schedules that are faster by more than the noise. Under a deadline the
search ends so early that linking and the last race end in time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from autotensor.api.fleet import Fleet, joined
from autotensor.api.log import Log, open_log
from autotensor.api.model_prediction import TaskTime, predicted_s, task_times
from autotensor.api.model_race import BUDGET_S, race_in_model
from autotensor.api.model_race_outcome import Outcome, as_written, outcome_of, remember
from autotensor.api.models import (
    Compiled,
    ModelPlan,
    compile_tasks,
    held_in,
    link_model,
    note_use,
    plan_model,
    resolved,
)
from autotensor.api.tuning import run_tuning, shown
from autotensor.base.deadline import Deadline
from autotensor.base.target import host_caches
from autotensor.graph.ir import Graph, GraphNode
from autotensor.graph.lock_file import read_lock, write_lock
from autotensor.ir.notebook import ShownInNotebooks
from autotensor.resolve import Metric, Resolved, gain, last_race, median_s, resolve
from autotensor.runtime.device.devices import device_of
from autotensor.runtime.files import artifact_file as artifacts
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.files.object_cache import default_cache
from autotensor.runtime.kernel_times import by_workload, kernel_clock, without_clock
from autotensor.runtime.open_artifact import Function, open_artifact
from autotensor.runtime.place import here
from autotensor.runtime.sample_arrays import sample_inputs
from autotensor.runtime.timing_lock import timing_by
from autotensor.schedule.trace import Trace
from autotensor.search.events import Event, Improved, Listener, ModelSaved, Raced
from autotensor.search.finished_run import known_run
from autotensor.search.measuring.measure_request import Residency
from autotensor.search.metric import checked_metric
from autotensor.search.options import TuneOptions
from autotensor.search.report import TuneReport
from autotensor.search.run import TuningRun
from tuning_db import TrialStore

SAVE_EVERY_S = 20.0  # least time between two writes while tuning: linking ResNet-50 takes a second
SAVING_SHARE = 0.05  # greatest share of the search's time for these writes
ROUNDS = (3, 15)  # least and greatest number of inferences of each model in the last race
INSIDE_ROUNDS = (3, 7)  # inferences that are timed kernel by kernel: 3 before the search, 7 after it
IN_MODEL_SHARE = 0.1  # share of the deadline for races of schedules inside the model
LOCKED = "the lock has all choices"
NOTHING_FASTER = "no schedule was faster than its default beyond the noise; {} holds the defaults"
CAUTION = 1.3  # factor on estimated durations
WAIT_SHARE = 0.1  # share of the deadline for waiting, before the search, while others time something
KEPT_LINK_BYTES = 256 << 20  # the first link is kept up to this size; a larger model is linked a second time
COMPILE_S = 0.1  # to compile a winner's kernel at the end; most were compiled for earlier files


@dataclass(frozen=True)
class ModelReport(ShownInNotebooks):
    """The result of tuning a model. Latencies are medians in seconds, measured alternately at the end."""

    tuning: TuneReport
    module: Function
    default_s: float
    tuned_s: float
    path: Path | None = None
    notes: tuple[str, ...] = field(default=())
    times: tuple[TaskTime, ...] = ()  # times of the linked kernels, by the tuner and inside the model
    after_s: float = 0.0  # seconds after the search: races in the model, linking, writing the file

    @property
    def predicted_s(self) -> float:
        """The sum of the tuner's times of the linked kernels."""
        return predicted_s(self.times)

    def __str__(self) -> str:
        """One line per task, then the run and its result."""
        lines = [str(self.tuning), *(f"note: {n}" for n in self.notes)]
        if self.tuned_s != self.default_s:  # else the default schedules were kept, and a note says so
            how = gain(self.default_s, self.tuned_s, "with the default schedules")
            lines.append(f"{self.module.name}: {self.tuned_s * 1e3:.3g} ms, {how}")
        return "\n".join(lines)


def tune_model(
    model: ModelPlan | Graph | GraphNode | Sequence[GraphNode],
    options: TuneOptions,
    *,
    db: Log = None,
    path: str | Path | None = None,
    listener: Listener | None = None,
    stopped: Callable[[], bool] = lambda: False,
    progress: bool = True,
    deadline: Deadline | None = None,
    lock: str | Path | None = None,
    fleet: str | Fleet | None = None,
) -> ModelReport:
    """Tunes all tasks of a model and links the winners.

    model: a plan from `plan_model`, or a model, which is then planned for this machine.
    path: the file for the model. It is written at once with the known schedules, and again, atomically, as
    the model improves. progress: show the progress on standard error: a bar on a terminal, a line per batch
    elsewhere.
    deadline: the time when everything must be finished; None: the limit of the options, counted from now.
    lock: a file of choices. If it exists, the choices are taken from it, without a search; else it is written
    at the end.
    fleet: a scheduler's address. Its workers of this machine's class search, and this machine races the
    schedules that they found inside the model. Raises InputError if the scheduler has no such worker, and for
    a lock file that is damaged or belongs to another model or target.
    """
    until = deadline or Deadline.after(options.limit_s)
    plan = model if isinstance(model, ModelPlan) else plan_model(model)
    with joined(fleet) as members, open_log(db) as store, shown(options, listener, progress) as heard:
        if members is not None:
            members.check_alike(plan.target)
        place, metric = None if path is None else Path(path), checked_metric(options.metric)
        work = _TunedModel(plan, store, place, heard, until, metric)
        work.lock = None if lock is None else Path(lock)
        if work.lock is not None and work.lock.exists():
            return work.locked(read_lock(work.lock, plan.tasks, plan.target))
        held = work.held()
        if held is None and plan.target.is_gpu:
            device_of(plan.target)  # fails before a file is written that this machine cannot run
        linked = held or work.start()
        hashes = {key: trace.hash for key, trace in work.defaults.items()}
        residency = weights_residency(linked)
        code = "" if members is None else members.code
        known = known_run(plan.search_tasks(), options, store, hashes, residency, code)
        if known is not None and work.outcome is not None:
            return work.report(known, open_artifact(linked, plan.target.num_cores), work.outcome)
        if held is not None:
            work.start()  # also measures how long linking and writing take here
        inside = work.time_kernels(INSIDE_ROUNDS[0], until.share(WAIT_SHARE), min)
        search_until = until.less(work.finishing_s() + work.in_model_s())
        tasks = plan.search_tasks(inside)
        search = run_tuning if members is None else members.run
        tuning = search(
            TuningRun(
                tasks,
                options,
                store,
                search_until,
                work.hear,
                model=plan.graph.name,
                model_hash=plan.graph.key,
                residency=residency,
                stopped=stopped,
            )
        )
        searched = time.monotonic()
        if work.path is not None:
            work.keep()
        if not stopped() and work.in_model_s() > 0.0:
            end = until.less(work.finishing_s())
            race_in_model(
                [t.workload for t in plan.tasks],
                plan.target,
                store,
                lambda traces: link_model(plan, traces, work.compiled),
                min(work.in_model_s(), end.left_s()),
                end,
            )
        return replace(work.finish(tuning), after_s=time.monotonic() - searched)


def weights_residency(model: Artifact) -> Residency:
    """The place where a kernel finds its weights inside a model: memory, if the other weights sweep all
    caches between two inferences; else the caches in which its last call left them."""
    return "graph" if sum(a.bytes for a in model.weights()) > host_caches()[-1] else "hot"


def kept_defaults(default_s: float, tuned_s: float) -> str:
    """Why a model got the default schedules after all.

    >>> kept_defaults(1.0, 1.002)
    'in the whole model the tuned schedules were as fast, within the noise; the default ones were kept'
    """
    how = gain(default_s, tuned_s)
    return f"in the whole model the tuned schedules were {how}; the default ones were kept"


@dataclass(slots=True)
class _Costs:
    """Seconds that each step took for this model so far, from which the duration of the end is estimated."""

    link: float = 0.0  # linking, without compiling
    save: float = 0.0
    load: float = 0.0
    first: float = 0.0  # first launch of all kernels, when a device's driver may compile them
    run: float = 0.0  # one inference


class _TunedModel:
    """A model that is being tuned: its known schedules, its file, and the time that is left.

    `linked` and everything derived from it exist after `start`.
    """

    lock: Path | None = None  # the file for the choices, written at the end
    linked: Artifact
    default_link: Artifact | None  # has the default schedules, for the last race; None: it is linked later

    def __init__(
        self,
        plan: ModelPlan,
        store: TrialStore,
        path: Path | None,
        listener: Listener,
        until: Deadline,
        metric: Metric = median_s,
    ) -> None:
        self.plan, self.store, self.path, self.until = plan, store, path, until
        self.say, self.metric = listener, metric
        self.found = resolved(plan, store, metric)
        self.defaults = {key: r.default or r.trace for key, r in self.found.items()}
        self.compiled: Compiled = {}
        self.costs = _Costs()
        self.changed: set[str] = set()
        self.saved = -float("inf")
        # if the tuned schedules lost the last race, the default schedules are used
        self.outcome = outcome_of(store, plan.target, self.traces, self.defaults)
        if self.outcome is not None and self.outcome.tuned_s > self.outcome.default_s:
            self._keep_defaults()

    def held(self) -> Artifact | None:
        """The file's artifact, if it is this model with the known schedules."""
        return None if self.path is None else held_in(self.path, self.plan, self.traces)

    def start(self) -> Artifact:
        """Links the model for the first time, and writes the first file."""
        self.linked = self.link(self.traces)
        if self.plan.target.is_gpu:  # in the first link the driver compiled `prepare`; later links are faster
            self.linked = self.link(self.traces)
        small = sum(v.nbytes for v in self.linked.values.values()) <= KEPT_LINK_BYTES
        self.default_link = self.linked if small and self._are_defaults(self.traces) else None
        self.save()
        return self.linked

    @property
    def traces(self) -> dict[str, Trace]:
        return {key: r.trace for key, r in self.found.items()}

    def link(self, traces: Mapping[str, Trace]) -> Artifact:
        compile_tasks(self.plan, traces, self.compiled)
        began = time.monotonic()
        linked = link_model(self.plan, traces, self.compiled)
        self.costs.link = time.monotonic() - began
        return linked

    def save(self) -> None:
        """Writes the linked model to the file."""
        began = time.monotonic()
        if self.path is not None:
            artifacts.save(self.path, self.linked)
            self.say(ModelSaved(self.path, self.saved < 0.0))
        self.saved = time.monotonic()
        self.costs.save = self.saved - began

    def hear(self, event: Event) -> None:
        """Passes the search's events on, and updates the file now and then."""
        if isinstance(event, Improved | Raced):
            self.changed.add(event.task.workload.key)
        rarely = max(SAVE_EVERY_S, (self.costs.link + self.costs.save) / SAVING_SHARE)
        if self.path is not None and self.changed and time.monotonic() - self.saved > rarely:
            self._update()
        self.say(event)

    def _update(self) -> None:
        """Writes the file with the schedules that `resolve` takes from the log now."""
        tasks = [t.workload for t in self.plan.tasks]
        changed = {w.key: w for w in tasks if w.at_greatest.key in self.changed}  # the search has these
        new = {key: resolve(w, self.plan.target, self.store, self.metric) for key, w in changed.items()}
        self.changed.clear()
        self.saved = time.monotonic()
        if any(r.trace.hash != self.found[key].trace.hash for key, r in new.items()):
            self.found |= new
            self.linked = self.link(self.traces)
            self.save()

    def time_kernels(
        self, rounds: int, patience: Deadline, of: Callable[[Sequence[float]], float] = median
    ) -> dict[str, float]:
        """Seconds that all runs of each workload take within one inference of the linked model.

        patience: the time until which other processes may time first. of: the function that combines several
        times. If there are only a few times, which may be disturbed, take the minimum, so that a light task
        is not taken for the heaviest.
        """
        began = time.monotonic()
        arrays = sample_inputs(self.linked.role("input"), self.linked.index_range)
        clock = kernel_clock(self.linked, arrays, self.plan.target.num_cores)
        loaded = time.monotonic()
        clock.round()
        self.costs.load = loaded - began
        if default_cache().folder is None:  # without a cache, the search's compiled winners are lost
            self.costs.first = time.monotonic() - loaded
        with timing_by(patience):
            clock.round()
            samples = [clock.round() for _ in range(rounds)]
        self.costs.run = median(sum(s) for s in samples)
        workloads = [k["workload"] for k in clock.kernels]
        return by_workload((key, of([s[n] for s in samples])) for n, key in enumerate(workloads))

    def finishing_s(self) -> float:
        """Seconds that the end needs: compiling the winners, linking, a short race, writing the file."""
        c = self.costs
        races = 2 * (c.load + (1 + ROUNDS[0]) * c.run) + (1 + INSIDE_ROUNDS[1]) * c.run
        files = 0 if self.path is None else 3  # a file before each race, and one for the defaults if they win
        links = (1 if self.default_link else 2) + min(files, 1)
        steps = links * c.link + files * c.save + c.first + races
        return CAUTION * (steps + COMPILE_S * len(self.plan.tasks))

    def in_model_s(self) -> float:
        """Seconds for races inside the model. It is 0 if the deadline leaves too little time for a race, or
        if the metric is not the median, because these races use medians only."""
        if self.metric is not median_s:
            return 0.0
        if not self.until.is_set:
            return BUDGET_S
        budget = min(BUDGET_S, IN_MODEL_SHARE * self.until.given_s)
        least = 2 * CAUTION * (self.costs.link + self.costs.load + 6 * self.costs.run)
        return budget if budget >= least else 0.0

    def keep(self) -> None:
        """Links the model with the log's best schedules and writes its file. The next races run kernels in
        this process. If a kernel ends the process, the trials are in the log and the file is on disk."""
        best = self._compilable(resolved(self.plan, self.store, self.metric))
        changed = any(r.trace.hash != self.found[key].trace.hash for key, r in best.items())
        self.found = best
        if changed:
            self.linked = self.link(self.traces)
            self.save()

    def finish(self, tuning: TuneReport) -> ModelReport:
        """Links the model for the last time, and races it against the default schedules."""
        self.keep()
        if self._are_defaults(self.traces):
            (tuned,), (tuned_s,) = self._race(self.linked)
            default, default_s = tuned, tuned_s
        else:
            default_link = self.default_link or link_model(self.plan, self.defaults, self.compiled)
            (default, tuned), (default_s, tuned_s) = self._race(default_link, self.linked)
        self.outcome = Outcome(default_s, tuned_s)
        if tuned_s > default_s:
            self.linked, tuned = default.artifact, default
        inside = self.time_kernels(INSIDE_ROUNDS[1], self.until.less(self.finishing_s()))
        self.outcome = replace(self.outcome, inside=inside)
        remember(self.store, self.plan.target, self.traces, self.defaults, self.outcome)
        if tuned_s > default_s:
            self._keep_defaults()
            self.save()
        return self.report(tuning, tuned, self.outcome)

    def locked(self, traces: Mapping[str, Trace]) -> ModelReport:
        """Links the model with given schedules, without a search and without reading the log."""
        self.found = {key: Resolved(trace, LOCKED) for key, trace in traces.items()}
        self.linked = self.default_link = self.link(self.traces)
        self.save()
        (module,), (seconds,) = self._race(self.linked)
        self.outcome = Outcome(seconds, seconds)
        note = f"all schedules are those of {self.lock}"
        done = self.report(TuneReport((), 0, 0, 0.0, LOCKED), module, self.outcome)
        return replace(done, notes=(note,))

    def _are_defaults(self, traces: Mapping[str, Trace]) -> bool:
        return all(trace.hash == self.defaults[key].hash for key, trace in traces.items())

    def _keep_defaults(self) -> None:
        self.found = {key: Resolved(trace, "default") for key, trace in self.defaults.items()}

    def _compilable(self, best: Mapping[str, Resolved]) -> dict[str, Resolved]:
        """The best schedules; for tasks whose best cannot be compiled in time, the schedules that are linked
        now."""
        c = self.costs
        left = self.until.less(CAUTION * (2 * c.link + c.save + c.first + 2 * c.load))
        chosen = dict(self.found)
        for task in self.plan.tasks:
            new = best[task.workload.key]
            if left.passed and (task.workload.key, new.trace.hash) not in self.compiled:
                continue
            chosen[task.workload.key] = new
            compile_tasks(self.plan, {k: r.trace for k, r in chosen.items()}, self.compiled)
        return chosen

    def _race(self, *contestants: Artifact) -> tuple[list[Function], list[float]]:
        """The modules, and the median seconds of one inference of each. They are timed alternately, while
        there is time."""
        modules = [open_artifact(a, threads=self.plan.target.num_cores) for a in contestants]
        arrays = sample_inputs(modules[0].args, contestants[0].index_range)
        left = self.until.less(CAUTION * (self.costs.save + self.costs.load + 8 * self.costs.run))
        samples: list[list[float]] = [[] for _ in modules]
        with timing_by(self.until.less(self.finishing_s())):
            for m in modules:
                m(*arrays)
            for turn in range(ROUNDS[1]):
                if turn >= ROUNDS[0] and left.passed:
                    break
                for m, mine in zip(modules, samples, strict=True):
                    mine.extend(m.time(arrays, repeat=1, min_seconds=0.0))
        return modules, [median(s) for s in samples]

    def report(self, tuning: TuneReport, module: Function, outcome: Outcome) -> ModelReport:
        """The report at the end; the log records which trials the file holds."""
        default_s, tuned_s = outcome.default_s, outcome.tuned_s
        notes: tuple[str, ...] = ()
        if tuned_s > default_s:
            notes, tuned_s = (kept_defaults(default_s, tuned_s),), default_s
        elif tuning.trials and self._are_defaults(self.traces):
            notes = (NOTHING_FASTER.format(self.path or "the model"),)
        tuning = self._as_written(tuning)
        if self.path is not None and self.saved > 0.0:
            note_use(self.store, self.found.values(), self.path)
        elif self.path is not None:  # the log recorded the trials when the file was written
            self.say(ModelSaved(self.path, first=True, written=False))
        if self.lock is not None and not self.lock.exists():
            write_lock(self.lock, self.plan.tasks, self.plan.target, self.traces)
        weights = {t.workload.key: (t.name, float(t.weight)) for t in self.plan.tasks}
        timed = {key: r.seconds for key, r in self.found.items() if r.source == "log" and r.seconds}
        searched = {t.workload.key: t.workload.at_greatest.key for t in self.plan.tasks}
        after = {t.task.workload.key: t.best_s for t in tuning.tasks if t.best_s}
        timed |= {key: after[at] for key, at in searched.items() if at in after}
        inside = without_clock(outcome.inside, {key: weight for key, (_, weight) in weights.items()}, tuned_s)
        times = tuple(replace(t, key=searched[t.key]) for t in task_times(weights, timed, inside))
        return ModelReport(tuning, module, default_s, tuned_s, self.path, notes, times)

    def _as_written(self, tuning: TuneReport) -> TuneReport:
        """The report with the times of the schedules that are used, which the last races chose."""
        used = {t.workload.at_greatest.key: self.found[t.workload.key] for t in self.plan.tasks}
        place = here(self.plan.target)
        tasks = []
        for t in tuning.tasks:
            key = t.task.workload.key
            race = last_race(self.metric, self.store, place.task(key))
            tasks.append(as_written(t, used[key], race, self.metric) if key in used else t)
        return replace(tuning, tasks=tuple(tasks))


__all__ = ["ModelReport", "tune_model"]
