"""TVM's MetaSchedule on the same kernels, in its own Python environment. found.py times the results.

    python -m venv tvm
    tvm/bin/pip install apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post1 numpy scipy
    tvm/bin/pip install xgboost cloudpickle psutil tornado
    python benchmarks/jobs/metaschedule.py --python tvm/bin/python [--only gemm,conv,depthwise] [--trials 64]

MetaSchedule gets autotensor's definition of each task, which metaschedule_child.py translates. So both search
for the same computation. A trial takes about a second, and the start of a search half a minute. The machine
must be idle and no other timing may run, because MetaSchedule does not use autotensor's timing lock. The same
command continues a run. The environment must have the Python version of this one, because found.py loads the
compiled code in its own process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from contests.contest import Contestant
from peers import Spec, cache_folder
from replays.search_tasks import chosen, workload

from autotensor.base.target import host

FAMILIES = "gemm,conv,depthwise"
START_S = 120.0  # seconds to import MetaSchedule, twice
TRIAL_LIMIT_S = 10.0


def folder(threads: int) -> Path:
    return Path(cache_folder()) / "metaschedule" / f"t{threads}"


def kept(name: str, variant: str, threads: int) -> tuple[Path, dict[str, Any]] | None:
    """The library and the facts of one search; None unless the search has succeeded."""
    library, facts = (folder(threads) / f"{name}.{variant}{end}" for end in (".so", ".json"))
    if not (library.exists() and facts.exists()):
        return None
    return library, json.loads(facts.read_text())


def searches(name: str, threads: int) -> dict[str, dict[str, Any]]:
    """The facts of all MetaSchedule's searches for a task, by seed."""
    found = sorted(folder(threads).glob(f"{name}.seed*.json"))
    keys = ("trials", "failed", "wall_s", "best_s")
    facts = {p.name.split(".")[1]: json.loads(p.read_text()) for p in found}
    return {v: {k: f[k] for k in keys} for v, f in facts.items() if "best_s" in f}


def contestants(threads: int) -> list[Contestant]:
    """One contestant for each seed with a search. They share a process."""
    seeds = sorted({p.name.split(".")[1] for p in folder(threads).glob("*.so")})
    if not seeds:
        return []
    packages = json.loads((folder(threads) / "environment.json").read_text())["packages"]
    spec = Spec("tvm", threads, file=packages)
    return [Contestant(f"tvm-{s}", spec, process="tvm", variant=s) for s in seeds]


def search(
    name: str, seed: int, trials: int, threads: int, python: str, budget_s: float
) -> Mapping[str, Any]:
    """Runs one search in a separate process. Returns its facts, or {"failed": why}."""
    w, out = workload(name), folder(threads) / f"{name}.seed{seed}"
    asked = {
        "workload": [w.key, w.name, w.text],
        "seed": seed,
        "trials": trials,
        "threads": threads,
        "mcpu": host().arch,
        "library": str(out.with_suffix(f".seed{seed}.so")),
        "budget_s": budget_s,
    }
    variables = {
        **os.environ,
        "TVM_NUM_THREADS": str(threads),
        "OMP_NUM_THREADS": str(threads),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    command = [python, str(Path(__file__).with_name("metaschedule_child.py"))]
    limit_s = START_S + budget_s + TRIAL_LIMIT_S
    try:
        done = subprocess.run(
            command,
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
            env=variables,
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"it did not end within {limit_s:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        last = done.stderr.strip().splitlines()[-1:]
        return {"failed": f"exit status {done.returncode}: {' '.join(last)}"[:600]}
    facts: dict[str, Any] = json.loads(lines[-1])
    return facts


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    add = parser.add_argument
    add("--python", required=True, help="the interpreter of the environment that has TVM")
    add("--only", default=FAMILIES, metavar="NAME,NAME", help="tasks or families (default: %(default)s)")
    add("--draw", type=int, metavar="SEED", help="twenty of these, by this seed")
    add("--seeds", type=int, default=3)
    add("--trials", type=int, default=64)
    add("--threads", type=int, default=cores)
    add("--search-budget", type=float, default=300.0, metavar="SECONDS", help="of one search")
    add("--budget", type=float, default=float("inf"), metavar="SECONDS", help="of all of them")
    add("--retry", action="store_true", help="search again where it failed")
    options = parser.parse_args()
    deadline = time.monotonic() + options.budget
    out = folder(options.threads)
    out.mkdir(parents=True, exist_ok=True)
    (out / "environment.json").write_text(json.dumps({"packages": packages_of(options.python)}))
    for seed in range(options.seeds):
        for name in chosen(options.only, options.draw):
            facts = out / f"{name}.seed{seed}.json"
            known = json.loads(facts.read_text()) if facts.exists() else {}
            if known.get("asked", 0) >= options.trials and not (options.retry and "failed" in known):
                continue
            if time.monotonic() > deadline:
                print("The budget is spent. The same command continues.")
                return 3
            found = search(name, seed, options.trials, options.threads, options.python, options.search_budget)
            facts.write_text(json.dumps({**found, "asked": options.trials}) + "\n")
            print(f"{name}, seed {seed}: {_told(found)}", flush=True)
    return 0


def packages_of(python: str) -> str:
    """The folder with the packages of that environment. Raises SystemExit unless it has the same Python
    version."""
    code = "import sys, sysconfig; print(sysconfig.get_path('purelib'), *sys.version_info[:2])"
    try:
        told = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"{python} cannot be run: {error}") from error
    if tuple(map(int, told[1:])) != sys.version_info[:2]:
        own = ".".join(map(str, sys.version_info[:2]))
        raise SystemExit(f"{python} is Python {'.'.join(told[1:])}; it must be {own}, as this one is.")
    return told[0]


def _told(found: Mapping[str, Any]) -> str:
    if "failed" in found and "best_s" not in found:
        return str(found["failed"])
    return (
        f"{found['trials']} trials ({found['failed']} failed) in {found['wall_s']:.0f} s, "
        f"{1e6 * found['best_s']:.4g} us"
    )


if __name__ == "__main__":
    sys.exit(main())
