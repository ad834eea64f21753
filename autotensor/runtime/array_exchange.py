"""Arrays of other libraries, read and written in their own memory, by the DLPack protocol.

    f(torch_tensor)      ──▶ a NumPy view of the tensor's memory; the same checks as for any array follow

bfloat16, which NumPy's DLPack lacks, is exchanged by its bits. A tensor is refused with an explanation if it
is not in this machine's memory, or has another type that NumPy lacks. Nothing is copied.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from autotensor.base.dtype import dtype_of
from autotensor.base.errors import ArgumentError
from autotensor.runtime.arrays import Array


def adopted(
    function: str, given: Sequence[Any], results: Sequence[Any] | None
) -> tuple[Sequence[Array], Sequence[Array] | None]:
    """The arguments of a call, with NumPy views in place of other libraries' arrays.

    Anything that is not an array stays as it is; later checks refuse it.
    """
    inputs = given if _plain(given) else [view(function, a) for a in given]
    return inputs, results if results is None or _plain(results) else [view(function, a) for a in results]


def _plain(arrays: Sequence[Any]) -> bool:
    return all(isinstance(a, np.ndarray) for a in arrays)


def view(function: str, array: Any) -> Any:
    """A NumPy view of an array that supports DLPack. Raises ArgumentError if a view is impossible."""
    if isinstance(array, np.ndarray) or not hasattr(array, "__dlpack__"):
        return array
    library = type(array).__module__.split(".")[0]
    kind = f"{library}.{type(array).__name__}"
    if _is_wrapper(array):
        raise ArgumentError(
            f"{function}: a {kind} has no memory of its own.",
            fix="Give a plain torch.Tensor, outside of tracing.",
        )
    try:
        if library == "torch" and str(array.dtype) == "torch.bfloat16":
            bits = np.from_dlpack(array.view(sys.modules["torch"].int16))
            return bits.view(dtype_of("bfloat16").numpy)
        return np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:  # the errors of other libraries
        words = (str(error).strip().splitlines() or ["it gives no reason"])[0].rstrip(".")
        raise ArgumentError(
            f"{function}: a {kind} cannot be read in place: {words}.",
            fix="Give it detached, on the CPU, of a type that NumPy has.",
        ) from error


def _is_wrapper(array: Any) -> bool:
    """Whether this is a torch tensor without memory that wraps other tensors, as while torch traces."""
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    if tensor is None or not isinstance(array, tensor):
        return False
    return type(array).__torch_dispatch__ is not tensor.__torch_dispatch__
