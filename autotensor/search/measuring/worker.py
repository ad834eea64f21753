"""The child processes that build and run candidates: `python -m …measuring.worker build|run [module …]`.

Requests and answers are JSON objects, one per line (runtime/workers/children.py). A build child turns traces
into artifacts. A run child measures with a `Bench` (run_child.py, device_run_child.py). Modules named on the
command line are imported first, because they may register the user's steps, algorithms or operators.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autotensor.base.errors import ArtifactError, AutotensorError, MeasureError, ScheduleError, TargetError
from autotensor.base.target import GPU_KINDS, Target
from autotensor.runtime.workers.child_serving import serve
from autotensor.search.measuring.measure_request import from_plain, source_sha, to_plain
from tuning_db.records import Status

Answer = dict[str, Any]


def builder() -> Callable[[Answer], Answer]:
    """Answers {"workload": text or "", "key", "trace", "target", "asm"} with an artifact."""
    from autotensor import compiler
    from autotensor.codegen.c import nvrtc
    from autotensor.codegen.c.resources import worst
    from autotensor.codegen.llvm.assembly import asm_facts
    from autotensor.schedule.trace import Trace
    from autotensor.te.workload import Workload

    known: dict[str, Workload] = {}

    def build(request: Answer) -> Answer:
        key = request["key"]
        if request["workload"]:
            known[key] = Workload.from_text(request["workload"])
        began = time.perf_counter()
        trace = Trace.from_json(request["trace"])
        target = Target.from_json(request["target"])
        artifact = compiler.compile_trace(known[key].dag, trace, target, "kernel", request["asm"])
        seconds = time.perf_counter() - began
        facts = asdict(asm_facts(artifact.texts["asm"])) if "asm" in artifact.texts else {}
        if target.kind == "cuda" and request["asm"] and nvrtc.library() is not None:
            facts = worst(nvrtc.resources_of(artifact.objects[0].decode(), target.arch))
        return {"artifact": to_plain(artifact), "sha": source_sha(artifact), "asm": facts, "seconds": seconds}

    return build


def runner() -> Callable[[Answer], Answer]:
    """Handles requests {"do": command, …}. The cases of `run` list the commands."""
    from autotensor.search.measuring.device_run_child import DeviceBench
    from autotensor.search.measuring.native_loop import native_loop
    from autotensor.search.measuring.run_child import Bench
    from autotensor.search.measuring.running_mark import Mark

    bench: Bench | None = None

    def run(request: Answer) -> Answer:
        nonlocal bench
        match request:
            case {"do": "start", "mark": path, "kind": kind}:
                bench = (DeviceBench if kind in GPU_KINDS else Bench)(Mark(Path(path)))
                native_loop()
                return {}
        assert bench is not None
        match request:
            case {
                "do": "task",
                "workload": text,
                "oracle": oracle,
                "wide": wide,
                "threads": nthreads,
                "residency": residency,
            }:
                widened = None if wide is None else from_plain(wide)
                bench.set_task(text, from_plain(oracle), widened, nthreads, residency)
                return {}
            case {"do": "oracle", "kind": kind, "seed": seed, "exact": exact, "wide": wide}:
                bench.answer_oracle(kind, seed, exact, wide)
                return {}
            case {"do": "load", "number": number, "artifact": artifact, "tolerance": tolerance}:
                return {"prepared_bytes": bench.load(number, from_plain(artifact), tolerance)}
            case {
                "do": "check",
                "number": number,
                "kind": kind,
                "seed": seed,
                "inexact": inexact,
                "limit": limit,
            }:
                return bench.check(number, kind, seed, inexact, limit)
            case {"do": "sample", "wanted": wanted, "min_seconds": least, "limit": limit, "calm": calm}:
                return bench.sample(wanted, least, limit, calm)
            case {"do": "forget"}:
                bench.forget()
                return {}
        raise ValueError(f"unknown request {request.get('do')!r}")

    return run


def answering(verb: Callable[[Answer], Answer]) -> Callable[[str], str]:
    """A function that handles lines, for a verb. An exception becomes an answer with a status."""

    def handle(line: str) -> str:
        try:
            answer = verb(json.loads(line))
        except ScheduleError as error:
            answer = {"status": Status.INVALID_SCHEDULE, "error": _text(error)}
        except MeasureError as error:
            answer = {"status": Status.RUN_ERROR, "error": _text(error)}
        except MemoryError as error:
            answer = {"status": Status.OUT_OF_MEMORY, "error": str(error) or "there is not enough memory."}
        except (ArtifactError, TargetError) as error:
            answer = {"status": Status.RUN_ERROR, "error": _text(error)}
        except AutotensorError as error:
            answer = {"status": Status.BUILD_ERROR, "error": _text(error)}
        except Exception:  # a bug in autotensor: only this candidate fails
            answer = {"status": None, "error": traceback.format_exc()}
        return json.dumps(answer)

    return handle


def _text(error: AutotensorError) -> str:
    return " ".join(filter(None, (error.what, error.fix)))


def main(arguments: list[str]) -> None:
    role, *modules = arguments
    for name in modules:
        importlib.import_module(name)
    serve(answering({"build": builder, "run": runner}[role]()))


if __name__ == "__main__":
    main(sys.argv[1:])
