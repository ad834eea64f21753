"""A compiled model at one set of run-time extents: its shapes and offsets are numbers.

    kernel 1 reads x: [n, 64] in box 1        ──{n: 3}──▶        kernel 1 reads x: [3, 64] at byte 768

An ordinary call needs less of this, because the code reads the extents itself (`open_module.py`). A caller
that runs a model kernel by kernel, in the model's memory, needs all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from autotensor.base.errors import ArtifactError
from autotensor.runtime.extents import OpenShapes
from autotensor.runtime.files.artifact import EXTENTS, OPEN_SHAPES, ArgSpec, Artifact
from autotensor.runtime.files.manifest import check_meta

NUMBER = 8  # bytes of a number that the code reads


def at_extents(artifact: Artifact, values: Mapping[str, int]) -> Artifact:
    """The artifact, for calls with these values of its symbols only.

    In meta, `extents` are a kernel's symbols and their values. Raises ArtifactError for a damaged file, and
    for one of an older version, which has the offsets for the greatest extents only.
    """
    try:
        found = _at(artifact, values)
        check_meta(found)
    except ArtifactError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, StopIteration) as error:
        raise ArtifactError(f"{artifact.name}: its run-time extents are damaged: {error!r}.") from error
    return found


def _at(artifact: Artifact, values: Mapping[str, int]) -> Artifact:
    open_shapes = OpenShapes.of(artifact.meta[OPEN_SHAPES])
    told = open_shapes.told(values)
    meta = {key: value for key, value in artifact.meta.items() if key != OPEN_SHAPES}
    if "kernels" in meta:
        programs, is_greatest = meta["programs"], dict(values) == open_shapes.greatest()
        meta["kernels"] = [
            _kernel(artifact.name, k, programs[k["symbol"]], told, is_greatest) for k in meta["kernels"]
        ]
    else:
        meta["extents"] = dict(values)
    return replace(
        artifact,
        args=open_shapes.of_call(artifact.args, values),
        values={**artifact.values, EXTENTS: np.array(told, np.int64)},
        meta=meta,
    )


def _kernel(
    model: str, kernel: Mapping[str, Any], program: Mapping[str, Any], told: Sequence[int], is_greatest: bool
) -> dict[str, Any]:
    """A kernel of the model's list, with the arguments and the places of one call."""
    late = kernel.get("late")
    if late is None and not is_greatest:
        raise ArtifactError(
            f"{model} has the places of its values for the greatest extents only, because an older version "
            "compiled it.",
            fix="Compile it again; the tuned schedules are still in the log.",
        )
    slots = [list(slot) for slot in kernel["slots"]]
    for arg, number in late or ():
        slots[arg][1] = told[number]
    own = program.get(OPEN_SHAPES)
    if own is None:
        return {**kernel, "slots": slots}
    specs = [ArgSpec(**{**a, "shape": tuple(a["shape"])}) for a in program["args"]]
    begin = next(slots[n][1] for n, a in enumerate(specs) if a.name == EXTENTS) // NUMBER
    shapes = OpenShapes.of(own)
    extents = dict(zip((name for name, _, _ in shapes.symbols), told[begin:], strict=False))
    args = [asdict(a) for a in shapes.of_call(specs, extents)]
    return {**kernel, "slots": slots, "args": args, "extents": extents}


__all__ = ["at_extents"]
