"""Contests: several programs for one job, each in its own process, timed in turns.

    contest({"ours": ["python", "runner.py", "ours", …], "ort": […]}, rounds=7)

A contestant is a child that prints `ready`, and then, for every line `N`, runs N times and prints N seconds.
One process each keeps thread pools apart; the machine-wide timing lock keeps other benchmarks of ours away;
medians over all rounds and the spread between round medians are reported.
"""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from statistics import median
from typing import Any

from autotensor.base.machine import environment_versions, host_machine
from autotensor.runtime.lock import timing_lock

REST_S = 0.05  # after each block: other pools' threads stop spinning


def serve(run: Callable[[], object]) -> None:
    """The child's side: runs `run` as often as each line on stdin says."""
    for _ in range(3):
        run()
    print("ready", flush=True)
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            t = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - t)
        print(json.dumps(seconds), flush=True)


def contest(
    commands: Mapping[str, Sequence[str]], *, rounds: int = 7, calls: int = 10, seed: int = 0
) -> dict[str, Any]:
    """Medians (seconds) per contestant, with every round's median."""
    children = {n: _start(c) for n, c in commands.items()}
    order = list(children)
    samples: dict[str, list[list[float]]] = {n: [] for n in order}
    rng = random.Random(seed)
    try:
        with timing_lock():
            for _ in range(rounds):
                rng.shuffle(order)
                for name in order:
                    samples[name].append(_ask(children[name], calls))
                    time.sleep(REST_S)
    finally:
        for child in children.values():
            child.kill()
            child.communicate()
    return {name: summary(blocks) for name, blocks in samples.items()}


def _start(command: Sequence[str]) -> subprocess.Popen[str]:
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for line in child.stdout:  # libraries may chat before they are ready
        if line.strip() == "ready":
            return child
    raise RuntimeError(f"{command} ended before it was ready")


def _ask(child: subprocess.Popen[str], calls: int) -> list[float]:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(f"{calls}\n")
    child.stdin.flush()
    # the first two calls of a block warm caches and clocks up again
    return json.loads(child.stdout.readline())[2:]  # type: ignore[no-any-return]


def summary(blocks: Sequence[Sequence[float]]) -> dict[str, Any]:
    medians = [median(b) for b in blocks]
    everything = [s for b in blocks for s in b]
    return {
        "median": median(everything),
        "min": min(everything),
        "rounds": medians,
        "spread": (max(medians) - min(medians)) / median(medians),
    }


def machine() -> dict[str, Any]:
    """What the figures were measured on; no names of hosts or paths."""
    m = host_machine()
    versions = {k: v for k, v in environment_versions().items() if k != "system"}
    for package in ("onnxruntime", "torch"):
        if importlib.util.find_spec(package):
            versions[package] = metadata.version(package)
    return {"cpu": m.cpu_model, "cores": m.cores, "caches": m.caches, "versions": versions}
