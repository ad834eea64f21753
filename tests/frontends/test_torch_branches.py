"""Programs inside a program, and layers that torch runs as one operator."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._higher_order_ops.associative_scan import associative_scan  # noqa: E402
from torch._higher_order_ops.map import map as control_map  # noqa: E402
from torch._higher_order_ops.scan import scan  # noqa: E402
from torch._higher_order_ops.while_loop import while_loop  # noqa: E402
from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: E402
from torch_modules import Lambda  # noqa: E402

import autotensor as at  # noqa: E402
from autotensor.frontends.torch import Unsupported  # noqa: E402
from autotensor.frontends.torch.element_types import to_array, to_tensor  # noqa: E402
from autotensor.frontends.torch.families.control_flow import map_, with_autocast  # noqa: E402
from autotensor.graph.evaluate import evaluate  # noqa: E402


def same(module: nn.Module, *inputs: torch.Tensor) -> at.Graph:
    graph = at.from_torch(module, inputs)
    with torch.no_grad():
        wanted = module(*inputs)
    got = evaluate(graph, *(to_array(x) for x in inputs))
    for g, w in zip(got, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        torch.testing.assert_close(to_tensor(g), w, rtol=1e-4, atol=1e-5)
    return graph


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x):
        return torch.cond(
            x.mean() > 0, lambda a: (self.one(a) + self.shift, a + 1), lambda a: (self.other(a), a * 2), (x,)
        )


@pytest.mark.parametrize("sign", [1, -1])
def test_cond_takes_its_branch(sign):
    same(Branches().eval(), sign * torch.rand(3, 4))


def test_a_branch_may_hold_another():
    def inner(a):
        return torch.cond(a.max() > 1, lambda b: b.sin(), lambda b: b.cos(), (a,))

    for x in (torch.tensor([2.0, 3]), torch.tensor([0.1, 0.5]), -torch.ones(2)):
        same(Lambda(lambda x: torch.cond(x.sum() > 0, inner, lambda a: a * 2, (x,))), x)


def test_a_short_scan_is_written_out():
    def steps(x):
        return scan(lambda c, a: (c + a, (c * a).sin()), torch.zeros(4), x)

    graph = same(Lambda(steps), torch.randn(3, 4))
    assert graph.count("sin") == 3


def several(c, a):
    return (c[0] + a, c[1] + 1, c[2] * 0.5 + a.mean()), (c[2].sum() * c[1], c[0].clone())


STEPS = {  # what it begins with; state and row ──▶ the next state, and what a step gives
    "the state": (lambda: torch.zeros(4), lambda c, a: (torch.tanh(c + a), torch.tanh(c + a))),
    "others": (lambda: torch.zeros(4), lambda c, a: (c * 0.5 + a, ((c * a).sum(-1), c[:2] * 1, a + 1))),
    "several states": (
        lambda: (torch.zeros(4), torch.ones((), dtype=torch.int64), torch.ones(2, 3)),
        several,
    ),
    "a product": (lambda: torch.ones(1, 4), lambda c, a: (c @ torch.full((4, 4), 0.1) + a, c.exp())),
}


@pytest.mark.parametrize(("name", "reverse"), [*((n, False) for n in STEPS), ("several states", True)])
def test_a_long_scan_is_a_loop(name, reverse):
    start, step = STEPS[name]
    module, x = Lambda(lambda x: scan(step, start(), x, reverse=reverse)), torch.randn(200, 4)
    graph = at.from_torch(module, (x,))
    assert len(list(graph.applies)) < 40
    wanted, _ = torch.utils._pytree.tree_flatten(module(x))
    for got, want in zip(at.compile_model(graph)(x.numpy()), wanted, strict=True):
        torch.testing.assert_close(to_tensor(got), want, rtol=1e-4, atol=1e-5)


def test_a_long_map_is_computed_at_once():
    def rows(x):
        return control_map(lambda a, b: (a * b).sum(-1) + a, x, x.sum(0))

    x = torch.randn(100, 4)
    graph = at.from_torch(Lambda(rows), (x,))
    assert len(list(graph.applies)) < 10
    wanted = (x * x.sum(0)).sum(-1, keepdim=True) + x
    torch.testing.assert_close(to_tensor(*evaluate(graph, x.numpy())), wanted, rtol=1e-4, atol=1e-5)


def test_an_associative_scan_through_both():
    def combine(a, b):
        return a[0] * b[0], b[0] * a[1] + b[1]

    def run(x):
        return associative_scan(combine, (torch.sigmoid(x), x), dim=0, combine_mode="generic")

    from autotensor.integrations import torch_compile

    x = torch.randn(100, 4)
    same(Lambda(run), x)
    torch._dynamo.reset()
    f = torch.compile(run, backend=torch_compile.autotensor, options={"log": ":memory:"}, fullgraph=True)
    torch.testing.assert_close(f(x), run(x), rtol=1e-4, atol=1e-5)


def test_steps_that_only_the_data_know():
    def loop(x):
        return while_loop(lambda n, a: a.sum() < 9, lambda n, a: (n + 1, a * 2), (torch.tensor(0), x))

    with pytest.raises(Unsupported, match=r"while_loop: the number of times .* depends on data .*where"):
        at.from_torch(Lambda(loop), (torch.ones(3),))
    with pytest.raises(Unsupported, match=r"a loop of no steps. Give it at least one"):
        map_(None, [])


def test_modes():
    class Modes(nn.Module):
        def forward(self, x):
            with torch.no_grad():
                y = x * 2
            with torch.autocast("cpu", enabled=False):
                return y @ x.T

    same(Modes(), torch.randn(3, 4))
    with pytest.raises(Unsupported, match=r"torch.autocast is not supported.*module.bfloat16"):
        with_autocast("cpu", None, True, None, None)


def test_a_constant_in_a_branch_is_torchs_limit():
    x = torch.ones(3)

    def branches(x):
        return torch.cond(x.sum() > 0, lambda a: a + torch.tensor([1.0, 2, 3]), lambda a: a * 2, (x,))

    with pytest.raises(Unsupported, match=r"torch cannot take the program apart: .*torch.compile\(model"):
        at.from_torch(Lambda(branches), (x,))


# -- layers in one piece -----------------------------------------------------------------------------------


def layer(norm_first: bool, use_gelu: bool) -> nn.TransformerEncoderLayer:
    torch.manual_seed(0)
    made = nn.TransformerEncoderLayer(
        16, 2, 32, batch_first=True, norm_first=norm_first, activation="gelu" if use_gelu else "relu"
    ).eval()
    return made.requires_grad_(False)


class Fused(nn.Module):
    """torch's own operator with a layer's weights: what modules call in eval mode."""

    def __init__(self, norm_first: bool, mask: torch.Tensor | None, kind: int | None) -> None:
        super().__init__()
        self.of, self.norm_first, self.kind = layer(norm_first, norm_first), norm_first, kind
        self.register_buffer("mask", mask)

    def forward(self, x):
        m, a = self.of, self.of.self_attn
        return torch._transformer_encoder_layer_fwd(
            x, 16, 2, a.in_proj_weight, a.in_proj_bias, a.out_proj.weight, a.out_proj.bias, self.norm_first,
            self.norm_first, 1e-5, m.norm1.weight, m.norm1.bias, m.norm2.weight, m.norm2.bias,
            m.linear1.weight, m.linear1.bias, m.linear2.weight, m.linear2.bias, self.mask, self.kind,
        )  # fmt: skip


PADDED = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
LATER = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize(
    ("mask", "kind"),
    [(None, None), (LATER, 0), (PADDED, 1), (PADDED.view(2, 1, 1, 5) | LATER.expand(2, 2, 5, 5), 2)],
    ids=["all", "causal", "padded", "both"],
)
def test_fused_layer(norm_first, mask, kind):
    graph = same(Fused(norm_first, mask, kind), torch.randn(2, 5, 16))
    assert graph.count("attention") == 1


class FusedAttention(nn.Module):
    def __init__(self, weights: bool, average: bool) -> None:
        super().__init__()
        self.of, self.weights, self.average = layer(False, False).self_attn, weights, average
        self.register_buffer("mask", PADDED)

    def forward(self, q, k):
        a = self.of
        found = torch._native_multi_head_attention(
            q, k, k, 16, 2, a.in_proj_weight, a.in_proj_bias, a.out_proj.weight, a.out_proj.bias, self.mask,
            self.weights, self.average, 1,
        )  # fmt: skip
        return found if self.weights else found[0]


@pytest.mark.parametrize(("weights", "average"), [(False, False), (True, False), (True, True)])
def test_fused_attention(weights, average):
    x = torch.randn(2, 5, 16)
    same(FusedAttention(weights, average), x, x.clone())


def test_encoder_through_torch_compile():
    from autotensor.integrations import torch_compile

    net = nn.TransformerEncoder(layer(False, True), 2).eval()
    x = torch.randn(2, 5, 16)
    torch._dynamo.reset()
    f = torch.compile(net, backend=torch_compile.autotensor, options={"log": ":memory:"}, fullgraph=True)
    with torch.no_grad():  # a part in eager mode would warn, which is an error here
        torch.testing.assert_close(f(x), net(x), rtol=1e-4, atol=1e-5)


# -- attention that a program changes ----------------------------------------------------------------------


class Flex(nn.Module):
    """Slopes by head, a table of distances, documents, heads that share keys."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.rand(2))
        self.register_buffer("table", torch.randn(2, 8, 10))
        self.register_buffer("document", torch.tensor([[0] * 4 + [1] * 6, [0] * 10]))

    def forward(self, q, k, v):
        document = self.document
        mask = create_block_mask(
            lambda b, h, i, j: (i >= j) & (document[b, i] == document[b, j]), 2, None, 8, 10, device="cpu"
        )
        return flex_attention(
            *(q, k, v),
            score_mod=lambda s, b, h, i, j: (
                torch.tanh(s) + self.slopes[h // 2] * (i - j) + self.table[b, i, j]
            ),
            block_mask=mask,
            enable_gqa=True,
        )


def flexible(*heads: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    lengths = (8, 10, 10)
    return [torch.randn(2, h, n, 4) for h, n in zip(heads, lengths, strict=True)]


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own
class TestFlexAttention:
    def test_scores_and_masks_by_programs(self):
        same(Flex(), *flexible(4, 2, 2))

    def test_rows_that_see_nothing_are_zero(self):
        def blind(q, k, v):
            mask = create_block_mask(lambda b, h, i, j: j < i - 2, None, None, 8, 10, device="cpu")
            return flex_attention(q, k, v, block_mask=mask, scale=0.3, return_lse=True)

        same(Lambda(blind), *flexible(2, 2, 2))

    def test_through_torch_compile(self):
        from autotensor.integrations import torch_compile

        torch._dynamo.reset()
        net, inputs = Flex(), flexible(4, 2, 2)
        options = {"log": ":memory:"}
        f = torch.compile(net, backend=torch_compile.autotensor, options=options, fullgraph=True)
        with torch.no_grad():  # a part in eager mode would warn, which is an error here
            torch.testing.assert_close(f(*inputs), net(*inputs), rtol=1e-4, atol=1e-5)

    def test_a_score_that_is_not_elementwise_is_refused(self):
        class Rows(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("table", torch.randn(2, 8, 10))

            def forward(self, q, k, v):
                return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + self.table[h][i][j])

        with pytest.raises(
            Unsupported, match=r"computed by aten.index.Tensor, which is not elementwise .*places"
        ):
            at.from_torch(Rows(), tuple(flexible(2, 2, 2)))
