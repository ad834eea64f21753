"""What CuPy's installed wheel takes, as JSON: parameters of functions and methods, and what is a property.

    PYTHON-WITH-CUPY benchmarks/simulated_card/cupy_facts.py [SOURCE.cu …]

Nothing here needs a driver or autotensor. Compiled functions say their parameters in the first line of their
docstring. Sources, where given, are compiled by NVRTC with the options that CuPy gives it; what it refuses is
said.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

NAMES = (
    "RawKernel.__call__",
    "RawKernel.max_dynamic_shared_size_bytes",
    "RawKernel.max_threads_per_block",
    "RawKernel.num_regs",
    "RawModule",
    "RawModule.compile",
    "RawModule.get_function",
    "arange",
    "asarray",
    "cuda.Device",
    "cuda.Device.id",
    "cuda.Event",
    "cuda.Event.record",
    "cuda.Graph.launch",
    "cuda.Stream",
    "cuda.Stream.__enter__",
    "cuda.Stream.__exit__",
    "cuda.Stream.begin_capture",
    "cuda.Stream.end_capture",
    "cuda.Stream.record",
    "cuda.Stream.synchronize",
    "cuda.compiler.CompileException",
    "cuda.driver.CUDADriverError",
    "cuda.get_current_stream",
    "cuda.get_elapsed_time",
    "cuda.memory.OutOfMemoryError",
    "cuda.runtime.CUDARuntimeError",
    "cuda.runtime.driverGetVersion",
    "cuda.runtime.getDeviceCount",
    "cuda.runtime.getDeviceProperties",
    "empty",
    "from_dlpack",
    "ndarray.__cuda_array_interface__",
    "ndarray.__dlpack__",
    "ndarray.__dlpack_device__",
    "ndarray.__getitem__",
    "ndarray.__setitem__",
    "ndarray.dtype",
    "ndarray.flags",
    "ndarray.get",
    "ndarray.nbytes",
    "ndarray.reshape",
    "ndarray.set",
    "ndarray.shape",
    "ndarray.view",
)


def facts_of(root: Any, name: str) -> dict[str, Any] | None:
    """{"kind": …, "parameters": [[name, kind], …] or None where nobody says}; None if there is no such
    name."""
    found = root
    for part in name.split("."):
        found = (
            inspect.getattr_static(found, part, None)
            if inspect.isclass(found)
            else getattr(found, part, None)
        )
        if found is None:
            return None
    if not callable(found) and not isinstance(found, (staticmethod, classmethod)):
        return {"kind": "property"}
    if inspect.isclass(found) and issubclass(found, BaseException):
        return {"kind": "exception"}
    return {"kind": "callable", "parameters": _parameters(found)}


def _parameters(f: Any) -> list[list[str]] | None:
    try:
        given = list(inspect.signature(f).parameters.values())
        out = [[p.name, p.kind.name.lower()] for p in given if p.name not in ("self", "_obj", "_no_init")]
        if any(k != "var_positional" and k != "var_keyword" for _, k in out) or not (f.__doc__ or "").strip():
            return out
    except (TypeError, ValueError):
        pass
    first = (f.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
    listed = re.search(r"\((.*)\)", first)
    if listed is None:
        return None
    out, kind = [], "positional_or_keyword"
    for part in re.split(r",\s*(?![^()]*\))", listed[1]):
        part = part.replace("\\", "").strip()
        name = re.sub(r"[:=].*", "", part).split()[-1] if part else ""
        if part == "*":
            kind = "keyword_only"
        elif part.startswith("**"):
            out.append([part[2:], "var_keyword"])
        elif part.startswith("*"):
            out.append([part[1:], "var_positional"])
            kind = "keyword_only"
        elif name and name != "self" and part != "/":
            out.append([name, kind])
    return out


def compiled_as_cupy_does(files: list[str], arch: str = "80") -> dict[str, str]:
    """NVRTC's words for each source that it refuses. CuPy asks the driver for nothing but the
    architecture."""
    from cupy.cuda import compiler

    _load_nvrtc()
    compiler._get_arch_for_options_for_nvrtc = lambda arch=None: (f"-arch=sm_{arch}", "cubin")
    refused = {}
    for file in files:
        try:
            compiler.compile_using_nvrtc(Path(file).read_text(), ("-std=c++17",), arch)
        except compiler.CompileException as error:
            refused[file] = str(error)[:500]
    return refused


def _load_nvrtc() -> None:
    """NVRTC of NVIDIA's wheel, if there is one: CuPy 13 asks for it by its name alone, and finds it then."""
    for folder in sys.path:
        for file in sorted(Path(folder).glob("nvidia/cuda_nvrtc/lib/libnvrtc.so.*")):
            ctypes.CDLL(str(file), ctypes.RTLD_GLOBAL)


def main() -> None:
    import cupy

    found = {"version": cupy.__version__, "names": {name: facts_of(cupy, name) for name in NAMES}}
    if sys.argv[1:]:
        found["refused"] = compiled_as_cupy_does(sys.argv[1:])
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
