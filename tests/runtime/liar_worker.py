"""Opens files and calls their functions, one line of JSON for each: {"file", "error", "told", "calls"}."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import autotensor as at
from autotensor.base.errors import AutotensorError
from autotensor.runtime.sample_arrays import sample_inputs


def outcome(path: str) -> dict[str, object]:
    began = time.monotonic()
    found: dict[str, object] = {"file": Path(path).stem, "error": "", "told": "", "called": False}
    try:
        f = at.load(path)
        f(*sample_inputs(f.args, f.artifact.index_range))
        found["called"] = True
    except AutotensorError as error:
        found |= {"error": type(error).__name__, "told": str(error)}
    except Exception as error:
        found |= {"error": f"raw {type(error).__name__}", "told": str(error)[:300]}
    return {**found, "seconds": time.monotonic() - began, "megabytes": peak_megabytes()}


def peak_megabytes() -> float:
    """The most memory that this program held. getrusage would include the memory before exec, when the
    process was a copy of the tests' process."""
    match = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) / 1024


if __name__ == "__main__":
    for path in sys.argv[1:]:
        print(json.dumps({"begins": Path(path).stem}), flush=True)
        print(json.dumps(outcome(path)), flush=True)
