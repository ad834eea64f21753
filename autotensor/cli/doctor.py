"""`autotensor doctor`: is everything here that tuning and running need, and how fast is this machine?"""

from __future__ import annotations

import platform
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from autotensor.base.target import Target
from autotensor.cli.options import AsJson, Db, Threads, example, new_app, target_of
from autotensor.cli.output import put_json, say
from autotensor.cli.rates import rate_lines
from autotensor.insight.units import size

app = new_app()

REQUIRED = (
    "numpy", "llvmlite", "xgboost-cpu", "xgboost", "sqlalchemy", "alembic", "msgspec", "tqdm", "typer",
    "rich", "platformdirs", "psutil", "filelock", "safetensors", "ml_dtypes",
)  # fmt: skip
OPTIONAL = {  # module → package, and what it gives; only what is used, or people install it for nothing
    "PIL": ("pillow", "photos as input"),
    "matplotlib": ("matplotlib", "pictures by explain --plot"),
}
PLATFORMS = {  # (system, processor) → what is known of it; nothing is claimed that no test runs
    ("linux", "x86_64"): ("tested", "compiling, running and tuning"),
    ("linux", "aarch64"): ("untested", "tests emit objects for it, none has run them there"),
    ("darwin", ""): (
        "untested",
        "no test runs there; a killed parent leaves its workers to notice by themselves",
    ),
    ("win32", ""): ("unsupported", "tuning needs fcntl locks and inherited pipes, which Windows lacks"),
}
UNKNOWN = ("untested", "nobody has tried")
LOW_DISK = 200 << 20
DIFFERENCES = (0.1, 0.03, 0.01)  # of which --aa says whether they can be told


@app.command(epilog=example("autotensor doctor", "autotensor doctor --calibrate", "autotensor doctor --aa"))
def doctor(
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Measure all rates again, micro-kernels too, and keep them in the log."
        ),
    ] = False,
    aa: Annotated[
        bool,
        typer.Option(
            "--aa", help="Time equal kernels against each other: which differences can be told here and now?"
        ),
    ] = False,
    threads: Threads = None,
    db: Db = None,
    json: AsJson = False,
) -> None:
    """Say what this machine is and can do, what is installed, missing, tested or unsupported.

    The exit code is 1 if there are problems. Peak, bandwidths and regions are measured once, in a few
    seconds, and kept in the tuning log; --calibrate measures them for teams of 1, 2, 4 … threads, and
    the micro-kernels, in about a quarter of a minute. --aa takes as long and keeps nothing.
    """
    problems: list[str] = []
    found: dict[str, Any] = {
        "platform": _platform(problems),
        "machine": _machine(threads),
        "versions": _versions(problems),
        "optional": _optional(),
        "threads": _threads(),
        "places": _places(db, problems),
        "rates": _rates(db, threads, calibrate, problems),
    }
    if aa:
        found["aa"] = _aa(threads, problems)
    found["problems"] = problems
    put_json(found) if json else _print(found, target_of(None, threads))
    if problems:
        raise typer.Exit(1)


def _platform(problems: list[str]) -> dict[str, str]:
    system, processor = sys.platform, platform.machine().lower()
    processor = {"amd64": "x86_64", "arm64": "aarch64"}.get(processor, processor)
    standing, why = PLATFORMS.get((system, processor), PLATFORMS.get((system, ""), UNKNOWN))
    if standing == "unsupported":
        problems.append(f"{system} is not supported: {why}.")
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return {"system": system, "processor": processor, "standing": standing, "why": why, "python": python}


def _machine(threads: int | None) -> dict[str, Any]:
    import os

    import llvmlite.binding as llvm
    import psutil

    from autotensor.base.machine import host_machine

    target, machine = target_of(None, threads), host_machine()
    return {
        "cpu": machine.cpu_model,
        "fingerprint": machine.fingerprint,
        "llvm_name": target.arch,
        "llvm_version": ".".join(map(str, llvm.llvm_version_info)),
        "target": target.key(),
        "cores": machine.cores,
        "cores_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else machine.cores,
        "threads": target.num_cores,
        "vector_bytes": target.vector_bytes,
        "caches": list(machine.caches),
        "memory_bytes": psutil.virtual_memory().total,
        "memory_free_bytes": psutil.virtual_memory().available,
        "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
    }


def _versions(problems: list[str]) -> dict[str, str]:
    found = {"autotensor": _version("autotensor") or "not installed as a package"}
    for name in REQUIRED:
        version = _version(name)
        if version is not None:
            found[name] = version
        elif "xgboost" not in name:
            problems.append(f"{name} is not installed.")
    if "xgboost" not in found and "xgboost-cpu" not in found:
        problems.append("neither xgboost-cpu nor xgboost is installed; tune with --cost-model prior.")
    return found


def _optional() -> dict[str, dict[str, Any]]:
    return {
        module: {"package": package, "for": use, "installed": find_spec(module) is not None}
        for module, (package, use) in OPTIONAL.items()
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _threads() -> dict[str, Any]:
    from autotensor.runtime.threads import available, current

    return {"provider": str(current()), "available": list(available())}


def _places(db: str | None, problems: list[str]) -> dict[str, Any]:
    from autotensor.api.log import log_name
    from autotensor.runtime.cache import default_cache
    from autotensor.runtime.lock import private_folder
    from tuning_db import StoreError

    log = log_name(db)
    cache = default_cache().folder
    places: dict[str, Any] = {"log": {"path": log}, "cache": {"path": None if cache is None else str(cache)}}
    places["temporary"] = {"path": str(private_folder())}
    if "://" not in log:
        places["log"]["exists"] = Path(log).exists()
        _check_disk("log", places["log"], Path(log).absolute().parent, problems)
        if Path(log).exists():
            try:
                from tuning_db import connect

                with connect(log, readonly=True) as store:
                    places["log"]["trials"] = store.count()
            except StoreError as error:
                problems.append(str(error))
    for name in ("cache", "temporary"):
        if places[name]["path"]:
            _check_disk(name, places[name], Path(places[name]["path"]), problems)
    return places


def _check_disk(name: str, place: dict[str, Any], folder: Path, problems: list[str]) -> None:
    """Notes whether the folder (or the nearest one that exists) can be written, and its free space."""
    import shutil

    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            place["writable"] = True
    except OSError as error:
        place["writable"] = False
        problems.append(f"{name}: {folder} cannot be written: {error.strerror or error}.")
    place["free_bytes"] = shutil.disk_usage(folder).free
    if place["free_bytes"] < LOW_DISK:
        problems.append(f"{name}: only {size(place['free_bytes'])} are free at {folder}.")


def _rates(db: str | None, threads: int | None, again: bool, problems: list[str]) -> dict[str, Any]:
    """Calibrated rates by name, from the log or measured now."""
    from autotensor.api.log import open_log
    from autotensor.base.errors import AutotensorError
    from autotensor.base.machine import host_machine
    from autotensor.search.calibrate import calibrated, measure, measure_kernels, team_sizes
    from tuning_db import StoreError

    target = target_of(None, threads)
    teams = team_sizes(target.num_cores) if again else None
    try:
        with open_log(db) as store:
            calibrated(store, target, again=again, teams=teams, kernels=again)
            known = store.calibration(host_machine().fingerprint)
            return {n: {"value": c.value, "unit": c.unit, "measured": c.measured} for n, c in known.items()}
    except (StoreError, AutotensorError) as error:
        problems.append(f"rates cannot be kept: {error}")
    found = measure(target, teams) | (measure_kernels(target) if again else {})
    return {n: {"value": value, "unit": unit, "measured": None} for n, (value, unit) in found.items()}


def _aa(threads: int | None, problems: list[str]) -> dict[str, Any] | None:
    """What the measurer says of equal kernels."""
    from autotensor.base.errors import AutotensorError
    from autotensor.search.selfcheck import self_check

    try:
        found = self_check(target_of(None, threads))
    except AutotensorError as error:
        problems.append(f"nothing can be timed: {error}")
        return None
    if not found.can_tell(max(DIFFERENCES)):
        problems.append(
            f"equal kernels differ by up to {found.told_from:.0%}: differences of {max(DIFFERENCES):.0%} "
            "cannot be told. Stop what else runs on this machine, or tune elsewhere."
        )
    return asdict(found)


def aa_lines(d: Mapping[str, Any]) -> list[str]:
    """The A/A check in words."""
    told = [f"{x:.0%} {'can' if d['told_from'] <= x else 'cannot'} be told" for x in DIFFERENCES]
    return [
        f"{d['pairs']} races of equal kernels in {d['wall_s']:.0f} s: a difference was claimed in "
        f"{d['claimed']}",
        f"differences of {', of '.join(told)} here and now (from {d['told_from']:.1%} on)",
        f"the same kernel again varies by {d['spread']:.1%}, over the reference kernel's time by "
        f"{d['normalised']:.1%}; the machine drifted by {d['drift']:.1%}; others used "
        f"{d['others_cores']:.1f} cores",
    ]


def _print(d: dict[str, Any], target: Target) -> None:
    p, m = d["platform"], d["machine"]
    say(f"Platform   {p['system']} {p['processor']}, {p['python']}: {p['standing']} ({p['why']})")
    say(f"Machine    {m['cpu']}; {m['cores']} cores, {m['cores_usable']} usable, {m['threads']} used")
    say(f"           {m['llvm_name']} (LLVM {m['llvm_version']}), {m['vector_bytes'] * 8}-bit vectors, "
        f"caches {', '.join(f'{c >> 10} KiB' for c in m['caches'])}")  # fmt: skip
    say(
        f"           memory {size(m['memory_bytes'])}, {size(m['memory_free_bytes'])} free; key {m['target']}"
    )
    if m["load"] and m["load"][0] > 0.5:
        say(f"           load {m['load'][0]:.1f}: something else is running; timings will be worse for it")
    say(f"Threads    {d['threads']['provider']}; available: {', '.join(d['threads']['available'])}")
    for line in rate_lines(d["rates"], target):
        say(f"Rate       {line}")
    for name, line in zip(("A/A", "", ""), aa_lines(d["aa"]) if d.get("aa") else (), strict=False):
        say(f"{name:10} {line}")
    for name, place in d["places"].items():
        free = f", {size(place['free_bytes'])} free" if "free_bytes" in place else ""
        trials = f", {place['trials']} trials" if "trials" in place else ""
        say(f"Place      {name}: {place['path'] or 'none'}{trials}{free}")
    say(f"Installed  {', '.join(f'{n} {v}' for n, v in d['versions'].items())}")
    for name, o in d["optional"].items():
        standing = "installed" if o["installed"] else f"missing: pip install {o['package']}"
        say(f"Optional   {name} (for {o['for']}): {standing}")
    say("Not needed a C compiler: LLVM is inside llvmlite")
    for problem in d["problems"]:
        say(f"Problem    {problem}")
    say("No problems." if not d["problems"] else f"{len(d['problems'])} problems.")
