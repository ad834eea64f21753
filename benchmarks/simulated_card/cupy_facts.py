"""Facts about CuPy's installed wheel as JSON: the parameters of functions and methods, and the names of
properties.

    PYTHON-WITH-CUPY benchmarks/simulated_card/cupy_facts.py [SOURCE.cu …]

This needs neither a driver nor autotensor. Compiled functions give their parameters in the first line of
their docstring. Functions that do not are called with each name that they might accept. The facts include the
options that CuPy's own `RawModule` adds to NVRTC's. If sources are given, they are compiled through CuPy's
names for NVRTC, with the options of CUDA_OPTIONS (JSON), and the facts list the sources that NVRTC refuses.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

NAMES = (
    "arange",
    "asarray",
    "cuda.Device",
    "cuda.Device.compute_capability",
    "cuda.Device.id",
    "cuda.Event",
    "cuda.Event.record",
    "cuda.Event.synchronize",
    "cuda.Function.__call__",
    "cuda.Function.ptr",
    "cuda.Graph.launch",
    "cuda.Module",
    "cuda.Module.get_function",
    "cuda.Module.load",
    "cuda.Stream",
    "cuda.Stream.__enter__",
    "cuda.Stream.__exit__",
    "cuda.Stream.begin_capture",
    "cuda.Stream.end_capture",
    "cuda.Stream.record",
    "cuda.Stream.synchronize",
    "cuda.driver.CUDADriverError",
    "cuda.driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES",
    "cuda.driver.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK",
    "cuda.driver.CU_FUNC_ATTRIBUTE_NUM_REGS",
    "cuda.driver.funcGetAttribute",
    "cuda.driver.funcSetAttribute",
    "cuda.get_current_stream",
    "cuda.get_elapsed_time",
    "cuda.memory.OutOfMemoryError",
    "cuda.nvrtc.NVRTCError",
    "cuda.nvrtc.compileProgram",
    "cuda.nvrtc.createProgram",
    "cuda.nvrtc.destroyProgram",
    "cuda.nvrtc.getCUBIN",
    "cuda.nvrtc.getPTX",
    "cuda.nvrtc.getProgramLog",
    "cuda.nvrtc.getSupportedArchs",
    "cuda.nvrtc.getVersion",
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
# Functions that do not give their parameters → the first names, and the names that they might accept after
# these.
ASKED = {"cuda.Function.__call__": (("grid", "block", "args"), ("shared_mem", "stream", "shared_memory"))}


def facts_of(root: Any, name: str) -> dict[str, Any] | None:
    """{"kind": …, "parameters": [[name, kind], …], or None if they are not known}; None if the name does not
    exist."""
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
    if name in ASKED and not inspect.isfunction(found):
        return {"kind": "callable", "parameters": _asked(root.cuda.Function, *ASKED[name])}
    return {"kind": "callable", "parameters": _parameters(found)}


def _asked(kind: Any, first: tuple[str, ...], more: tuple[str, ...]) -> list[list[str]]:
    """The names that a call accepts. The arguments have a wrong type, so that the function does nothing."""
    taken = []
    for name in (*first, *more):
        given = dict.fromkeys(first, 0) | {name: 0}
        try:
            kind.__new__(kind)(**given)
        except TypeError as error:
            if "unexpected keyword" not in str(error):
                taken.append([name, "positional_or_keyword"])
    return taken


def _parameters(f: Any) -> list[list[str]] | None:
    try:
        given = list(inspect.signature(f).parameters.values())
        out = [[p.name, p.kind.name.lower()] for p in given if p.name not in ("self", "_obj", "_no_init")]
        said = any(k != "var_positional" and k != "var_keyword" for _, k in out)
        in_python = inspect.isclass(f) and inspect.isfunction(f.__init__)
        if said or in_python or not (f.__doc__ or "").strip():
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


def refused_by_nvrtc(files: list[str]) -> dict[str, str]:
    """NVRTC's message for each source that it refuses. Sources are compiled as in autotensor, through CuPy's
    names."""
    from cupy.cuda import nvrtc

    options = ("--gpu-architecture=sm_80", *json.loads(os.environ["CUDA_OPTIONS"]))
    refused = {}
    for file in files:
        program = nvrtc.createProgram(Path(file).read_text(), "kernels.cu", (), ())
        try:
            nvrtc.compileProgram(program, options)
            assert nvrtc.getCUBIN(program)[1:4] == b"ELF"
        except nvrtc.NVRTCError as error:
            refused[file] = f"{error}: {nvrtc.getProgramLog(program)}"[:500]
        nvrtc.destroyProgram(program)
    return refused


class _Seen(Exception):
    """Raised when the facts are known, so that nothing is compiled."""


def added_by_raw_module() -> list[str]:
    """The options that CuPy adds to the given options, without the folders of its headers."""
    from cupy.cuda import compiler

    seen: list[str] = []

    def instead(source: str, options: tuple[str, ...], *more: Any) -> None:
        seen.extend(options)
        raise _Seen

    for name in ("compile_using_nvrtc", "_compile_using_nvrtc_no_warning"):
        if hasattr(compiler, name):
            setattr(compiler, name, instead)
    compiler._get_arch_for_options_for_nvrtc = lambda arch=None: (f"-arch=sm_{arch}", "cubin")
    compiler._preprocess = lambda *given: ""
    with suppress(_Seen):
        compiler._compile_module_with_cache(f"// {os.urandom(8).hex()}", ("--std=c++17",), arch="80")
    return [o for o in seen if o != "--std=c++17" and not o.startswith("-I")]


def _load_nvrtc() -> None:
    """Loads NVRTC from NVIDIA's wheel, if there is one. CuPy 13 looks for it by name only, and finds it if it
    is loaded."""
    for folder in sys.path:
        for file in sorted(Path(folder).glob("nvidia/cuda_nvrtc/lib/libnvrtc.so.*")):
            ctypes.CDLL(str(file), ctypes.RTLD_GLOBAL)


def main() -> None:
    import cupy

    found = {"version": cupy.__version__, "names": {name: facts_of(cupy, name) for name in NAMES}}
    if cupy.__version__ != "stand-in":
        _load_nvrtc()
        found["raw_module_adds"] = added_by_raw_module()
    if sys.argv[1:]:
        found["refused"] = refused_by_nvrtc(sys.argv[1:])
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
