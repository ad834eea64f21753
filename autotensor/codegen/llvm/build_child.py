"""Compiles LLVM text in a child process: text from a file, or text for a target that was not yet tried on
this machine.

At some inputs LLVM ends the process: a processor without 64 bits, a feature called "help", text that passes
LLVM's verifier and fails an assertion. A child process turns this into an error message.
"""

from __future__ import annotations

import base64
import json

from autotensor.base.errors import CodegenError
from autotensor.runtime.workers.children import Child, Status

TIMEOUT_S = 600.0


def build_apart(text: str, triple: str, arch: str, features: str) -> tuple[bytes, str]:
    """Object bytes of a module, and LLVM's messages. Raises CodegenError with a message of one sentence."""
    request = {"text": text, "triple": triple, "arch": arch, "features": features}
    with Child("autotensor.codegen.llvm.build_worker") as child:
        reply = child.request(json.dumps(request), TIMEOUT_S)
    if reply.status is not Status.OK:
        said = reply.output.strip().splitlines()
        last = next((line for line in said if "LLVM ERROR" in line or "Assertion" in line), "")
        raise CodegenError(f"LLVM cannot compile it: {last.strip() or reply.detail}")
    answer = json.loads(reply.text)
    if "error" in answer:
        raise CodegenError(answer["error"])
    return base64.b64decode(answer["object"]), reply.output
