"""Reading and writing at indices that are data, decomposed into operators that have converters."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from autotensor.frontends.torch.decomposed.table import decomposes


@decomposes("aten.take.default")
def take(x: Tensor, index: Tensor) -> Tensor:
    """x's elements at these indices of the flattened x."""
    return x.reshape(-1).index_select(0, index.reshape(-1)).reshape(index.shape)


@decomposes("aten.put.default")
def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    if not index.numel():
        return x.clone()
    flat = x.reshape(-1)
    filled = flat.index_put([index.reshape(-1)], source.reshape(-1), accumulate)
    return filled.reshape(x.shape)


@decomposes("aten.masked_scatter.default")
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """x, with the source's elements, in order, where the mask holds."""
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    if not source.numel() or not prod(shape):
        return x.expand(shape).clone()
    hit = mask.expand(shape)
    number = hit.reshape(-1).cumsum(0) - 1
    at = number.clamp(0, source.numel() - 1)
    taken = source.reshape(-1).index_select(0, at).reshape(shape)
    return torch.where(hit, taken, x.expand(shape))


@decomposes("aten.diagonal_scatter.default")
def diagonal_scatter(x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """x with a diagonal replaced."""
    a, b = dim1 % x.dim(), dim2 % x.dim()
    rows, columns = torch.arange(x.shape[a]), torch.arange(x.shape[b])
    last = x.movedim((a, b), (-2, -1))  # [..., rows, columns]
    on = columns.unsqueeze(0) - rows.unsqueeze(1) == offset
    along = rows - max(-offset, 0)  # index of each row's element on the diagonal
    count = source.shape[-1]
    if not count:
        return x.clone()
    spread = source.index_select(-1, along.clamp(0, count - 1)).unsqueeze(-1)
    return torch.where(on, spread, last).movedim((-2, -1), (a, b))


@decomposes("aten.index_reduce.default")
def index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    if not x.dim():
        again = (v.reshape(1) for v in (x, index, source))
        first, at, new = again
        return index_reduce(first, 0, at, new, reduce, include_self=include_self).reshape(())
    shape = [1] * x.dim()
    shape[dim] = index.numel()
    at = index.reshape(shape).expand(source.shape)
    return x.scatter_reduce(dim, at, source, reduce, include_self=include_self)


@decomposes("aten.resize.default")
def resize(x: Tensor, size: list[int], *, memory_format: object = None) -> Tensor:
    """x's elements in the new size. Any further elements would be uninitialised memory in torch."""
    count = prod(size)
    if count > x.numel():
        return NotImplemented
    return x.reshape(-1)[:count].reshape(size)


@decomposes("aten.histc.default")
def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Counts in equal steps from min to max (inclusive); if both are 0, from the least to the greatest x."""
    flat = x.reshape(-1)
    if not flat.numel():
        return x.new_zeros(bins)
    low, high = torch.full((), min, dtype=x.dtype), torch.full((), max, dtype=x.dtype)
    if min == max:
        low, high = flat.amin(), flat.amax()
    one = low == high
    low, high = torch.where(one, low - 1, low), torch.where(one, high + 1, high)
    place = ((flat - low) / (high - low) * bins).floor()
    place = torch.where(flat == high, bins - 1, place)
    inside = (flat >= low) & (flat <= high)
    hits = (place.unsqueeze(-1) == torch.arange(bins)) & inside.unsqueeze(-1)
    return hits.sum(0).to(x.dtype)
