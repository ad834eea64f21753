"""Exported torch programs as models of the verbs: `autotensor tune net.pt2 --batch 8`.

torch.export.save writes .pt2 files, and torch.export.load reads them: it rebuilds the program from its
description, and unpickles tensors of unusual classes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from autotensor.base.errors import InputError
from autotensor.cli.model_files.onnx_files import parsed_shapes

if TYPE_CHECKING:
    from autotensor.cli.options import Source
    from autotensor.graph.ir import Graph


def is_exported(name: str) -> bool:
    return name.endswith(".pt2")


def exported_graph(name: str, source: Source) -> Graph:
    """The graph of an exported program. The batch is the first extent of inputs that leave it open.

    Raises InputError for another kind of file, and for shapes that do not fit the program.
    """
    from autotensor.api.from_torch import from_torch, load_exported
    from autotensor.graph.ir import Graph

    found = from_torch(load_exported(name), name=Path(name).stem)
    if isinstance(found, Graph):
        if source.batch_size != 1 or source.shape:
            raise InputError(
                f"{name} has fixed shapes; --batch and --shape have no effect on it.",
                fix="Export it with dynamic_shapes.",
            )
        return found
    given = parsed_shapes(source.shape or ())
    if unknown := [n for n in given if n not in found.shapes]:
        raise InputError(f"--shape: {name} has no input {unknown[0]!r}; it has {', '.join(found.shapes)}.")
    wanted = {n: _tuple(given[n]) if n in given else s for n, s in found.shapes.items()}
    if source.batch_size != 1:
        wanted = {
            n: s if n in given or 0 not in found.open_axes(n) else (source.batch_size, *s[1:])
            for n, s in wanted.items()
        }
    return found.at(wanted)


def _tuple(extents: int | tuple[int, ...]) -> tuple[int, ...]:
    return (extents,) if isinstance(extents, int) else extents
