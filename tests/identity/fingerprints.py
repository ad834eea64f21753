"""The compiler's output for every task of every built-in model, as short hashes: a refactoring must not
change it.

    target    task × (trace, sketches, lowered IR, source text, features)
    znver4    resnet18/4 6f7a1c… │ 0d31… │ 99e2… │ 4c07… │ b18a… │ -

A column that changes names what changed: the default trace; the sketches with their holes; the program that a
backend gets; what the backend writes (LLVM's text before LLVM's own passes, OpenCL and CUDA source); the
features of a fixed population of the first sketch (of one task in eight).

Nothing here depends on the machine: the targets are records with every field that the compiler reads, and
features are rounded, because NumPy's logarithms differ in their last bit between processors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np

from autotensor.api.models import plan_model
from autotensor.base.errors import TargetError
from autotensor.base.target import Target
from autotensor.codegen import backend
from autotensor.codegen.llvm.backend import module_text
from autotensor.ir.printer import to_text
from autotensor.lowering.pipeline import lower
from autotensor.models import MODELS
from autotensor.schedule.sketch import Sketch
from autotensor.schedule.step import to_json
from autotensor.schedule.trace import Trace
from autotensor.search.propose.population import sample
from autotensor.search.score.features import features
from autotensor.te.workload import Workload
from schedules.generate import default_trace, generate, structure
from schedules.prior.predict import predict
from schedules.prior.rates import Rates

GOLDEN = Path(__file__).parent / "golden"
COLUMNS = ("trace", "sketches", "ir", "source", "features")
NOT_TAKEN = "-"  # features of the other seven tasks in eight
REFUSED = "refused"
FEATURES_OF = 8  # features are hashed for one task in eight
POPULATION = 32  # candidates whose features are hashed
DIGITS = 6  # of a feature behind the point
HASH, KEY = 16, 12  # hex digits of a hash and of a workload's key

Row = tuple[str, ...]  # the task's name, then a hash for each of COLUMNS
Table = dict[str, Row]  # by the first digits of the workload's key


def _cpu(arch: str, vector_bytes: int, registers: int, triple: str = "x86_64-unknown-linux-gnu") -> Target:
    """A processor with two threads, of which nothing is read from the one that the test runs on."""
    return Target(
        "llvm",
        arch,
        triple=triple,
        num_cores=2,
        vector_bytes=vector_bytes,
        vector_registers=registers,
    )


def _card(kind: str, arch: str, l1: int, l2: int, shared: int, threads: int, cores: int) -> Target:
    return Target(
        kind,
        arch,
        num_cores=cores,
        vector_registers=255,
        cache_bytes=(l1, l2),
        warp_size=32,
        max_threads_per_block=threads,
        max_shared_bytes=shared,
    )


TARGETS: Mapping[str, Target] = {
    "x86-64-v2": _cpu("x86-64-v2", 16, 16),
    "x86-64-v3": _cpu("x86-64-v3", 32, 16),
    "x86-64-v4": _cpu("x86-64-v4", 64, 32),
    "znver4": _cpu("znver4", 64, 32),
    "sapphirerapids": _cpu("sapphirerapids", 64, 32),
    "aarch64": _cpu("neoverse-n1", 16, 32, "aarch64-unknown-linux-gnu"),
    "opencl-gpu": _card("opencl", "", 32 << 10, 1 << 20, 32 << 10, 256, 32),
    "cuda-sm80": _card("cuda", "sm_80", 128 << 10, 40 << 20, 163 << 10, 1024, 108),
}
# models whose weights are made quickly: products, convolutions, pools, norms, attention, GELU
SAMPLE = ("mlp", "small_cnn", "gcn", "resnet18", "mobilenet_v2", "dit")


Tasks = dict[str, tuple[str, Workload]]  # by key, each with a name such as resnet18/4


@lru_cache(maxsize=4)
def tasks(models: tuple[str, ...]) -> tuple[Tasks, Tasks]:
    """The distinct tasks of models on processors and on cards, in order of appearance."""
    found: tuple[Tasks, Tasks] = ({}, {})
    for name in models:
        graph = MODELS.get(name).build(batch=1)
        for target, known in zip((TARGETS["znver4"], TARGETS["opencl-gpu"]), found, strict=True):
            for n, task in enumerate(plan_model(graph, target).tasks):
                known.setdefault(task.workload.key, (f"{name}/{n}", task.workload))
    return found


def table(models: Iterable[str], target: Target, first: int = 0, step: int = 1) -> Table:
    """The fingerprints of all tasks of some models on a target; or of every `step`th, from the `first`."""
    known = tasks(tuple(models))[target.is_gpu]
    return {
        key[:KEY]: (name, *fingerprints(workload, target))
        for key, (name, workload) in list(known.items())[first::step]
    }


def fingerprints(workload: Workload, target: Target) -> Row:
    """A hash for each of COLUMNS."""
    trace = default_trace(workload.dag, target)
    sketches = generate(workload.dag, target)
    chosen = int(workload.key, 16) % FEATURES_OF == 0
    return (
        short(trace.to_json()),
        short(*map(described, sketches)),
        *compiled(trace, workload, target),
        population(sketches[0], workload, target) if chosen else NOT_TAKEN,
    )


def compiled(trace: Trace, workload: Workload, target: Target) -> tuple[str, str]:
    """Hashes of the lowered IR and of the source text; REFUSED if the target cannot run the trace."""
    try:
        program = lower(trace.replay(workload.dag), target)
    except TargetError:
        return REFUSED, REFUSED
    if not target.is_gpu:
        return short(to_text(program)), short(module_text(program, target)[0])
    made = backend.compile(program, target, name="kernel")
    return short(to_text(program)), short(made.objects[0].decode(), json.dumps(made.meta["launches"]))


def described(sketch: Sketch) -> str:
    """A whole sketch as text."""
    holes = [[h.name, h.options, h.default] for h in sketch.holes]
    return json.dumps([[to_json(s) for s in sketch.steps], holes, sketch.made_by])


def population(sketch: Sketch, workload: Workload, target: Target) -> str:
    """The hash of the predicted times and features of a fixed population."""
    candidates = sample(sketch, structure(sketch, workload.dag), POPULATION, np.random.default_rng(0))
    seconds, terms = predict(candidates.picture, target, Rates.guess(target))
    matrix = features(candidates.picture, terms, seconds, target)  # [candidates, features]
    rounded = np.round(matrix, DIGITS) + 0.0  # and no negative zeros
    return short(json.dumps(rounded.tolist()))


def short(*texts: str) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(f"{len(text)} {text}".encode())
    return digest.hexdigest()[:HASH]


def differences(known: Table, now: Table, whole: bool = True) -> list[str]:
    """The differences, a line for each hash. whole: a known task that is not here counts as missing."""
    lines = [f"{known[k][0]} ({k}) is no task any more" for k in known if whole and k not in now]
    for key, (name, *hashes) in now.items():
        if key not in known:
            lines.append(f"{name} ({key}) is new")
            continue
        pairs = zip(COLUMNS, known[key][1:], hashes, strict=True)
        lines += [f"{name} ({key}): {column} differs" for column, was, is_ in pairs if was != is_]
    return lines


def read(target: str) -> Table:
    rows = (line.split() for line in (GOLDEN / f"{target}.txt").read_text().splitlines())
    return {key: (name, *hashes) for key, name, *hashes in rows}


def write(target: str, rows: Table) -> None:
    GOLDEN.mkdir(exist_ok=True)
    lines = (" ".join((key, *row)) for key, row in rows.items())
    (GOLDEN / f"{target}.txt").write_text("".join(line + "\n" for line in lines))
