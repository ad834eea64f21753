"""Errors of CuPy's compiler."""

from __future__ import annotations

from typing import Any


class CompileException(Exception):
    """NVRTC's words."""

    def __init__(self, msg: str, source: str, name: str, options: Any, backend: str = "nvrtc") -> None:
        self._msg, self.source, self.name, self.options = msg, source, name, options
        super().__init__(msg)

    def __str__(self) -> str:
        return self._msg
