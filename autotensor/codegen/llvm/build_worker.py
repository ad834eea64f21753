"""The child process of `build_child.py`: it compiles one module's text after another to object bytes."""

from __future__ import annotations

import base64
import json

from autotensor.base.errors import CodegenError
from autotensor.codegen.llvm.build import build_with, target_machine
from autotensor.runtime.workers.child_serving import serve


def _handle(line: str) -> str:
    request = json.loads(line)
    try:
        machine = target_machine(request["triple"], request["arch"], request["features"], opt=3)
        built = build_with(machine, request["text"])
    except CodegenError as error:
        return json.dumps({"error": " ".join(error.what.split())})
    return json.dumps({"object": base64.b64encode(built.object).decode()})


if __name__ == "__main__":
    serve(_handle)
