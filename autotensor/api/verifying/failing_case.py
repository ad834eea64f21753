"""A wrong kernel as a file of its own, and a script of ten lines that shows the error.

wrong.py     loads the other two and says where the kernel's results differ
wrong.atm    the kernel, cut from its model, with its constants, its te and its trace
wrong.npz    the arrays that the kernel read in the model, and the right results
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from autotensor.runtime.files import artifact_file as artifacts
from autotensor.runtime.files.artifact import ArgSpec, Artifact
from autotensor.runtime.files.atomic_write import replacing

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A wrong kernel and the arrays that it read."""

    model: Artifact
    symbol: str
    name: str
    args: tuple[ArgSpec, ...]
    inputs: Mapping[str, Array]
    values: Mapping[str, Array]  # prepared arrays and constants that the kernel reads
    wanted: Mapping[str, Array]  # the reference's results
    constants: tuple[str, ...]  # constants that the kernel itself reads
    trial: int | None


# {stem}: the stem of the three files; the other fields describe the error
_SCRIPT = """\
# {complaint}
# Kernel of {model}: {name}{trial}. kernel.source("te") and kernel.source("trace") say what it is.
import autotensor as at
import numpy as np

data, kernel = np.load("{stem}.npz"), at.load("{stem}.atm", threads={threads})
found = kernel(*(data[a.name] for a in kernel.args if a.role == "input"))
found = found if isinstance(found, tuple) else (found,)
for spec, got in zip((a for a in kernel.args if a.role == "output"), found):
    apart = np.abs(got.astype(float) - data["want." + spec.name])
    worst = np.unravel_index(apart.argmax(), apart.shape)
    print(f"{{spec}}: differs by {{apart[worst]:.3g}} at {{[int(n) for n in worst]}}")
"""


def write_case(script: Path, case: Case, complaint: str, threads: int) -> None:
    """Writes the script, and its `.atm` and `.npz` next to it."""
    mine = {kind: case.model.texts[f"{kind}:{case.symbol}"] for kind in _kinds(case)}
    kernel = replace(
        case.model,
        name=case.name,
        entry=case.symbol,
        prepare=None,
        args=case.args,
        texts=mine,
        values=case.values,
        meta={
            "entry_constants": list(case.constants),
            "index_ranges": case.model.meta["programs"][case.symbol].get("index_ranges", {}),
        },
    )
    artifacts.save(script.with_suffix(".atm"), kernel)
    arrays = {**case.inputs, **{f"want.{n}": a.astype(np.float64) for n, a in case.wanted.items()}}
    with replacing(script.with_suffix(".npz")) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    text = _SCRIPT.format(
        complaint=" ".join(complaint.split()),
        model=case.model.name,
        name=case.name,
        trial="" if case.trial is None else f", trial {case.trial} of the log",
        stem=script.stem,
        threads=threads,
    )
    with replacing(script) as file:
        file.write(text.encode())


def _kinds(case: Case) -> list[str]:
    ending = f":{case.symbol}"
    return [kind.removesuffix(ending) for kind in case.model.texts if kind.endswith(ending)]


__all__ = ["Case", "write_case"]
