"""Reads images and volumes at positions between their elements: `grid_sample` along two and three axes, and
`affine_grid`, which makes the positions.

Torch has a decomposition for images, but not for volumes. Source of the rules: torch's kernels,
`aten/src/ATen/native/GridSampler.h` for volumes, `cpu/GridSamplerKernel.cpp` for images. The two kernels
differ for a position of NaN (and, with reflection, of infinity): images read the first element, volumes the
last one.
"""

from __future__ import annotations

from itertools import product
from math import prod

import torch
from torch import Tensor
from torch._decomp import decomposition_table

from autotensor.frontends.torch.decomposed.table import decomposes

_BILINEAR, _NEAREST = 0, 1
_ZEROS, _BORDER = 0, 1  # values of `padding`; any other value is reflection


def _reflected(place: Tensor, low: float, span: float) -> Tensor:
    """The position, reflected at `low` and `low + span` until it lies between them."""
    if span == 0:
        return torch.zeros_like(place)
    away = (place - low).abs()
    flips = torch.floor(away / span)
    rest = away - flips * span
    return torch.where(torch.remainder(flips, 2.0) == 0, low + rest, low + span - rest)


def _places(coordinate: Tensor, extent: int, padding: int, align_corners: bool) -> Tensor:
    """Converts coordinates -1 … 1 to positions among `extent` elements. Position 0 is the middle of the first
    element."""
    scale = (extent - 1) / 2 if align_corners else extent / 2
    place = coordinate * scale + (extent - 1) / 2
    if padding == _ZEROS:
        return place
    if padding != _BORDER:
        low, span = (0.0, extent - 1.0) if align_corners else (-0.5, float(extent))
        place = _reflected(place, low, span)
    return torch.where(place.isnan(), extent - 1, place.clamp(0, extent - 1))


def _middles(extent: int, align_corners: bool, like: Tensor) -> Tensor:
    """The coordinates -1 … 1 of the middles of `extent` elements: one element lies at 0."""
    if extent <= 1:
        return like.new_zeros((extent,))
    end = 1.0 if align_corners else (extent - 1) / extent
    return torch.linspace(-end, end, extent, dtype=like.dtype, device=like.device)


@decomposes("aten.affine_grid_generator.default")
def affine_grid_generator(theta: Tensor, size: list[int], align_corners: bool) -> Tensor:
    """theta: [n, 2, 3] or [n, 3, 4]; size: [n, c, *out]. Result: [n, *out, 2 or 3], its last axis (x, y, z).
    Torch's decomposition makes a tensor of a number for an axis with one element, and cannot trace that."""
    n, _, *out = size
    axes = torch.meshgrid(*(_middles(extent, align_corners, theta) for extent in out), indexing="ij")
    places = torch.stack((*reversed(axes), torch.ones_like(axes[0])), -1)  # [*out, 3 or 4]
    moved = places.reshape(1, prod(out), len(out) + 1, 1) * theta.mT[:, None]
    return moved.sum(-2).reshape(n, *out, len(out))


@decomposes("aten.grid_sampler_2d.default")
def grid_sampler_2d(x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Tensor:
    """x: [n, c, height, width]; grid: [n, *out, 2]. This is torch's decomposition, but with NaN as in torch's
    kernel."""
    whole = decomposition_table[torch.ops.aten.grid_sampler_2d.default]
    if mode not in (_BILINEAR, _NEAREST):
        return whole(x, grid, mode, padding, align_corners)
    if padding != _ZEROS:
        placed = ~grid.isnan() if padding == _BORDER else grid.isfinite()
        return whole(x, torch.where(placed, grid, -1), mode, padding, align_corners)
    found = whole(x, grid, mode, padding, align_corners)
    if mode == _NEAREST:
        return found
    return torch.where(grid.isfinite().all(-1)[:, None], found, torch.nan)


@decomposes("aten.grid_sampler_3d.default")
def grid_sampler_3d(x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Tensor:
    """x: [n, c, depth, height, width]; grid: [n, *out, 3], its last axis (x, y, z). Result: [n, c, *out]."""
    n, channels, *extents = x.shape
    out = grid.shape[1:-1]
    near: list[list[tuple[Tensor, Tensor]]] = []  # for each axis: positions among its elements, and weights
    for axis, extent in enumerate(extents):
        place = _places(grid[..., len(extents) - 1 - axis], extent, padding, align_corners)
        if mode == _NEAREST:
            near.append([(place.round(), torch.ones_like(place))])
            continue
        first = place.floor()
        near.append([(first, first + 1 - place), (first + 1, place - first)])
    flat = x.reshape(n, channels, prod(extents))
    total = x.new_zeros((n, channels, prod(out)))
    for corner in product(*near):
        at = torch.zeros(grid.shape[:-1], dtype=torch.int64)
        weight = torch.ones_like(grid[..., 0])
        for (place, part), extent in zip(corner, extents, strict=True):
            inside = (place >= 0) & (place < extent)
            at = at * extent + torch.where(inside, place, 0).to(torch.int64)
            weight = torch.where(inside, weight * part, 0)
        index = at.reshape(n, 1, -1).expand(n, channels, -1)
        total = total + flat.gather(2, index) * weight.reshape(n, 1, -1)
    return total.reshape(n, channels, *out)
