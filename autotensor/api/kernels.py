"""One computation: lower and build it as scheduled, or search for schedules and build with the best one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from autotensor.api.log import Log, log_name, open_existing, open_log
from autotensor.api.reducer_check import check_reducers
from autotensor.base.absent_names import absent, takes_its_names
from autotensor.base.deadline import Deadline
from autotensor.base.errors import InputError, TensorError
from autotensor.base.target import Target, parse
from autotensor.codegen.c.resources import refuse_unfit
from autotensor.compiler import compile_state, nest_text, tell_of
from autotensor.ir.func import Program
from autotensor.ir.printer import to_text
from autotensor.lowering.pipeline import lower as lower_state
from autotensor.resolve import Metric, resolve
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.open_artifact import Function, open_artifact
from autotensor.schedule.schedule import Schedule
from autotensor.schedule.state import State
from autotensor.search.doors import ModelFactory
from autotensor.search.events import Listener
from autotensor.search.measuring.measure_request import Measurer
from autotensor.search.metric import checked_metric
from autotensor.search.options import TuneOptions
from autotensor.search.report import TuneReport
from autotensor.search.run import TuningRun
from autotensor.search.task import Task
from autotensor.te.dag import ComputeDAG
from autotensor.te.index_bounds import check_reads
from autotensor.te.open_shapes import check_told
from autotensor.te.tensor import Tensor
from autotensor.te.workload import Workload
from tuning_db import TrialStore

if TYPE_CHECKING:
    from autotensor.api.fleet import Fleet
    from autotensor.search.propose.policy import Policy


_HOST = 'Leave it out: the target is one text, as in "llvm -mcpu=znver4".'
_LOG = "Write db=PATH: all trials are kept in one log."
_BUILD_ELSEWHERE = {  # arguments of TVM's build → the advice for this project
    "binds": "Leave it out: buffers are chosen by the schedule.",
    "config": "Leave it out: there are no passes to configure.",
    "inputs": "Write what=, or give it first: at.build(s, [A, B, C]).",
    "runtime": "Leave it out: f.save writes the function to a file; at.write_c writes a C library.",
    "executor": "Leave it out: f.save writes the function to a file; at.write_c writes a C library.",
    "target_host": _HOST,
}
_TUNE_ELSEWHERE = {  # arguments of TVM's searches → the advice for this project
    **dict.fromkeys(("n_trial", "n_trials", "num_trials", "num_measure_trials"), "Write trials=N."),
    **dict.fromkeys(("log_file", "measure_callbacks", "tuning_records"), _LOG),
    "early_stopping": "Write until_gain_below=SHARE, or deadline_s=SECONDS.",
    "runner": "Write measurer=, or fleet= for other machines.",
    "search_policy": "Write policy=.",
    "target_host": _HOST,
    "tuner": "Write policy=.",
    "tuning_options": "Write its fields here: trials=N, seed=N, db=PATH.",
    "verbose": "Write progress=False for silence.",
}


_IR_MODULE = ("astext", "body", "functions", "get_global_vars", "params", "script", "show")  # of TVM


@dataclass(frozen=True, slots=True)
class Lowered:
    """A schedule after lowering; prints as the loops that were scheduled."""

    program: Program
    nest: str

    def __str__(self) -> str:
        return self.nest

    __repr__ = __str__  # a notebook shows the text

    if not TYPE_CHECKING:  # type checkers should still report unknown names

        def __getattr__(self, name: str) -> Any:
            raise absent("at.lower(...)", name, self, dict.fromkeys(_IR_MODULE, "print it, or its .ir"))

    def __getitem__(self, name: Any) -> NoReturn:
        raise InputError(f"the loops have no parts, got [{name!r}].", fix="Print them, or their .ir.")

    @property
    def ir(self) -> str:
        """The program after all passes, as a backend gets it."""
        return to_text(self.program)


@takes_its_names("at.lower", {"binds": "Leave it out: buffers are chosen by the schedule."})
def lower(
    schedule: Schedule,
    args: Sequence[Tensor],
    *,
    target: str | Target | None = None,
    simple_mode: bool = True,
    name: str = "main",
) -> Lowered:
    """The loops of a schedule. Raises ScheduleError or LoweringError if it cannot be turned into loops.

    target: needed by schedules that bind threads, or name an instruction; None: any CPU.
    simple_mode, name: allowed because TVM's tutorials pass them; they change nothing.
    """
    state = _state(schedule, args)
    return Lowered(lower_state(state, None if target is None else parse(target)), nest_text(state))


@takes_its_names("at.build", _BUILD_ELSEWHERE)
def build(
    what: Schedule | Sequence[Tensor],
    args: Sequence[Tensor] | None = None,
    target: str | Target | None = None,
    *,
    name: str = "",
    db: Log = None,
    metric: str | Metric = "median",
) -> Function:
    """A function that computes the outputs among `args`.

    build(schedule, args)     compiled as scheduled
    build([A, B, C])          the best verified schedule that the log has for this machine, else the default

    f(a, b, c) fills c in place; f(a, b) allocates it; constants may be given once with f.bind(W=w).
    args: every input, in calling order, then the results; or results alone. target: as in "llvm -threads=1";
    None is this machine. db: the tuning log to look in; None is the user's own. metric: the figure by which
    the log's schedules are compared, as in `tune`.
    Raises InputError for `args` next to a list, TensorError for arguments that lack an input and for reads
    outside a tensor, ScheduleError or LoweringError for a schedule that cannot be turned into loops,
    TargetError for an unknown target.
    """
    if not isinstance(what, Schedule):
        _refuse_others(what)
    chosen = parse(target)
    if isinstance(what, Schedule):
        if args is None:
            raise InputError(
                "build(schedule, args) needs the arguments, in calling order.", fix="build(s, [A, B, C])."
            )
        state = _state(what, args)
        check_told(state.dag)
        called = name or state.dag.outputs[-1].name
        artifact = compile_state(state, chosen, called, what.trace, texts=True)
        tell_of(artifact, state.dag, what.trace, called, "compiled as scheduled")
    elif args is not None:
        raise InputError(
            "build([A, B, C]) takes further arguments by name only.",
            fix='For example build([A, B, C], target="llvm").',
        )
    else:
        dag = _checked(what)
        with open_existing(db) as store:
            artifact = _best(dag, chosen, name or dag.outputs[-1].name, store, checked_metric(metric))
    return open_artifact(refuse_unfit(artifact), threads=chosen.num_cores)


@takes_its_names("at.tune", _TUNE_ELSEWHERE)
def tune(
    args: Sequence[Tensor],
    trials: int = 64,
    target: str | Target | None = None,
    *,
    db: Log = None,
    seed: int = 0,
    name: str = "",
    model: str | ModelFactory = "xgb",
    policy: str | type[Policy] | None = None,
    metric: str | Metric = "median",
    measurer: Measurer | None = None,
    fleet: str | Fleet | None = None,
    fresh: bool = False,
    effort: str = "normal",
    until_gain_below: float | None = None,
    deadline_s: float | None = None,
    listener: Listener | None = None,
    progress: bool = True,
) -> TuneReport:
    """Searches for a fast schedule of the computation; every trial is kept in the tuning log.

    The same call a second time measures nothing; a call with more trials continues. `build(args)` then uses
    the best schedule. Run-time extents are measured at their greatest values.
    trials: the greatest number of trials. effort: "quick", "normal" or "full" (defined in search/effort.py).
    until_gain_below: the search ends when a batch is not expected to save this share of the time any more;
    None: the effort decides. deadline_s: the search ends after so many seconds, counted from this call.
    progress: show the progress on standard error: a bar on a terminal, a line per batch elsewhere.
    model: the part that ranks candidates ("xgb", "prior", "random"). policy: the part that proposes them
    ("tuner", "uniform"). metric: the figure of a trial to minimise ("median"). Each of the three is such a
    name, an entry point's name, or an object (docs/extend.md). measurer: the part that times the candidates
    instead of this machine; docs/extend.md shows one. fleet: a scheduler's address, as
    "tls://scheduler:8786". The workers of one class then time the candidates (docs/fleet.md), and `target` is
    these workers' target unless it is given. fresh: start anew instead of continuing.
    Raises InputError for an option out of its range and for an object that is not a model, policy, metric or
    measurer, TensorError as `build` does, LogError for a log that cannot be opened.
    """
    from autotensor.api.fleet import joined
    from autotensor.api.tuning import run_tuning, shown

    if fleet is not None and measurer is not None:
        raise InputError("fleet= and measurer= exclude each other.", fix="Give one of them.")
    dag = _checked(args)
    options = TuneOptions(
        trials=trials,
        seed=seed,
        model=model,
        policy=policy,
        metric=metric,
        effort=effort,
        until_gain_below=until_gain_below,
        fresh=fresh,
        deadline_s=deadline_s,
    )
    deadline = Deadline.after(options.limit_s)
    workload = Workload.of(dag, name or dag.outputs[-1].name).at_greatest
    with joined(fleet) as members, open_log(db) as store, shown(options, listener, progress) as heard:
        chosen = parse(target) if members is None else members.target(target)
        task = Task(workload, chosen)
        asked = TuningRun([task], options, store, deadline, heard, residency="hot")
        report = run_tuning(asked, measurer) if members is None else members.run(asked)
    return replace(report, log=log_name(db))


def _refuse_others(what: object) -> None:
    """Raises InputError unless it is a list or a tuple."""
    if isinstance(what, Lowered):
        raise InputError("build takes the schedule, not its loops.", fix="build(s, [A, B, C]).")
    if not isinstance(what, (list, tuple)):
        raise InputError(
            f"the arguments are a {type(what).__name__}, not a list of tensors.", fix="Write [A, B, C]."
        )


def _checked(args: Sequence[Tensor]) -> ComputeDAG:
    """The computation of the arguments.

    Raises TensorError if the computation reads outside its tensors, if a reducer does not join in any order,
    or if only some placeholders are listed: the positions of the others in a call would be a guess.
    """
    _refuse_others(args)
    dag = ComputeDAG.of(list(args))
    listed = {dag.buffer_of(t).name for t in args}
    inputs = {b.name for b in dag.inputs}
    if inputs & listed and (missing := inputs - listed):
        raise TensorError(
            f"the arguments lack {', '.join(map(repr, sorted(missing)))}.",
            fix="List every input in calling order, or results alone.",
        )
    check_reads(dag)
    check_reducers(dag)
    return check_told(dag)


def _state(schedule: Schedule, args: Sequence[Tensor]) -> State:
    if not isinstance(schedule, Schedule) or not isinstance(args, (list, tuple)):
        raise InputError(
            f"a schedule and a list of tensors are needed, not {type(schedule).__name__} and "
            f"{type(args).__name__}.",
            fix="s = te.create_schedule(C), then s, [A, B, C].",
        )
    check_reads(schedule.dag)
    return schedule.trace.replay(schedule.dag.with_args(list(args)))


def _best(dag: ComputeDAG, target: Target, name: str, store: TrialStore | None, metric: Metric) -> Artifact:
    """The artifact of a user's DAG under the best known trace, in the user's own names."""
    found = resolve(Workload.of(dag, name), target, store, metric)
    trace = found.trace.renamed(user_names(dag))
    made = compile_state(trace.replay(dag), target, name, trace, texts=True)
    return tell_of(made, dag, trace, name, f"compiled, schedule: {found.source}")


def user_names(dag: ComputeDAG) -> dict[str, str]:
    """Canonical names → the DAG's own (the inverse of `ComputeDAG.canonical`)."""
    _, names = dag.canonical()
    out: dict[str, str] = {}
    for old, new in names.items():
        stage, _, axis = old.partition(".")
        out[f"{names[stage]}.{new}" if axis else new] = axis or old
    return out
