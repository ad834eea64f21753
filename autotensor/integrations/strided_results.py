"""Results that lie in memory as torch prescribes: with gaps, with overlaps, or behind an offset.

    values [3, 2], strides (4, 1), offset 1 ──▶ memory: · v v · · v v · · v v

If a result shares memory with an argument, AOT autograd makes the result anew: it takes the argument's
memory, and the size, strides and offset of the tensor that the compiled part returns. So these must be right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Number = int | Callable[[Sequence[Any]], int]  # itself, or a function of the part's arguments


@dataclass(frozen=True, slots=True)
class Strides:
    """The strides and the offset of a result in its memory, in elements."""

    strides: tuple[Number, ...]
    offset: Number

    @staticmethod
    def of(value: Any, number: Callable[[Any], Number]) -> Strides | None:
        """Those of a tensor that torch has traced; None if it is contiguous from its memory's begin.

        number: makes a number of each of torch's own, which may be open.
        """
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return None
        offset = value.storage_offset()
        if isinstance(offset, int) and offset == 0 and value.is_contiguous():
            return None
        return Strides(tuple(number(s) for s in value.stride()), number(offset))

    def placed(self, values: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
        """A tensor with these values and strides, in new memory. It is not a view of another tensor."""
        strides = [s if isinstance(s, int) else s(args) for s in self.strides]
        offset = self.offset if isinstance(self.offset, int) else self.offset(args)
        if values.numel():
            end = offset + 1 + sum((n - 1) * s for n, s in zip(values.shape, strides, strict=True))
        else:
            end = offset
        memory = values.new_empty(end)
        made = values.new_empty(0).set_(memory.untyped_storage(), offset, values.shape, strides)
        once = tuple(slice(0, 1) if s == 0 else slice(None) for s in strides)  # torch refuses to write twice
        made[once].copy_(values[once])  # other places that overlap get equal values
        return made


__all__ = ["Strides"]
