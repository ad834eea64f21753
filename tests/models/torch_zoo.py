"""More of the zoo in torch, from papers and manuals: `ZOO[name](weights, *inputs)`, as in torch_models.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch_models import gpt2, linear, norm

Tensor = torch.Tensor
Weights = Mapping[str, Tensor]


def conv(x: Tensor, w: Weights, name: str, **how: Any) -> Tensor:
    return F.conv2d(x, w[f"{name}.weight"], w.get(f"{name}.bias"), **how)


def alexnet(w: Weights, x: Tensor) -> Tensor:
    x = F.max_pool2d(F.relu(conv(x, w, "features.0", stride=4, padding=2)), 3, 2)
    x = F.max_pool2d(F.relu(conv(x, w, "features.3", padding=2)), 3, 2)
    for n in (6, 8, 10):
        x = F.relu(conv(x, w, f"features.{n}", padding=1))
    x = F.max_pool2d(x, 3, 2).flatten(1)
    return linear(F.relu(linear(F.relu(linear(x, w, "classifier.1")), w, "classifier.4")), w, "classifier.6")


def overfeat(w: Weights, x: Tensor) -> Tensor:
    x = F.max_pool2d(F.relu(conv(x, w, "features.0", stride=4)), 2)
    x = F.max_pool2d(F.relu(conv(x, w, "features.3")), 2)
    for n in (6, 8, 10):
        x = F.relu(conv(x, w, f"features.{n}", padding=1))
    x = F.max_pool2d(x, 2).flatten(1)
    return linear(F.relu(linear(F.relu(linear(x, w, "classifier.0")), w, "classifier.2")), w, "classifier.4")


def vgg19(w: Weights, x: Tensor) -> Tensor:
    for stage in ((0, 2), (5, 7), (10, 12, 14, 16), (19, 21, 23, 25), (28, 30, 32, 34)):
        for n in stage:
            x = F.relu(conv(x, w, f"features.{n}", padding=1))
        x = F.max_pool2d(x, 2)
    x = F.relu(linear(x.flatten(1), w, "classifier.0"))
    return linear(F.relu(linear(x, w, "classifier.3")), w, "classifier.6")


def resnet101(w: Weights, x: Tensor) -> Tensor:
    """A ResNet with bottlenecks. Its depth follows from the weights: a block exists if its weights exist."""

    def step(x: Tensor, at: str, n: int, stride: int = 1) -> Tensor:
        pad = w[f"{at}.conv{n}.weight"].shape[-1] // 2
        return norm(conv(x, w, f"{at}.conv{n}", stride=stride, padding=pad), w, f"{at}.bn{n}")

    x = F.relu(norm(conv(x, w, "conv1", stride=2, padding=3), w, "bn1"))
    x = F.max_pool2d(x, 3, 2, 1)
    for layer in range(1, 5):
        n = 0
        while f"{(at := f'layer{layer}.{n}')}.conv1.weight" in w:
            stride = 2 if layer > 1 and n == 0 else 1
            y = step(F.relu(step(F.relu(step(x, at, 1)), at, 2, stride)), at, 3)
            if f"{at}.downsample.0.weight" in w:
                x = norm(conv(x, w, f"{at}.downsample.0", stride=stride), w, f"{at}.downsample.1")
            x, n = F.relu(x + y), n + 1
    return linear(x.mean((2, 3)), w, "fc")


def googlenet(w: Weights, x: Tensor) -> Tensor:
    def step(x: Tensor, at: str, stride: int = 1) -> Tensor:
        y = conv(x, w, f"{at}.conv", stride=stride, padding=w[f"{at}.conv.weight"].shape[-1] // 2)
        moments = (w[f"{at}.bn.{p}"] for p in ("running_mean", "running_var", "weight", "bias"))
        return F.relu(F.batch_norm(y, *moments, training=False, eps=0.001))

    def inception(x: Tensor, at: str) -> Tensor:
        second = step(step(x, f"{at}.branch2.0"), f"{at}.branch2.1")
        third = step(step(x, f"{at}.branch3.0"), f"{at}.branch3.1")
        fourth = step(F.max_pool2d(x, 3, 1, 1, ceil_mode=True), f"{at}.branch4.1")
        return torch.cat([step(x, f"{at}.branch1"), second, third, fourth], 1)

    x = F.max_pool2d(step(x, "conv1", 2), 3, 2, ceil_mode=True)
    x = F.max_pool2d(step(step(x, "conv2"), "conv3"), 3, 2, ceil_mode=True)
    x = inception(inception(x, "inception3a"), "inception3b")
    x = F.max_pool2d(x, 3, 2, ceil_mode=True)
    for n in "abcde":
        x = inception(x, f"inception4{n}")
    x = F.max_pool2d(x, 2, 2, ceil_mode=True)
    x = inception(inception(x, "inception5a"), "inception5b")
    return linear(x.mean((2, 3)), w, "fc")


def mobilenet_v1(w: Weights, x: Tensor) -> Tensor:
    def step(x: Tensor, at: str, **how: Any) -> Tensor:
        return F.relu(norm(conv(x, w, at, **how), w, f"{at}_norm"))

    x = step(x, "features.0.conv", stride=2, padding=1)
    for n in range(1, 14):
        stride = 2 if n in (2, 4, 6, 12) else 1
        x = step(x, f"features.{n}.depthwise", stride=stride, padding=1, groups=x.shape[1])
        x = step(x, f"features.{n}.pointwise")
    return linear(x.mean((2, 3)), w, "fc")


def unet(w: Weights, x: Tensor) -> Tensor:
    def twice(x: Tensor, at: str) -> Tensor:
        for n in (0, 3):
            at_n = f"{at}.double_conv"
            x = F.relu(norm(conv(x, w, f"{at_n}.{n}", padding=1), w, f"{at_n}.{n + 1}"))
        return x

    seen = [twice(x, "inc")]
    for n in range(1, 5):
        seen.append(twice(F.max_pool2d(seen[-1], 2), f"down{n}.maxpool_conv.1"))
    x = seen.pop()
    for n in range(1, 5):
        up = F.conv_transpose2d(x, w[f"up{n}.up.weight"], w[f"up{n}.up.bias"], stride=2)
        x = twice(torch.cat([seen.pop(), up], 1), f"up{n}.conv")
    return conv(x, w, "outc.conv")


# -- recurrent -------------------------------------------------------------------------------------------


def layers(kind: type[nn.RNNBase], w: Weights, at: str, width: int, **how: Any) -> nn.RNNBase:
    """torch's own layers with these weights. Their shape gives the hidden size."""
    mine = {n.removeprefix(f"{at}."): t for n, t in w.items() if n.startswith(f"{at}.")}
    made = kind(width, mine["weight_hh_l0"].shape[1], batch_first=True, **how)
    made.load_state_dict(mine)
    return made


def _language_model(kind: type[nn.RNNBase]) -> Callable[..., Tensor]:
    def model(w: Weights, words: Tensor) -> Tensor:
        x = w["encoder.weight"][words]
        return linear(layers(kind, w, "rnn", x.shape[-1], num_layers=2)(x)[0], w, "decoder")

    return model


def bilstm(w: Weights, words: Tensor) -> Tensor:
    x = w["words.weight"][words]
    y, _ = layers(nn.LSTM, w, "rnn", x.shape[-1], num_layers=2, bidirectional=True)(x)
    return linear(y, w, "tags")


def gnmt(w: Weights, source: Tensor, target: Tensor) -> Tensor:
    def one(x: Tensor, at: str, layer: int, **how: Any) -> Tensor:
        end = f"_l{layer}"
        mine = {n.replace(end, "_l0"): t for n, t in w.items() if n.startswith(f"{at}.") and end in n}
        return layers(nn.LSTM, mine, at, x.shape[-1], **how)(x)[0]

    table = w["embedding.weight"]
    keys = one(one(table[source], "encoder", 0, bidirectional=True), "encoder", 1)
    for layer in (2, 3):
        keys = keys + one(keys, "encoder", layer)
    z = one(table[target], "decoder", 0)
    q, k = z @ w["attention.query"].T, keys @ w["attention.key"].T
    fit = torch.tanh(q[:, :, None] + k[:, None]) @ w["attention.value"][0]
    seen = fit.softmax(-1) @ keys
    for layer in (1, 2, 3):
        after = one(torch.cat([z, seen], -1), "decoder", layer)
        z = after + z if layer > 1 else after
    return linear(z, w, "classifier")


# -- transformers and others -----------------------------------------------------------------------------


def dit(w: Weights, x: Tensor, t: Tensor, y: Tensor) -> Tensor:
    heads = 6 if w["pos_embed"].shape[-1] == 384 else 4
    half = 128
    angles = t[:, None] * torch.exp(-math.log(10000) * torch.arange(half) / half)[None]
    waves = torch.cat([angles.cos(), angles.sin()], -1)
    c = linear(F.silu(linear(waves, w, "t_embedder.mlp.0")), w, "t_embedder.mlp.2")
    c = F.silu(c + w["y_embedder.embedding_table.weight"][y])
    z = conv(x, w, "x_embedder.proj", stride=2).flatten(2).transpose(1, 2) + w["pos_embed"]

    def told(z: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
        return F.layer_norm(z, z.shape[-1:], eps=1e-6) * (1 + scale[:, None]) + shift[:, None]

    n = 0
    while f"{(at := f'blocks.{n}')}.attn.qkv.weight" in w:
        a, b, g, a2, b2, g2 = linear(c, w, f"{at}.adaLN_modulation.1").chunk(6, 1)
        qkv = linear(told(z, a, b), w, f"{at}.attn.qkv")
        q, k, v = qkv.view(*z.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        z = z + g[:, None] * linear(seen, w, f"{at}.attn.proj")
        deep = F.gelu(linear(told(z, a2, b2), w, f"{at}.mlp.fc1"), approximate="tanh")
        z = z + g2[:, None] * linear(deep, w, f"{at}.mlp.fc2")
        n += 1
    last = linear(
        told(z, *linear(c, w, "final_layer.adaLN_modulation.1").chunk(2, 1)), w, "final_layer.linear"
    )
    side = x.shape[-1] // 2
    return torch.einsum("nhwpqc->nchpwq", last.view(-1, side, side, 2, 2, 8)).reshape(
        -1, 8, 2 * side, 2 * side
    )


def gcn(w: Weights, x: Tensor, neighbours: Tensor, strengths: Tensor) -> Tensor:
    """Two graph convolutions, computed with the dense matrix of the graph."""
    nodes = x.shape[0]
    matrix = torch.zeros(nodes, nodes)
    matrix.index_put_(
        (torch.arange(nodes)[:, None].expand_as(neighbours), neighbours), strengths, accumulate=True
    )
    x = F.relu(matrix @ (x @ w["conv1.lin.weight"].T) + w["conv1.bias"])
    return matrix @ (x @ w["conv2.lin.weight"].T) + w["conv2.bias"]


def moe(w: Weights, x: Tensor, room: int | None = None) -> tuple[Tensor, Tensor]:
    """A mixture of experts, computed for one expert and one token at a time. room: the most tokens of an
    expert (6 of 12 in the reduced model)."""
    shares = (x @ w["router.weight"].T).softmax(1)
    best, chosen = shares.topk(2, 1)
    gates = torch.zeros_like(shares).scatter(1, chosen, best / best.sum(1, keepdim=True))
    room = math.ceil(2 * len(x) * 2 / 8) if room is None else room
    out = torch.zeros_like(x)
    for e in range(8):
        tokens = [t for t in gates[:, e].argsort(descending=True).tolist() if gates[t, e] > 0][:room]
        for t in tokens:
            h = F.gelu(x[t] @ w["experts.w1"][e] + w["experts.bias1"][e])
            out[t] += gates[t, e] * (h @ w["experts.w2"][e] + w["experts.bias2"][e])
    return out, (gates > 0).sum(0).float()


def ncf(w: Weights, user: Tensor, item: Tensor) -> Tensor:
    product = w["mf_user_embed.weight"][user] * w["mf_item_embed.weight"][item]
    y = torch.cat([w["mlp_user_embed.weight"][user], w["mlp_item_embed.weight"][item]], 1)
    for n in range(3):
        y = F.relu(linear(y, w, f"mlp.{n}"))
    return linear(torch.cat([product, y], 1), w, "final")


ZOO: Mapping[str, Callable[..., Any]] = {
    **{
        f.__name__: f
        for f in (alexnet, overfeat, vgg19, googlenet, mobilenet_v1, unet, bilstm, gnmt, dit, gcn)
    },
    **{"moe": moe, "ncf": ncf, "lstm": _language_model(nn.LSTM), "gru": _language_model(nn.GRU)},
}
__all__ = ["ZOO", "gpt2", "resnet101"]
