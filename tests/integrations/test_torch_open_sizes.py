"""`torch.compile` with open sizes: one program for all sizes."""

from __future__ import annotations

import random

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch_modules import flat  # noqa: E402

from autotensor.api import open_models  # noqa: E402
from autotensor.integrations import torch_compile  # noqa: E402
from autotensor.integrations.compiled_part import CompiledPart  # noqa: E402
from autotensor.integrations.torch_compile import autotensor  # noqa: E402

LOG = {"log": ":memory:", "quiet": True}
TEN = ((2, 5), (3, 17), (2, 40), (4, 33), (2, 2), (5, 29), (6, 31), (7, 8), (3, 21), (8, 11))


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def parts(monkeypatch):
    """The compiled parts."""
    seen: list[CompiledPart] = []
    compile_part = torch_compile.compile_part
    monkeypatch.setattr(torch_compile, "compile_part", lambda *a: seen.append(compile_part(*a)) or seen[-1])
    return seen


def programs(parts: list[CompiledPart]) -> int:
    return sum(len(getattr(p.module, "modules", (1,))) for p in parts)


def check(got, expected):
    assert len(flat(got)) == len(flat(expected))
    for g, e in zip(flat(got), flat(expected), strict=True):
        if not isinstance(e, torch.Tensor):
            assert (type(g), g) == (type(e), e)
            continue
        assert (g.dtype, g.shape) == (e.dtype, e.shape)
        torch.testing.assert_close(g, e, rtol=1e-4, atol=1e-4)


class Encoder(nn.Module):
    """Attention with a mask, as BERT has it, or with a triangle from a table, as GPT-2 has it."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.words, self.places, self.norm = nn.Embedding(30, 16), nn.Embedding(64, 16), nn.LayerNorm(16)
        self.qkv, self.out, self.wide = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 16)
        self.causal = causal
        self.register_buffer("triangle", torch.tril(torch.ones(64, 64, dtype=torch.bool)))

    def forward(self, ids, mask):
        batch, length = ids.shape
        x = self.words(ids) + self.places(torch.arange(length))
        q, k, v = (
            t.view(batch, length, 2, 8).transpose(1, 2) for t in self.qkv(self.norm(x)).split(16, dim=-1)
        )
        if self.causal:
            scores = torch.where(self.triangle[:length, :length], q @ k.mT / 8**0.5, -1e9)
            seen = scores.softmax(-1) @ v
        else:
            seen = F.scaled_dot_product_attention(q, k, v, attn_mask=(1 - mask[:, None, None, :]) * -1e4)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, 16))
        return F.gelu(self.wide(x)), x[:, 0]


def words(batch: int, length: int):
    return torch.randint(0, 30, (batch, length)), torch.randint(0, 2, (batch, length)).float()


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3))


def cnn():
    layers = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))


MODELS = {
    "mlp": (mlp, lambda b, n: (torch.randn(b * n, 6),)),
    "cnn": (cnn, lambda b, n: (torch.randn(b, 3, 8, 8),)),
    "bert": (lambda: Encoder(causal=False), words),
    "gpt": (lambda: Encoder(causal=True), words),
}


@pytest.mark.parametrize("name", MODELS)
def test_ten_sizes_are_one_compilation(name, parts):
    make, inputs = MODELS[name]
    module = make().eval()
    f = torch.compile(module, backend=autotensor, options=LOG, dynamic=None if name == "cnn" else True)
    with torch.no_grad():
        for b, n in TEN:
            x = inputs(b, n)
            check(f(*x), module(*x))
    # by itself, dynamo takes the first sizes as numbers, and leaves them open when others come
    assert programs(parts) == (2 if name == "cnn" else 1)


def drawn(rng: random.Random) -> nn.Module:
    """A module on [batch, length, 8] that computes with its sizes."""

    class Turned(nn.Module):
        def forward(self, x):
            return (x.transpose(1, 2) * 2).reshape(x.shape[0], -1, x.shape[1]).mT

    class Joined(nn.Module):
        def forward(self, x):
            return torch.cat([x, x[:, :1], x.flip(1)], dim=1)

    class Centred(nn.Module):
        def forward(self, x):
            return x - x.mean(1, keepdim=True) + torch.arange(x.shape[1])[:, None]

    class Folded(nn.Module):
        def forward(self, x):
            return x.view(x.shape[0] * x.shape[1], 8).softmax(-1).view(x.shape)

    class Alike(nn.Module):
        def forward(self, x):
            return (x @ x.mT).tanh() @ x / x.shape[-2]

    kinds = [
        Turned,
        Joined,
        Centred,
        Folded,
        Alike,
        lambda: nn.Linear(8, 8),
        lambda: nn.LayerNorm(8),
        nn.GELU,
    ]
    return nn.Sequential(*(rng.choice(kinds)() for _ in range(rng.randint(2, 5))))


@pytest.mark.parametrize("seed", range(6))
def test_numbers_of_modules_when_all_sizes_are_open(seed, parts):
    torch.manual_seed(seed)
    module = drawn(random.Random(seed)).eval()
    f = torch.compile(module, backend=autotensor, options=LOG, dynamic=True)
    with torch.no_grad():
        for b, n in ((3, 5), (2, 7), (9, 4), (4, 30)):
            x = torch.randn(b, n, 8)
            check(f(x), module(x))
    assert programs(parts) == 1


def test_results_that_are_sizes_views_and_numbers(parts):
    def run(x, scale):
        y = (x * scale).reshape(x.shape[0] * 2, -1)
        return y, x.shape[0] * 3, x.view(-1), x

    f = torch.compile(run, backend=autotensor, options=LOG, dynamic=True)
    with torch.no_grad():
        for n, scale in ((6, 0.5), (9, 0.25), (100, -0.0)):
            x = torch.randn(n, 4)
            check(f(x, scale), run(x, scale))
    assert programs(parts) == 1


def test_writing_in_place(parts):
    def step(x, cache):
        cache.add_(x * 2)
        x.add_(1)
        return cache.sum(1)

    f = torch.compile(step, backend=autotensor, options=LOG, dynamic=True)
    with torch.no_grad():
        for b, n in ((3, 4), (5, 7)):
            x, cache = torch.randn(b, n), torch.ones(b, n)
            x2, cache2 = x.clone(), cache.clone()
            check((f(x, cache), x, cache), (step(x2, cache2), x2, cache2))
    assert programs(parts) == 1


def test_weights_that_change_are_seen(parts):
    module = mlp().eval()
    f = torch.compile(module, backend=autotensor, options=LOG, dynamic=True)
    with torch.no_grad():
        for n, factor in ((5, 1), (7, 3), (4, 1)):
            module[0].weight.mul_(factor)
            x = torch.randn(n, 6)
            check(f(x), module(x))
    assert len(parts) == 3  # torch counts a write of the same numbers, too
    assert programs(parts) == 3


def test_a_greater_size_is_compiled_once_more(monkeypatch, parts):
    monkeypatch.setattr(open_models, "REACH", 8)
    f = torch.compile(lambda x: x * 2 + 1, backend=autotensor, options=LOG, dynamic=True)
    with torch.no_grad():
        for n in (3, 7, 33, 100, 5, 64):
            x = torch.randn(n, 2)
            check(f(x), x * 2 + 1)
    (part,) = parts
    assert [p.open_shapes.symbols[0][1:] for p in part.module.modules] == [(2, 8), (2, 128)]


@pytest.mark.parametrize(
    ("cut", "count"), [(lambda x: x[::2] * 2, 1), (lambda x: x[: x.shape[0] ** 2 // 10] * 2, 3)]
)
def test_sizes_of_which_there_is_a_program_or_none(parts, cut, count):
    f = torch.compile(cut, backend=autotensor, options=LOG, dynamic=True)
    with torch.no_grad():
        for n in (6, 7, 9, 6):
            x = torch.randn(n)
            check(f(x), cut(x))
    assert programs(parts) == count


VIEWS = {
    "a half": lambda x: x[x.shape[0] // 2 :],
    "a half of the columns": lambda x: x[:, x.shape[1] // 2 :].t(),
    "chunks": lambda x: x.chunk(3, dim=-1),
    "an expansion": lambda x: x[:1].expand(x.shape[0], -1),
    "strides": lambda x: x.as_strided((x.shape[0], 2), (1, 2), 1),
    "an imaginary part": lambda x: torch.view_as_complex(x.unflatten(1, (-1, 2))).imag,
    "no rows": lambda x: x[x.shape[0] :],
    "a written half": lambda x: (x[x.shape[0] // 2 :].mul_(3), x[:, x.shape[1] // 2 :])[1],
    "other axes of the argument": lambda x: (x.as_strided_((x.shape[0] // 2, 2), (1, x.shape[0]), 1), x * 2),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_of_arguments_lie_where_they_lie_in_eager_mode(view):
    """AOT makes such a result from the argument's memory, with the strides and the offset of our result."""
    fast = torch.compile(view, backend=autotensor, dynamic=True, options=LOG)
    for size in (6, 8):
        for whole in (torch.randn(size, size), torch.randn(size + 2, size)[2:], torch.randn(size, size).t()):
            mine, eager = whole.clone(), whole.clone()
            try:
                expected = view(eager)
            except RuntimeError:
                continue  # a complex view of transposed memory
            got = fast(mine)
            check((got, mine), (expected, eager))
            for g, e in zip(flat(got), flat(expected), strict=True):
                shared = e.untyped_storage().data_ptr() == eager.untyped_storage().data_ptr()
                assert (g.untyped_storage().data_ptr() == mine.untyped_storage().data_ptr()) is shared
                assert not shared or g.stride() == e.stride()


class Scaled(nn.Module):
    """Dynamo passes `over` in a tensor, and torch writes the quotient and the square on tensors."""

    over = 4.0

    def forward(self, x):
        return (2.0 / self.over) ** 2 * x + 1.0 / self.over


def test_arithmetic_of_numbers(parts):
    module = Scaled().eval()
    f = torch.compile(module, backend=autotensor, options=LOG, dynamic=True)
    with torch.no_grad():
        for n, over in ((5, 4.0), (6, 4.0), (7, 0.3), (9, 0.3), (11, 0.3)):
            module.over = over
            x = torch.randn(2, n)
            check(f(x), module(x))
    assert programs(parts) <= 2
