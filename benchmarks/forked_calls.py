"""Compares calls in two workers: one was forked after the model was loaded (`gunicorn --preload`), the other
has loaded the model itself. They take turns of a few calls.

    python benchmarks/forked_calls.py model.atm --threads 2 --rounds 200

Prints the median of each worker over all turns, and their ratio.
"""

from __future__ import annotations

import argparse
import os
import statistics
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


class Worker:
    """A forked process that makes `calls` calls on request and returns the time of each."""

    def __init__(self, model: Callable[[], Any], calls: int) -> None:
        told, self._tell = os.pipe()
        self._hear, say = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self._tell), os.close(self._hear)
                _work(model(), calls, told, say)
            finally:
                os._exit(0)
        os.close(told), os.close(say)

    def turn(self) -> float:
        """The median seconds of a call in one turn."""
        os.write(self._tell, b"x")
        return struct.unpack("d", os.read(self._hear, 8))[0]

    def end(self) -> None:
        os.write(self._tell, b"q")
        os.waitpid(self._pid, 0)


def _work(model: Any, calls: int, told: int, say: int) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(a.shape).astype(a.dtype) for a in model.signature.inputs]
    want = model(*arrays)
    while os.read(told, 1) == b"x":
        seconds = []
        for _ in range(calls):
            began = time.perf_counter()
            got = model(*arrays)
            seconds.append(time.perf_counter() - began)
        assert all((g == w).all() for g, w in zip(_several(got), _several(want), strict=True))
        os.write(say, struct.pack("d", statistics.median(seconds)))


def _several(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="an .atm file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--torch", action="store_true", help="the parent imports torch and uses its threads")
    options = parser.parse_args()

    def load() -> Any:
        from autotensor.runtime import saved_model

        return saved_model.load(options.model, threads=options.threads)

    own = Worker(load, options.calls)  # forked before anything is loaded
    if options.torch:
        import torch

        torch.randn(512, 512) @ torch.randn(512, 512)
    loaded = load()
    rng = np.random.default_rng(0)
    for _ in range(3):  # so that its threads run, too
        loaded(*(rng.standard_normal(a.shape).astype(a.dtype) for a in loaded.signature.inputs))
    preloaded = Worker(lambda: loaded, options.calls)
    times: dict[str, list[float]] = {"own": [], "preloaded": []}
    for turn in range(options.rounds):
        for worker, name in ((own, "own"), (preloaded, "preloaded"))[:: 1 if turn % 2 else -1]:
            times[name].append(worker.turn())
    own.end(), preloaded.end()
    medians = {name: statistics.median(t) for name, t in times.items()}
    ratios = sorted(p / o for p, o in zip(times["preloaded"], times["own"], strict=True))
    for name, seconds in medians.items():
        print(f"{name:10} {seconds * 1e3:8.4f} ms")
    overall = medians["preloaded"] / medians["own"]
    print(f"preloaded / own: {overall:.3f}; by turns {statistics.median(ratios):.3f}")
    sys.exit(overall > 1.05)


if __name__ == "__main__":
    main()
