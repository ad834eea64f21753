"""`autotensor doctor`: checks that everything for tuning and running is here; shows the machine's speed."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from autotensor.base.counted import counted
from autotensor.base.errors import AutotensorError
from autotensor.base.target import Target
from autotensor.cli.options import AsJson, Db, Threads, example, new_app, target_of
from autotensor.cli.output import put_json, say
from autotensor.cli.rates import rate_lines, spoilt
from autotensor.cli.usage_errors import OPTIONAL
from autotensor.insight.text_width import columns
from autotensor.insight.units import size

app = new_app()

LABEL = 11  # width of the label at the start of each line, in columns

REQUIRED = (
    "numpy", "llvmlite", "xgboost-cpu", "xgboost", "sqlalchemy", "alembic", "msgspec", "tqdm", "typer",
    "rich", "platformdirs", "psutil", "filelock", "safetensors", "ml_dtypes",
)  # fmt: skip
PLATFORMS = {  # (system, processor) → state of support; "tested" only where tests run
    ("linux", "x86_64"): ("tested", "compiling, running and tuning"),
    ("linux", "aarch64"): (
        "partly tested",
        "compiled operators and two models are right under qemu; autotensor itself never ran there",
    ),
    ("darwin", ""): (
        "untested",
        "no test runs there; after their parent is killed, workers end only when they notice it",
    ),
    ("win32", ""): ("unsupported", "tuning needs fcntl locks and inherited pipes, which Windows lacks"),
}
UNKNOWN = ("untested", "never tried")
LOW_DISK = 200 << 20
DIFFERENCES = (0.1, 0.03, 0.01)  # relative differences in time; --aa says which of them it can measure here


@app.command(
    epilog=example(
        "autotensor doctor",
        "autotensor doctor --calibrate",
        "autotensor doctor --aa",
        "autotensor doctor --characterise > my_cpu.py",
    )
)
def doctor(
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Measure all rates again, with micro-kernels, and keep them in the log."
        ),
    ] = False,
    aa: Annotated[
        bool,
        typer.Option("--aa", help="Time equal kernels against each other: the smallest visible difference."),
    ] = False,
    characterise: Annotated[
        bool,
        typer.Option(
            "--characterise",
            help="Measure this processor and print only its record (docs/add-a-target.md), as Python code.",
        ),
    ] = False,
    threads: Threads = None,
    db: Db = None,
    json: AsJson = False,
) -> None:
    """Print this machine's properties and speed, and the packages that are installed or missing.

    The exit code is 1 if there are problems that must be repaired before anything works; a place that
    cannot be written, or a busy machine, is only a note. Peak, bandwidths and parallel regions are measured
    once, in a few seconds, and kept in the tuning log; if other programs disturbed them, they are measured
    again. --calibrate measures them for 1, 2, 4 … threads, and the micro-kernels, in about 15 seconds. --aa
    and --characterise also take about 15 seconds, and keep nothing.
    """
    if characterise:
        from autotensor.cli.characterise import print_record

        if calibrate or aa:
            raise typer.BadParameter("--characterise prints a record alone: leave out --calibrate and --aa.")
        print_record(target_of(None, threads), json)
        return
    told = Told([], [])
    sections: dict[str, Callable[[], Any]] = {
        "platform": lambda: _platform(told),
        "machine": lambda: _machine(threads),
        "versions": lambda: _versions(told),
        "optional": _optional,
        "targets": _targets,
        "threads": _threads,
        "places": lambda: _places(db, told),
        "rates": lambda: _rates(db, threads, calibrate, told),
        **({"aa": lambda: _aa(threads, told)} if aa else {}),
    }
    found = {name: told.of(name, section) for name, section in sections.items()}
    found |= {"problems": told.problems, "notes": told.notes}
    put_json(found) if json else _print(found, threads)
    if told.problems:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class Told:
    """Messages for the user: problems must be repaired, notes need not."""

    problems: list[str]
    notes: list[str]

    def of(self, name: str, section: Callable[[], Any]) -> Any:
        """A section's findings. If the section fails: None, and a problem of one sentence."""
        try:
            return section()
        except Exception as error:
            self.problems.append(f"{name}: {_sentence(error)}")
            return None


def _sentence(error: Exception) -> str:
    what = " ".join(str(getattr(error, "what", None) or error).split())
    known = isinstance(error, AutotensorError | OSError)
    text = what if known and what else f"{type(error).__name__}{f': {what}' if what else ''}"
    return text if text.endswith(".") else f"{text}."


def _platform(told: Told) -> dict[str, str]:
    system, processor = sys.platform, platform.machine().lower()
    processor = {"amd64": "x86_64", "arm64": "aarch64"}.get(processor, processor)
    standing, why = PLATFORMS.get((system, processor), PLATFORMS.get((system, ""), UNKNOWN))
    if standing == "unsupported":
        told.problems.append(f"{system} is not supported: {why}.")
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return {"system": system, "processor": processor, "standing": standing, "why": why, "python": python}


def _machine(threads: int | None) -> dict[str, Any]:
    import os

    import llvmlite.binding as llvm
    import psutil

    from autotensor.base.granted.control_group import cpu_quota, memory_limit
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
        "quota": cpu_quota(),
        "memory_limit_bytes": memory_limit(),
        "threads": target.num_cores,
        "vector_bytes": target.vector_bytes,
        "caches": list(machine.caches),
        "memory_bytes": psutil.virtual_memory().total,
        "memory_free_bytes": psutil.virtual_memory().available,
        "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
    }


def _versions(told: Told) -> dict[str, str]:
    found = {"autotensor": _version("autotensor") or "not installed as a package"}
    for name in REQUIRED:
        version = _version(name)
        if version is not None:
            found[name] = version
        elif "xgboost" not in name:
            told.problems.append(f"{name} is not installed.")
    if "xgboost" not in found and "xgboost-cpu" not in found:
        told.notes.append("neither xgboost-cpu nor xgboost is installed; tune with --cost-model prior.")
    return found


def _optional() -> dict[str, dict[str, Any]]:
    return {
        module: {"package": package, "for": use, "installed": _is_there(module)}
        for module, (package, use) in OPTIONAL.items()
    }


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # a damaged or partly removed package
        return False


def _targets() -> dict[str, dict[str, str]]:
    """Kind of target → whether it can be used here, with which software, or why not."""
    from autotensor.base.plugins import OWN, known_kinds

    return {kind: _target(kind) for kind in (*OWN, *known_kinds())}


def _target(kind: str) -> dict[str, str]:
    from autotensor.base.plugins import plugin
    from autotensor.base.target import parse
    from autotensor.runtime.device.devices import device_of
    from autotensor.runtime.files.launches import DEVICE_KINDS

    try:
        if kind in DEVICE_KINDS:
            return {"usable": "yes", "what": device_of(parse(kind)).name}
        brought = plugin(kind)
        if brought is not None:
            return {"usable": "yes", "what": "a plug-in"}
        return {"usable": "yes", "what": "this processor" if kind == "llvm" else "Python, slowly: for tests"}
    except Exception as error:  # drivers and plug-ins may raise anything
        return {"usable": "no", "what": _sentence(error)}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _threads() -> dict[str, Any]:
    from autotensor.runtime.native.threads import available, current

    return {"provider": str(current()), "available": list(available())}


NEEDED_FOR = {"log": "tuning", "cache": "compiling faster a second time", "temporary": "tuning"}


def _places(db: str | None, told: Told) -> dict[str, Any]:
    from autotensor.api.log import log_name
    from autotensor.runtime.files.object_cache import default_cache, default_prepared_cache
    from autotensor.runtime.timing_lock import private_folder
    from tuning_db import StoreError

    log = log_name(db)
    places: dict[str, Any] = {"log": {"path": log}, "cache": {"path": None}, "temporary": {"path": None}}
    cache = default_cache()
    if cache.folder is not None:
        places["cache"]["path"] = str(cache.folder)
    prepared = default_prepared_cache()
    if trouble := cache.trouble or (prepared.trouble if prepared is not None else ""):
        told.notes.append(f"cache: {trouble}. {_unneeded('cache')}")
    try:
        places["temporary"]["path"] = str(private_folder())
    except AutotensorError as error:
        told.notes.append(f"{error} {_unneeded('temporary')}")
    if "://" not in log:
        places["log"]["exists"] = os.path.exists(log)  # False where the user may not look
        _check_disk("log", places["log"], Path(log).absolute().parent, told)
    if "://" in log or places["log"]["exists"]:
        try:
            from tuning_db import connect

            with connect(log if db is None else db, readonly=True) as store:
                places["log"]["trials"] = store.count()
        except StoreError as error:
            told.problems.append(str(error))
    for name in ("cache", "temporary"):
        if places[name]["path"]:
            _check_disk(name, places[name], Path(places[name]["path"]), told)
    return places


def _unneeded(name: str) -> str:
    return f"It is for {NEEDED_FOR[name]}; compiled files run without it."


def _check_disk(name: str, place: dict[str, Any], folder: Path, told: Told) -> None:
    """Notes whether the folder (or the nearest one that exists) can be written, and its free space."""
    import shutil

    while not os.path.exists(folder) and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            place["writable"] = True
    except OSError as error:
        place["writable"] = False
        told.notes.append(f"{name}: {folder} cannot be written: {error.strerror or error}. {_unneeded(name)}")
    place["free_bytes"] = shutil.disk_usage(folder).free
    if place["free_bytes"] < LOW_DISK and place["writable"]:
        told.notes.append(f"{name}: only {size(place['free_bytes'])} are free at {folder}.")


def _rates(db: str | None, threads: int | None, again: bool, told: Told) -> dict[str, Any]:
    """Calibrated rates by name, from the log or measured now; none if that fails."""
    from autotensor.search.machine.calibration import measure, measure_kernels, team_sizes
    from tuning_db import StoreError

    target = target_of(None, threads)
    teams = team_sizes(target.num_cores) if again else None
    busy: list[str] = []
    try:
        found = _kept_rates(db, target, again, teams, busy.append)
    except (StoreError, AutotensorError) as error:
        told.notes.append(f"the rates cannot be kept: {_sentence(error)}")
        rates = measure(target, teams, warn=busy.append) | (measure_kernels(target) if again else {})
        found = {n: {"value": value, "unit": unit, "measured": None} for n, (value, unit) in rates.items()}
    told.notes.extend([spoilt(found)] if spoilt(found) else busy)  # both are about the same programs
    return found


def _kept_rates(
    db: str | None, target: Target, again: bool, teams: Sequence[int] | None, warn: Callable[[str], object]
) -> dict[str, dict[str, Any]]:
    """The log's rates. They are measured first if the log has none, or only provisional ones."""
    from autotensor.api.log import open_log
    from autotensor.base.machine import host_machine
    from autotensor.search.machine.calibration import calibrated

    def known() -> dict[str, dict[str, Any]]:
        kept = store.calibration(host_machine().fingerprint)
        return {n: {"value": c.value, "unit": c.unit, "measured": c.measured} for n, c in kept.items()}

    with open_log(db) as store:
        calibrated(store, target, again=again or bool(spoilt(known())), teams=teams, kernels=again, warn=warn)
        return known()


def _aa(threads: int | None, told: Told) -> dict[str, Any] | None:
    """The measurer's verdict on equal kernels."""
    from autotensor.search.machine.selfcheck import self_check

    try:
        found = self_check(target_of(None, threads))
    except AutotensorError as error:
        told.problems.append(f"nothing can be timed: {error}")
        return None
    if not found.can_tell(max(DIFFERENCES)):
        told.problems.append(
            f"equal kernels differ by up to {found.told_from:.0%}, so differences of {max(DIFFERENCES):.0%} "
            "are not visible. Stop other programs on this machine, or tune elsewhere."
        )
    return asdict(found)


def aa_lines(d: Mapping[str, Any]) -> list[str]:
    """The A/A check in words."""
    told = [f"{x:.0%} are {'' if d['told_from'] <= x else 'not '}visible" for x in DIFFERENCES]
    return [
        f"{d['pairs']} races of equal kernels in {d['wall_s']:.0f} s: a difference was claimed in "
        f"{d['claimed']}",
        f"differences of {', of '.join(told)} here and now (the limit is {d['told_from']:.1%})",
        f"the same kernel again varies by {d['spread']:.1%}, divided by the reference kernel's time by "
        f"{d['normalised']:.1%}; the machine drifted by {d['drift']:.1%}; others used "
        f"{d['others_cores']:.1f} cores",
    ]


def _print(d: Mapping[str, Any], threads: int | None) -> None:
    """Prints section by section; sections that failed are among the problems."""
    for lines in (_platform_lines, _thread_lines):
        for line in lines(d):
            say(line)
    if d["rates"] is not None:
        width = columns(sys.stdout)
        for line in rate_lines(d["rates"], target_of(None, threads), width and width - LABEL):
            say(f"{'Rate':{LABEL}}{line}")
    for name, line in zip(("A/A", "", ""), aa_lines(d["aa"]) if d.get("aa") else (), strict=False):
        say(f"{name:10} {line}")
    for line in _found_lines(d):
        say(line)
    say("Not needed a C compiler: LLVM is inside llvmlite")
    for problem in d["problems"]:
        say(f"Problem    {problem}")
    for note in d["notes"]:
        say(f"Note       {note}")
    count = len(d["problems"])
    say("No problems." if not count else f"{count} problem{'s' * (count > 1)}.")


def _platform_lines(d: Mapping[str, Any]) -> Iterator[str]:
    p, m = d["platform"], d["machine"]
    if p is not None:
        yield f"Platform   {p['system']} {p['processor']}, {p['python']}: {p['standing']} ({p['why']})"
    if m is None:
        return
    quota = "" if m["quota"] is None else f", a quota of {m['quota']:g} cores' time"
    yield f"Machine    {m['cpu']}; {m['cores']} cores, {m['cores_usable']} usable{quota}, {m['threads']} used"
    caches = ", ".join(f"{c >> 10} KiB" for c in m["caches"])
    yield (
        f"           {m['llvm_name']} (LLVM {m['llvm_version']}), {m['vector_bytes'] * 8}-bit vectors, "
        f"caches {caches}"
    )
    limit = m["memory_limit_bytes"]
    most = "" if limit is None else f", {size(limit)} for this control group"
    yield (
        f"           memory {size(m['memory_bytes'])}, {size(m['memory_free_bytes'])} free{most}; "
        f"key {m['target']}"
    )
    if m["load"] and m["load"][0] > 0.5:
        yield f"           load {m['load'][0]:.1f}: something else is running; timings will be worse for it"


def _thread_lines(d: Mapping[str, Any]) -> Iterator[str]:
    if d["threads"] is not None:
        yield f"Threads    {d['threads']['provider']}; available: {', '.join(d['threads']['available'])}"
    for kind, found in (d["targets"] or {}).items():
        yield f"Target     {kind}: {'' if found['usable'] == 'yes' else 'not here: '}{found['what']}"


def _found_lines(d: Mapping[str, Any]) -> Iterator[str]:
    for name, place in (d["places"] or {}).items():
        free = f", {size(place['free_bytes'])} free" if "free_bytes" in place else ""
        trials = f", {counted(place['trials'], 'trial')}" if "trials" in place else ""
        absent = "" if place.get("exists", True) else ", not there yet"
        yield f"Place      {name}: {place['path'] or 'none'}{absent}{trials}{free}"
    if d["versions"] is not None:
        yield f"Installed  {', '.join(f'{n} {v}' for n, v in d['versions'].items())}"
    for name, o in (d["optional"] or {}).items():
        standing = "installed" if o["installed"] else f"missing: pip install {o['package']}"
        yield f"Optional   {name} (for {o['for']}): {standing}"
