"""Runs random GPU traces on OpenCL in a child process, because some kernels end PoCL's process.

    python opencl_traces.py 100 150     seeds 100 … 149: what it does, a line each, for whoever started it

    begin 100
    right 100
    begin 101
    wrong 101 "Traceback …"     the message as JSON; the child goes on with the next seed
    begin 102                                    and no more: PoCL died of seed 102

`outcomes` starts such children and reads their lines. If a child dies, its seed is run alone twice. If
another child dies, too, the seed is CRASHED, and never right, because there is no answer. A wrong answer
stays wrong.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from gpu_traces import gpu_trace
from random_dags import random_dag

from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG

HERE = Path(__file__).parent
CHUNK = 50  # seeds in a child: starting one costs as much as two seeds
ALONE = 2  # more runs of a seed that a child died of
CPU_SECONDS = 40  # limit for a seed (most take one second), because PoCL never finishes some kernels


class Result(Enum):
    RIGHT = "right"
    WRONG = "wrong"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    result: Result
    said: str = ""  # the mistake, or the last output of the child that died

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.result.value}\n{self.said}"


def outcomes(first: int, end: int, child: Path = Path(__file__)) -> Iterator[Outcome]:
    """One of each seed of first … end - 1, in order."""
    while first < end:
        for outcome in _chunk(first, min(first + CHUNK, end), child):
            yield outcome if outcome.result is not Result.CRASHED else _alone(outcome, child)
            first = outcome.seed + 1  # a child that died has not run the seeds after this one


def _alone(died: Outcome, child: Path) -> Outcome:
    """The outcome of a seed at which a child died."""
    again = [o for _ in range(ALONE) for o in _chunk(died.seed, died.seed + 1, child)]
    for result in (Result.WRONG, Result.CRASHED):
        for o in again:
            if o.result is result:
                return o
    return again[0]


def _chunk(first: int, end: int, child: Path) -> list[Outcome]:
    """The outcomes of one child's seeds; the last one is CRASHED if the child died."""
    path = os.pathsep.join((str(HERE), str(HERE.parent / "kit"), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [sys.executable, str(child), str(first), str(end)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    found, begun = read(done.stdout)
    if begun is not None and done.returncode != 0:
        found.append(Outcome(begun, Result.CRASHED, f"exit code {done.returncode}\n{done.stderr[-1500:]}"))
    elif done.returncode != 0 or len(found) != end - first:
        raise RuntimeError(f"seeds {first} … {end - 1}: exit code {done.returncode}\n{done.stderr[-4000:]}")
    return found


def read(text: str) -> tuple[list[Outcome], int | None]:
    """The seeds that ended, and the seed that began and did not end."""
    found: list[Outcome] = []
    begun = None
    for line in text.splitlines():
        match line.split(" ", 2):
            case ["begin", seed]:
                begun = int(seed)
            case ["right", seed] if int(seed) == begun:
                found.append(Outcome(int(seed), Result.RIGHT))
                begun = None
            case ["wrong", seed, said] if int(seed) == begun:
                found.append(Outcome(int(seed), Result.WRONG, json.loads(said)))
                begun = None
    return found, begun


def drawn(seed: int) -> tuple[ComputeDAG, Trace]:
    """A computation and a trace of it."""
    rng = random.Random(seed)
    dag = random_dag(rng, 3)
    return dag, gpu_trace(rng, dag)


def run(first: int, end: int) -> None:
    from test_gpu_on_opencl import check_on_device

    for seed in range(first, end):
        print("begin", seed, flush=True)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        try:
            check_on_device(*drawn(seed), seed)
        except Exception:  # an exception of Python is not a crash of PoCL, but a mistake of ours
            print("wrong", seed, json.dumps(traceback.format_exc()), flush=True)
        else:
            print("right", seed, flush=True)


if __name__ == "__main__":
    first, end = (int(a) for a in sys.argv[1:])
    run(first, end)
