"""One network in float32, bfloat16 and bytes, on one processor: autotensor and its peers in turns.

    python benchmarks/quantised_networks.py torchvision/resnet50 --folder FILES        makes the files
    python benchmarks/narrow_types.py FILES/torchvision-resnet50 --threads 1 --json FILE

The folder holds `float.onnx`, `inputs.npz`, and `static.onnx` or `dynamic.onnx`. The contestants of
each line are timed alternately. The time of a call is its wall time. With one thread, it is the processor
time of the process, which does not include other programs:

    float32     ours; OpenVINO
    bfloat16    ours (`-numerics=bf16`); OpenVINO
    static, dynamic    ours; ours without tiles (AMX), where the processor has them; onnxruntime; OpenVINO

Nothing is tuned. OpenVINO and onnxruntime are needed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from contests.contest import REST_S

import autotensor as at
from autotensor.base.granted.tile_permission import TILES
from autotensor.base.target import Target, parse

Array = np.ndarray[Any, Any]
Call = Callable[[], Any]
QUANTISED = ("static", "dynamic")


def ours(path: Path, target: Target, given: Mapping[str, Array]) -> Call:
    model = at.OnnxModel(path, target, db=":memory:")
    return lambda: model(**given)


def onnxruntime_call(path: Path, threads: int, given: Mapping[str, Array]) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, dict(given))


def openvino_call(path: Path, threads: int, given: Mapping[str, Array], precision: str = "f32") -> Call:
    import openvino

    hints = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
    hints["INFERENCE_PRECISION_HINT"] = precision
    model = openvino.Core().compile_model(str(path), "CPU", hints)
    request, values = model.create_infer_request(), [given[i.get_any_name()] for i in model.inputs]
    return lambda: request.infer(values)


def without_tiles(target: Target) -> Target | None:
    """The target without AMX's tiles; None if the processor has no tiles."""
    features = target.features.split(",")
    kept = [f"-{f[1:]}" if f[1:] in TILES else f for f in features]
    return None if kept == features else replace(target, features=",".join(kept))


def contestants(folder: Path, kind: str, threads: int, given: Mapping[str, Array]) -> dict[str, Call]:
    target = parse(f"llvm -threads={threads}")
    whole, path = folder / "float.onnx", folder / f"{kind}.onnx"
    if kind == "float32":
        return {"ours": ours(whole, target, given), "openvino": openvino_call(whole, threads, given)}
    if kind == "bfloat16":
        half = replace(target, numerics="bf16")
        return {"ours": ours(whole, half, given), "openvino": openvino_call(whole, threads, given, "bf16")}
    vectors = without_tiles(target)
    return {
        "ours": ours(path, target, given),
        **({} if vectors is None else {"ours without tiles": ours(path, vectors, given)}),
        "onnxruntime": onnxruntime_call(path, threads, given),
        "openvino": openvino_call(path, threads, given),
    }


def timed(calls: Mapping[str, Call], rounds: int, clock: Callable[[], float]) -> dict[str, list[float]]:
    """The seconds of each call by a clock, in turns. Before each timed call, the same function runs once, so
    the caches hold its data. Before that, the threads of the one before have time to stop spinning."""
    seconds: dict[str, list[float]] = {n: [] for n in calls}
    for _ in range(rounds):
        for n, call in calls.items():
            time.sleep(REST_S)
            call()
            began = clock()
            call()
            seconds[n].append(clock() - began)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="rows, one a line")
    options = parser.parse_args()
    clock = time.process_time if options.threads == 1 else time.perf_counter
    for folder in options.folders:
        with np.load(folder / "inputs.npz") as arrays:
            given = dict(arrays)
        kinds = ("float32", "bfloat16", *(k for k in QUANTISED if (folder / f"{k}.onnx").exists()))
        for kind in kinds:
            took = timed(contestants(folder, kind, options.threads, given), options.rounds, clock)
            words = (f"{n} {median(s) * 1e3:.2f} (least {min(s) * 1e3:.2f})" for n, s in took.items())
            print(f"{folder.name:24} {kind:8} {options.threads} threads, ms: {'  '.join(words)}", flush=True)
            if options.json:
                row = {"name": folder.name, "kind": kind, "threads": options.threads, "seconds": took}
                with options.json.open("a") as out:
                    out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
