"""CuPy's NVRTC. It always makes PTX, because the simulated card executes PTX."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

from cupy.cuda import the_card

NAMES = {6: "NVRTC_ERROR_COMPILATION", 4: "NVRTC_ERROR_INVALID_PROGRAM"}


class NVRTCError(RuntimeError):
    """An error of NVRTC, by its number."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"{NAMES[status]} ({status})")


@dataclass(slots=True)
class _Source:
    text: str
    made: bytes = b""
    log: str = ""


_programs: dict[int, _Source] = {}
_numbers = count(1)


def getVersion() -> tuple[int, int]:  # CuPy's own names, here and below
    return the_card.nvrtc_version()


def getSupportedArchs() -> tuple[int, ...]:
    return (70, 75, 80, 86, 90)


def createProgram(src: str, name: str, headers: Any, include_names: Any) -> int:
    if not isinstance(src, str) or not isinstance(name, str) or headers or include_names:
        raise TypeError("createProgram takes src: str and name: str, and no headers here")
    number = next(_numbers)
    _programs[number] = _Source(src)
    return number


def compileProgram(prog: int, options: Any) -> None:
    program = _program(prog)
    try:
        program.made = the_card.compiled(program.text, tuple(options))
    except the_card.Refused as refused:
        program.log = str(refused)
        raise NVRTCError(6) from refused


def getCUBIN(prog: int) -> bytes:
    return _program(prog).made


def getPTX(prog: int) -> bytes:
    return _program(prog).made


def getProgramLog(prog: int) -> str:
    return _program(prog).log


def destroyProgram(prog: int) -> None:
    _program(prog)
    del _programs[prog]


def _program(prog: int) -> _Source:
    if prog not in _programs:
        raise NVRTCError(4)
    return _programs[prog]
