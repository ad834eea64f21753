"""Calls with a quota of CPU time, in a real control group of version 1: which number of threads is fastest?

    sudo python benchmarks/quotas.py model.atm --rounds 12

Each line is a quota and a number of threads, with "own" if the process chose the number. Processes take
turns. The mean counts, because a team that is stopped for a part of each period still has a good median. The
lower quartile over the turns is printed, because a busy machine disturbs it least. For the same reason the
group has a large share of the CPU.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

GROUP = Path("/sys/fs/cgroup/cpu/autotensor-quotas")
PERIOD_US = 100_000
CASES = ((0.0, 1), (0.0, 2), (1.0, 0), (1.25, 1), (1.25, 2), (1.5, 0), (1.5, 1), (1.5, 2), (2.0, 0))


def child(path: str, threads: int, seconds: float) -> None:
    """Prints the mean, median and 99th percentile of a call in milliseconds, and the number of threads."""
    (GROUP / "cgroup.procs").write_text(str(os.getpid()))
    from autotensor.runtime import saved_model

    f = saved_model.load(path, threads=threads or None)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(a.shape).astype(a.dtype) for a in f.signature.inputs]
    for _ in range(3):
        f(*arrays)
    times, now = [], time.perf_counter()
    end = now + seconds
    while now < end:
        f(*arrays)
        times.append(time.perf_counter() - now)
        now += times[-1]
    ms = np.array(times) * 1e3
    print(ms.mean(), np.median(ms), np.percentile(ms, 99), f.threads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="an .atm file")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a turn")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        child(options.model, options.child, options.seconds)
        return
    GROUP.mkdir(exist_ok=True)
    (GROUP / "cpu.shares").write_text("262144")
    found: dict[tuple[float, int], list[list[float]]] = {case: [] for case in CASES}
    try:
        for _ in range(options.rounds):
            for quota, threads in CASES:
                limit = int(quota * PERIOD_US) if quota else -1
                (GROUP / "cpu.cfs_quota_us").write_text(str(limit))
                words = [options.model, "--child", threads, "--seconds", options.seconds]
                command = [sys.executable, __file__, *map(str, words)]
                said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                found[quota, threads].append([float(word) for word in said.split()])
    finally:
        time.sleep(0.2)  # waits until the group's last process has ended
        GROUP.rmdir()
    print("quota  threads   mean ms  (quartile)  median  99 %")
    for (quota, threads), rows in found.items():
        means = sorted(row[0] for row in rows)
        mean, middle, late, chosen = (statistics.median(column) for column in zip(*rows, strict=True))
        team = f"{chosen:.0f}{' (own)' if not threads else ''}"
        quartile = means[len(means) // 4]
        print(f"{quota or 'none':>5}  {team:7} {mean:9.3f}  {quartile:9.3f}  {middle:7.3f}  {late:6.2f}")


if __name__ == "__main__":
    main()
