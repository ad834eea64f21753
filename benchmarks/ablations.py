"""What each ingredient is worth: ResNet-18 tuned with everything, and again with one thing taken away.

    python benchmarks/ablations.py --trials 500 [--model resnet18] [--processes 5] [--only full,no-winograd]

Every variant is tuned from an empty log of its own, in a process of its own, with the same number of trials
and the same seed; then all of them are timed in turns. A variant's file is kept, and made again when our
source has changed (or with --fresh).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import report
from contest import Contestant, Timing
from models import prepare
from networks import Network
from peers import Spec, cache_folder
from report import FILE, compared, figure, typical
from results import Results, source_hash
from table import Plan, Row, arguments, installed, make

GENERAL = ("constants", "inline", "epilogue", "pointwise", "tile_general", "fallback")


@dataclass(frozen=True)
class Variant:
    """What is different from `full`."""

    about: str
    strict: bool = False  # numerics
    narrow: bool = False  # AVX2 only
    trials: float = 1.0  # share of --trials; 0: default schedules
    model: str = "xgb"
    threads: int | None = None
    fuse: bool = True
    fold: bool = True  # batch norms into weights
    pack: bool = True  # constants at compile time
    rules: tuple[str, ...] | None = None  # these only
    search: bool = True  # False: the loops as they are written, no schedule at all


VARIANTS = {
    "full": Variant("everything: tuned, XGBoost and prior, Winograd where it wins"),
    "no-tuning": Variant("default schedules, nothing measured", trials=0),
    "no-xgboost": Variant("candidates ranked by the analytic model only", model="prior"),
    "chance": Variant("candidates drawn at random, neither model", model="random"),
    "no-winograd": Variant("strict numerics: direct convolutions only", strict=True),
    "no-fusion": Variant("bias, shortcut and relu in kernels of their own", fuse=False),
    "no-folding": Variant("batch norms computed, not folded into weights", fold=False),
    "no-packing": Variant("weights given at every call: nothing is packed ahead", pack=False),
    "general-rules": Variant("sketches of the general rules only, no knowledge of kernels", rules=GENERAL),
    "no-schedule": Variant("loops as the formulas say, compiled by LLVM", trials=0, search=False),
    "avx2": Variant("256-bit vectors, 16 registers", narrow=True),
    "one-thread": Variant("one thread", threads=1),
}


# -- a variant's process -----------------------------------------------------------------------------------


def build(name: str, model: str, out: Path, trials: int, threads: int, seed: int) -> dict[str, Any]:
    """Tunes and compiles one variant; runs in a process of its own, for it changes modules."""
    from autotensor.api.model_tuning import tune_model
    from autotensor.api.models import default_traces, link_model
    from autotensor.base import switches
    from autotensor.runtime import artifact
    from autotensor.schedule.trace import Trace
    from autotensor.search.options import TuneOptions

    variant = VARIANTS[name]
    apply(variant)
    target = target_of(variant, variant.threads or threads)
    plan, extra = plan_of(Network.named(model).graph(), variant, target)
    share, began, spent = round(trials * variant.trials), time.perf_counter(), 0
    if variant.search and share:
        options = TuneOptions(trials=share, seed=seed, model=variant.model)
        with switches.override(no_shipped=True):
            done = tune_model(plan, options, db=out.with_suffix(".db"), path=out)
        spent = done.tuning.trials
    else:
        plain = {t.workload.key: Trace() for t in plan.tasks}
        artifact.save(out, link_model(plan, default_traces(plan) if variant.search else plain))
    if extra:
        import numpy as np

        np.savez(out.with_suffix(".npz"), **extra)
    return {"trials": spent, "seconds": time.perf_counter() - began, "tasks": len(plan.tasks)}


def apply(variant: Variant) -> None:
    """Takes away what the variant lacks, in this process."""
    from autotensor.graph import partition
    from schedules import generate, registry

    if not variant.fuse:
        partition.MAX_EPILOGUE = 0
    if variant.rules is not None:
        kept = [r for r in registry.RULES if r.name in variant.rules]
        assert generate.RULES is registry.RULES
        registry.RULES[:] = kept


def target_of(variant: Variant, threads: int) -> Any:
    from autotensor.base.target import parse

    target = parse(f"llvm -threads={threads} -numerics={'strict' if variant.strict else 'fast'}")
    if not variant.narrow:
        return target
    wide = "avx512", "evex512", "avx10"
    kept = [f for f in target.features.split(",") if not f[1:].startswith(wide)]
    gone = [f"-{f[1:]}" for f in target.features.split(",") if f[0] == "+" and f[1:].startswith(wide)]
    return replace(target, features=",".join([*kept, *gone]), vector_bytes=32, vector_registers=16)


def plan_of(graph: Any, variant: Variant, target: Any) -> tuple[Any, dict[str, Any]]:
    """The model in groups, and arrays that it wants at every call."""
    from autotensor.api.models import ModelPlan
    from autotensor.graph.partition import own_outputs, partition, tasks
    from autotensor.graph.rules import PASSES, optimize

    passes = tuple(p for p in PASSES if variant.fold or p.name != "fold batch norm")
    ready, extra = optimize(graph, passes), {}
    if not variant.pack:
        ready, extra = weights_as_inputs(ready)
    ready = own_outputs(ready)
    groups = partition(ready)
    return ModelPlan(ready, groups, tasks(groups), target), extra


def weights_as_inputs(graph: Any) -> tuple[Any, dict[str, Any]]:
    """The graph with every constant array as an argument, and those arrays by name."""
    from autotensor.graph.build import input
    from autotensor.graph.ir import Constant, Graph
    from autotensor.graph.rewriting import with_inputs

    new: dict[Any, Any] = {}
    given: dict[str, Any] = {}
    for node in graph.nodes:
        if isinstance(node, Constant) and node.array.ndim:
            name = f"w{len(given)}"
            new[node] = input(node.shape, node.dtype, name)
            given[name] = node.array
        elif hasattr(node, "inputs"):
            new[node] = with_inputs(node, tuple(new.get(x, x) for x in node.inputs))
    inputs = (*graph.inputs, *(n for n in new.values() if not hasattr(n, "inputs")))
    outputs = tuple(new.get(o, o) for o in graph.outputs)
    return Graph(inputs, outputs, graph.name, graph.output_names), given


# -- the table -----------------------------------------------------------------------------------------------


def made(name: str, options: argparse.Namespace, folder: Path) -> Path | None:
    """The variant's file, made in a process of its own unless it is there; None when that failed."""
    out = folder / f"{name}.atm"
    log = out.with_suffix(".json")
    asked = {"trials": options.trials, "threads": options.threads, "seed": options.seed}
    if log.exists() and json.loads(log.read_text()).get("asked") == {**asked, "source": source_hash()}:
        return out
    for stale in folder.glob(f"{name}.*"):
        stale.unlink()
    command = [sys.executable, __file__, "--model", options.model, "--build", name, "--out", str(out)]
    command += [word for key, value in asked.items() for word in (f"--{key}", str(value))]
    limit = 600 + 5 * options.trials
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        print(f"{name}: not made within {limit} s.")
        return None
    if done.returncode:
        print(f"{name}: not made. {' '.join(done.stderr.strip().splitlines()[-1:]) or done.returncode}")
        return None
    facts = json.loads(done.stdout.strip().splitlines()[-1])
    log.write_text(json.dumps({**facts, "asked": {**asked, "source": source_hash()}}))
    print(f"{name}: {facts['trials']} trials, {facts['tasks']} tasks, {facts['seconds']:.0f} s", flush=True)
    return out


def page(results: Results, model: str) -> Iterable[str]:
    """The table as Markdown."""
    row = results.rows[model]
    m, whole = results.data["machine"], f"{FILE}full"
    yield f"# What each ingredient is worth: {model}, {results.data['threads']} threads"
    yield ""
    yield (
        f"{m['cpu']}, {m['cores']} cores. Each variant is tuned from an empty log with the same number of "
        f"trials; {len(row['units'])} set(s) of processes, timed in turns. Times as slow as with everything, "
        "with the one-sided 95 % bound over processes."
    )
    yield ""
    yield "| taken away | what remains | ms | least ms | times as slow |"
    yield "|---|---|---|---|---|"
    for name, variant in VARIANTS.items():
        column = f"{FILE}{name}"
        if not any(column in u["cells"] for u in row["units"]):
            continue
        time_s, least_s = typical(row, column), typical(row, column, "min")
        ratio = compared(row, column, whole)
        if time_s is None or least_s is None:
            yield f"| {name} | {variant.about} | – | – | – |"
            continue
        slower = "–" if ratio is None else f"{ratio.value:.2f}"
        if ratio is not None and ratio.lower > 0 and name != "full":
            bound = f"≥ {ratio.lower:.2f}" if ratio.value >= 1 else f"≤ {ratio.upper:.2f}"
            slower += f" ({bound})"
        yield f"| {name} | {variant.about} | {figure(1e3 * time_s)} | {figure(1e3 * least_s)} | {slower} |"
    yield ""
    yield from report.notes(report.Table.of(results))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--build", choices=VARIANTS, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    arguments(parser, "ablations.json", "", rounds=5, block_s=0.5)
    parser.set_defaults(trials=500)
    options = parser.parse_args()
    if options.build:
        o = options
        print(json.dumps(build(o.build, o.model, o.out, o.trials, o.threads, o.seed)))
        return 0
    names = [n for n in options.only.split(",") if n] or list(VARIANTS)
    if wrong := [n for n in names if n not in VARIANTS]:
        raise SystemExit(f"no variant is called {wrong[0]!r}. Known: {', '.join(VARIANTS)}.")
    folder = Path(cache_folder()) / "ablations" / options.model
    folder.mkdir(parents=True, exist_ok=True)
    if options.fresh:
        for path in folder.iterdir():
            path.unlink()
    found: dict[str, Path] = {}
    if not options.report:
        print(f"Making {len(names)} variants, at most {len(names) * options.trials} trials.", flush=True)
        found = {n: path for n in names if (path := made(n, options, folder)) is not None}
    contestants = [Contestant("torch", Spec("torch", options.threads))]
    contestants += [
        Contestant(
            f"{FILE}{n}", Spec("ours", VARIANTS[n].threads or options.threads, file=str(path)), mine=True
        )
        for n, path in found.items()
    ]
    ready: Callable[[], str] = partial(prepare, options.model, contestants)
    row = Row(options.model, Network.named(options.model).facts, ready)
    timing = Timing(options.rounds, options.block, options.tries, options.seed)
    plan = Plan("models", [row], installed(contestants), timing, options.processes, retry=options.retry)
    options.trials = 0  # they are tuned; the table only measures

    def write(results: Results) -> None:
        path = results.path.with_suffix(".md")
        path.write_text("\n".join(page(results, options.model)) + "\n")
        print(f"Wrote {path}")

    return make(plan, options, "Ablations", write)


if __name__ == "__main__":
    sys.exit(main())
