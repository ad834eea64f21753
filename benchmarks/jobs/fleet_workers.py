"""A fleet's scheduler, and its workers, which do not time, on this machine, in one child process or several.

python fleet_workers.py scheduler PORT
python fleet_workers.py at_once PORT WORKERS TAG          many in one process, with times made up from hashes
python fleet_workers.py replay PORT NAME TAG TIMES.json [BUILDS.json]
    one that compiles, then waits as long as timing took; with BUILDS.json it waits in place of compiling, too
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from autotensor.base.target import Target
from autotensor.compiler import compile_trace
from autotensor.schedule.trace import Trace, hash_of
from autotensor.search.fleet import on_worker
from autotensor.search.fleet.engine import own_tag
from autotensor.search.fleet.machine_class import EXCLUSIVE, who_here
from autotensor.search.fleet.on_worker import Answer, Batch
from autotensor.search.measuring.measure_request import MeasureResult
from autotensor.search.propose.allocation import RUNS, TRIAL_S
from autotensor.te.workload import Workload
from tuning_db.records import Status

HOST = "127.0.0.1"


def made_up_s(text: str) -> float:
    """Made-up seconds for a trace."""
    return 1e-4 * (1.0 + int(hash_of(text)[:8], 16) / 2.0**32)


def result(seconds: float, build_s: float = 0.01) -> MeasureResult:
    return MeasureResult(Status.OK, (seconds,) * 4, build_s, max_error=0.0, tolerance=1e-5)


class MadeUpTimes:
    """A measurer that answers at once with made-up times."""

    def __init__(self, tag: str) -> None:
        self.tag, self.who = tag, who_here()

    def __call__(self, batch: Batch) -> Answer:
        return Answer(self.tag, self.who, tuple(result(made_up_s(t)) for t in batch.traces))


class ReplayedTimes:
    """A measurer that compiles, and then waits as long as checking and timing took in the log.

    times, builds: seconds by the trace's hash. With `builds`, it also waits in place of compiling.
    """

    def __init__(self, tag: str, times: dict[str, float], builds: dict[str, float] | None = None) -> None:
        self.tag, self.who, self.times, self.builds = tag, who_here(), times, builds

    def __call__(self, batch: Batch) -> Answer:
        workload, target = Workload.from_text(batch.workload, batch.name), Target.from_json(batch.target)
        found = []
        for text in batch.traces:
            key = hash_of(text)
            if self.builds is None:
                began = time.process_time()  # processor time, because others may share the core
                compile_trace(workload.dag, Trace.from_json(text), target, asm=True)
                build_s = time.process_time() - began
            else:
                build_s = self.builds[key]
                time.sleep(build_s)
            found.append(result(self.times[key], build_s))
        time.sleep(sum(TRIAL_S + RUNS * r.seconds[0] for r in found))
        return Answer(self.tag, self.who, tuple(found))


async def serve(port: int) -> None:
    from distributed import Scheduler

    async with Scheduler(host=HOST, port=port, dashboard=False) as scheduler:
        await scheduler.finished()


async def work(port: int, names: list[str], tag: str) -> None:
    from distributed import Worker

    address = f"tcp://{HOST}:{port}"
    workers: list[Any] = [
        Worker(
            address,
            nthreads=1,
            name=name,
            host=HOST,
            memory_limit=0,
            dashboard=False,
            resources={EXCLUSIVE: 1, tag: 1, own_tag(name): 1},
        )
        for name in names
    ]
    await asyncio.gather(*workers)
    await asyncio.gather(*(w.finished() for w in workers))


def main(kind: str, port: str, *rest: str) -> None:
    os.environ[on_worker.THREADS] = "1"
    if kind == "scheduler":
        asyncio.run(serve(int(port)))
    elif kind == "at_once":
        count, tag = rest
        on_worker.measure = MadeUpTimes(tag)
        asyncio.run(work(int(port), [f"w{n}" for n in range(int(count))], tag))
    else:
        name, tag, *tables = rest
        on_worker.measure = ReplayedTimes(tag, *(json.loads(Path(t).read_text()) for t in tables))
        asyncio.run(work(int(port), [name], tag))


if __name__ == "__main__":
    main(*sys.argv[1:])
