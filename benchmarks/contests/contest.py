"""Contests: many programs do one job, each in its own process, and are timed in turns.

    with Field(contestants, folder) as field:            one process per contestant
        unit = field.unit("operators", "GMM.s0.b1")      set up, compare outputs with torch's, time in turns

A contestant's process does many jobs, one after the other. Each `Field` has its own set of processes. A
program's speed differs from process to process, because its memory lies elsewhere. So a table needs several
fields. Before a block is timed, the contest waits for an idle machine. A block in which other programs used
the cores is timed again. If a contestant fails, crashes or gives a wrong result, its cell says so, and the
others are not affected.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
from peers import Spec
from peers.environments import python_of

from autotensor.base.errors import MeasureError
from autotensor.runtime.timing_lock import timing_lock
from autotensor.runtime.workers.children import Child, Status

HERE = Path(__file__).parents[1]
REFERENCE = "reference"  # a contestant with whose output the others' are compared; it is not timed
TOLERANCE = 1e-4  # largest difference, as a share of the largest element of torch's output
REST_S = 0.1  # pause before each block, in which other pools' threads stop spinning (up to 55 ms)
IDLE_WAIT_S = 2.0  # how long to wait for idle cores before a block
IDLE_S = 0.05  # time without work that makes cores count as idle: five of the system's ticks
FOREIGN_SHARE = 0.1  # largest share of one core for other programs; above this, the block is timed again
SETUP_TIMEOUT_S = 900.0  # inductor compiles for minutes on whole models
CHATTER_BYTES = 256 << 20  # most bytes that a library may print in the meantime

Cell = dict[str, Any]


@dataclass(frozen=True)
class Contestant:
    """A column of the table.

    Several contestants may share one process, which has the spec of the first. This is for contestants with
    small differences: the location of memory should not add to the difference. Then `variant`, at the end of
    their job's name, distinguishes them.
    """

    name: str
    spec: Spec
    mine: bool = False
    process: str = ""  # contestants with the same name share a process; "": an own process
    variant: str = ""

    @property
    def home(self) -> str:
        """The name of the contestant's process."""
        return self.process or self.name

    def job(self, name: str) -> str:
        """The job's name in the contestant's process."""
        return f"{name}@{self.variant}" if self.variant else name


@dataclass(frozen=True)
class Timing:
    """How long and how often each job is timed."""

    rounds: int = 3
    block_s: float = 0.1
    tries: int = 3  # most times that a disturbed block is timed; 1: the first block counts in any case
    seed: int = 0

    def seconds(self, contestants: int) -> float:
        """The least seconds for timing one job, without setting up."""
        return self.rounds * contestants * (1.5 * self.block_s + REST_S)


@dataclass
class Field:
    """The processes of all contestants, and a folder for their outputs."""

    contestants: Sequence[Contestant]
    folder: Path
    timing: Timing = field(default_factory=Timing)

    def __post_init__(self) -> None:
        first = {c.home: c.spec for c in reversed(self.contestants)}
        self._children = {home: child_of(spec) for home, spec in first.items()}
        self._homes = {c.name: c.home for c in self.contestants}
        self._random = random.Random(self.timing.seed)
        self._stack = ExitStack()

    def __enter__(self) -> Field:
        for child in self._children.values():
            self._stack.enter_context(child)
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.close()

    def unit(self, suite: str, job: str) -> dict[str, Cell]:
        """One job, all contestants: set up, checked, timed in turns. Cells by contestant."""
        cells = {c.name: self._set_up(c, suite, job) for c in self.contestants}
        self._compare(cells)
        live = [name for name, cell in cells.items() if not why_not(cell) and name != REFERENCE]
        blocks: dict[str, list[dict[str, Any]]] = {name: [] for name in live}
        with timing_lock():
            for _ in range(self.timing.rounds):
                self._random.shuffle(live)
                for name in live:
                    answer = self._time(name)
                    if "failed" in answer:
                        cells[name]["failed"] = answer["failed"]
                    else:
                        blocks[name].append(answer)
        for name, found in blocks.items():
            if found and "failed" not in cells[name]:
                cells[name] |= summary(found) | {"run_bytes": max(b["run_bytes"] for b in found)}
        for child in self._children.values():
            if child.pid is not None:
                ask(child, {"do": "clear"}, 60.0)
        return cells

    def _set_up(self, c: Contestant, suite: str, job: str) -> Cell:
        output = self._output(c.name)
        output.unlink(missing_ok=True)
        asked = {"do": "setup", "suite": suite, "job": c.job(job), "output": str(output), "name": c.name}
        return ask(self._children[c.home], asked, SETUP_TIMEOUT_S)

    def _output(self, name: str) -> Path:
        return self.folder / f"{name}.npy"

    def _compare(self, cells: Mapping[str, Cell]) -> None:
        """Records how far every output is from the reference's, or from torch's if there is no reference. A
        contestant that is too far away is refused. If torch does not take part, outputs are compared with
        onnxruntime's."""
        judges: tuple[str, ...] = ("torch",)
        if REFERENCE in cells:
            judges = (REFERENCE,)
        elif "skip" in cells["torch"]:
            judges = ("torch", "onnxruntime")
        judge = next((n for n in judges if n in cells and not why_not(cells[n])), None)
        if judge is None:
            for cell in cells.values():
                if not why_not(cell):
                    cell["failed"] = "torch has no answer to compare with"
            return
        reference = np.load(self._output(judge))
        for name, cell in cells.items():
            if not why_not(cell):
                error = distance(np.load(self._output(name)), reference)
                cell["error"] = error
                if not error <= TOLERANCE:
                    cell["refused"] = f"differs from {judge} by {error:.1e} of the largest element"

    def _time(self, name: str) -> dict[str, Any]:
        """Times one block several times. The least disturbed try counts."""
        best: dict[str, Any] | None = None
        for _ in range(self.timing.tries):
            time.sleep(REST_S)
            if self.timing.tries > 1:
                wait_until_idle(IDLE_WAIT_S)
            busy, began = busy_seconds(), time.perf_counter()
            timeout = 60.0 + 20 * self.timing.block_s
            asked = {"do": "time", "seconds": self.timing.block_s, "name": name}
            answer = ask(self._children[self._homes[name]], asked, timeout)
            if "failed" in answer:
                return answer
            wall = time.perf_counter() - began
            answer["foreign"] = max(0.0, busy_seconds() - busy - answer["cpu_s"]) / wall
            if best is None or answer["foreign"] < best["foreign"]:
                best = answer
            if best["foreign"] < FOREIGN_SHARE:
                break
        assert best is not None
        return best


def child_of(spec: Spec) -> Child:
    """The process of a contestant, started at its first request."""
    words = [json.dumps(asdict(spec))]
    python = python_of(spec.kind)
    return Child(
        "contests.contestant",
        words,
        env=spec.variables(),
        path=[HERE],
        output_limit=CHATTER_BYTES,
        python=python,
    )


def ask(child: Child, what: Mapping[str, Any], timeout_s: float) -> Cell:
    """The child's answer; {"failed": why} if it gives none."""
    try:
        reply = child.request(json.dumps(what), timeout_s)
    except MeasureError as error:
        return {"failed": str(error)[:600]}
    if reply.status is not Status.OK:
        last = [line for line in reply.output.strip().splitlines() if line.strip()][-1:]
        return {"failed": f"{reply.detail} {' '.join(last)}".strip()[:600]}
    answer: Cell = json.loads(reply.text)
    if "failed" in answer and reply.output.strip():
        print(reply.output.strip()[-2000:], file=sys.stderr)
    return answer


def why_not(cell: Cell) -> str:
    """The reason why a cell has no time; "" if it has or will have one."""
    return next((str(cell[k]) for k in ("failed", "refused", "skip") if k in cell), "")


def distance(array: np.ndarray[Any, Any], reference: np.ndarray[Any, Any]) -> float:
    """The largest difference, as a share of the reference's largest element. It is infinite if shapes differ
    or an element is not a number."""
    if array.shape != reference.shape or not np.isfinite(array).all():
        return float("inf")
    largest = float(np.abs(reference).max()) if reference.size else 0.0
    difference = float(np.abs(array - reference).max()) if reference.size else 0.0
    return difference / largest if largest else difference


def summary(blocks: Sequence[Mapping[str, Any]]) -> Cell:
    """The seconds of one run, from the blocks of one process."""
    medians = [median(b["seconds"]) for b in blocks]
    everything = [s for b in blocks for s in b["seconds"]]
    return {
        "median": median(everything),
        "min": min(everything),
        "rounds": medians,
        "samples": len(everything),
        "foreign": max(b["foreign"] for b in blocks),
        "cores": median(b["cpu_s"] / b["wall_s"] for b in blocks),
    }


def busy_seconds() -> float:
    """How many seconds the cores that this process may use were busy since the machine started. This includes
    time that a hypervisor took from them."""
    every = psutil.cpu_times(percpu=True)
    ours = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(every))
    return sum(
        sum(t) - t.idle - getattr(t, "iowait", 0.0) - getattr(t, "guest", 0.0)
        for t in (every[i] for i in ours if i < len(every))
    )


def wait_until_idle(limit_s: float) -> bool:
    """Waits until the cores of this process are idle, at most `limit_s` seconds. Returns whether they became
    idle."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        before = busy_seconds()
        time.sleep(IDLE_S)
        if busy_seconds() - before < FOREIGN_SHARE * IDLE_S:
            return True
    return False
