"""Quantised networks, drawn at random: how many of their multiply-adds are in dot instructions, and how fast
are they?

    python benchmarks/quantised_networks.py timm/resnet18 transformers/bert --folder FILES
    python benchmarks/quantised_networks.py --draw timm=6,torchvision=4 --folder FILES --json FILE
    python benchmarks/quantised_networks.py transformers/vit transformers/swin --shallow --folder FILES

Networks of `architecture_frames.py`, with random weights, are exported to ONNX and quantised by
onnxruntime.quantization: `static` (QDQ; activations uint8, weights int8 per channel, ranges from random
inputs) and, of transformers, `dynamic`. Files stay in the folder and are not made again. For each file:

    share    the share of multiply-adds that the kernels' default schedules compute with dot instructions
    left     the largest of the other kernels, with the reasons from `graph.explain()`
    times    of the float file, of the quantised file, and of onnxruntime, in turns: one thread's CPU time
    cosine   between autotensor's and onnxruntime's results

Making files needs torch, onnxruntime and the libraries. Timing them needs only onnxruntime.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import autotensor as at
from autotensor.api.models import ModelPlan, plan_model
from autotensor.codegen.dot_instructions import known_dots
from autotensor.ir.expr import Binary, Cast, Expr, Op
from autotensor.resolve import safe_default
from autotensor.te.dag import StageOp
from autotensor.te.workload import Workload

Array = np.ndarray[Any, Any]
SAMPLES = 8  # random inputs from which the ranges of activations are taken
KINDS = ("static", "dynamic")


# -- files -------------------------------------------------------------------------------------------------


def files(name: str, folder: Path, shallow: bool) -> tuple[dict[str, Path], dict[str, Array]]:
    """The float and quantised files of a network, by kind, and its inputs, by name. Missing files are
    made."""
    library, _, own = name.partition("/")
    place = folder / (name.replace("/", "-") + ("-shallow" if shallow else ""))
    if not (place / "done").exists():
        place.mkdir(parents=True, exist_ok=True)
        given = exported(library, own, place / "float.onnx", shallow)
        np.savez(place / "inputs.npz", **given)
        quantised(place, given, ("static", *(["dynamic"] if library == "transformers" else [])))
        (place / "done").touch()
    found = {kind: place / f"{kind}.onnx" for kind in ("float", *KINDS) if (place / f"{kind}.onnx").exists()}
    with np.load(place / "inputs.npz") as arrays:
        return found, dict(arrays)


def exported(library: str, name: str, path: Path, shallow: bool) -> dict[str, Array]:
    """Writes a network's ONNX file and returns its inputs by name."""
    import onnx
    import torch
    from nets.architecture_frames import made
    from torch.utils._pytree import tree_flatten

    module, args, kwargs = made(library, name, whole=True, shallow=shallow)
    with torch.no_grad():
        program = torch.onnx.export(module, args, kwargs=kwargs, dynamo=True, verbose=False)
    onnx.save(program.model_proto, path)
    given = [v for v in tree_flatten((args, kwargs))[0] if isinstance(v, torch.Tensor)]
    names = [i.name for i in program.model_proto.graph.input]
    return {n: np.ascontiguousarray(v.numpy()) for n, v in zip(names, given, strict=True)}


def quantised(place: Path, given: Mapping[str, Array], kinds: tuple[str, ...]) -> None:
    """Writes the files that onnxruntime.quantization makes from the float file."""
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Samples(CalibrationDataReader):
        def __init__(self) -> None:
            rng = np.random.default_rng(1)
            self.left = [{n: _like(v, rng) for n, v in given.items()} for _ in range(SAMPLES)]

        def get_next(self) -> dict[str, Array] | None:
            return self.left.pop() if self.left else None

    ready = place / "ready.onnx"
    quant_pre_process(place / "float.onnx", ready, skip_symbolic_shape=True)
    if "static" in kinds:
        types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8, "per_channel": True}
        quantize_static(ready, place / "static.onnx", Samples(), **types)
    if "dynamic" in kinds:
        quantize_dynamic(ready, place / "dynamic.onnx", weight_type=QuantType.QInt8)
    ready.unlink()


def _like(x: Array, rng: np.random.Generator) -> Array:
    """Another sample of an input: floats are drawn again, integers stay the same."""
    return rng.standard_normal(x.shape).astype(x.dtype) if x.dtype.kind == "f" else x


# -- multiply-adds -----------------------------------------------------------------------------------------


def multiply_adds(op: StageOp) -> int:
    """The multiply-adds of a sum of products; 0 for other stages."""
    if op.combiner is None or op.combiner.name != "sum" or not any(map(_is_product, op.bodies)):
        return 0
    return prod(x.extent for x in (*op.axes, *op.reduce_axes))


def _is_product(e: Expr) -> bool:
    match e:
        case Cast(_, x):
            return _is_product(x)
        case Binary(Op.MUL, _, _):
            return True
    return False


def counted(workload: Workload, plan: ModelPlan) -> tuple[int, int]:
    """The multiply-adds of a kernel, and how many of them its default schedule computes with dot
    instructions."""
    total = sum(multiply_adds(s) for s in workload.dag.stages)
    state = safe_default(workload, plan.target).replay(workload.dag)
    by_dots = sum(
        multiply_adds(s.op) for s in state.stages if any(x.thread in known_dots() for x in s.leaves)
    )
    return total, min(total, by_dots)


def shares(plan: ModelPlan) -> Iterator[tuple[str, int, int]]:
    """For each kernel with multiply-adds: its name, their number over all runs, and how many of them are in
    dot instructions."""
    for task in plan.tasks:
        total, by_dots = counted(task.workload, plan)
        if total:
            yield str(task), total * task.weight, by_dots * task.weight


# -- one network -------------------------------------------------------------------------------------------


def judged(name: str, folder: Path, rounds: int, shallow: bool = False) -> dict[str, Any]:
    """A row of the table: all figures that the module's docstring lists, for each kind of file."""
    made, given = files(name, folder, shallow)
    row: dict[str, Any] = {"name": name, "kinds": {}}
    plain = at.OnnxModel(made["float"], "llvm -threads=1", db=":memory:")
    row["multiply_adds"] = sum(n for _, n, _ in shares(_plan(made["float"])))
    for kind in KINDS:
        if kind in made:
            row["kinds"][kind] = _judged(made[kind], plain, given, rounds)
    return row


def _plan(path: Path) -> ModelPlan:
    return plan_model(at.from_onnx(path), "llvm -threads=1")


def _judged(path: Path, plain: Any, given: Mapping[str, Array], rounds: int) -> dict[str, Any]:
    import onnxruntime

    found = sorted(shares(_plan(path)), key=lambda s: s[2] - s[1])
    total, by_dots = sum(s[1] for s in found), sum(s[2] for s in found)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    theirs = onnxruntime.InferenceSession(str(path), options)
    ours = at.OnnxModel(path, "llvm -threads=1", db=":memory:")
    calls = {
        "float": lambda: plain(**given),
        "ours": lambda: ours(**given),
        "onnxruntime": lambda: theirs.run(None, given),
    }
    seconds: dict[str, list[float]] = {n: [] for n in calls}
    for _ in range(rounds):
        for n, call in calls.items():
            began = time.thread_time()
            call()
            seconds[n].append(time.thread_time() - began)
    return {
        "share": by_dots / total,
        "left": {s[0]: (s[1] - s[2]) / total for s in found if s[2] < s[1]},
        "in_float": list(at.from_onnx(path).explain().in_float),
        "cosine": min(map(_cosine, _list(ours(**given)), theirs.run(None, given))),
        **{f"{n}_s": median(took) for n, took in seconds.items()},
        **{f"{n}_least_s": min(took) for n, took in seconds.items()},
    }


def _list(results: Any) -> list[Array]:
    return list(results) if isinstance(results, tuple) else [results]


def _cosine(a: Array, b: Array) -> float:
    a, b = (np.asarray(x, np.float64).ravel() for x in (a, b))
    return float(a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-300))


def said(row: Mapping[str, Any]) -> str:
    """A network's row as text."""
    lines = []
    for kind, k in row["kinds"].items():
        lines.append(
            f"{row['name']:36} {kind:8} share {k['share']:.3f}  cosine {k['cosine']:.4f}  float "
            f"{k['float_least_s'] * 1e3:.2f} ms  ours {k['ours_least_s'] * 1e3:.2f} "
            f"({k['float_least_s'] / k['ours_least_s']:.2f} x)  onnxruntime "
            f"{k['onnxruntime_least_s'] * 1e3:.2f} ({k['onnxruntime_least_s'] / k['ours_least_s']:.2f} x)"
        )
        lines += [f"    {part:.3f} {text}" for text, part in list(k["left"].items())[:6] if part > 0.003]
        lines += [f"    in float: {text}" for text in k["in_float"][:12]]
    return "\n".join(lines)


def drawn(libraries: Iterable[str], seed: int) -> Iterator[str]:
    """Every network of the libraries, in the order of the draw."""
    from nets.architecture_frames import names

    for library in libraries:
        order = names(library)
        random.Random(f"{seed}/{library}").shuffle(order)
        yield from (f"{library}/{name}" for name in order)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="LIBRARY/NAME")
    parser.add_argument("--draw", default="", help="timm=6,torchvision=4: the first so many that go through")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, required=True, help="where files are kept")
    parser.add_argument("--shallow", action="store_true", help="models of transformers have two layers")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="rows, one a line")
    options = parser.parse_args()
    wanted = {n: int(count) for n, _, count in (w.partition("=") for w in options.draw.split(",") if w)}
    for name in options.names or drawn(wanted, options.seed):
        library = name.partition("/")[0]
        if not options.names and not wanted[library]:
            continue
        try:
            row = judged(name, options.folder, options.rounds, options.shallow)
        except Exception as error:
            print(f"{name:36} {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        wanted[library] = wanted.get(library, 1) - 1
        print(said(row), flush=True)
        if options.json:
            with options.json.open("a") as out:
                out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
