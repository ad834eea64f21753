"""A mark in shared memory that says which candidate is running. After a death, it shows the cause.

child:  with mark(7, "run"): launch(…)            parent, afterwards:  mark.read() ──▶ (7, "run")
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotensor.runtime.timing_lock import private_folder

PHASES = ("prepare", "run")
NOBODY = -1
_FORM = struct.Struct("<qq")  # candidate, phase


class Mark:
    """Sixteen bytes of a file that two processes have mapped."""

    def __init__(self, path: Path) -> None:
        """Maps an existing file. The mapping remains valid when the file is removed."""
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _FORM.size)

    @staticmethod
    def create() -> tuple[Mark, Path]:
        """A new mark without a candidate, and its file, to be removed once the other process has mapped
        it."""
        descriptor, name = tempfile.mkstemp(prefix="mark-", dir=private_folder())
        with os.fdopen(descriptor, "wb") as file:
            file.write(_FORM.pack(NOBODY, 0))
        return Mark(Path(name)), Path(name)

    @contextmanager
    def __call__(self, candidate: int, phase: str) -> Iterator[None]:
        """Puts the candidate into the mark inside the block."""
        _FORM.pack_into(self._memory, 0, candidate, PHASES.index(phase))
        yield
        _FORM.pack_into(self._memory, 0, NOBODY, 0)

    def read(self) -> tuple[int, str]:
        candidate, phase = _FORM.unpack_from(self._memory)
        return int(candidate), PHASES[phase] if 0 <= phase < len(PHASES) else ""
