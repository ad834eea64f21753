"""Checks the arguments of a compiled function's call. The fast path is one test per array. The text of an
error is made only after a failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotensor.base.dtype import dtype_of
from autotensor.base.errors import ArgumentError
from autotensor.base.registry import suggest
from autotensor.runtime.arrays import Array, address
from autotensor.runtime.files.artifact import ArgSpec

_ROW_MAJOR, _ALIGNED, _WRITEABLE = 0x001, 0x100, 0x400  # NumPy's NPY_ARRAY_* bits, as in `flags.num`


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """The position of an argument in the argument array, and its requirements."""

    index: int  # its index in the argument array
    spec: ArgSpec
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    flags: int  # bits that must be set
    bytes: int
    values: tuple[int, int] | None = None  # least and largest element, for arguments that hold indices

    @staticmethod
    def of(index: int, spec: ArgSpec, values: tuple[int, int] | None = None) -> Slot:
        flags = _ROW_MAJOR | _ALIGNED | (_WRITEABLE if spec.role == "output" else 0)
        return Slot(index, spec, spec.shape, dtype_of(spec.dtype).numpy, flags, spec.bytes, values)

    def takes(self, array: Any) -> bool:
        """Whether the kernel was compiled for arrays like `array`; its elements are not checked."""
        return (
            isinstance(array, np.ndarray)
            and array.dtype == self.dtype
            and array.shape == self.shape
            and array.flags.num & self.flags == self.flags
        )

    def address(self, function: str, array: Array) -> int:
        """Address of `array`. Raises ArgumentError unless it is exactly as the kernel was compiled for."""
        if self.takes(array):
            if self.values is not None:
                _check_indices(function, self, array, *self.values)
            return address(array)
        what, fix = _complaint(function, self, array)
        raise ArgumentError(what, fix=fix)


def place_all(
    function: str,
    inputs: Sequence[Slot],
    outputs: Sequence[Slot],
    arrays: Sequence[Array],
    out: Array | Sequence[Array] | None,
    named: Mapping[str, Array],
) -> tuple[tuple[Array, ...], Sequence[Array] | None]:
    """Inputs and outputs in order, from positions and names. The outputs are None if the caller gave none."""
    slots = (*inputs, *outputs)
    names = tuple(s.spec.name for s in slots)
    if len(arrays) > len(slots):
        raise ArgumentError(f"{function} {_takes(inputs, outputs)}; got {len(arrays)}.")
    found: dict[str, Array] = dict(zip(names, arrays, strict=False))
    for name, array in (*named.items(), *_outputs_by_name(function, outputs, out)):
        if name not in names:
            raise ArgumentError(f"{function} has no argument {name!r}.", fix=suggest(name, names))
        if name in found:
            raise ArgumentError(f"{function}: argument {name!r} was given twice.")
        found[name] = array
    if any(s.spec.name not in found for s in inputs):
        missing = ", ".join(str(s.spec) for s in inputs if s.spec.name not in found)
        raise ArgumentError(f"{function} {_takes(inputs, outputs)}; got {len(found)}, without {missing}.")
    given = [found[s.spec.name] for s in outputs if s.spec.name in found]
    if given and len(given) < len(outputs):
        raise ArgumentError(
            f"{function} {_takes(inputs, outputs)}; got {len(found)}: give all outputs or none."
        )
    return tuple(found[s.spec.name] for s in inputs), given or None


def fill(
    function: str,
    slots: Any,
    inputs: Sequence[Slot],
    outputs: Sequence[Slot],
    given: Sequence[Array],
    results: Sequence[Array],
) -> None:
    """Writes the addresses of all arrays into the argument array `slots`.

    Raises ArgumentError if an array does not fit, or if an output shares memory with another argument (all
    arrays are row-major). Every call runs this, so it uses plain loops and makes no objects except addresses.
    """
    spans = []
    for slot, array in zip(inputs, given, strict=True):
        start = slot.address(function, array)
        slots[slot.index] = start
        spans.append((start, start + slot.bytes))
    for slot, array in zip(outputs, results, strict=True):
        start = slot.address(function, array)
        stop = start + slot.bytes
        for k, (other_start, other_stop) in enumerate(spans):
            if start < other_stop and other_start < stop:
                other = (*inputs, *outputs)[k]
                raise ArgumentError(
                    f"{function}: output {slot.spec.name!r} shares memory with {other.spec.name!r}.",
                    fix="Give it memory of its own.",
                )
        slots[slot.index] = start
        spans.append((start, stop))


def _outputs_by_name(
    function: str, outputs: Sequence[Slot], out: Array | Sequence[Array] | None
) -> list[tuple[str, Array]]:
    if out is None:
        return []
    given = listed(out)
    if len(given) != len(outputs):
        raise ArgumentError(f"{function} has {len(outputs)} outputs; out= holds {len(given)}.")
    return [(s.spec.name, array) for s, array in zip(outputs, given, strict=True)]


def listed(out: Any) -> Sequence[Array]:
    """The arrays of a call's `out=`: one array, or a tuple or list of arrays."""
    return out if isinstance(out, (tuple, list)) else (out,)


def _takes(inputs: Sequence[Slot], outputs: Sequence[Slot]) -> str:
    """ "takes 2 arrays (A, B), or 3 with its outputs (C)"."""
    first = f"takes {len(inputs)} array{'' if len(inputs) == 1 else 's'} ({_list(inputs)})"
    return f"{first}, or {len(inputs) + len(outputs)} with its outputs ({_list(outputs)})"


def _list(slots: Sequence[Slot]) -> str:
    return ", ".join(s.spec.name for s in slots)


def _check_indices(function: str, slot: Slot, array: Array, low: int, high: int) -> None:
    """Raises ArgumentError naming the first element that is not in low … high."""
    if not array.size or (low <= array.min() and array.max() <= high):
        return
    outside = ((array < low) | (array > high)).reshape(-1)
    at = np.unravel_index(int(outside.argmax()), array.shape)
    place = f"[{', '.join(str(int(n)) for n in at)}]" if at else ""
    raise ArgumentError(
        f"{function}: argument {slot.spec.name!r} holds indices from {low} to {high}; "
        f"{slot.spec.name}{place} is {int(array[at])}."
    )


def _complaint(function: str, slot: Slot, array: Any) -> tuple[str, str]:
    """The error for an array that failed the fast test, with advice."""
    where = f"{function}: argument {slot.spec.name!r}"
    output = slot.spec.role == "output"
    want = f"{slot.spec.dtype}[{', '.join(map(str, slot.shape))}]"
    if not isinstance(array, np.ndarray):
        fix = "" if output else f"Convert it with np.asarray(x, {slot.spec.dtype!r})."
        return f"{where} is a {type(array).__name__}; expected a NumPy array {want}.", fix
    found = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
    if array.dtype != slot.dtype:
        order = "" if array.dtype.isnative else " in foreign byte order"
        return (
            f"{where} is {found}{order}; expected {want}.",
            f"Give an array of {slot.spec.dtype}."
            if output
            else _torch_or_numpy(
                array, f".to(torch.{slot.spec.dtype})", f"Convert it with .astype({slot.spec.dtype!r})."
            ),
        )
    if array.shape != slot.shape:
        fix = "An array after the inputs is memory for an output." if output else ""
        return f"{where} is {found}; expected {want}.", fix or "Kernels are compiled for fixed shapes."
    lacking = slot.flags & ~array.flags.num
    if lacking & _ROW_MAJOR:
        fix = "Give a C-contiguous array: a copy would be filled in its place." if output else ""
        return f"{where} is not C-contiguous.", fix or _torch_or_numpy(
            array, ".contiguous()", "Use np.ascontiguousarray."
        )
    if lacking & _WRITEABLE:
        return f"{where} is an output but read-only.", "Give an array that may be written to."
    return f"{where} is not aligned to its {slot.dtype.itemsize}-byte elements.", "Use a copy of it."


def _torch_or_numpy(array: Array, method: str, numpy: str) -> str:
    """Advice for an array: torch's method if it is a view of another library's array, else NumPy's."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return f"With torch: x{method}." if type(base).__name__ == "PyCapsule" else numpy
