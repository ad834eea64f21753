"""Whole models against onnxruntime and torch on the same cores in the same run.

python benchmarks/models.py resnet50 --file resnet50.atm [--default default.atm …] [--json out.json]

Every contestant is a process of its own with the same number of threads; torch and onnxruntime take part when
they are installed. Prints medians and ratios; ratio < 1 means that ours is faster.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from contest import contest, machine, serve


def run_ours(path: str, model: str, threads: int) -> None:
    import autotensor as at

    f = at.load(path, threads=threads)
    (x,) = _inputs(model)
    serve(lambda: f(x))


def run_ort(path: str, model: str, threads: int) -> None:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (x,) = _inputs(model)
    name = session.get_inputs()[0].name
    serve(lambda: session.run(None, {name: x}))


def run_torch(path: str, model: str, threads: int) -> None:
    """torch eager on the ONNX file's weights: a plain interpreter of its nodes over torch functions."""
    import onnx
    import torch
    from onnx import numpy_helper

    torch.set_num_threads(threads)
    graph = onnx.load(path).graph
    weights = {w.name: torch.from_numpy(numpy_helper.to_array(w).copy()) for w in graph.initializer}
    (x,) = _inputs(model)
    nodes = [
        (
            n.op_type,
            list(n.input),
            n.output[0],
            {a.name: onnx.helper.get_attribute_value(a) for a in n.attribute},
        )
        for n in graph.node
    ]
    f = torch.nn.functional

    def run() -> Any:
        v: dict[str, Any] = {**weights, graph.input[0].name: torch.from_numpy(x)}
        for op, inputs, output, a in nodes:
            args = [v[i] for i in inputs]
            match op:
                case "Conv":
                    v[output] = f.conv2d(
                        *args,
                        stride=a["strides"],
                        padding=a["pads"][:2],
                        dilation=a["dilations"],
                        groups=a["group"],
                    )
                case "BatchNormalization":
                    y, gamma, beta, mean, var = args
                    v[output] = f.batch_norm(y, mean, var, gamma, beta, eps=a["epsilon"])
                case "Relu":
                    v[output] = f.relu(args[0])
                case "Add":
                    v[output] = args[0] + args[1]
                case "MaxPool":
                    v[output] = f.max_pool2d(args[0], a["kernel_shape"], a["strides"], a["pads"][:2])
                case "GlobalAveragePool":
                    v[output] = args[0].mean((2, 3), keepdim=True)
                case "Flatten":
                    v[output] = args[0].flatten(1)
                case "Gemm":
                    v[output] = f.linear(*args)
        return v[graph.output[0].name]

    with torch.no_grad():
        serve(run)


def _inputs(model: str) -> list[np.ndarray[Any, Any]]:
    from autotensor.models import MODELS

    return list(MODELS.get(model).inputs(np.random.default_rng(0)).values())


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument(
        "--file", action="append", default=[], help="NAME=PATH of a compiled model; several may be given"
    )
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--json", type=Path)
    p.add_argument("--child", nargs=2, metavar=("KIND", "PATH"), help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.child:
        {"ours": run_ours, "ort": run_ort, "torch": run_torch}[args.child[0]](
            args.child[1], args.model, args.threads
        )
        return

    def command(kind: str, path: str) -> list[str]:
        return [sys.executable, __file__, args.model, "--threads", str(args.threads), "--child", kind, path]

    with tempfile.TemporaryDirectory() as folder:
        commands = {}
        for item in args.file:
            name, _, path = item.rpartition("=")
            commands[name or "ours"] = command("ours", path)
        if importlib.util.find_spec("onnx"):
            import onnx
            from to_onnx import to_onnx

            from autotensor.models import MODELS

            onnx_path = str(Path(folder) / "model.onnx")
            onnx.save(to_onnx(MODELS.get(args.model).build()), onnx_path)
            for kind, package in (("ort", "onnxruntime"), ("torch", "torch")):
                if importlib.util.find_spec(package):
                    commands[kind] = command(kind, onnx_path)
        results = contest(commands, rounds=args.rounds)
    base = results.get("ort", next(iter(results.values())))["median"]
    for name, r in sorted(results.items(), key=lambda kv: kv[1]["median"]):
        ms, least, share = 1e3 * r["median"], 1e3 * r["min"], r["median"] / base
        spread = 100 * r["spread"]
        print(f"{name:24s} {ms:8.2f} ms   min {least:8.2f}   ×{share:5.3f} of ort   spread {spread:.0f} %")
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(
            json.dumps(
                {"model": args.model, "threads": args.threads, "machine": machine(), "seconds": results},
                indent=1,
            )
        )


if __name__ == "__main__":
    main()
