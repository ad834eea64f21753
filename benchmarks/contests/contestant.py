"""A contestant's process: it sets up one job at a time, runs the job on request, and returns its times.

    {"do": "setup", "suite": "operators", "job": "GMM.s0.b1", "output": "y.npy"}  ─▶ {"setup_s": 0.3, …}
    {"do": "time", "seconds": 0.1}                                  ─▶ {"seconds": […], "cpu_s": 0.2, …}
    {"do": "tune", "suite": …, "job": …, "trials": 64, "seed": 0}   ─▶ {"trials": 64, …}

A failure is an answer, too: {"failed": why}. A job that does not apply is {"skip": why}. The command is `-m
contests.contestant SPEC`.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from peers import KINDS, PACKAGES, Skip, Spec

from autotensor.runtime.workers.child_serving import serve

SAMPLE_S = 1e-4  # least length of a sample, so that the clock and the loop hardly count
MOST_WARM_S = 0.15
LEAST_SAMPLES = 3
LONG_S = 2.0  # a run of at least this length is a sample alone, and two such samples are a block


def job_of(suite: str, name: str) -> Any:
    """The job: an operator, a network, or a network that is compiled in the contestant's process."""
    if suite == "operators":
        from jobs.operator_job import OperatorJob

        return OperatorJob(name)
    if suite == "search":
        from jobs.search_job import SearchJob

        return SearchJob.named(name)
    if suite == "scaling":
        from jobs.scaling_job import Scaled

        return Scaled.named(name)
    if suite == "training":
        from jobs.training_job import TrainingJob

        return TrainingJob.named(name)
    if suite == "programs":
        from jobs.program_job import ProgramJob

        return ProgramJob.named(name)
    if suite == "architectures":
        from jobs.architecture_job import Drawn

        return Drawn.named(name)
    from jobs.networks import Network

    return Network.named(name)


def block(run: Callable[[], object], seconds: float) -> list[float]:
    """Samples of the seconds of one run, for about `seconds`, after caches and clock rates are warm again."""
    clock = time.perf_counter
    one, warm_end = _once(run), clock() + min(MOST_WARM_S, seconds / 2)
    while clock() < warm_end and one < LONG_S:
        one = min(one, _once(run))
    count = max(1, round(SAMPLE_S / max(one, 1e-7)))
    samples: list[float] = []
    end = clock() + seconds
    gc.disable()
    try:
        while clock() < end or len(samples) < (2 if one > LONG_S else LEAST_SAMPLES):
            started = clock()
            for _ in range(count):
                run()
            samples.append((clock() - started) / count)
    finally:
        gc.enable()
    return samples


def _once(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def peak_bytes() -> int:
    """The most memory that this process had resident, since `forget_peak` if the system supports that."""
    try:
        status = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))


def forget_peak() -> None:
    """Resets the peak to the memory that is resident now. This works on Linux only; elsewhere the peak is
    that of the process's life."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


class Answering:
    """The state of the process: the jobs set up since the last clearing, by contestant."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.runs: dict[str, Callable[[], object]] = {}

    def handle(self, line: str) -> str:
        asked = json.loads(line)
        try:
            answer = getattr(self, f"do_{asked.pop('do')}")(**asked)
        except Skip as reason:
            answer = {"skip": str(reason)}
        except Exception as error:
            traceback.print_exc()
            answer = {"failed": f"{type(error).__name__}: {error}"[:600]}
        return json.dumps(answer)

    def do_setup(self, suite: str, job: str, output: str, name: str = "") -> dict[str, Any]:
        self.runs.pop(name, None)
        gc.collect()
        forget_peak()
        started = time.perf_counter()
        found = job_of(suite, job)
        prepared = time.perf_counter()
        run, result = KINDS[self.spec.kind](found, self.spec)
        np.save(output, result())
        self.runs[name] = run
        ready, peak = time.perf_counter(), peak_bytes()
        del found
        gc.collect()
        forget_peak()  # from here on, memory is for running
        version = ""
        with suppress(metadata.PackageNotFoundError):  # raised for a source tree that is not installed
            version = metadata.version(PACKAGES.get(self.spec.kind, self.spec.kind))
        return {
            "setup_s": ready - prepared,
            "job_s": prepared - started,
            "setup_bytes": peak,
            "version": version,
        }

    def do_time(self, seconds: float, name: str = "") -> dict[str, Any]:
        if name not in self.runs:
            return {"failed": "its process was started anew, and nothing is set up"}
        cpu, wall = time.process_time(), time.perf_counter()
        samples = block(self.runs[name], seconds)
        return {
            "seconds": samples,
            "cpu_s": time.process_time() - cpu,
            "wall_s": time.perf_counter() - wall,
            "run_bytes": peak_bytes(),
        }

    def do_tune(
        self, suite: str, job: str, trials: int, seed: int, limit_s: float | None = None
    ) -> dict[str, Any]:
        more = {} if limit_s is None else {"limit_s": limit_s}  # only networks have a limit
        found: dict[str, Any] = job_of(suite, job).tune(self.spec, trials, seed, **more)
        return {**found, "tune_bytes": peak_bytes()}

    def do_prepare(self, suite: str, job: str, specs: list[dict[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = job_of(suite, job).prepare([Spec(**s) for s in specs])
        return found

    def do_clear(self) -> dict[str, Any]:
        self.runs.clear()
        gc.collect()
        return {}


if __name__ == "__main__":
    serve(Answering(Spec(**json.loads(sys.argv[1]))).handle)
