"""A whole model as a contestant's job: `resnet18`, `resnet18@b8` (batch 8), `mlp@b32w10` (ten times wider).

The files that are made once for all contestants are in a folder:

    <cache>/networks/resnet18/   model.onnx  weights.npz  inputs.npz  facts.json  default-strict-t2.atm …

`prepare` makes the folder, in a separate process. Contestants read only the files that they need.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from peers import Ready, Skip, Spec, cache_folder

Array = np.ndarray[Any, np.dtype[Any]]


NAME = re.compile(r"(?P<model>\w+)(@(b(?P<batch>\d+))?(w(?P<widen>\d+))?)?")


@dataclass
class Network:
    """A built-in model of autotensor, by name."""

    name: str
    folder: Path
    model: str
    batch: int = 1
    # such as {"widen": 10}; empty: the model's own sizes
    sizes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def named(cls, name: str) -> Self:
        """The network of that name. Raises ValueError if there is no such name."""
        found = NAME.fullmatch(name)
        if found is None:
            raise ValueError(
                f"{name!r} is no network. Networks are called resnet18, resnet18@b8, mlp@b32w10."
            )
        sizes = {} if found["widen"] is None else {"widen": int(found["widen"])}
        folder = Path(cache_folder()) / "networks" / name
        return cls(name, folder, found["model"], int(found["batch"] or 1), sizes)

    # -- what contestants need -------------------------------------------------------------------------------

    @cached_property
    def _inputs(self) -> dict[str, Array]:
        with np.load(self.folder / "inputs.npz") as found:
            return {n: found[n] for n in found.files}

    @property
    def arrays(self) -> tuple[list[Array], dict[str, Array]]:
        return list(self._inputs.values()), {}

    @property
    def channels_last(self) -> int:
        from nets.plain import CHANNELS_LAST

        return CHANNELS_LAST.get(self.model, 2)

    def module(self) -> Any:
        from nets.plain import load

        with np.load(self.folder / "weights.npz") as found:
            return load(self.model, {n: found[n] for n in found.files}, **self.sizes)

    def onnx(self) -> bytes | str:
        path = self.folder / "model.onnx"
        if not path.exists():
            raise Skip("it cannot be written as ONNX")
        return str(path)

    def numpy_function(self) -> None:
        return None

    def ours(self, spec: Spec) -> Ready:
        """Loads a compiled file: the spec's own file, or the file that `prepare` made for the spec."""
        import autotensor as at

        path = Path(spec.file) if spec.file else self.compiled(spec)
        if not spec.file and path.with_suffix(".skip").exists():
            raise Skip(path.with_suffix(".skip").read_text())
        f = at.load(path, threads=spec.threads)
        given = {**self._inputs, **_beside(path)}
        inputs = [a.name for a in f.args if a.role == "input"]
        if not set(inputs) <= set(given):
            raise Skip("the file is of another model")
        taken = [given[n] for n in inputs]
        result = f(*taken)
        out = result if isinstance(result, tuple) else (result,)

        def run() -> None:
            f(*taken, *out)

        def output() -> Array:
            out[0][...] = np.nan
            run()
            return np.array(out[0])

        return run, output

    def compiled(self, spec: Spec) -> Path:
        """The path of the compiled file for a contestant of autotensor."""
        kind = "tuned" if spec.log else "default"
        return self.folder / f"{kind}-{spec.numerics}-t{spec.threads}.atm"

    # -- making it -------------------------------------------------------------------------------------------

    def graph(self, weights: Mapping[str, Array] | None = None) -> Any:
        from autotensor.models import MODELS

        return MODELS.get(self.model).build(batch=self.batch, weights=weights, **self.sizes)

    def torch_graph(self) -> Any:
        """The graph of the torch module. Its tasks are those of torch.compile, and some differ from those of
        `graph`."""
        import torch
        from nets.plain import load

        from autotensor.frontends.torch import from_torch
        from autotensor.models import MODELS

        graph = self.graph()
        arrays = MODELS.get(self.model).inputs(np.random.default_rng(0), batch=self.batch)
        module = load(self.model, {c.name: c.array for c in graph.constants if c.name}, **self.sizes)
        if module is None:
            raise Skip("there is no torch module of it")
        return from_torch(module, tuple(torch.from_numpy(arrays[n.name]) for n in graph.inputs))

    def tune(self, spec: Spec, trials: int, seed: int, limit_s: float | None = None) -> dict[str, Any]:
        """Fills the log of the spec, with so many trials, or with a time limit like `autotensor tune
        --deadline`. A second call with the same arguments measures nothing."""
        from autotensor.api.model_tuning import tune_model
        from autotensor.api.models import plan_model
        from autotensor.search.options import TuneOptions
        from jobs.operator_job import target_of

        graph = self.torch_graph() if spec.kind == "backend" else self.graph()
        plan = plan_model(graph, target_of(spec))
        # with a time limit: the command's own number of trials
        asked = {"trials": trials} if limit_s is None else {}
        options = TuneOptions(seed=seed, deadline_s=limit_s, **asked)
        report = tune_model(plan, options, db=spec.log, progress=False)
        return {
            "trials": report.tuning.trials,
            "reused": report.tuning.reused,
            "failures": sum(t.failures for t in report.tuning.tasks),
            "elapsed_s": report.tuning.elapsed_s,
            "default_s": report.default_s,
            "best_s": report.tuned_s,
            "reason": report.tuning.reason,
        }

    def clear(self) -> None:
        """Empties the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.iterdir():
            path.unlink()

    def prepare(self, specs: list[Spec]) -> dict[str, Any]:
        """Writes the folder, and compiles the model for every spec of autotensor. Returns the facts for the
        table."""
        from autotensor.models import MODELS

        self.clear()
        graph = self.graph()
        inputs = MODELS.get(self.model).inputs(np.random.default_rng(0), batch=self.batch)
        np.savez(self.folder / "inputs.npz", **{n.name: inputs[n.name] for n in graph.inputs})
        np.savez(self.folder / "weights.npz", **{c.name: c.array for c in graph.constants if c.name})
        notes = self._write_onnx(graph, inputs)
        facts = self._compile(graph, [s for s in specs if not s.file])
        (self.folder / "facts.json").write_text(json.dumps(facts))
        return {"facts": facts, "notes": notes}

    def _write_onnx(self, graph: Any, inputs: Mapping[str, Array]) -> list[str]:
        try:
            import onnx

            onnx.save(self._as_onnx(graph, inputs), str(self.folder / "model.onnx"))
        except (ImportError, ValueError) as error:
            return [f"no ONNX file: {error}"]
        return []

    def _as_onnx(self, graph: Any, inputs: Mapping[str, Array]) -> Any:
        """The ONNX model of autotensor's graph, or of the torch module if the graph has operators that ONNX
        lacks."""
        from nets.to_onnx import to_onnx
        from nets.torch_to_onnx import torch_to_onnx

        try:
            return to_onnx(graph)
        except ValueError:
            module = self.module()
            if module is None:
                raise
            return torch_to_onnx(module, {n.name: inputs[n.name] for n in graph.inputs})

    def _compile(self, graph: Any, specs: list[Spec]) -> Mapping[str, float]:
        """Writes autotensor's compiled files. A file with fast numerics is written only if these change a
        schedule."""
        from autotensor.api.models import link_model, plan_model
        from autotensor.runtime.files import artifact_file as artifact
        from jobs.operator_job import target_of

        facts: dict[str, float] = {}
        known: dict[tuple[str, str], Mapping[str, str]] = {}
        for spec in sorted(specs, key=lambda s: s.numerics != "strict"):
            plan = plan_model(graph, target_of(spec))
            traces = _traces(plan, spec)
            facts = {"flops": float(sum(g.flops for g in plan.groups))}
            hashes = {k: t.hash for k, t in traces.items()}
            known[spec.log, spec.numerics] = hashes
            path = self.compiled(spec)
            if spec.numerics == "fast" and known.get((spec.log, "strict")) == hashes:
                path.with_suffix(".skip").write_text("as strict: no fast algorithm is used")
            else:
                artifact.save(path, link_model(plan, traces))
        return facts

    def facts(self) -> dict[str, float]:
        """The facts that `prepare` has written: the nominal operations of one inference."""
        path = self.folder / "facts.json"
        found: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
        return found


def _traces(plan: Any, spec: Spec) -> Mapping[str, Any]:
    """The traces that `autotensor tune` would link: the best of the log, unless they made the whole model
    slower."""
    from autotensor.api.log import open_log
    from autotensor.api.model_race_outcome import outcome_of
    from autotensor.api.models import default_traces, traces_from_log

    default = default_traces(plan)
    if not spec.log:
        return default
    with open_log(spec.log) as store:
        tuned = traces_from_log(plan, store)
        known = outcome_of(store, plan.target, tuned, default)
    return default if known is not None and known.tuned_s > known.default_s else tuned


def _beside(path: Path) -> dict[str, Array]:
    """The arrays that a compiled file needs at every call, from the .npz file next to it
    (benchmarks/ablations.py)."""
    extra = path.with_suffix(".npz")
    if not extra.exists():
        return {}
    with np.load(extra) as found:
        return {n: found[n] for n in found.files}
