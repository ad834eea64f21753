"""The kernels of a compiled function, with the computation of each and the memory of its arguments.

    meta["kernels"], meta["programs"], texts["workload:…"]  ──▶  Step(name, workload, trace, args, slots)

A function of one kernel is a model of one step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

from autotensor.base.errors import ArtifactError, AutotensorError
from autotensor.compiler import STEPS, WORKLOAD
from autotensor.runtime.files.artifact import ArgSpec, Artifact
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.fixed_extents import fixed
from autotensor.te.workload import Workload
from tuning_db import TrialStore
from tuning_db.records import TrialRecord


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel of a model."""

    number: int
    name: str
    symbol: str
    workload: Workload
    trace: Trace | None
    args: tuple[ArgSpec, ...]
    slots: tuple[tuple[int, int], ...]  # per argument: index of the model's argument, offset in bytes
    constants: frozenset[str]  # names of constants that are not prepared
    reads: Mapping[str, int]  # index of the step that makes an argument, if known
    extents: Mapping[str, int]  # values of the workload's symbols in the call, if it has any

    @property
    def dag(self) -> ComputeDAG:
        """The computation, at the extents of the call."""
        return self.in_call(self.workload.dag)

    def in_call(self, dag: ComputeDAG) -> ComputeDAG:
        """The DAG, which may have symbols of the workload, at the extents of the call."""
        return fixed(dag, {s: self.extents[s.name] for s in dag.symbols() if s.name in self.extents})

    def places(self, *roles: str) -> list[tuple[ArgSpec, tuple[int, int]]]:
        """The arguments of these roles, with their slots."""
        return [(a, s) for a, s in zip(self.args, self.slots, strict=True) if a.role in roles]


def as_model(artifact: Artifact) -> Artifact:
    """The artifact with a list of kernels; an artifact without a list gets one with itself as the only
    kernel."""
    if "kernels" in artifact.meta:
        return artifact
    kernel = {
        "name": artifact.name,
        "symbol": artifact.entry,
        "slots": [[n, 0] for n in range(len(artifact.args))],
        "workload": "",
        "flops": 0,
        **{key: artifact.meta[key] for key in ("extents",) if key in artifact.meta},
    }
    program = {
        "args": [asdict(a) for a in artifact.args],
        "entry_constants": [a.name for a in artifact.role("constant") if a.name in artifact.values],
    }
    texts = {f"{kind}:{artifact.entry}": text for kind, text in artifact.texts.items()}
    meta = {**artifact.meta, "kernels": [kernel], "programs": {artifact.entry: program}}
    args = tuple(_left_out(a) if a.name not in artifact.values else a for a in artifact.args)
    return replace(artifact, meta=meta, texts=texts, args=args)


def _left_out(spec: ArgSpec) -> ArgSpec:
    """The argument. A constant, which only `prepare` read, becomes a workspace of one byte."""
    return replace(spec, role="workspace", shape=(1,), dtype="uint8") if spec.role == "constant" else spec


def steps_of(artifact: Artifact, store: TrialStore | None) -> list[Step]:
    """The kernels of a model in the order in which they run.

    store: a log that is searched for computations that the file lacks. Raises ArtifactError for a file that
    lacks its kernels' arguments, as files of older versions do.
    """
    programs = artifact.meta.get("programs")
    if programs is None:
        raise ArtifactError(
            f"{artifact.name} lacks its kernels' arguments, because an older version compiled it.",
            fix="Compile it again; the tuned schedules are still in the log.",
        )
    logged = {} if store is None else {w.key: w.text for w in store.workloads()}
    steps = []
    for n, k in enumerate(artifact.meta["kernels"]):
        symbol = k["symbol"]
        program = programs[symbol]
        text = artifact.texts.get(f"{WORKLOAD}:{symbol}") or logged.get(k["workload"])
        if text is None:
            raise ArtifactError(
                f"{artifact.name} does not tell what its kernel {k['name']!r} computes, nor does the log.",
                fix="Compile it again; the tuned schedules are still in the log.",
            )
        steps.append(
            Step(
                number=n,
                name=k["name"],
                symbol=symbol,
                workload=_workload(text, k["name"]),
                trace=_trace(artifact.texts.get(f"{STEPS}:{symbol}")),
                args=tuple(
                    ArgSpec(**{**a, "shape": tuple(a["shape"])}) for a in k.get("args", program["args"])
                ),
                slots=tuple((arg, offset) for arg, offset in k["slots"]),
                constants=frozenset(program["entry_constants"]),
                reads=k.get("reads", {}),
                extents=k.get("extents", {}),
            )
        )
    return steps


def with_flops(artifact: Artifact) -> Artifact:
    """The model, with the operations of each kernel and of a call at the extents of `at_extents`."""
    if "kernels" not in artifact.meta:
        return artifact
    flops = [step.dag.flops() for step in steps_of(artifact, None)]
    kernels = [{**k, "flops": n} for k, n in zip(artifact.meta["kernels"], flops, strict=True)]
    return replace(artifact, meta={**artifact.meta, "kernels": kernels, "flops": sum(flops)})


@lru_cache(maxsize=64)
def _workload(text: str, name: str) -> Workload:
    return Workload.from_text(text, name)


def _trace(text: str | None) -> Trace | None:
    """The step's trace; None if this version lacks one of its steps."""
    try:
        return None if text is None else Trace.from_json(text)
    except AutotensorError:
        return None


def trial_of(step: Step, store: TrialStore | None) -> int | None:
    """The trial in the log that made the step's kernel; None if the log does not have it."""
    return max((r.id for r in trials_of(step, store) if r.id is not None), default=None)


def trials_of(step: Step, store: TrialStore | None) -> Sequence[TrialRecord]:
    """The log's trials of the step's schedule; with run-time extents, those at the greatest extents."""
    if store is None or step.trace is None:
        return ()
    return store.trials(step.workload.at_greatest.key, trace_hash=step.trace.hash)


Place = tuple[int, int, int]  # argument of the model, first byte, byte after the last


def place_of(spec: ArgSpec, slot: tuple[int, int]) -> Place:
    return slot[0], slot[1], slot[1] + spec.bytes


def overlap(a: Place, b: Place) -> bool:
    """Whether two places share bytes.

    >>> overlap((0, 0, 8), (0, 4, 12)), overlap((0, 0, 8), (0, 8, 12)), overlap((0, 0, 8), (1, 0, 8))
    (True, False, False)
    """
    return a[0] == b[0] and a[1] < b[2] and b[1] < a[2]


__all__ = [
    "Place",
    "Step",
    "as_model",
    "overlap",
    "place_of",
    "steps_of",
    "trial_of",
    "trials_of",
    "with_flops",
]
