"""How many trials per second a fleet does, with a real scheduler of dask on the loopback interface.

    python benchmarks/fleet_throughput.py coordinator [--workers 50] [--tasks 20] [--trials 2560] [--cores 0]
    python benchmarks/fleet_throughput.py workers LOG [--most 4] [--batches 24] [--pause]

coordinator: a whole run with workers that answer at once. It measures the coordinator, which proposes,
learns, writes and sends. workers: the batches of a log are compiled again, and timing is replaced by a pause
as long as the log's times. Four workers on fewer than four cores share the cores while they compile, so the
bound for this machine is printed, too. With --pause, compiling is also replaced by a pause as long as the
log's; workers then behave as on machines of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from statistics import mean

from replays.search_tasks import TASKS
from replays.search_tasks import workload as task_workload

from autotensor.api.fleet import Fleet
from autotensor.base.deadline import NEVER
from autotensor.base.errors import MeasureError
from autotensor.schedule.trace import Trace
from autotensor.search.events import Event, RoundDone
from autotensor.search.fleet.fleet_measurer import FleetMeasurer
from autotensor.search.fleet.machine_class import MachineClass, class_here
from autotensor.search.machine.machine_entry import know_machine
from autotensor.search.measuring.measure_request import MeasureOptions
from autotensor.search.options import TuneOptions
from autotensor.search.propose.allocation import RUNS, TRIAL_S
from autotensor.search.run import TuningRun
from autotensor.search.task import Task
from autotensor.te.workload import Workload
from schedules.prior.rates import Rates
from tuning_db import SessionKind, TrialStore, connect
from tuning_db.records import Calibration, Status, TrialRecord

CHILD = Path(__file__).parent / "jobs" / "fleet_workers.py"
UP_S = 120.0


@contextmanager
def fleet(commands: Sequence[Sequence[str]], count: int, pinned: Sequence[str] = ()) -> Iterator[Fleet]:
    """A scheduler with these workers, `count` in all. pinned: words in front of each child's command."""
    with closing(socket.socket()) as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    words = [*pinned, sys.executable, str(CHILD)]
    # without this, each of fifty workers in one process would profile its stack a hundred times a second
    quiet = os.environ | {"DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False"}
    children = [subprocess.Popen([*words, "scheduler", port], env=quiet)]
    try:
        children += [subprocess.Popen([*words, kind, port, *rest], env=quiet) for kind, *rest in commands]
        with connected(f"localhost:{port}") as found:
            end = time.monotonic() + UP_S
            while len(found.engine.workers()) < count:
                if time.monotonic() > end:
                    raise TimeoutError("the workers do not come up")
                time.sleep(0.1)
            yield found
    finally:
        for child in reversed(children):
            child.terminate()
            child.wait()


def connected(address: str) -> Fleet:
    end = time.monotonic() + UP_S
    while True:
        with suppress(MeasureError):
            return Fleet(address)
        if time.monotonic() > end:
            raise TimeoutError("no scheduler")
        time.sleep(0.2)


# -- a coordinator whose workers answer at once -------------------------------------------------------------


def coordinator(workers: int, tasks: int, trials: int, pinned: Sequence[str]) -> dict[str, float]:
    """Trials per second, from the time when every task had its first batches until the last result."""
    mine = class_here(1)
    chosen = list(TASKS)[:: len(TASKS) // tasks][:tasks]
    asked = [Task(task_workload(name), mine.target) for name in chosen]
    seen: list[tuple[int, float, float]] = []  # trials, seconds, CPU seconds of this process

    def hear(event: Event) -> None:
        if isinstance(event, RoundDone):
            seen.append((event.trials, time.monotonic(), time.process_time()))

    with (
        tempfile.TemporaryDirectory() as folder,
        connect(str(Path(folder) / "log.db")) as store,
        fleet([("at_once", str(workers), mine.tag)], workers, pinned) as f,
    ):
        know_rates(store, mine)
        options = TuneOptions(trials=trials, patience=False, effort="full")
        began = time.monotonic()
        f.run(TuningRun(asked, options, store, NEVER, residency="hot", listener=hear))
    first, last = seen[2 * tasks - 1], seen[-1]
    count, wall, cpu = (b - a for a, b in zip(first, last, strict=True))
    return {
        "first_batches_s": first[1] - began,
        "trials_per_s": count / wall,
        "trials_per_cpu_s": count / cpu,
        "cores_used": cpu / wall,
    }


def know_rates(store: TrialStore, mine: MachineClass) -> None:
    """Stores rates for the machine's class, as if it had been calibrated before."""
    rates = Rates.guess(mine.target)
    found = {"flops.core": rates.peak(1), "bandwidth.memory.core": 1e10, "clock": 3e9}
    store.put_calibration(know_machine(store, mine.place), [Calibration(n, v) for n, v in found.items()])


# -- workers that compile -----------------------------------------------------------------------------------


def rounds_of(store: TrialStore) -> list[tuple[str, list[TrialRecord]]]:
    """The batches of the log's search in which all trials worked: workload, trials."""
    found: dict[tuple[str, str, int | None], list[TrialRecord]] = {}
    for s in store.sessions(SessionKind.SEARCH):
        for t in store.trials(session=s.id):
            found.setdefault((s.id, t.workload, t.round), []).append(t)
    return [(key[1], rows) for key, rows in found.items() if all(t.status is Status.OK for t in rows)]


def replayed(log: Path, count: int, batches: int, pause: bool) -> tuple[float, float, float]:
    """Trials per second of `count` workers, and for each trial the seconds of compiling (CPU seconds, without
    `pause`) and the seconds of timing."""
    mine = class_here(1)
    with connect(str(log), readonly=True) as store, tempfile.TemporaryDirectory() as folder:
        workloads = {w.key: Workload.from_text(w.text, w.name) for w in store.workloads()}
        rounds = rounds_of(store)[:batches]
        measured = [t for _, rows in rounds for t in rows]
        tables = {"times.json": {t.trace_hash: t.median_s for t in measured}}
        if pause:
            tables["builds.json"] = {t.trace_hash: t.build_s or 0.0 for t in measured}
        for name, table in tables.items():
            (Path(folder) / name).write_text(json.dumps(table))
        places = [str(Path(folder) / name) for name in tables]
        commands = [("replay", f"w{n}", mine.tag, *places) for n in range(count)]
        with fleet(commands, count) as f:
            measurer = FleetMeasurer(f.engine, mine, mine.target, MeasureOptions(residency="hot"))
            with closing(measurer):
                first, rows = rounds[0]
                warm = [measurer.submit(workloads[first], [Trace.from_json(rows[0].trace)]) for _ in commands]
                for answer in warm:  # imports
                    answer.result()
                began = time.monotonic()
                answers = [
                    measurer.submit(workloads[key], [Trace.from_json(t.trace) for t in rows])
                    for key, rows in rounds
                ]
                results = [r for a in answers for r in a.result()]
                seconds = time.monotonic() - began
    built = mean(r.build_seconds or 0.0 for r in results)
    timed = mean(TRIAL_S + RUNS * r.seconds[0] for r in results)
    return len(results) / seconds, built, timed


def several(log: Path, most: int, batches: int, pause: bool) -> dict[str, float]:
    one, built, timed = replayed(log, 1, batches, pause)
    many, built_beside, _ = replayed(log, most, batches, pause)
    cores = most if pause else len(os.sched_getaffinity(0))
    return {
        "one_trials_per_s": one,
        f"{most}_trials_per_s": many,
        "times": many / one,
        "compile_s_of_a_trial": built,
        "compile_s_beside_others": built_beside,
        "timing_s_of_a_trial": timed,
        "compile_share": built / (built + timed),
        "cores": cores,
        "bound_of_these_cores": min(most, cores * (built + timed) / built),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    one = kinds.add_parser("coordinator")
    one.add_argument("--workers", type=int, default=50)
    one.add_argument("--tasks", type=int, default=20)
    one.add_argument("--trials", type=int, default=2560)
    one.add_argument("--cores", default="", help="of the scheduler and the workers, as taskset has them")
    other = kinds.add_parser("workers")
    other.add_argument("log", type=Path)
    other.add_argument("--most", type=int, default=4)
    other.add_argument("--batches", type=int, default=24)
    other.add_argument("--pause", action="store_true", help="compiling is a pause, too")
    a = parser.parse_args()
    if a.kind == "coordinator":
        pinned = ["taskset", "-c", a.cores] if a.cores else []
        found = coordinator(a.workers, a.tasks, a.trials, pinned)
    else:
        found = several(a.log, a.most, a.batches, a.pause)
    for name, value in found.items():
        print(f"{name:28} {value:.4g}")


if __name__ == "__main__":
    main()
