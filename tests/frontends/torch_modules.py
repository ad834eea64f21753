"""PyTorch modules of many kinds, small: `MODULES[name]()` gives a module in eval mode and its inputs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import autotensor as at
from autotensor.frontends.torch.element_types import to_array, to_tensor

Tensor = torch.Tensor


class Lambda(nn.Module):
    """A function as a module; `weights` are its parameters."""

    def __init__(self, function: Callable[..., Any], **weights: Tensor) -> None:
        super().__init__()
        self.function = function
        self.given = nn.ParameterDict({n: nn.Parameter(w) for n, w in weights.items()})

    def forward(self, *args: Tensor) -> Any:
        return self.function(*args, **self.given)


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.head = nn.Linear(8, 5)
        for m in self.modules():
            if isinstance(m, nn.BatchNorm2d):
                m.running_mean.uniform_(-0.5, 0.5)
                m.running_var.uniform_(0.5, 1.5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x)
        y = F.relu6(self.deep(y)) + y
        return self.head(F.adaptive_avg_pool2d(y, 1).flatten(1))


class Recurrent(nn.Module):
    """Layers of a recurrent kind; results and last states."""

    def __init__(self, kind: type[nn.RNNBase], **how: Any) -> None:
        super().__init__()
        self.layers = kind(5, 6, batch_first=True, **how)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y, state = self.layers(x)
        return (y, *state) if isinstance(state, tuple) else (y, state)


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(12, 3, batch_first=True)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y, _ = self.attend(x, x, x, key_padding_mask=mask, need_weights=False)
        return y


class Encoder(nn.Module):
    """A transformer layer over embedded words, with a buffer of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 12)
        self.register_buffer("places", torch.randn(16, 12))
        self.layer = nn.TransformerEncoderLayer(12, 3, 24, activation="gelu", batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        return self.layer(self.words(ids) + self.places[: ids.shape[1]])


class InPlace(nn.Module):
    """Writes into what it has made, and into slices of it."""

    def forward(self, x: Tensor) -> Tensor:
        y = x.clone()
        y.add_(1.0).mul_(2.0)
        y[:, 0] = 0
        y[:, 1:3].relu_()
        y[0, -1] += 5
        return y


class Results(nn.Module):
    """A dictionary, a list in it, and one tensor twice."""

    def forward(self, x: Tensor) -> dict[str, Any]:
        y = torch.relu(x)
        return {"logits": y, "states": [x * 2, y.sum(1)], "again": y, "nothing": None}


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _grouped(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True, scale=0.3)


def _views(x: Tensor) -> tuple[Tensor, ...]:
    a, b = x.chunk(2, dim=1)
    c = torch.cat([a.transpose(1, 2), b.permute(0, 2, 1)], dim=2)
    return c[:, ::2, -3:], x[..., None].expand(-1, -1, -1, 2).flatten(2), torch.stack([a, b], 1).squeeze(0)


def _more_views(x: Tensor) -> tuple[Tensor, ...]:
    pieces = x.split([1, 2, 3], dim=1)
    return (
        x.flip(1, 2), x.roll(2, 1), x.repeat(2, 1, 1), F.pad(x, (1, 2, 0, 1), value=0.5), pieces[1] * 2,
        x.unbind(0)[1], torch.tril(x), torch.triu(x, 1), x.reshape(-1).view(4, -1).t(),
    )  # fmt: skip


def _indexing(x: Tensor, at: Tensor) -> tuple[Tensor, ...]:
    rows = torch.arange(3)
    return (
        x[at], x[:, at % 5], x[rows, at[:3]], x.gather(1, at[None, :4].expand(4, 4)),
        x.index_select(1, at[:2]),
        torch.zeros(4, 5).scatter_add(0, at[:3, None].expand(3, 5), x[:3]),
        torch.zeros(4, 5).index_add(0, at % 4, torch.ones(6, 5)),
    )  # fmt: skip


def _masks(x: Tensor) -> tuple[Tensor, ...]:
    low = x < 0
    return (
        torch.where(low, x * 0.1, x), x.masked_fill(low & (x > -1), 7.0), (low | (x > 1)).any(1), low.all(),
        x.clamp(-0.5, 1), x.clamp(min=0.25), torch.maximum(x, x.roll(1, 0)), (~low).float(), (x == 0).sum(),
    )  # fmt: skip


def _reductions(x: Tensor) -> tuple[Tensor, ...]:
    values, places = x.max(1)
    return (
        x.sum((0, 2)), x.mean(-1, keepdim=True), x.var(1), x.std(0, unbiased=False), x.amax((1, 2)), values,
        places, x.argmin(2), x.prod(2), x.norm(dim=1), x.logsumexp(2), x.cumsum(1), x.sum(), x.abs().max(),
    )  # fmt: skip


def _mathematics(x: Tensor) -> tuple[Tensor, ...]:
    y = x.abs() + 0.5
    return (
        y.log(), y.sqrt(), y.rsqrt(), y.pow(1.7), y**2, 1 / y, 2**x, x.exp(), x.erf(), x.sin() + x.cos(),
        x.tan(), x.atan(), torch._neg_view(x), x.sinh(), y.log1p(), x.expm1(), y.log2(), x.floor(), x.round(),
        x.sign(), x.trunc(),
        x.remainder(0.7), torch.fmod(x, 0.7), x // 0.3, 3 - x, torch.rsub(x, y, alpha=2), torch.div(x, y),
    )  # fmt: skip


def _activations(x: Tensor) -> tuple[Tensor, ...]:
    return (
        F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.elu(x, 0.5), F.leaky_relu(x, 0.2),
        F.softplus(x),
        F.softplus(x, beta=2, threshold=1), F.hardswish(x), F.hardsigmoid(x), F.mish(x), F.selu(x), F.celu(x),
        F.glu(x, 1), F.logsigmoid(x), F.hardtanh(x), F.softsign(x), F.tanhshrink(x), x.softmax(1),
        F.log_softmax(x, 0),
    )  # fmt: skip


def _integers(n: Tensor, m: Tensor) -> tuple[Tensor, ...]:
    return (
        n + m, n * 2, n - m, n / 4, n // 3, n % 3, torch.div(n, 3, rounding_mode="trunc"), n.float() * 0.5,
        (n & 3) | (m & 4), n.sum(), n.clamp(0, 3), -n, n.abs(), n > m, n.to(torch.int16), n.double() / 3,
    )  # fmt: skip


def _sorted(x: Tensor) -> tuple[Tensor, ...]:
    values, places = x.topk(3, dim=1)
    least, where = x.topk(2, dim=0, largest=False)
    return values, places, least, where, x.sort(1)[0], x.sort(1, descending=True)[1]


def _resizing(x: Tensor) -> tuple[Tensor, ...]:
    return (
        F.interpolate(x, scale_factor=2, mode="nearest"), F.interpolate(x, size=(7, 5), mode="nearest"),
        F.interpolate(x, scale_factor=2, mode="bilinear"), F.pixel_shuffle(x, 2),
        F.interpolate(x, size=(9, 4), mode="bilinear", align_corners=True),
        F.adaptive_avg_pool2d(x, (4, 3)), F.avg_pool2d(x, 3, 2, 1), F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
        F.avg_pool2d(x, 2, ceil_mode=True, count_include_pad=False),
    )  # fmt: skip


def _antialiased(x: Tensor) -> tuple[Tensor, ...]:
    how: Any = {"antialias": True}
    return tuple(
        F.interpolate(x, size=size, mode=mode, align_corners=ends, **how)
        for mode in ("bilinear", "bicubic")
        for size in ((5, 7), (18, 20), (1, 30))
        for ends in (False, True)
    ) + tuple(F.interpolate(x, scale_factor=(0.37, 1.9), mode=m, **how) for m in ("bilinear", "bicubic"))


def _spread_attention(q: Tensor, k: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    """Leading axes that broadcast, none, or many; queries that see no key."""
    attend = F.scaled_dot_product_attention
    hidden = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    return (
        attend(q, k, k), attend(q[:, :1], k[:1], k[:1]), attend(q[0, 0], k[0, 0], k[0, 0]),
        attend(q[0], k[0], k[0], is_causal=True), attend(q[None], k[None], k[None], mask[None]),
        attend(q, k, k, mask), attend(q, k, k, hidden),
    )  # fmt: skip


def _pools(x: Tensor) -> tuple[Tensor, ...]:
    """x: batch, channels, height, width."""
    clip = x[:, :, None].expand(-1, -1, 4, -1, -1)
    return (
        F.max_pool2d(x, 3, 2, 1, dilation=2), F.max_pool2d(x[0], (2, 3), dilation=(1, 2)),
        F.max_pool3d(clip, 3, 2, 1, ceil_mode=True), F.max_pool3d(clip[0], 2, dilation=(1, 2, 1), stride=1),
        F.avg_pool3d(clip, 2), F.avg_pool3d(clip, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        F.avg_pool1d(x.flatten(2), 3, 2, 1), F.avg_pool1d(x[0].flatten(1), 4, ceil_mode=True),
    )  # fmt: skip


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2)
        self.two = nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2))
        self.three = nn.Conv3d(4, 5, 2, padding=1)
        self.up = nn.ConvTranspose2d(4, 6, 4, stride=2, padding=1)
        self.up1 = nn.ConvTranspose1d(4, 3, 3, stride=2, padding=1, output_padding=1)
        self.same = nn.Conv2d(4, 4, 3, padding="same")

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        line, picture, clip = x.flatten(2), x, x[:, :, None].expand(-1, -1, 2, -1, -1)
        return (
            self.one(line), self.two(picture), self.three(clip), self.up(picture), self.up1(line),
            self.same(picture), self.same(picture[0]),
        )  # fmt: skip


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LayerNorm((5, 7))
        self.plain = nn.LayerNorm(7, elementwise_affine=False)
        self.group = nn.GroupNorm(2, 6)
        self.instance = nn.InstanceNorm2d(6, affine=True)
        self.rms = nn.RMSNorm(7)
        self.batch = nn.BatchNorm2d(6, affine=False)
        for p in self.parameters():
            nn.init.uniform_(p, 0.5, 1.5)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (
            self.layer(x), self.plain(x), self.group(x), self.instance(x), self.rms(x), self.batch(x),
            F.normalize(x, dim=1), F.local_response_norm(x, 3),
        )  # fmt: skip


def _products(a: Tensor, b: Tensor, v: Tensor, w: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    return (
        a @ b, a[0] @ b[0], a @ v, v @ b, v @ v, torch.einsum("bij,bjk->bik", a, b), torch.baddbmm(c, a, b),
        torch.addmm(c[0], a[0], b[0], beta=0.5, alpha=2), F.linear(a, w), F.linear(v, w), torch.outer(v, v),
        a[:, None] @ b[None],
    )  # fmt: skip


def _made(x: Tensor) -> tuple[Tensor, ...]:
    n = x.shape[-1]
    grid = torch.arange(n)[:, None] >= torch.arange(n)
    return (
        x + torch.arange(n), torch.zeros(2, 3), torch.full_like(x, 2), x.new_ones(3) * x[0, 0],
        torch.linspace(0, 1, n) * x, torch.where(grid, x[:, None], 0.0), torch.eye(n),
        x + torch.tensor([2.0]),
        torch.ones(3, dtype=torch.int64), F.one_hot(torch.arange(3), 4),
    )  # fmt: skip


def _randn(*shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.randn(s) for s in shapes)


def _seeded(make: Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]) -> Callable[[], Any]:
    @functools.wraps(make)
    def seeded() -> tuple[nn.Module, tuple[Tensor, ...]]:
        torch.manual_seed(0)
        module, inputs = make()
        return module.eval().requires_grad_(False), inputs

    return seeded


_MLP = lambda: nn.Sequential(nn.Linear(7, 17), nn.ReLU(), nn.Dropout(), nn.Linear(17, 3), nn.Softmax(-1))  # noqa: E731

_MAKERS: Mapping[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {
    "mlp": lambda: (_MLP(), _randn((4, 7))),
    "mlp_over_tokens": lambda: (_MLP(), _randn((2, 5, 7))),
    "cnn": lambda: (Cnn(), _randn((2, 3, 16, 16))),
    "convolutions": lambda: (Convolutions(), _randn((2, 4, 6, 5))),
    "lstm": lambda: (Recurrent(nn.LSTM), _randn((3, 7, 5))),
    "lstm_both_ways_deep": lambda: (Recurrent(nn.LSTM, num_layers=2, bidirectional=True), _randn((2, 4, 5))),
    "gru": lambda: (Recurrent(nn.GRU), _randn((2, 5, 5))),
    "gru_long": lambda: (Recurrent(nn.GRU, num_layers=2, bidirectional=True), _randn((2, 80, 5))),
    "rnn_long": lambda: (Recurrent(nn.RNN, nonlinearity="relu"), _randn((2, 80, 5))),
    "lstm_long": lambda: (Recurrent(nn.LSTM, bias=False), _randn((2, 80, 5))),
    "lstm_projected": lambda: (
        Recurrent(nn.LSTM, num_layers=2, bidirectional=True, proj_size=3), _randn((2, 4, 5))
    ),
    "rnn": lambda: (Recurrent(nn.RNN, bidirectional=True, bias=False), _randn((2, 3, 5))),
    "self_attention": lambda: (
        SelfAttention(), (torch.randn(2, 5, 12), torch.arange(5)[None] > torch.tensor([[2], [4]]))
    ),
    "causal_attention": lambda: (Lambda(_causal), _randn(*((2, 3, 6, 4),) * 3)),
    "grouped_attention": lambda: (Lambda(_grouped), _randn((2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8), (5, 7))),
    "encoder": lambda: (Encoder(), (torch.randint(0, 50, (2, 9)),)),
    "norms": lambda: (Norms(), _randn((2, 6, 5, 7))),
    "in_place": lambda: (InPlace(), _randn((3, 5))),
    "results": lambda: (Results(), _randn((3, 5))),
    "views": lambda: (Lambda(_views), _randn((1, 6, 8))),
    "more_views": lambda: (Lambda(_more_views), _randn((2, 6, 6))),
    "indexing": lambda: (Lambda(_indexing), (torch.randn(4, 5), torch.tensor([2, 0, 3, 1, 0, 2]))),
    "masks": lambda: (Lambda(_masks), _randn((4, 6))),
    "reductions": lambda: (Lambda(_reductions), _randn((3, 5, 7))),
    "mathematics": lambda: (Lambda(_mathematics), _randn((3, 7))),
    "activations": lambda: (Lambda(_activations), _randn((3, 6))),
    "integers": lambda: (Lambda(_integers), (torch.randint(-9, 9, (3, 5)), torch.randint(0, 9, (3, 5)))),
    "sorted": lambda: (Lambda(_sorted), _randn((4, 6))),
    "resizing": lambda: (Lambda(_resizing), _randn((1, 4, 6, 5))),
    "antialiased": lambda: (Lambda(_antialiased), _randn((2, 3, 9, 14))),
    "spread_attention": lambda: (
        Lambda(_spread_attention), (*_randn((2, 4, 5, 8), (2, 1, 6, 8)), torch.rand(2, 1, 5, 6) > 0.9)
    ),
    "pools": lambda: (Lambda(_pools), _randn((2, 4, 7, 6))),
    "products": lambda: (Lambda(_products), _randn((2, 3, 4), (2, 4, 4), (4,), (5, 4), (2, 3, 4))),
    "made": lambda: (Lambda(_made), _randn((2, 5))),
}  # fmt: skip

MODULES = {name: _seeded(make) for name, make in _MAKERS.items()}


def flat(result: Any) -> list[Tensor]:
    """All tensors of a result, in torch's order."""
    from torch.utils._pytree import tree_leaves

    return [t for t in tree_leaves(result) if isinstance(t, Tensor)]


def compiled(function: Callable[..., Any], *inputs: Tensor) -> tuple[Tensor, ...]:
    """The results of a function that was compiled."""
    model = at.compile_model(at.from_torch(Lambda(function), inputs), db=":memory:")
    got = model(*(to_array(x) for x in inputs))
    return tuple(to_tensor(np.asarray(g)) for g in (got if isinstance(got, tuple) else (got,)))


def same(function: Callable[..., Any], *inputs: Tensor) -> None:
    """Compiled, a function gives what it gives in eager torch."""
    wanted = function(*inputs)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for got, expected in zip(compiled(function, *inputs), wanted, strict=True):
        torch.testing.assert_close(got, expected, equal_nan=True, rtol=1e-5, atol=1e-5)
