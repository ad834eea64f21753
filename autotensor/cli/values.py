"""Values of inputs on the command line: `--input sr=16000`, `--input x=photo.jpg`, `--input all.npz`.

A value is one number for all elements, numbers with commas between them, or a file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotensor.base.errors import InputError
from autotensor.base.registry import suggest
from autotensor.cli.images import check_there, read_input, read_inputs

if TYPE_CHECKING:
    import numpy as np

    from autotensor.runtime.files.artifact import ArgSpec

    Array = np.ndarray[Any, np.dtype[Any]]

SPELLED = "Write NAME=16000, NAME=0.5,1,2 or NAME=FILE."


def parted(texts: Sequence[str]) -> tuple[Path | None, dict[str, str]]:
    """The file of all inputs, if one is given, and the values that are given by name.

    >>> parted(["sr=16000", "x=photo.jpg"])
    (None, {'sr': '16000', 'x': 'photo.jpg'})
    """
    whole: Path | None = None
    named: dict[str, str] = {}
    for text in texts:
        name, is_named, value = text.rpartition("=")  # names may contain "=", values do not
        if not is_named or Path(text).is_file():
            if whole is not None:
                raise InputError(f"--input gives two files, {str(whole)!r} and {text!r}.", fix=SPELLED)
            whole = Path(text)
            check_there(whole, SPELLED)
        elif not name or not value:
            raise InputError(f"--input {text!r} gives no value.", fix=SPELLED)
        elif name in named:
            raise InputError(f"--input gives {name!r} twice.")
        else:
            named[name] = value
    return whole, named


def read_value(name: str, text: str, shape: tuple[int, ...], dtype: str) -> Array:
    """The array of `--input name=text`. Raises InputError if it does not have this shape and type."""
    import numpy as np

    from autotensor.base.dtype import dtype_of

    if Path(text).is_file():
        return read_input(Path(text), shape, dtype)
    type_ = dtype_of(dtype)
    numbers = [_number(name, part, dtype) for part in text.split(",")]
    try:
        array = np.array(numbers, None if type_.is_float else type_.numpy)
    except OverflowError as error:
        raise InputError(f"--input {name}={text}: {error}.") from error
    size = int(np.prod(shape, dtype=np.int64))
    if array.size not in (1, size):
        raise InputError(
            f"--input {name} gives {array.size} numbers; the model takes {size}, of shape {shape}."
        )
    whole = np.broadcast_to(array, (size,)) if array.size == 1 else array
    return whole.reshape(shape).astype(type_.numpy, order="C")


def _number(name: str, text: str, dtype: str) -> int | float | bool:
    """One number of this type."""
    from autotensor.base.dtype import dtype_of

    type_, plain = dtype_of(dtype), text.strip().lower()
    if type_.is_bool:
        known: dict[str, bool] = {"true": True, "1": True, "false": False, "0": False}
        if plain in known:
            return known[plain]
    else:
        kinds: tuple[Callable[[str], int | float], ...] = (float,) if type_.is_float else (int,)
        for kind in kinds:
            try:
                return kind(plain)
            except ValueError:
                continue
    raise InputError(f"--input {name}: {text!r} is neither a file nor a number of type {dtype}.", fix=SPELLED)


def call_arrays(
    texts: Sequence[str], wanted: Sequence[ArgSpec], samples: Sequence[Array], model: str
) -> tuple[list[Array], list[str]]:
    """A call's arguments, in order, and the names of the inputs that no option gives.

    samples: values for those inputs.
    """
    whole, named = parted(texts)
    check_names(named, [a.name for a in wanted], model)
    found = {a.name: read_value(a.name, named[a.name], a.shape, a.dtype) for a in wanted if a.name in named}
    rest = [a for a in wanted if a.name not in named]
    if whole is not None:
        found |= dict(zip([a.name for a in rest], read_inputs(whole, rest, model), strict=True))
    drawn = [] if whole is not None else [a.name for a in rest]
    arrays = [found.get(a.name, sample) for a, sample in zip(wanted, samples, strict=True)]
    return arrays, drawn


def check_names(given: Sequence[str] | dict[str, str], known: Sequence[str], model: str) -> None:
    """Raises InputError for a name that is not an input of the model."""
    for name in given:
        if name not in known:
            raise InputError(f"--input: {model} has no input {name!r}.", fix=suggest(name, tuple(known)))
