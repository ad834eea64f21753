"""Elementwise operators and sums, made of other operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autotensor.frontends.torch.decomposed.table import decomposes


@decomposes("aten.signbit.default")
def signbit(x: Tensor) -> Tensor:
    """Whether x is negative. The reciprocal distinguishes -0.0 from 0.0. The sign of not-a-number is
    ignored."""
    if not x.dtype.is_floating_point:
        return x < 0 if x.dtype is not torch.bool else torch.zeros_like(x)
    return (x < 0) | ((x == 0) & (1 / x < 0))


def _floats(x: Tensor, kind: torch.dtype) -> Tensor:
    """x in the type `kind` if this is a float type, else in the default float type."""
    return x.to(kind if kind.is_floating_point else torch.get_default_dtype())


def _alike(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    kind = torch.result_type(a, b)
    return a.to(kind), b.to(kind)


@decomposes("aten.copysign.Tensor")
def copysign(a: Tensor, b: Tensor) -> Tensor:
    size = _floats(a, torch.result_type(a, b)).abs()
    return torch.where(signbit(b), -size, size)


@decomposes("aten.copysign.Scalar")
def copysign_number(a: Tensor, b: float) -> Tensor:
    size = _floats(a, a.dtype).abs()
    return -size if math.copysign(1, b) < 0 else size


def _extreme(aten: str, extreme: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Registers an operator that returns the extreme of two values, or the other value if one is not a
    number."""

    @decomposes(aten)
    def decomposed(a: Tensor, b: Tensor) -> Tensor:
        a, b = _alike(a, b)
        if not a.dtype.is_floating_point:
            return extreme(a, b)
        return torch.where(a.isnan(), b, torch.where(b.isnan(), a, extreme(a, b)))


_extreme("aten.fmax.default", torch.maximum)
_extreme("aten.fmin.default", torch.minimum)


@decomposes("aten.hypot.default")
def hypot(a: Tensor, b: Tensor) -> Tensor:
    """Divides by the larger leg first, because its square might overflow."""
    a, b = (x.abs() for x in _alike(a, b))
    large, small = torch.maximum(a, b), torch.minimum(a, b)
    share = torch.where(large > 0, small / large, 0.0)
    found = large * torch.sqrt(1 + share * share)
    return torch.where(a.isinf() | b.isinf(), math.inf, found)


@decomposes("aten.round.decimals")
def round_decimals(x: Tensor, *, decimals: int) -> Tensor:
    """Rounds the same product as torch's kernel does, with halves to even."""
    if decimals == 0 or not x.dtype.is_floating_point:
        return x.round()
    power = 10.0 ** abs(decimals)
    return (x * power).round() / power if decimals > 0 else (x / power).round() * power


@decomposes("aten.angle.default")
def angle(x: Tensor) -> Any:
    if x.is_complex():
        return NotImplemented
    y = _floats(x, x.dtype)
    return torch.where(y.isnan(), y, torch.where(y < 0, math.pi, 0.0).to(y.dtype))


@decomposes("aten.rrelu_with_noise_functional.default")
def rrelu(
    x: Tensor, noise: Tensor, lower: float, upper: float, training: bool = False, generator: Any = None
) -> Any:
    if training:
        return NotImplemented
    slope = (lower + upper) / 2
    return torch.where(x > 0, x, x * slope), noise


# -- products and distances --------------------------------------------------------------------------------


@decomposes("aten.addbmm.default")
def addbmm(c: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    y = torch.bmm(a, b).sum(0).to(a.dtype)
    y = y if alpha == 1 else y * alpha
    return y if beta == 0 else y + (c if beta == 1 else c * beta)


@decomposes("aten._trilinear.default")
def trilinear(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    expand1: list[int],
    expand2: list[int],
    expand3: list[int],
    sumdim: list[int],
    unroll_dim: int = 1,
) -> Tensor:
    for x, axes in ((0, expand1), (1, expand2), (2, expand3)):
        for axis in sorted(axes):
            a, b, c = (v.unsqueeze(axis) if n == x else v for n, v in enumerate((a, b, c)))
    return (a * b * c).sum(sumdim).to(a.dtype)


def _norm(difference: Tensor, p: float) -> Tensor:
    """The p-norm over the last axis."""
    return torch.linalg.vector_norm(difference, p, -1)


@decomposes("aten._cdist_forward.default")
def cdist(a: Tensor, b: Tensor, p: float, compute_mode: int | None) -> Tensor:
    """a: [..., m, k], b: [..., n, k] ──▶ [..., m, n]."""
    if a.shape[-1] == 0:
        lead = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return a.new_zeros((*lead, a.shape[-2], b.shape[-2]))
    return _norm(a.unsqueeze(-2) - b.unsqueeze(-3), p)


@decomposes("aten._pdist_forward.default")
def pdist(x: Tensor, p: float = 2) -> Tensor:
    """x: [n, k] ──▶ the distances of its n*(n-1)/2 pairs of rows."""
    rows, columns = torch.triu_indices(x.shape[0], x.shape[0], 1)
    if x.shape[1] == 0:
        return x.new_zeros(rows.shape)
    return _norm(x[rows] - x[columns], p)


# -- rounded like quantised numbers ------------------------------------------------------------------------


def _fake_quantized(x: Tensor, scale: Tensor, zero: Tensor, low: int, high: int) -> tuple[Tensor, Tensor]:
    """x, rounded to the nearest of scale * (low - zero) … scale * (high - zero), and a mask that is true
    where x lies between the ends."""
    place = torch.round(x * (1 / scale)) + zero
    kept = place.clamp(low, high)
    return ((kept - zero) * scale).to(x.dtype), (place >= low) & (place <= high)


@decomposes("aten.fake_quantize_per_tensor_affine_cachemask.default")
def fake_quantize(x: Tensor, scale: float, zero: int, low: int, high: int) -> tuple[Tensor, Tensor]:
    kind = torch.promote_types(x.dtype, torch.float32)
    return _fake_quantized(x, torch.full((), scale, dtype=kind), torch.full((), zero, dtype=kind), low, high)


@decomposes("aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default")
def fake_quantize_if(
    x: Tensor, scale: Tensor, zero: Tensor, enabled: Tensor, low: int, high: int
) -> tuple[Tensor, Tensor]:
    """scale and zero are tensors of one number. If `enabled` is 0, x is unchanged."""
    y, inside = _fake_quantized(x, scale.reshape(()), zero.reshape(()), low, high)
    on = enabled.reshape(()) != 0
    return torch.where(on, y, x), inside | ~on


@decomposes("aten.fake_quantize_per_channel_affine_cachemask.default")
def fake_quantize_channels(
    x: Tensor, scale: Tensor, zero: Tensor, axis: int, low: int, high: int
) -> tuple[Tensor, Tensor]:
    shape = [-1 if a == axis % x.dim() else 1 for a in range(x.dim())]
    return _fake_quantized(x, scale.reshape(shape), zero.reshape(shape), low, high)


# -- losses ------------------------------------------------------------------------------------------------


@decomposes("aten.multilabel_margin_loss_forward.default")
def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """For each line, the sum of max(0, 1 - x[t] + x[j]) / classes over its labels t and all other classes j.
    The labels are those before the line's first -1. reduction: 0 none, 1 mean, 2 sum. Torch's own
    decomposition is wrong: it reads labels after the -1 as label 0."""
    lines, labels = torch.atleast_2d(x), torch.atleast_2d(target)
    classes = torch.arange(lines.shape[1])
    given = torch.cumsum((labels == -1).to(torch.int64), 1) == 0  # [lines, label]
    hit = ((classes == labels.unsqueeze(-1)) & given.unsqueeze(-1)).any(1)  # [lines, class]
    own = lines.gather(1, torch.where(given, labels, 0)).unsqueeze(-1)
    short = (1 - own + lines.unsqueeze(1)).clamp(min=0)  # [lines, label, class]
    short = torch.where(given.unsqueeze(-1) & ~hit.unsqueeze(1), short, 0)
    loss = short.sum((1, 2)) / lines.shape[1]
    if reduction:
        loss = loss.mean() if reduction == 1 else loss.sum()
    elif x.dim() < 2:
        loss = loss.squeeze(0)
    return loss, hit.to(x.dtype).reshape(target.shape)
