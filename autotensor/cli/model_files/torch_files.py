"""Exported torch programs as models of the verbs: `autotensor tune net.pt2 --batch 8`.

torch.export.save writes .pt2 files, and torch.export.load reads them: it rebuilds the program from its
description, and unpickles tensors of unusual classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotensor.base.errors import InputError
from autotensor.cli.model_files.onnx_files import parsed_shapes
from autotensor.cli.output import tell

if TYPE_CHECKING:
    from autotensor.cli.options import Source
    from autotensor.frontends.torch.open_shapes import OpenProgram
    from autotensor.graph.ir import Graph
    from autotensor.graph.symbols.graph_families import GraphFamily


def is_exported(name: str) -> bool:
    return name.endswith(".pt2")


def exported_graph(name: str, source: Source) -> Graph | GraphFamily:
    """The graph of an exported program. A dimension that --shape and --batch do not choose stays open.

    A first axis without a greatest extent gets its least extent, as in an .onnx file. Raises InputError for
    another kind of file, for shapes that do not fit the program, and for another dimension without a greatest
    extent.
    """
    from autotensor.api.from_torch import from_torch, load_exported

    program = load_exported(name)  # its errors come before those of importing torch
    from autotensor.frontends.torch.open_shapes import OpenProgram
    from autotensor.graph.ir import Graph

    found = from_torch(program, name=Path(name).stem)
    if isinstance(found, Graph):
        if source.batch_size != 1 or source.shape:
            raise InputError(
                f"{name} has fixed shapes; --batch and --shape have no effect on it.",
                fix="Export it with dynamic_shapes.",
            )
        return found
    assert isinstance(found, OpenProgram), "an exported program has its own open dimensions"
    chosen = _chosen(name, found, parsed_shapes(source.shape or ()))
    firsts = [d for d in found.dimensions if any(axis == 0 for _, axis in found.places(d))]
    if source.batch is not None:
        chosen = dict.fromkeys(firsts, source.batch) | chosen
    return found.over(chosen | _others(name, found, firsts, chosen))


def _chosen(name: str, program: OpenProgram, said: Mapping[str, Any]) -> dict[str, Any]:
    """The open dimensions that --shape chooses. Raises InputError for unknown names, and for two extents of
    one dimension."""
    found: dict[str, Any] = {}
    for key, value in said.items():
        if key in program.dimensions and not isinstance(value, tuple):
            new = {key: value}
        elif key in program.shapes:
            new = program.said_by(key, value if isinstance(value, tuple) else (value,))
        else:
            raise InputError(
                f"--shape: {name} has no input or open dimension {key!r}; it has "
                f"{', '.join(program.shapes)}; open: {_said(program, program.dimensions)}."
            )
        for dimension, extent in new.items():
            if str(found.setdefault(dimension, extent)) != str(extent):
                raise InputError(f"--shape: {dimension} is {found[dimension]} and {extent}.")
    return found


def _others(
    name: str, program: OpenProgram, firsts: Sequence[str], chosen: Mapping[str, Any]
) -> dict[str, Any]:
    """The extents of dimensions that no option chooses: the whole range, or 1 for a batch without an end.

    Raises InputError for another dimension without a greatest extent.
    """
    from autotensor.te.symbols import var

    ranges = {d: ends for d, ends in program.dimensions.items() if d not in chosen}
    endless = [d for d, (_, most) in ranges.items() if most is None and d not in firsts]
    if endless:
        flags = " ".join(f"--shape {d}=128" for d in endless)
        raise InputError(
            f"{name}: {_said(program, endless)} {'has' if len(endless) == 1 else 'have'} no greatest extent.",
            fix=f"Give a number or a range: {flags}, or {endless[0]}=1..128.",
        )
    found = {d: least if most is None else var(d, (least, most)) for d, (least, most) in ranges.items()}
    for d in (d for d, e in found.items() if isinstance(e, int)):
        tell(
            f"Note: {d} has no greatest extent; {name} is compiled for {d} = {found[d]} (--batch N or 1..N)."
        )
    return found


def _said(program: OpenProgram, dimensions: Iterable[str]) -> str:
    """Dimensions by name, with one place of each: "batch (axis 0 of ids), ids_1 (axis 1 of ids)"."""
    places = {d: next(iter(program.places(d)), None) for d in dimensions}
    return ", ".join(f"{d} (axis {at[1]} of {at[0]})" if at else d for d, at in places.items())
