"""The shapes of a compiled model's calls, chosen by --shape, --batch and the arrays of --input.

compiled for batch from 1 to 8     --batch 3, --shape x=3x784, --input x3.npy  ──▶  batch = 3
                                   --batch 1..8                                ──▶  batch = 1, 2, 4 and 8
saved for two shapes (by_shape)    --shape x=8x784                             ──▶  the function for it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotensor.base.counted import counted
from autotensor.base.errors import InputError
from autotensor.cli.images import PHOTOS, load_arrays
from autotensor.cli.values import parted
from autotensor.runtime.extents import in_full, name_of, said, symbol_of, unit_of
from autotensor.runtime.files.artifact import ArgSpec
from autotensor.runtime.modules_by_shape import ByShape
from autotensor.runtime.open_artifact import Function
from autotensor.runtime.open_module import OpenModule

if TYPE_CHECKING:
    from autotensor.cli.options import Source

Partly = tuple[int | None, ...]  # a shape; None: an extent that is not known
Asked = Mapping[str, int | Partly]  # numbers of symbols, shapes of inputs


@dataclass(frozen=True, slots=True)
class Call:
    """The shapes of one call, and the function that takes them."""

    function: Function
    args: tuple[ArgSpec, ...]  # inputs and free constants, with the shapes of this call
    values: Mapping[str, int]  # values of the symbols
    said: str = ""  # "batch = 3"; "" if the model takes one set of shapes

    @property
    def extents(self) -> dict[str, int]:
        """Run-time extents by name."""
        return in_full(self.values)

    def spelled(self, a: ArgSpec) -> list[str]:
        """The extents of an argument as --shape takes them, ranges where they are open."""
        if not isinstance(self.function, OpenModule) or a.name not in self.function.open_shapes.shapes:
            return [str(n) for n in a.shape]
        shapes = self.function.open_shapes
        ranges = {s: _spelled(s, least, most) for s, least, most in shapes.symbols}
        formulas = zip(shapes.shapes[a.name], a.shape, strict=True)
        return [ranges.get(symbol_of(f), str(n)) for f, n in formulas]

    @property
    def greatest(self) -> dict[str, int]:
        """The greatest extents that the function takes."""
        return in_full(self.function.open_shapes.greatest()) if isinstance(self.function, OpenModule) else {}

    @property
    def where(self) -> str:
        """ " at batch = 3"; "" if the model takes one set of shapes."""
        return self.said and f" at {self.said}"


def calls_of(function: Function, source: Source | None = None, inputs: Sequence[str] = ()) -> list[Call]:
    """The calls that the options ask for, those with the least extents first.

    If no option chooses an extent, one call has its least value, and another call its greatest value. source:
    its --shape and --batch; None if the model was compiled with them. inputs: the texts of --input.
    Raises InputError and ArgumentError for shapes that the function does not take.
    """
    of_inputs, photos = _shapes_of(inputs, function)
    found: list[Call] = []
    for asked in _asked(function, source) if source is not None else [{}]:
        if isinstance(function, OpenModule):
            found += _open_calls(function, asked, of_inputs, photos)
        else:  # for a single function, the error of reading the arrays is the clearest
            found += _fixed_calls(function, {**asked, **(of_inputs if len(_members(function)) > 1 else {})})
    return found


def only_call(function: Function, source: Source | None, inputs: Sequence[str]) -> Call:
    """The call of a verb that makes only one. Extents that no option chooses have their greatest values. The
    first of several functions is called. Raises InputError for options that ask for several calls."""
    if source is not None and (several := _asked(function, source))[1:]:
        raise InputError(
            f"--batch and --shape ask for {len(several)} calls, but this verb makes one.",
            fix="Give numbers, not ranges.",
        )
    calls = calls_of(function, source, inputs)
    return calls[-1] if isinstance(function, OpenModule) else calls[0]


def takes(function: Function) -> str:
    """The shapes that a function takes, for people."""
    if isinstance(function, OpenModule):
        return function.open_shapes.ranges()
    return "; ".join(_listed(f) for f in _members(function))


def _members(function: Function) -> Sequence[Function]:
    return function.modules if isinstance(function, ByShape) else (function,)


def _listed(function: Function) -> str:
    return ", ".join(_one(function, a) for a in function.signature.inputs)


def _one(function: Function, a: ArgSpec) -> str:
    """An argument as text; its run-time extents by their names."""
    return function.text(a) if isinstance(function, OpenModule) else str(a)


def _spelled(symbol: str, least: int, most: int) -> str:
    unit = unit_of(symbol)
    return f"{name_of(symbol)}:{least * unit}..{most * unit}" + (f"/{unit}" if unit > 1 else "")


# -- what the options say ------------------------------------------------------------------------------------


def _asked(function: Function, source: Source) -> list[Asked]:
    """The values of --shape and --batch; one choice for each number of their ranges that is tried."""
    from autotensor.cli.model_files.onnx_files import parsed_shapes
    from autotensor.te.symbols import number, symbols_of

    given = parsed_shapes(source.shape or ())
    inputs = {a.name: a for a in function.signature.inputs}
    extents = (
        [name_of(s) for s, _, _ in function.open_shapes.symbols] if isinstance(function, OpenModule) else []
    )
    for name, value in given.items():
        if name in inputs:
            given[name] = value if isinstance(value, tuple) else (value,)
            if len(given[name]) != len(inputs[name].shape):
                raise InputError(f"--shape {name}: {function.name} takes {_one(function, inputs[name])}.")
        elif name not in extents or isinstance(value, tuple):
            known = ", ".join([*inputs, *extents])
            raise InputError(f"--shape: {function.name} has no input or extent {name!r}; it has {known}.")
    if source.batch is not None:
        name, value = _of_batch(function, extents, source.batch)
        given.setdefault(name, value)
    symbols = symbols_of(*(e for v in given.values() for e in (v if isinstance(v, tuple) else (v,))))
    found: list[Asked] = []
    for values in product(*(_spread(s.least, s.most) for s in symbols)):
        choice = dict(zip(symbols, values, strict=True))
        found.append(
            {
                n: tuple(e if e is None else number(e, choice) for e in v)
                if isinstance(v, tuple)
                else number(v, choice)
                for n, v in given.items()
            }
        )
    return found


def _of_batch(function: Function, extents: Sequence[str], batch: Any) -> tuple[str, Any]:
    """The choice of --batch: the extent of this name, or the first extent of the first input."""
    if "batch" in extents:
        return "batch", batch
    first = next((a for a in function.signature.inputs if a.shape), None)
    if first is None:
        raise InputError(f"--batch: {function.name} takes no arrays.")
    return first.name, (batch, *[None] * (len(first.shape) - 1))


def _spread(least: int, most: int) -> list[int]:
    """The ends of a range, and the powers of two between them.

    >>> _spread(1, 8), _spread(3, 10)
    ([1, 2, 4, 8], [3, 4, 8, 10])
    """
    return sorted({least, most} | {1 << n for n in range(most.bit_length()) if least < 1 << n < most})


def _shapes_of(texts: Sequence[str], function: Function) -> tuple[dict[str, Partly], dict[str, Partly]]:
    """The shapes of the inputs that the arrays of --input determine, and the shapes that its photos prefer.
    Photos are repeated to fill any batch."""
    whole, named = parted(texts)
    specs = {a.name: a for a in function.args if a.role != "output"}
    files = {name: Path(text) for name, text in named.items() if Path(text).is_file() and name in specs}
    found: dict[str, Partly] = {}
    photos: dict[str, Partly] = {}
    rest = [name for name in specs if name not in named]
    if whole is not None and whole.suffix == ".npz":
        held = load_arrays(whole)
        found = {n: a.shape for n, a in held.items() if n in specs} if isinstance(held, Mapping) else {}
    elif whole is not None and len(rest) == 1:
        files[rest[0]] = whole
    for name, path in files.items():
        shape = _shape_in(path)
        rank = len(specs[name].shape)
        if shape is not None:
            found[name] = (1, *shape) if len(shape) == rank - 1 else shape
        elif path.suffix.lower() in PHOTOS and isinstance(function, OpenModule):
            photos[name] = (_least(function, name), *[None] * (rank - 1))
    for name in named.keys() - files.keys():
        if name in specs and isinstance(function, OpenModule) and "," in named[name]:
            formulas = function.open_shapes.shapes.get(name, ())
            found[name] = _of_count(named[name].count(",") + 1, formulas)
    return found, photos


def _least(function: OpenModule, name: str) -> int:
    """The least first extent of an input: a photo is not repeated more often than necessary."""
    shapes = function.open_shapes
    return shapes.shape(name, shapes.least())[0] if name in shapes.shapes else 1


def _shape_in(path: Path) -> tuple[int, ...] | None:
    """The shape of the array in a .npy file; None for another file."""
    return tuple(getattr(load_arrays(path), "shape", ())) if path.suffix == ".npy" else None


def _of_count(count: int, formulas: Sequence[Any]) -> Partly:
    """The shape of an array with this number of elements, if one extent is open."""
    known = prod(f for f in formulas if isinstance(f, int))
    if sum(not isinstance(f, int) for f in formulas) != 1 or not known or count % known:
        return ()
    return tuple(f if isinstance(f, int) else count // known for f in formulas)


# -- which calls these are -----------------------------------------------------------------------------------


def _open_calls(
    function: OpenModule, asked: Asked, of_inputs: dict[str, Partly], photos: dict[str, Partly]
) -> list[Call]:
    """The call with these extents, or the two calls with the least and the greatest of those left open."""
    shapes = function.open_shapes
    symbols = {name_of(s): s for s, _, _ in shapes.symbols}
    by_option: dict[str, int] = {}
    for key, value in asked.items():
        if isinstance(value, tuple):
            by_option |= shapes.solved(key, value)
        else:
            by_option[symbols[key]] = _in_units(symbols[key], value, function)
    by_array, preferred = (
        {s: n for key, shape in some.items() for s, n in shapes.solved(key, shape).items()}
        for some in (of_inputs, photos)
    )
    for s in by_option.keys() & by_array.keys():
        if by_option[s] != by_array[s]:
            here, there = said({s: by_array[s]}), said({s: by_option[s]})
            raise InputError(f"--input gives {here}; --batch or --shape gives {there}.")
    given = {k: v for k, v in asked.items() if isinstance(v, tuple)} | of_inputs
    chosen = preferred | by_option | by_array
    least, greatest = shapes.least() | chosen, shapes.greatest() | chosen
    return [_open_call(function, v, given) for v in ([greatest] if least == greatest else [least, greatest])]


def _in_units(symbol: str, value: int, function: OpenModule) -> int:
    if value % unit_of(symbol):
        raise InputError(f"{function.name} is compiled for {function.open_shapes.ranges()}, not for {value}.")
    return value // unit_of(symbol)


def _open_call(function: OpenModule, values: Mapping[str, int], given: Mapping[str, Partly]) -> Call:
    """Raises ArgumentError for a value out of its range, and for given shapes that do not fit."""
    shapes = function.open_shapes
    args = [a for a in function.args if a.role != "output"]
    ours = {a.name: shapes.shape(a.name, values) if a.name in shapes.shapes else a.shape for a in args}
    whole = {n: s for n, s in given.items() if s and None not in s and n in shapes.shapes}
    shapes.values(function.name, ours | whole)  # type: ignore[arg-type]  # without None
    fixed = tuple(replace(a, shape=ours[a.name]) for a in args)
    return Call(function, fixed, values, said(values))


def _fixed_calls(function: Function, given: Mapping[str, Any]) -> list[Call]:
    """A call for each function that takes these shapes."""
    members = _members(function)
    fitting = [f for f in members if all(_agree(shape, f, name) for name, shape in given.items())]
    if not fitting:
        asked = ", ".join(in_words(n, s) for n, s in given.items())
        raise InputError(f"{function.name} is not compiled for {asked}.", fix=f"It takes {takes(function)}.")
    several = len(members) > 1
    return [
        Call(f, tuple(a for a in f.args if a.role != "output"), {}, _listed(f) if several else "")
        for f in fitting
    ]


def in_words(name: str, shape: Partly) -> str:
    """A shape of which only some extents are given; the others may be anything.

    >>> in_words("x", (2, None)), in_words("x", (2, 64)), in_words("s", ())
    ('x with extent 2 on axis 0', 'x of shape [2, 64]', 's of shape []')
    >>> in_words("x", (2, None, 7)), in_words("x", (None, None))
    ('x with extents 2 on axis 0 and 7 on axis 2', 'x with 2 axes')
    """
    if None not in shape:
        return f"{name} of shape [{', '.join(map(str, shape))}]"
    stated = [f"{e} on axis {n}" for n, e in enumerate(shape) if e is not None]
    if not stated:
        return f"{name} with {counted(len(shape), 'axis', 'axes')}"
    return f"{name} with extent{'s' * (len(stated) > 1)} {' and '.join(stated)}"


def _agree(given: Partly, function: Function, name: str) -> bool:
    shape = next(a.shape for a in function.args if a.name == name)
    return len(given) == len(shape) and all(g in (None, n) for g, n in zip(given, shape, strict=True))


__all__ = ["Call", "calls_of", "only_call", "takes"]
