"""A lock file says which schedule each task of a model has, so that the next compilation uses the same.

    {"format": 1, "target": "llvm/znver5/…", "tasks": [
    {"name": …, "workload": key, "trace": {…}},        a line for each task
    …]}

The file is sorted text, and equal choices give equal files: keep it next to the model's source. The same
version of this program compiles the file to the same code, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from autotensor.base.errors import InputError, ScheduleError
from autotensor.base.target import Target
from autotensor.graph.partition import KernelTask
from autotensor.runtime.files.atomic_write import replacing
from autotensor.schedule.trace import Trace

FORMAT = 1


def write_lock(path: Path, tasks: Sequence[KernelTask], target: Target, traces: Mapping[str, Trace]) -> None:
    """Writes the choices in one step, so that a reader never sees half of the file."""
    found = (
        {"name": t.name, "workload": t.workload.key, "trace": json.loads(traces[t.workload.key].to_json())}
        for t in sorted(tasks, key=lambda t: t.workload.key)
    )
    lines = ",\n".join(json.dumps(t) for t in found)
    text = f'{{"format": {FORMAT}, "target": {json.dumps(target.key())}, "tasks": [\n{lines}\n]}}'
    try:
        with replacing(path) as file:
            file.write(f"{text}\n".encode())
    except OSError as error:
        raise InputError(f"the lock {path} cannot be written: {error.strerror}.") from error


def read_lock(path: Path, tasks: Sequence[KernelTask], target: Target) -> dict[str, Trace]:
    """The choices for a model's tasks, by workload key.

    Raises InputError for a file that is not a lock, or that was written for another target or model.
    """
    try:
        data = json.loads(path.read_text())
        format_, of = data["format"], data["target"]
        found = {t["workload"]: Trace.from_json(json.dumps(t["trace"])) for t in data["tasks"]}
    except OSError as error:
        raise InputError(f"the lock {path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, ScheduleError) as error:
        raise InputError(
            f"{path} is not a lock, or is damaged: {error}.",
            fix="Delete it, and tune again, which writes it again.",
        ) from error
    if format_ != FORMAT:
        raise InputError(f"the lock {path} has format {format_!r}; this version reads {FORMAT}.")
    if of != target.key():
        raise InputError(f"the lock {path} is for target {of}, not {target.key()}.", fix="Name another file.")
    missing = [t.name for t in tasks if t.workload.key not in found]
    if missing:
        raise InputError(
            f"the lock {path} lacks {len(missing)} of {len(tasks)} tasks of this model, {missing[0]!r} "
            "among them.",
            fix="It was written for another model; name another file, or delete it and tune again.",
        )
    mine = {t.workload.key: found[t.workload.key] for t in tasks}
    for t in tasks:
        try:
            mine[t.workload.key].replay(t.workload.dag)
        except ScheduleError as error:
            raise InputError(f"the lock {path} no longer applies to {t.name!r}: {error.what}.") from error
    return mine
