"""ONNX files as models of the verbs: `autotensor tune model.onnx --shape seq=128`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autotensor.base.errors import InputError
from autotensor.cli.extents import EXTENT, parsed_extent

if TYPE_CHECKING:
    from autotensor.cli.options import Source
    from autotensor.frontends.onnx.signature import Argument
    from autotensor.graph.ir import Graph
    from autotensor.graph.symbols.graph_families import GraphFamily


class RunsInParts(InputError):
    """A model that has no single program. shapes: as `from_onnx` takes them."""

    def __init__(self, what: str, fix: str, shapes: Mapping[str, Any]) -> None:
        super().__init__(what, fix=fix)
        self.shapes = shapes


_SHAPE = re.compile(rf"(?P<name>.+?)=(?P<extents>{EXTENT}(x{EXTENT})*)")


def is_onnx(name: str) -> bool:
    return name.endswith(".onnx")


def onnx_graph(name: str, source: Source) -> Graph | GraphFamily:
    """The graph of a model file. The batch is the first extent of inputs that leave it open.

    Raises InputError for a shape that does not fit the model, RunsInParts if the operators to run depend on
    values.
    """
    from autotensor.api.from_onnx import from_onnx, load_onnx

    model = load_onnx(name)
    from autotensor.frontends.onnx.errors import NeedsValue
    from autotensor.frontends.onnx.signature import inputs_of

    inputs = inputs_of(model)
    said = _checked(name, inputs, parsed_shapes(source.shape or ()))
    values = _values(name, inputs, said, source.fixed)
    found = _filled(name, [a for a in inputs if a.name not in values], source.batch_size, said)
    try:
        return from_onnx(name, shapes=found, values=values)
    except NeedsValue as error:
        raise RunsInParts(
            f"{name} is not one program: {error.what}",
            "It runs in parts: call it as autotensor.OnnxModel, or by `autotensor run` and `autotensor "
            "bench`; no .atm file holds it.",
            found,
        ) from error


def _checked(name: str, inputs: Sequence[Argument], said: dict[str, Any]) -> dict[str, Any]:
    """The shapes that --shape states. Raises InputError for a name that the model does not have."""
    known = {d for a in inputs for d in a.dims or () if isinstance(d, str)}
    if unknown := [n for n in said if n not in known and n not in {a.name for a in inputs}]:
        names = ", ".join([*(a.name for a in inputs), *sorted(known - {"?"})])
        raise InputError(f"--shape: {name} has no input or dimension {unknown[0]!r}; it has {names}.")
    return said


def _values(
    name: str, inputs: Sequence[Argument], said: Mapping[str, Any], given: Sequence[str]
) -> dict[str, Any]:
    """The arrays of --input, by name."""
    from autotensor.cli.values import SPELLED, check_names, parted, read_value

    whole, named = parted(given)
    if whole is not None:
        raise InputError(f"--input {whole}: the input's name is missing.", fix=SPELLED)
    check_names(named, [a.name for a in inputs], name)
    found = {}
    for a in inputs:
        if a.name not in named:
            continue
        dims = said.get(a.name, [said.get(d, d) if isinstance(d, str) else d for d in a.dims or ()])
        dims = tuple(dims) if isinstance(dims, (tuple, list)) else (dims,)
        if a.dtype is None or not all(isinstance(d, int) for d in dims):
            raise InputError(
                f"--input {a.name}: its shape is not known.", fix=f"Add --shape {_spelled(a, {})}."
            )
        found[a.name] = read_value(a.name, named[a.name], dims, str(a.dtype))
    return found


def _filled(name: str, inputs: Sequence[Argument], batch: int, said: Mapping[str, Any]) -> dict[str, Any]:
    """Values for all shapes and dimensions that the model leaves open. Raises InputError if some are left."""
    found: dict[str, Any] = dict(said)
    for a in inputs:
        dims = a.dims or ()
        if a.name in said or not dims:
            continue
        first = dims[0]
        if first == "?":
            open_ = [d for d in dims[1:] if isinstance(d, str) and d not in said]
            if not open_:
                found[a.name] = (batch, *(said[d] if isinstance(d, str) else d for d in dims[1:]))
        elif isinstance(first, str):
            found.setdefault(first, batch)
        elif batch not in (1, first):
            raise InputError(
                f"{name}: input {a} takes a batch of {first}, not {batch}.",
                fix="Export the model with an open batch dimension.",
            )
    tensors = [a for a in inputs if a.dtype is not None and a.name not in found]  # others are refused later
    lacking = {a: _open(a, found) for a in tensors if _open(a, found) or a.dims is None}
    if lacking:
        first_of_all, open_ = next(iter(lacking.items()))
        what = f"leaves {', '.join(map(repr, open_))} open" if open_ else "has no shape"
        flags = [flag for a, those in lacking.items() for flag in _flags(a, those, found)]
        raise InputError(
            f"{name}: input {first_of_all} {what}.",
            fix="Give its shape: " + " ".join(f"--shape {flag}" for flag in dict.fromkeys(flags)),
        )
    return found


def _open(a: Argument, found: Mapping[str, Any]) -> list[str]:
    return [d for d in dict.fromkeys(a.dims or ()) if isinstance(d, str) and d not in found]


def _flags(a: Argument, open_: Sequence[str], found: Mapping[str, Any]) -> list[str]:
    """The arguments of --shape for an input: its open dimensions if all have names, else its whole shape."""
    return [f"{d}=128" for d in open_] if open_ and "?" not in open_ else [_spelled(a, found)]


def _spelled(a: Argument, found: Mapping[str, Any]) -> str:
    """An input's shape for --shape, with numbers for open dimensions: x=1x3x128x128."""
    if a.dims is None:
        return f"{a.name}=1x128"
    first = 1 if a.dims and isinstance(a.dims[0], str) else None
    dims = [d if isinstance(d, int) else found.get(d, 128) for d in a.dims]
    return f"{a.name}={'x'.join(map(str, dims if first is None else [first, *dims[1:]]))}"


def parsed_shapes(texts: Sequence[str]) -> dict[str, Any]:
    """The values of --shape, by name: numbers, and te.var where ranges are written.

    >>> parsed_shapes(["seq=128", "x=1x3x8x8", "batch=1..8", "y=n:8..64/8x3"])
    {'seq': 128, 'x': (1, 3, 8, 8), 'batch': batch, 'y': (n_8 * 8, 3)}
    """
    found: dict[str, Any] = {}
    ranges: dict[str, str] = {}  # name → its first range
    for text in texts:
        match = _SHAPE.fullmatch(text)
        if match is None:
            raise InputError(
                f"--shape {text!r} is not a shape.",
                fix="Write NAME=128 or NAME=1x3x224x224; for a range NAME=1..8 or NAME=n:1..8x3x224x224.",
            )
        extents = tuple(parsed_extent(e, match["name"], ranges) for e in match["extents"].split("x"))
        found[match["name"]] = extents[0] if len(extents) == 1 else extents
    return found
