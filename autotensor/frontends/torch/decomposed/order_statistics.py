"""Statistics by sorting: medians, k-th values, modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autotensor.frontends.torch.decomposed.table import decomposes

Pair = tuple[Tensor, Tensor]
Picks = Callable[..., Pair]  # returns values and positions


def _picked(values: Tensor, places: Tensor, dim: int, keepdim: bool) -> Pair:
    """One value of each line and its position, from slices that keep the axis."""
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def of_a_line(target: str) -> Callable[[Picks], Picks]:
    """Registers a function that picks an element of each line. For a tensor without axes, the result is the
    tensor itself, at position 0."""

    def file(picks: Picks) -> Picks:
        def picked(x: Tensor, *args: Any, **kwargs: Any) -> Pair:
            if not x.dim():
                return x.clone(), torch.zeros((), dtype=torch.int64)
            return picks(x, *args, **kwargs)

        return decomposes(target)(picked)

    return file


@of_a_line("aten.kthvalue.default")
def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Pair:
    values, places = torch.sort(x, dim=dim, stable=True)
    return _picked(values.narrow(dim, k - 1, 1), places.narrow(dim, k - 1, 1), dim, keepdim)


@of_a_line("aten.median.dim")
def median_along(x: Tensor, dim: int, keepdim: bool = False) -> Pair:
    """The middle element of each line, or the lower of two. A line with not-a-number gives its first
    not-a-number."""
    value, place = kthvalue(x, (x.shape[dim] + 1) // 2, dim, True)
    if x.dtype.is_floating_point:
        bad = x.isnan()
        any_bad = bad.any(dim, keepdim=True)
        first = bad.to(torch.int32).argmax(dim, keepdim=True)
        value = torch.where(any_bad, float("nan"), value)
        place = torch.where(any_bad, first, place)
    return _picked(value, place, dim, keepdim)


@decomposes("aten.nanmedian.dim")
def nanmedian_along(x: Tensor, dim: int, keepdim: bool = False) -> Pair:
    """The median of the elements that are numbers."""
    if not x.dtype.is_floating_point or not x.dim():
        return median_along(x, dim, keepdim)
    values, places = torch.sort(x, dim=dim, stable=True)
    count = (~x.isnan()).sum(dim, keepdim=True)
    middle = ((count - 1) // 2).clamp(min=0)
    return _picked(values.gather(dim, middle), places.gather(dim, middle), dim, keepdim)


def _of_all(target: str, along: Picks) -> None:
    @decomposes(target)
    def decomposed(x: Tensor) -> Tensor:
        if not x.numel():
            return torch.full((), float("nan"), dtype=x.dtype)
        return along(x.reshape(-1), 0)[0]


_of_all("aten.median.default", median_along)
_of_all("aten.nanmedian.default", nanmedian_along)


@of_a_line("aten.mode.default")
def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> Pair:
    """The most frequent value (the least if there are several), and its last position."""
    line = x.movedim(dim, -1)  # [..., n]
    same = line.unsqueeze(-1) == line.unsqueeze(-2)
    count = same.sum(-1)
    common = count == count.amax(-1, keepdim=True)
    values, order = torch.sort(line, dim=-1, stable=True)
    first = common.gather(-1, order).to(torch.int32).argmax(-1, keepdim=True)
    value = values.gather(-1, first)
    n = torch.arange(line.shape[-1])
    place = torch.where(line == value, n, -1).amax(-1, keepdim=True)
    return _picked(value.movedim(-1, dim), place.movedim(-1, dim), dim, keepdim)
