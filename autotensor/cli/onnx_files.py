"""ONNX files where a verb takes a model: `autotensor tune model.onnx --shape seq=128`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotensor.base.errors import InputError

if TYPE_CHECKING:
    from autotensor.graph.ir import Graph


class RunsInParts(InputError):
    """A model that has no single program. shapes: as `from_onnx` takes them."""

    def __init__(self, what: str, fix: str, shapes: Mapping[str, Any]) -> None:
        super().__init__(what, fix=fix)
        self.shapes = shapes


_SHAPE = re.compile(r"(?P<name>.+)=(?P<extents>\d+(x\d+)*)")


def is_onnx(name: str) -> bool:
    return name.endswith(".onnx")


def onnx_graph(name: str, batch: int, weights: Path | None, shapes: Sequence[str]) -> Graph:
    """The graph of a model file. `batch` is the first extent of inputs that leave it open.

    Raises InputError for what does not fit the model, RunsInParts when values decide what is computed.
    """
    from autotensor.api.onnx_models import from_onnx, load_onnx

    if weights is not None:
        raise InputError(f"{name} holds its weights; --weights has no effect on it.")
    model = load_onnx(name)
    from autotensor.frontends.onnx.signature import inputs_of

    given = parsed_shapes(shapes)
    inputs = inputs_of(model)
    known = {d for a in inputs for d in a.dims or () if isinstance(d, str)}
    if unknown := [n for n in given if n not in known and n not in {a.name for a in inputs}]:
        names = ", ".join([*(a.name for a in inputs), *sorted(known - {"?"})])
        raise InputError(f"--shape: {name} has no input or dimension {unknown[0]!r}; it has {names}.")
    found: dict[str, Any] = dict(given)
    for a in inputs:
        dims = a.dims or ()
        if a.name in given or not dims:
            continue
        first = dims[0]
        if first == "?":
            open_ = [d for d in dims[1:] if isinstance(d, str) and d not in given]
            if not open_:
                found[a.name] = (batch, *(given[d] if isinstance(d, str) else d for d in dims[1:]))
        elif isinstance(first, str):
            found.setdefault(first, batch)
        elif batch not in (1, first):
            raise InputError(
                f"{name}: input {a} takes a batch of {first}, not {batch}.",
                fix="Export the model with an open batch dimension.",
            )
    for a in inputs:
        open_ = [d for d in dict.fromkeys(a.dims or ()) if isinstance(d, str) and d not in found]
        if a.name in found or not open_:
            continue
        spelled = [f"{d}=128" for d in open_] if "?" not in open_ else [f"{a.name}=1x128"]
        raise InputError(
            f"{name}: input {a} leaves {', '.join(map(repr, open_))} open.",
            fix="Say how large it is: " + " ".join(f"--shape {s}" for s in spelled),
        )
    from autotensor.frontends.onnx.errors import NeedsValue

    try:
        return from_onnx(name, shapes=found)
    except NeedsValue as error:
        raise RunsInParts(
            f"{name} is not one program: {error.what}",
            "It runs in parts: call it as autotensor.OnnxModel, or by `autotensor run` and `autotensor "
            "bench`; no .atm file holds it.",
            found,
        ) from error


def parsed_shapes(texts: Sequence[str]) -> dict[str, Any]:
    """What --shape says, by name.

    >>> parsed_shapes(["seq=128", "x=1x3x8x8"])
    {'seq': 128, 'x': (1, 3, 8, 8)}
    """
    found: dict[str, Any] = {}
    for text in texts:
        match = _SHAPE.fullmatch(text)
        if match is None:
            raise InputError(f"--shape {text!r} is no shape.", fix="Write NAME=128 or NAME=1x3x224x224.")
        extents = tuple(int(n) for n in match["extents"].split("x"))
        found[match["name"]] = extents[0] if len(extents) == 1 else extents
    return found
