"""A model as one function: compiled with the best known kernels, or tuned first.

model ─plan─▶ trials == 0: link with schedules of the log, or with defaults ─▶ Function
              trials > 0: tune_model ─▶ Function
              open extents: OpenModel, which does either for a range of shapes, or for each set of shapes
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from autotensor.api.instant_models import InstantModel, check_instant
from autotensor.api.log import Log
from autotensor.api.models import as_graph, check_target, linked, plan_model, ready_model
from autotensor.api.open_models import OpenModel
from autotensor.base.absent_names import takes_its_names
from autotensor.base.errors import InputError
from autotensor.base.target import Target, parse
from autotensor.graph.ir import Graph, GraphNode
from autotensor.graph.symbols.graph_families import GraphFamily
from autotensor.graph.symbols.open_graphs import OpenGraph
from autotensor.runtime.open_artifact import Function, open_artifact
from autotensor.search.events import Listener
from autotensor.search.options import TuneOptions

_ELSEWHERE = {  # arguments of other systems and of the command → the advice for this function
    "n_trials": "Write trials=N.",
    "target_host": "Leave it out.",
    "numerics": 'It is a part of the target: target="llvm -numerics=bf16".',
    "threads": 'It is a part of the target: target="llvm -threads=1".',
}


@takes_its_names("at.compile_model", _ELSEWHERE)
def compile_model(
    model: Graph | GraphFamily | OpenGraph | GraphNode | Sequence[GraphNode],
    trials: int = 0,
    target: str | Target | None = None,
    *,
    db: Log = None,
    seed: int = 0,
    name: str = "model",
    effort: str = "normal",
    listener: Listener | None = None,
    progress: bool = True,
    instant: bool = False,
) -> Function:
    """A model as one function: NumPy in, NumPy out, one native call.

    A model with open extents, as at.from_torch(…, dynamic_shapes=…) gives one, is compiled (and tuned, if
    trials > 0) for all shapes that it takes. If its extents have no upper bound, it is compiled again when a
    call needs a wider range; or, if one program cannot serve a range, for each set of shapes.

    trials: at most so many schedules are measured first; 0 takes the best schedules of the tuning log, and
    default schedules for the other tasks. effort: "quick", "normal" or "full", as in `tune`. target, db: as
    in `build`. progress: as in `tune`, while measuring.
    instant: NumPy computes the first answers. Meanwhile child processes compile, and calls run the compiled
    code as soon as it is there. Both answers are right, and differ by rounding. `f.wait()` returns when the
    model is compiled; other members of the function wait until then.
    Raises InputError for an object that is not a graph, GraphError for operators that do not fit, TargetError
    for a target that runs no whole models, LogError for a log that cannot be opened; with instant=True also
    InputError for trials and for families of graphs, TargetError for strict numerics.
    """
    check_trials(trials)
    model = ready_model(model)
    if instant:
        check_instant(target, trials)
        check_target(parse(target))
        if isinstance(model, GraphFamily):
            raise InputError(
                f"instant=True: model {model.name!r} is a family of graphs, and NumPy computes one.",
                fix="Give that of one choice, family.at({…}); at.OnnxModel takes the shapes of each call.",
            )
        graph = model if isinstance(model, OpenGraph) else as_graph(model, name)
        return cast(Function, InstantModel(graph, target, db))  # it has all members of a Function
    if isinstance(model, OpenGraph):
        how = {"db": db, "seed": seed, "effort": effort, "listener": listener, "progress": progress}
        return OpenModel(model, lambda graph: compile_model(graph, trials, target, **how))  # type: ignore[arg-type]
    plan = plan_model(model, target, name)
    if trials:
        from autotensor.api.model_tuning import tune_model

        options = TuneOptions(trials=trials, seed=seed, effort=effort)
        return tune_model(plan, options, db=db, listener=listener, progress=progress).module
    return open_artifact(linked(plan, db), threads=plan.target.num_cores)


def check_trials(trials: int) -> None:
    """Raises InputError unless `trials` is a number of schedules to measure; 0 measures none."""
    if not hasattr(trials, "__index__") or trials < 0:
        raise InputError(f"trials is {trials!r}; it must be a whole number, not negative.")


__all__ = ["check_trials", "compile_model"]
