"""The contents of an .atm file, for `autotensor show FILE.atm`. No code of the file is run.

functions (one, or one for each processor or set of shapes)
  inputs, results, run-time extents, weights, processor
  kernels, with the origins of their schedules: a trial of the log, shipped, the rules' default
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotensor.api.verifying.checked_kernels import Step, as_model, steps_of, trials_of
from autotensor.base.counted import counted
from autotensor.base.errors import ArtifactError
from autotensor.base.target import Target
from autotensor.cli.output import paragraph, say, table
from autotensor.insight.units import micros, size
from autotensor.resolve import safe_default
from autotensor.runtime.extents import OpenShapes, name_of, unit_of
from autotensor.runtime.files import artifact_file
from autotensor.runtime.files.artifact import EXTENTS, OPEN_SHAPES, ArgSpec, Artifact
from autotensor.runtime.linking.loader import fits_here
from autotensor.runtime.variants import best_here
from schedules.shipped import offers
from tuning_db import TrialStore

UNKNOWN = "not in the file"


def contents(path: Path, store: TrialStore | None) -> dict[str, Any]:
    """The contents as JSON data. store: the log in which trials are looked for.

    Raises ArtifactError for a file that is damaged or not an .atm file.
    """
    found = artifact_file.load_all(path)
    used = {id(a) for a in _used_here(found)}
    about = path.stat()
    return {
        "file": str(path),
        "bytes": about.st_size,
        "written": datetime.fromtimestamp(about.st_mtime, UTC).isoformat(timespec="seconds"),
        "functions": [_function(a, id(a) in used, store) for a in found],
    }


def _used_here(found: Sequence[Artifact]) -> Sequence[Artifact]:
    """The functions that a load takes on this machine."""
    try:
        return [a for a in best_here(found) if a.target.kind != "llvm" or fits_here(a)]
    except ArtifactError:
        return ()


def _function(artifact: Artifact, is_used: bool, store: TrialStore | None) -> dict[str, Any]:
    shapes = OpenShapes.of(artifact.meta[OPEN_SHAPES]) if OPEN_SHAPES in artifact.meta else None
    held = {name: v.nbytes for name, v in artifact.values.items() if name != EXTENTS}
    unmade = [a for a in artifact.role("prepared") if a.name not in artifact.values]
    target = artifact.target
    return {
        "name": artifact.name,
        "version": artifact.meta.get("version"),
        "inputs": [_argument(a, shapes) for a in artifact.role("input")],
        "constants": [_argument(a, shapes) for a in _free(artifact)],
        "outputs": [_argument(a, shapes) for a in artifact.role("output")],
        "extents": {} if shapes is None else _ranges(shapes),
        "weights": artifact.meta.get("weights"),
        "weights_bytes": sum(held.values()),
        "prepared": not unmade,
        "values": artifact.meta.get("values"),
        "target": target.key(),
        "processor": target.arch or None,
        "threads": target.num_cores,
        "numerics": target.numerics,
        "needs": list(artifact.needs),
        "used_here": is_used,
        "flops": float(artifact.meta.get("flops", 0)),
        "memory": artifact.meta.get("memory"),
        "kernels": _kernels(artifact, store),
    }


def _free(artifact: Artifact) -> list[ArgSpec]:
    """The constants that each call must pass; none if all constants that a call reads have values."""
    made, kept = artifact.role("prepared"), artifact.entry_constants()
    read = [*(a.name for a in made), *(kept if made else (a.name for a in artifact.role("constant")))]
    if all(name in artifact.values for name in read):
        return []
    return [a for a in artifact.role("constant") if a.name not in artifact.values]


def _argument(a: ArgSpec, shapes: OpenShapes | None) -> dict[str, Any]:
    """A run-time extent is a text: its name, or a formula of names."""
    extents: Sequence[int | str] = a.shape
    if shapes is not None and a.name in shapes.shapes:
        extents = shapes.spelled(a.name)
    return {"name": a.name, "dtype": a.dtype, "shape": list(extents)}


def _ranges(shapes: OpenShapes) -> dict[str, list[int]]:
    """The least extent, the greatest, and the step, by name."""
    return {
        name_of(s): [least * unit_of(s), most * unit_of(s), unit_of(s)] for s, least, most in shapes.symbols
    }


# -- kernels -------------------------------------------------------------------------------------------------


def _kernels(artifact: Artifact, store: TrialStore | None) -> list[dict[str, Any]]:
    """One entry for each distinct kernel, in the order of their first runs."""
    model = as_model(artifact)
    count = Counter(k["symbol"] for k in model.meta["kernels"])
    first = {k["symbol"]: k for k in reversed(model.meta["kernels"])}
    try:
        steps = {s.symbol: s for s in steps_of(model, store)}
    except ArtifactError:  # a file of an older version, or one that was saved without texts
        steps = {}
    found = []
    for symbol in count:
        step = steps.get(symbol)
        origin = {"schedule": UNKNOWN, "is_default": False, "trial": None, "median_s": None}
        found.append(
            {
                "name": first[symbol]["name"],
                "workload": first[symbol].get("workload") or (step.workload.key if step else ""),
                "count": count[symbol],
                "flops": float(first[symbol].get("flops") or (step.workload.dag.flops() if step else 0)),
                **(origin if step is None or step.trace is None else _origin(step, artifact.target, store)),
            }
        )
    return found


def _origin(step: Step, target: Target, store: TrialStore | None) -> dict[str, Any]:
    """The origin of a kernel's schedule: the rules' default, a trial of the log, or a shipped schedule."""
    assert step.trace is not None
    measured, hash_ = step.workload.at_greatest, step.trace.hash
    rows = [r for r in trials_of(step, store) if r.target == target.key()]
    trial = max((r for r in rows if r.verified), key=lambda r: r.id or 0, default=None)
    is_default = hash_ == safe_default(step.workload, target).hash
    if trial is not None:
        schedule = "log"
    elif is_default:
        schedule = "default"
    else:
        shipped = (o.record.trace_hash for o in offers(measured.key, target, refused=True))
        schedule = "shipped" if hash_ in shipped else "other"
    numbers = {"trial": trial and trial.id, "median_s": trial and trial.median_s}
    return {"schedule": schedule, "is_default": is_default, **numbers}


# -- for people ----------------------------------------------------------------------------------------------

_ORIGINS = {
    "log": "from the log",
    "default": "default",
    "shipped": "shipped with autotensor",
    "other": "not in this log",
}


def print_contents(d: Mapping[str, Any]) -> None:
    """Prints the functions; kernels of the functions that a load takes here, or of the first."""
    functions: Sequence[Mapping[str, Any]] = d["functions"]
    several = f", {len(functions)} functions" if len(functions) > 1 else ""
    versions = sorted({str(f["version"]) for f in functions if f["version"]})
    by = f" by autotensor {' and '.join(versions)}" if versions else ""
    when = d["written"].replace("T", " at ").replace("+00:00", " UTC")
    say(f"{d['file']}: {size(d['bytes'])}{several}, written{by} on {when}.")
    listed = [f for f in functions if f["used_here"]] or functions[:1]
    for f in functions:
        say()
        _print_function(f)
        if f in listed:
            say()
            _print_kernels(f["kernels"])


def _print_function(f: Mapping[str, Any]) -> None:
    takes, gives = (
        ", ".join(map(_spelled, part)) for part in ((*f["inputs"], *f["constants"]), f["outputs"])
    )
    paragraph(f"{f['name']}: ({takes}) -> ({gives})")
    if f["extents"]:
        say(f"Run-time extents: {', '.join(_range(n, *r) for n, r in f['extents'].items())}.")
    if f["values"]:
        say(f"Inputs with fixed values: {f['values']}.")
    if f["weights_bytes"]:
        origin = {"its own": "of the model's file", None: "", "random": "random, so its answers mean nothing"}
        said = origin.get(f["weights"], f["weights"])
        how = "prepared for the kernels" if f["prepared"] else "the first load prepares them"
        say(f"Weights: {size(f['weights_bytes'])}{said and f', {said}'}; {how}.")
    features = f"; needs {', '.join(f['needs'])}" if f["needs"] else ""
    paragraph(
        f"For {f['processor'] or f['target']}, {counted(f['threads'], 'thread')}, numerics {f['numerics']} "
        f"({f['target']}){features}. {'It is used here.' if f['used_here'] else 'It is not used here.'}"
    )
    most = " at most" if f["extents"] else ""
    memory = f", {size(f['memory']['arena_bytes'])} of memory" if f["memory"] else ""
    kernels = sum(k["count"] for k in f["kernels"])
    work = f", {f['flops'] / 1e6:.2f} MFLOP" if f["flops"] else ""
    origins = Counter(_ORIGINS.get(k["schedule"], k["schedule"]) for k in f["kernels"])
    schedules = ", ".join(f"{n} {origin}" for origin, n in origins.items())
    say(f"A call: {counted(kernels, 'kernel')}{work}{memory}{most}. Schedules: {schedules}.")


def _print_kernels(kernels: Sequence[Mapping[str, Any]]) -> None:
    table(
        ("kernel", "times", "MFLOP", "schedule", "us in the log", "key"),
        [
            (
                k["name"],
                k["count"],
                f"{k['flops'] / 1e6:.2f}",
                _schedule(k),
                micros(k["median_s"]),
                k["workload"][:12],
            )
            for k in kernels
        ],
    )


def _schedule(k: Mapping[str, Any]) -> str:
    if k["schedule"] == "log":
        return f"trial {k['trial']}{', the default' if k['is_default'] else ''}"
    return str(_ORIGINS.get(k["schedule"], k["schedule"]))


def _spelled(a: Mapping[str, Any]) -> str:
    return f"{a['name']}: {a['dtype']}[{', '.join(map(str, a['shape']))}]"


def _range(name: str, least: int, most: int, step: int) -> str:
    return f"{name} from {least} to {most}" + (f" in steps of {step}" if step > 1 else "")
