"""TASK or TRIAL arguments of the command line: numbers, MODEL/N, keys and names.

17              trial 17 of the log
resnet50/3      the fourth task that `autotensor tasks resnet50` lists
af8327883368    a workload in the log by the first digits of its key
sinkhorn        a workload in the log by its name, as `at.tune(args, name="sinkhorn")` gives it
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autotensor.base.errors import InputError

if TYPE_CHECKING:
    from autotensor.te.workload import Workload
    from tuning_db import TrialStore
    from tuning_db.records import TrialRecord

SHORTEST_KEY = 6


@dataclass(frozen=True, slots=True)
class Found:
    """A workload, and the trial if one was named."""

    workload: Workload
    trial: TrialRecord | None = None


def find(name: str, store: TrialStore | None) -> Found:
    """The task or trial of a name. Raises InputError, whose text lists the possible names."""
    from autotensor.te.workload import Workload
    from tuning_db import StoreError

    if name.endswith(".atm"):
        raise InputError(f"{name} is a whole model.", fix=f"`autotensor show {name}` lists its kernels.")
    if "/" in name:
        return Found(_of_model(name))
    store = log_there(store, "Tune something first, or write MODEL/N.")
    if name.isdecimal():
        try:
            trial = store.trial(int(name))
        except StoreError as error:
            raise no_trial(int(name)) from error
        known = {w.key: w for w in store.workloads()}[trial.workload]
        return Found(Workload.from_text(known.text, known.name, known.key), trial)
    logged = store.workloads()
    by_key = [w for w in logged if w.key.startswith(name.lower())] if len(name) >= SHORTEST_KEY else []
    by_name = [w for w in logged if w.name == name]
    fits = by_key or by_name
    if len(fits) == 1:
        return Found(Workload.from_text(fits[0].text, fits[0].name, fits[0].key))
    if by_key:
        raise InputError(
            f"{len(fits)} workloads of the log have keys that start with {name!r}.", fix="Give more digits."
        )
    if by_name:
        from autotensor.search.report import KEY_DIGITS

        keys = ", ".join(w.key[:KEY_DIGITS] for w in by_name)
        raise InputError(
            f"{len(fits)} workloads of the log have the name {name!r}.", fix=f"Give a key: {keys}."
        )
    raise InputError(
        f"{name!r} is not a task or trial.",
        fix="Write MODEL/N (see `autotensor tasks`), a key or a name (see `autotensor db list`), or a trial.",
    )


def no_trial(number: int) -> InputError:
    """The error for a number that no trial has."""
    return InputError(
        f"the log has no trial {number}.", fix="`autotensor explain TASK` lists a task's fastest ones."
    )


def log_there(store: TrialStore | None, fix: str = "Tune something first.") -> TrialStore:
    """The log. Raises InputError if there is none."""
    if store is None:
        raise InputError("there is no tuning log yet.", fix=fix)
    return store


def _of_model(name: str) -> Workload:
    from autotensor.api.models import plan_model
    from autotensor.cli.inputs import build_graph

    model, _, number = name.rpartition("/")
    if Path(name).is_file():
        raise InputError(
            f"{name} is a whole model.", fix=f"Name a task of it: {name}/0; see `autotensor tasks`."
        )
    tasks = plan_model(build_graph(model)).tasks
    if not number.isdecimal() or int(number) >= len(tasks):
        raise InputError(
            f"{model} has no task {number!r}; its tasks are {model}/0 to {model}/{len(tasks) - 1}."
        )
    return tasks[int(number)].workload
