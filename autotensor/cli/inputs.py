"""The model of a verb: a built-in model by name, or an .atm file; and checks of output files.

Loading a file imports neither graphs nor models. Naming a model does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autotensor.api.loading import load
from autotensor.api.log import open_existing
from autotensor.base.counted import counted
from autotensor.base.errors import ArtifactError, InputError
from autotensor.cli.model_files.onnx_files import RunsInParts, is_onnx, onnx_graph
from autotensor.cli.model_files.onnx_parts import InParts
from autotensor.cli.model_files.torch_files import exported_graph, is_exported
from autotensor.cli.options import Log, Machine, Source, warn_of_threads
from autotensor.cli.output import tell
from autotensor.cli.output_files import check_place
from autotensor.runtime.extents import OpenShapes
from autotensor.runtime.files import artifact_file as artifacts
from autotensor.runtime.files.artifact import OPEN_SHAPES, ArgSpec, Artifact
from autotensor.runtime.files.atomic_write import is_stream
from autotensor.runtime.open_artifact import Function, open_artifact
from autotensor.runtime.sample_arrays import sample_inputs

if TYPE_CHECKING:
    from autotensor.api.models import ModelPlan
    from autotensor.graph.ir import Graph
    from autotensor.graph.symbols.graph_families import GraphFamily
    from autotensor.resolve import Resolved

Array = np.ndarray[Any, np.dtype[Any]]

_EXPORT = "Export the module: torch.export.save(torch.export.export(net, (x,)), {!r})."
PICKLED = (".pt", ".pth", ".pkl")  # torch's weights, or modules
FOREIGN = (".pb", ".tflite", ".h5", ".keras", ".json", ".py")  # models of other systems
TRAINED = ("small_cnn",)  # models whose trained weights come with the package
PLAIN = Source()


def is_file(name: str) -> bool:
    """Whether MODEL|FILE.atm names a file: it has such an ending, or the file exists. Raises InputError for
    pickled files of torch, which are never read."""
    if Path(name).suffix in PICKLED:
        _refuse_file(name)
    return name.endswith(".atm") or (Path(name).is_file() and not is_onnx(name) and not is_exported(name))


def build_graph(model: str, source: Source = PLAIN) -> Graph | GraphFamily:
    """The graph of a built-in model, an .onnx file or a program of torch.export.

    Raises InputError about the name, the weights, --shape or --input.
    """
    if source.weights is not None and (is_onnx(model) or is_exported(model)):
        raise InputError(f"{model} holds its weights; --weights has no effect on it.")
    if is_onnx(model):
        return onnx_graph(model, source)
    if source.fixed:
        raise InputError(f"--input fixes inputs of .onnx files only; {model} is not an .onnx file.")
    if is_exported(model):
        return exported_graph(model, source)
    if source.shape:
        raise InputError(
            f"--shape is for .onnx and .pt2 files; {model} has its own shapes.",
            fix="--batch N sets its batch.",
        )
    from autotensor.graph.symbols.graph_families import over_shapes
    from autotensor.models import MODELS, load_weights

    if model not in MODELS:
        _refuse_file(model)
    weights = None if source.weights is None else load_weights(source.weights)
    return over_shapes(
        model, {"batch": source.batch_size}, lambda sizes: MODELS.get(model).build(**sizes, weights=weights)
    )


def _exported_name(name: str) -> str:
    return Path(name).with_suffix(".pt2").name


def _refuse_file(name: str) -> None:
    """Raises InputError for a file where only a built-in model is allowed."""
    if Path(name).is_dir():
        raise InputError(
            f"{name} is a folder, not a model.",
            fix="Name a file in it, or a built-in model (`autotensor models`).",
        )
    ending = Path(name).suffix
    if ending == ".atm":
        raise InputError(
            f"{name} is compiled already; this verb needs a model.",
            fix="Give the .onnx or .pt2 file that it was made of, or a built-in model (`autotensor models`).",
        )
    if ending in PICKLED:
        if not Path(name).is_file():
            raise InputError(f"there is no file {name}.", fix=_EXPORT.format(_exported_name(name)))
        raise InputError(
            f"{name} is a pickled file, which does not hold the module's operators.",
            fix=_EXPORT.format(_exported_name(name)),
        )
    if ending in FOREIGN or Path(name).is_file():
        raise InputError(
            f"{name} is a file of a kind that autotensor cannot read.",
            fix="Export it as .onnx; `autotensor models` lists the built-in ones.",
        )


def facts(model: str, source: Source) -> dict[str, str]:
    """Facts about a model that its .atm file keeps in addition to the code."""
    if is_onnx(model) or is_exported(model):
        return {"weights": "its own"} | ({"values": ", ".join(sorted(source.fixed))} if source.fixed else {})
    if source.weights is not None:
        return {"weights": f"from {source.weights.name}"}
    return {"weights": "trained" if model in TRAINED else "random"}


def warn_of_weights(meta: Mapping[str, Any]) -> str:
    """A warning about the meaning of the model's answers; "" if none is needed."""
    if meta.get("weights") == "random":
        return "The weights are random, so the answers mean nothing; --weights FILE gives trained ones."
    return ""


def place_of(out: Path | None, graph: Graph | GraphFamily, source: Source) -> Path:
    """The file for a compiled model: `--out`, or the model's name. Raises InputError for a bad place."""
    one = source.batch_size == 1 or not isinstance(source.batch_size, int)
    path = out or Path(f"{graph.name}.atm" if one else f"{graph.name}_b{source.batch_size}.atm")
    if is_onnx(path.name):
        raise InputError(f"{path} would be taken for an ONNX model.", fix=f"Name it {path.stem}.atm.")
    if is_exported(path.name):
        raise InputError(f"{path} would be taken for a torch program.", fix=f"Name it {path.stem}.atm.")
    check_place(path)
    if path.exists() and is_stream(path.stat()):
        raise InputError(f"{path} is not a file on disk, which a compiled model must be.", fix="Name a file.")
    if path.suffix != ".atm":
        raise InputError(f"{path}: a compiled model's file ends in .atm.", fix=f"Name it {path.name}.atm.")
    return path


def _held(path: Path) -> Sequence[Artifact]:
    """The contents of a compiled file; empty if it does not exist or is empty. Raises InputError if it is not
    a compiled file, or is damaged."""
    if not path.exists() or path.stat().st_size == 0:
        return ()
    try:
        return artifacts.load_all(path)
    except ArtifactError as error:
        raise InputError(
            f"{path} exists and cannot be read as a compiled model.",
            fix="Name another file with --out, or replace it by --force.",
        ) from error


def check_replaced(path: Path, plans: Sequence[ModelPlan], force: bool) -> None:
    """Raises InputError if the file at `path` holds something else than these plans will give: another model,
    or this one for other inputs, input values, weights or targets, or no model at all."""
    held = () if force else _held(path)
    if not held:
        return
    old, plan = held[0], plans[0]
    graph = plan.graph
    inputs = [ArgSpec(n.name, "input", n.type.shape, str(n.type.dtype)) for n in graph.inputs]
    pairs = (
        ("", _functions(len(held)), _functions(len(plans))),
        ("", old.name, graph.name),
        ("the inputs ", _listed(old.role("input")), _listed(inputs)),
        (
            "the range ",
            _range(old.meta.get(OPEN_SHAPES)),
            _range(plan.opened.plain() if plan.opened else None),
        ),
        ("the target ", ", ".join(a.target.key() for a in held), ", ".join(p.target.key() for p in plans)),
        ("weights ", _weights(old.meta), _weights(plan.facts)),
        ("--input ", str(old.meta.get("values", "nothing")), str(plan.facts.get("values", "nothing"))),
    )
    for what, there, new in pairs:
        if there != new:
            raise InputError(
                f"{path} holds {old.name} with {what}{there}, not {what}{new}."
                if what
                else f"{path} holds {there}, not {new}.",
                fix="Name another file with --out, or replace it by --force.",
            )


def check_known(path: Path, plan: ModelPlan, log: Log, force: bool) -> None:
    """Raises InputError if tuning would first replace the model at `path`, which may be tuned, by one with
    default schedules, because the log has none of its tasks."""
    from autotensor.api.models import held_in, resolved

    if force or not _held(path):
        return
    with open_existing(log.db) as store:
        found = resolved(plan, store)
    if any(r.source == "log" for r in found.values()):
        return
    if held_in(path, plan, {key: r.trace for key, r in found.items()}) is None:
        raise InputError(
            f"{path} exists and may be tuned, but this log has none of its tasks: default schedules would "
            "replace it at once.",
            fix="Give the log that it was tuned with (--db), another file (--out), or --force.",
        )


def _range(open_shapes: Mapping[str, Any] | None) -> str:
    return OpenShapes.of(open_shapes).ranges() if open_shapes else "of one set of shapes"


def _listed(args: Sequence[ArgSpec]) -> str:
    return ", ".join(map(str, args)) or "none"


@dataclass(frozen=True, slots=True)
class Known:
    """A model compiled with the best known traces of this machine, or of another one."""

    artifact: Artifact
    found: Mapping[str, Resolved]  # by workload key

    @property
    def sources(self) -> dict[str, int]:
        """Source of schedules → number of tasks that use it."""
        counts = {"log": 0, "shipped": 0, "default": 0}
        for r in self.found.values():
            counts[r.source] += 1
        return counts

    @property
    def summary(self) -> str:
        """The same numbers in words."""
        n = self.sources
        shipped = f"{n['shipped']} shipped, " if n["shipped"] else ""
        return f"{n['log']} from the log, {shipped}{n['default']} default"

    @property
    def notes(self) -> list[str]:
        """Notes for the user."""
        return sorted({r.note for r in self.found.values() if r.note})


def _weights(facts: Mapping[str, Any]) -> str:
    """The origin of a model's weights, in words."""
    origin = str(facts.get("weights", "of unknown origin"))
    return "of its own file" if origin == "its own" else origin


def _functions(count: int) -> str:
    return "one function" if count == 1 else f"{count} functions"


def compile_known(plan: ModelPlan, log: Log, prepared: bool = False) -> Known:
    from autotensor.api.models import link_model, resolved

    with open_existing(log.db) as store:
        found = resolved(plan, store)
    artifact = link_model(plan, {key: r.trace for key, r in found.items()}, prepared=prepared)
    return Known(artifact, found)


def check_unshaped(name: str, source: Source) -> None:
    """Raises InputError for options that choose the shapes of a call, where nothing is called."""
    if source.batch is not None or source.shape:
        raise InputError(f"{name} is compiled: --batch and --shape have no effect on it.")


def check_compiled(name: str, source: Source, machine: Machine) -> None:
    """Raises InputError for options that have no effect on a compiled file."""
    if source.fixed:
        raise InputError(f"{name} is compiled: --input has no effect on it.")
    if source.weights is not None or machine.target is not None:
        raise InputError(f"{name} is compiled: --weights and --target have no effect on it.")


def open_module(
    name: str, source: Source, machine: Machine, log: Log, instant: bool = False
) -> Function | InParts:
    """MODEL|FILE.atm, ready to call. instant: NumPy answers until it is compiled."""
    if is_file(name):
        if instant:
            raise InputError(f"{name} is compiled, and needs no --instant.")
        check_compiled(name, source, machine)
        warn_of_threads(machine.threads)
        found = load(name, threads=machine.threads)
        made = found.artifact.target.num_cores
        if found.artifact.target.kind == "llvm" and made != found.threads:
            runs = f"here it runs with {found.threads}"
            tell(f"Note: {name} has schedules for {counted(made, 'thread')}; {runs}.")
        return found
    chosen = machine.chosen()
    try:
        graph = build_graph(name, source)
    except RunsInParts as parts:
        how = "which NumPy computes at first" if instant else "compiled at the first call"
        tell(f"{parts.what.rstrip('.')}: it runs in parts, {how}.")
        return InParts(name, parts.shapes, chosen, log.db, instant)
    if instant:
        from autotensor.api.model_compiling import compile_model

        return compile_model(graph, target=chosen, db=log.db, instant=True)
    from autotensor.api.models import plan_model

    known = compile_known(plan_model(graph, chosen, facts=facts(name, source)), log)
    tell(f"Compiled {name}, schedules: {known.summary}.")
    for note in known.notes:
        tell(f"Note: {note}.")
    return open_artifact(known.artifact, threads=chosen.num_cores)


def sample_arrays(module: Function | InParts, args: Sequence[ArgSpec], seed: int = 0) -> list[Array]:
    """Random arrays for these arguments of a call."""
    if not isinstance(module, Function):
        return list(sample_inputs(args, lambda _: None, seed))  # only a run finds indices
    return list(sample_inputs(args, module.artifact.index_range, seed))
