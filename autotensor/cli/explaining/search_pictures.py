"""The pictures of `autotensor explain TASK|MODEL --plot FILE.png`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from autotensor.api.models import plan_model
from autotensor.base.errors import InputError
from autotensor.base.target import Target
from autotensor.cli.find import Found, find
from autotensor.cli.inputs import build_graph
from autotensor.cli.output import put_json, say
from autotensor.cli.output_files import PICTURE, check_output
from autotensor.insight.plot import draw_model, draw_task
from autotensor.insight.search_history import History, best_so_far, fall, history, rank_correlation
from autotensor.models import MODELS
from autotensor.runtime.place import here
from tuning_db import TrialStore


def plot(what: str, path: Path, target: Target, store: TrialStore, json: bool) -> None:
    """Draws the search of a task or a model, and the predictions of its cost model."""
    if path.suffix.lower() != ".png":
        raise typer.BadParameter(f"{str(path)!r} is not the name of a PNG file.", param_hint="'--plot'")
    check_output(path, PICTURE, None)
    if what in MODELS:
        tasks = _histories(what, target, store)
        measured = [t for t in tasks if t.measured]
        found = fall(measured)
        if found is None:
            raise _nothing(what)
        missing = len(tasks) - len(measured)
        draw_model(
            f"{what}, {len(measured)} of {len(tasks)} tasks" if missing else what, measured, found, path,
            _where(target, measured),
        )  # fmt: skip
    else:
        measured = [_history(find(what, store), target, store)]
        if not measured[0].measured:
            raise _nothing(measured[0].name)
        draw_task(measured[0], path, _where(target, measured))
    if json:
        put_json({"file": str(path), "tasks": [_series(t) for t in measured]})
    else:
        trials = sum(len(t.points) for t in measured)
        say(f"{path}: {trials} trials of {len(measured)} task{'s' * (len(measured) != 1)}.")


def _where(target: Target, tasks: list[History]) -> str:
    """Machine, target and date, as in "Fast CPU 9000 (25/17/1), llvm/znver4/v64/t2, measured 2026-09-12"."""
    place = here(target)
    name = place.machine.cpu_model if place.device is None else place.device.name
    return f"{name}, {target.key()}, measured {max(t.last for t in tasks if t.last):%Y-%m-%d}"


def _nothing(name: str) -> Exception:
    return InputError(
        f"the log has no times of {name} for this target on this machine.", fix="Tune it first."
    )


def _history(found: Found, target: Target, store: TrialStore) -> History:
    return history(store, found.workload, here(target))


def _histories(model: str, target: Target, store: TrialStore) -> list[History]:
    place = here(target)
    tasks = plan_model(build_graph(model), target).tasks
    return [history(store, t.workload, place, t.name, t.weight) for t in tasks]


def _series(t: History) -> dict[str, Any]:
    best = best_so_far([p.seconds for p in t.points])
    return {
        "name": t.name,
        "weight": t.weight,
        "default_s": t.default_s,
        "bound_s": t.bound_s,
        "rank_correlation": rank_correlation(t),
        "trials": [
            {"trial": p.trial, "median_s": p.seconds, "predicted_s": p.predicted_s, "made_by": p.made_by,
             "best_s": b}
            for p, b in zip(t.points, best, strict=True)
        ],
    }  # fmt: skip
