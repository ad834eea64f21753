"""The child process of steadiness.py: it prints the microseconds of every call in one scene, as JSON.

    python benchmarks/jobs/steadiness_child.py SCENE FOLDER SECONDS

The folder holds model.atm, model.onnx and inputs.npz. AUTOTENSOR_PROVIDER says which threads run autotensor's
kernels.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import autotensor as at

WARM = 20  # calls before the first that counts

Call = Callable[[], object]


def ours(folder: Path) -> Call:
    """One inference by a new module, into existing arrays."""
    f = at.load(folder / "model.atm")
    with np.load(folder / "inputs.npz") as found:
        inputs = [found[a.name] for a in f.args if a.role == "input"]
    result = f(*inputs)
    arrays = (*inputs, *(result if isinstance(result, tuple) else (result,)))
    return lambda: f(*arrays)


def onnxruntime(folder: Path) -> Call:
    """One inference by a session with default settings. Its threads spin for a while after each call."""
    import onnxruntime as library

    options = library.SessionOptions()
    options.log_severity_level = 3
    session = library.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    with np.load(folder / "inputs.npz") as found:
        inputs = {e.name: found[e.name] for e in session.get_inputs()}
    return lambda: session.run(None, inputs)


def times(call: Call, seconds: float, before: Call) -> list[float]:
    """The microseconds of each call; `before` runs before each."""
    found = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        before()
        began = time.perf_counter_ns()
        call()
        found.append((time.perf_counter_ns() - began) / 1e3)
    return found


def nothing() -> None:
    """Runs between calls that follow each other at once."""


def two(folder: Path, seconds: float) -> list[float]:
    """The microseconds of each call of two Python threads that call at the same time, each its own module."""
    found: list[float] = []
    calls = [ours(folder), ours(folder)]
    threads = [threading.Thread(target=lambda c=c: found.extend(times(c, seconds, nothing))) for c in calls]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return found


def scene(name: str, folder: Path, seconds: float) -> list[float]:
    """The microseconds of each call in a scene. Raises ValueError for an unknown scene."""
    if name == "two":
        return two(folder, seconds)
    # The peer is loaded first, as in a program to which autotensor is added.
    before = onnxruntime(folder) if name == "turns" else nothing
    call = ours(folder)
    for _ in range(WARM):
        before()
        call()
    match name:
        case "alone" | "turns":
            return times(call, seconds, before)
        case "idle5" | "idle50":
            return times(call, seconds, lambda: time.sleep(1e-3 * int(name.removeprefix("idle"))))
        case "busy":
            with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
                try:
                    return times(call, seconds, nothing)
                finally:
                    other.kill()
        case _:
            raise ValueError(f"there is no scene {name!r}.")


if __name__ == "__main__":
    print(json.dumps(scene(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))))
