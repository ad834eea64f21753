"""Runs `autotensor run FILE` on each file of a list, each in a process of its own, forked from this one.

    python hostile_child.py files.json answers.json     [{"name": …, "path": …}] ──▶ [{"name": …, "code": …}]

A child may hold GIGABYTES and take SECONDS; what ends it is in `code`: an exit code, or minus a signal.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SECONDS = 60
GIGABYTES = 2.0


def one(path: str) -> dict[str, Any]:
    """The outcome for one file."""
    began = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            code = 70
            try:
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
                signal.alarm(SECONDS)
                os.chdir(Path(path).parent)
                from autotensor.cli.main import main

                code = main(["run", path])
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status, used = os.wait4(child, 0)
        said.seek(0)
        text = said.read().decode("utf-8", errors="replace")
    return {
        "code": os.waitstatus_to_exitcode(status),
        "said": text[-4000:],
        "seconds": time.perf_counter() - began,
        "gigabytes": used.ru_maxrss / (1 << 20),
    }


def main_(files: str, answers: str) -> None:
    import onnx  # noqa: F401  # once for all children

    import autotensor.frontends.onnx  # noqa: F401
    from autotensor.api import from_onnx  # noqa: F401
    from autotensor.cli.verbs import run  # noqa: F401

    # limits the memory of this child, so that a file cannot use up the machine's
    limit = int(3 * GIGABYTES * (1 << 30))
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    found = [{"name": f["name"], **one(f["path"])} for f in json.loads(Path(files).read_text())]
    Path(answers).write_text(json.dumps(found))


if __name__ == "__main__":
    main_(*sys.argv[1:])
