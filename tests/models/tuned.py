"""A model with the schedules that a short search has found."""

from __future__ import annotations

from pathlib import Path

from cli_tools import calibrated_log

from autotensor.api.model_compiling import compile_model
from autotensor.api.models import link_model, plan_model, resolved
from autotensor.graph.ir import Graph
from autotensor.runtime.open_artifact import Function, open_artifact
from tuning_db import connect


def tuned(graph: Graph, directory: Path, trials: int = 64) -> Function:
    """The model with the fastest trial of each task, also if the default schedules won the race in the
    model."""
    log = str(calibrated_log(directory / "log.db"))
    compile_model(graph, trials, db=log, progress=False)
    plan = plan_model(graph)
    with connect(log) as store:
        found = resolved(plan, store)
    assert any(r.source == "log" for r in found.values()), "nothing was found"
    return open_artifact(link_model(plan, {key: r.trace for key, r in found.items()}))
