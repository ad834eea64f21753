"""The child of `compile_jobs.py`: one kernel after another becomes an artifact."""

from __future__ import annotations

import base64
import json

from autotensor.base.errors import AutotensorError
from autotensor.base.target import Target
from autotensor.compiler import compile_trace
from autotensor.runtime.files.packed_artifact import pack
from autotensor.runtime.workers.child_serving import serve
from autotensor.schedule.trace import Trace
from autotensor.te.workload import Workload


def _handle(line: str) -> str:
    request = json.loads(line)
    workload = Workload.from_text(request["workload"])
    trace, target = Trace.from_json(request["trace"]), Target.from_json(request["target"])
    overlapping = frozenset(request["overlapping"])
    try:
        made = compile_trace(workload.dag, trace, target, request["name"], overlapping=overlapping)
    except AutotensorError:
        return json.dumps({"packed": None})  # the parent compiles it again, and raises the error
    return json.dumps({"packed": base64.b64encode(pack(made)).decode()})


if __name__ == "__main__":
    serve(_handle)
