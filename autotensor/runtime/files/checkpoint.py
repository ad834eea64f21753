"""Named arrays in one file: the state of a training run.

    save("run.safetensors", {"W": w, "adam/W/m": m}, {"step": "100"})
    arrays, facts = load("run.safetensors")

The format is safetensors, which other programs can read. The file is replaced atomically (`atomic_write.py`),
so a process killed while saving leaves the old file intact.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autotensor.base.errors import ArtifactError, InputError
from autotensor.runtime.files.atomic_write import replacing

Array = np.ndarray[Any, np.dtype[Any]]


def save(path: str | Path, arrays: Mapping[str, Array], facts: Mapping[str, str] | None = None) -> None:
    """Writes the arrays, and facts about them, atomically.

    Raises InputError when the directory does not exist.
    """
    # imported here, because loading a model must not import it
    from safetensors.numpy import save as as_bytes

    where = Path(path)
    if not where.parent.is_dir():
        raise InputError(
            f"there is no directory {where.parent} to save {where.name} in.", fix="Make it first."
        )
    # ascontiguousarray would give an array without axes one axis
    whole = {n: np.ascontiguousarray(a).reshape(np.shape(a)) for n, a in arrays.items()}
    content = as_bytes(whole, dict(facts or {}))
    with replacing(where) as file:
        file.write(content)


def load(path: str | Path) -> tuple[dict[str, Array], dict[str, str]]:
    """The arrays of a file, and the facts stored with them.

    Raises InputError when the file does not exist, and ArtifactError when it is not a checkpoint.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_bytes

    where = Path(path)
    try:
        content = where.read_bytes()
    except OSError as error:
        raise InputError(f"{where} cannot be read: {error.strerror}.") from error
    try:
        arrays = from_bytes(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise ArtifactError(f"{where} is not a checkpoint, or is damaged ({error}).") from error
    return arrays, _facts(content)


def _facts(content: bytes) -> dict[str, str]:
    """The `__metadata__` of the header, which safetensors' reader does not return."""
    (size,) = struct.unpack_from("<Q", content)
    found: dict[str, str] = json.loads(content[8 : 8 + size]).get("__metadata__", {})
    return found
