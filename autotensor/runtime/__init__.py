"""Compiled functions: modules, arguments, arrays, signatures; opened, timed, saved. Start at `module.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotensor.base.absent_names import advice

_ARRAYS = "pass NumPy arrays: f(a, b, c); a kernel runs on the target that it was built for"
_ELSEWHERE = {  # names of TVM's runtime → what to write here
    "load_module": 'write at.load("k.atm"), for a file of f.save("k.atm")',
    "load_static_library": 'write at.load("k.atm"), for a file of f.save("k.atm")',
    "Module": "at.build and at.load give functions: call them with NumPy arrays",
    **dict.fromkeys(("cpu", "cuda", "device", "Device", "ndarray", "convert", "tvm_ffi"), _ARRAYS),
    "vm": "models are compiled by at.compile_model; call the result with NumPy arrays",
    "PackedFunc": "a kernel calls no Python function; call it between two kernels",
    "profiling": "`autotensor bench` times a model kernel by kernel",
    "NDArray": "pass NumPy arrays: f(a, b, c)",
    "enabled": "`autotensor doctor` lists the targets that can be used here",
}

if not TYPE_CHECKING:  # type checkers should still report unknown names
    __getattr__ = advice(__name__, "at.runtime", _ELSEWHERE)
