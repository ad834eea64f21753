"""A model as one function: compiled with the best known kernels, or tuned first.

model ─plan─▶ trials == 0: link with schedules of the log, or with defaults ─▶ Function
              trials > 0: tune_model ─▶ Function
              open extents: an OpenModel, which does either for the range of shapes, or for each that it meets
"""

from __future__ import annotations

from collections.abc import Sequence

from autotensor.api.log import Log
from autotensor.api.models import linked, plan_model, ready_model
from autotensor.api.open_models import OpenModel
from autotensor.base.errors import InputError
from autotensor.base.target import Target
from autotensor.graph.ir import Graph, GraphNode
from autotensor.graph.symbols.graph_families import GraphFamily
from autotensor.graph.symbols.open_graphs import OpenGraph
from autotensor.runtime.open_artifact import Function, open_artifact
from autotensor.search.events import Listener
from autotensor.search.options import TuneOptions


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
) -> Function:
    """A model as one function: NumPy in, NumPy out, one native call.

    A model with open extents, as at.from_torch(…, dynamic_shapes=…) gives one, is compiled (and tuned, if
    trials > 0) for all shapes that it takes; for more of them, or for each set that is called,
    where its extents have no end.

    trials: how many schedules to measure first, at most; 0 takes the tuning log's best, and defaults for
    the rest. effort: "quick", "normal" or "full", as in `tune`. target, db: as in `build`.
    progress: as in `tune`, while measuring.
    Raises InputError for an object that is not a graph, GraphError for operators that do not fit, TargetError
    for a target that runs no whole models, LogError for a log that cannot be opened.
    """
    check_trials(trials)
    model = ready_model(model)
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
    """Raises InputError unless so many schedules can be measured; 0 measures none."""
    if not hasattr(trials, "__index__") or trials < 0:
        raise InputError(f"trials is {trials!r}; it must be a whole number, not negative.")


__all__ = ["check_trials", "compile_model"]
