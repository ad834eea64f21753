"""Makes all calls and all errors of runtime/device/cuda.py, in a child whose `cupy` is the stand-in.

python exercise_cuda.py [OLD=>NEW]      prints the lines of cuda.py that ran, as JSON; OLD=>NEW changes it
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[3]
FILE = ROOT / "autotensor" / "runtime" / "device" / "cuda.py"
ran: set[int] = set()


def watch(frame: FrameType, event: str, _: Any) -> Any:
    if frame.f_code.co_filename != str(FILE):
        return None
    ran.add(frame.f_lineno)
    return watch


def load(change: str) -> None:
    """Imports cuda.py with its text changed."""
    import autotensor.runtime.device.cuda as module

    text = FILE.read_text()
    old, _, new = change.partition("=>")
    assert not change or old in text, f"{old!r} is not in cuda.py"
    exec(compile(text.replace(old, new) if change else text, str(FILE), "exec"), module.__dict__)


def under(fault: str, work: Callable[[], object]) -> None:
    """Does the work under a planted fault, which autotensor must report with an error of its own."""
    from autotensor.base.errors import AutotensorError

    os.environ["STAND_IN_FAULTS"] = json.dumps({"*": fault})
    try:
        work()
    except AutotensorError as error:
        print(f"{fault}: {error}", file=sys.stderr)
    else:
        raise SystemExit(f"{fault}: nothing was refused")
    finally:
        os.environ["STAND_IN_FAULTS"] = "{}"


def contract() -> None:
    """The tests that need a card."""
    import pytest

    given = ["-q", "-n0", "-p", "no:cacheprovider", "-m", "gpu", "tests/runtime/device/test_devices.py"]
    code = pytest.main([*given, "--rootdir", str(ROOT)])
    if code:
        raise SystemExit(f"the contract's tests ended with {code}")


def errors() -> None:
    from autotensor.runtime.device.contract import DeviceCall
    from autotensor.runtime.device.cuda import CudaDevice

    source = b'extern "C" __global__ void k(float* y) { extern __shared__ float s[]; s[threadIdx.x] = 1;'
    source += b" y[threadIdx.x] = s[threadIdx.x]; }"
    under("driver missing", CudaDevice)
    under("compiler missing", CudaDevice)
    device = CudaDevice()
    assert device.limits["warp_size"] == 32
    memory = device.allocate(256)
    call = DeviceCall("k", (memory,), (1, 1, 1), (64, 1, 1), 60 << 10)
    device.plan((source,), [call])()
    found = np.empty(64, np.float32)
    device.read(memory, found)
    assert (found == 1).all()
    under("out of memory", lambda: device.allocate(64))
    under("too few registers", lambda: device.plan((source,), [call]))
    under("compile error", lambda: device.plan((source + b" ",), [call]))
    under("old driver", lambda: device.plan((source + b"  ",), [call]))
    os.environ["STAND_IN_CAPABILITY"] = "120"  # newer than its NVRTC, so the driver gets PTX
    CudaDevice().plan((source,), [call])()
    os.environ["STAND_IN_CAPABILITY"] = "60"  # too old for its NVRTC
    under("", lambda: CudaDevice().plan((source,), [call]))
    del os.environ["STAND_IN_CAPABILITY"]
    under("launch error", lambda: device.plan((source,), [call])())

    device.copy(device.allocate(64), device.allocate(64), 64)
    under("", lambda: device.foreign(device.allocate(64).view(np.float32).reshape(4, 4).T))
    under("", lambda: device.foreign(device.allocate(64).view(np.float32)[1:]))

    def lose() -> None:
        device.plan((source,), [call])()
        device.finish()

    under("lost device", lose)


def main() -> None:
    sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "kit")]
    os.chdir(ROOT)
    load(sys.argv[1] if len(sys.argv) > 1 else "")
    with TemporaryDirectory() as empty:  # nothing is compiled yet
        os.environ["AUTOTENSOR_CACHE_DIR"] = empty
        sys.settrace(watch)
        contract()
        errors()
        sys.settrace(None)
    print(json.dumps(sorted(ran)))


if __name__ == "__main__":
    main()
