"""Compiled functions: modules, arguments, arrays, signatures; opened, timed, saved. Start at `module.py`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from autotensor.base.absent_names import absent

_ELSEWHERE = {  # names of TVM's runtime → what to write here
    "load_module": 'write at.load("k.atm"), for a file of f.save("k.atm")',
    "Module": "at.build and at.load give functions: call them with NumPy arrays",
    "NDArray": "pass NumPy arrays: f(a, b, c)",
    "enabled": "`autotensor doctor` lists the targets that can be used here",
}

if not TYPE_CHECKING:  # type checkers should still report unknown names

    def __getattr__(name: str) -> Any:
        raise absent("at.runtime", name, sys.modules[__name__], _ELSEWHERE)
