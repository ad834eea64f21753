"""The built-in models in torch, from papers and manuals: `TORCH[name](weights, *inputs)`.

Sizes come from the weights. `weights` maps a checkpoint's names to torch tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional as F

Tensor = torch.Tensor
Weights = Mapping[str, Tensor]
HEADS = 64  # channels of a head in the full models
MOMENTS = ("running_mean", "running_var", "weight", "bias")


def norm(x: Tensor, w: Weights, name: str) -> Tensor:
    return F.batch_norm(x, *(w[f"{name}.{p}"] for p in MOMENTS), training=False, eps=1e-5)


def linear(x: Tensor, w: Weights, name: str) -> Tensor:
    return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])


def vgg16(w: Weights, x: Tensor) -> Tensor:
    for stage in ((0, 2), (5, 7), (10, 12, 14), (17, 19, 21), (24, 26, 28)):
        for n in stage:
            x = F.relu(F.conv2d(x, w[f"features.{n}.weight"], w[f"features.{n}.bias"], padding="same"))
        x = F.max_pool2d(x, 2)
    x = F.relu(linear(x.flatten(1), w, "classifier.0"))
    return linear(F.relu(linear(x, w, "classifier.3")), w, "classifier.6")


def mobilenet_v2(w: Weights, x: Tensor) -> Tensor:
    def step(x: Tensor, conv: str, bn: str, stride: int = 1) -> Tensor:
        k = w[f"{conv}.weight"]
        groups = x.shape[1] // k.shape[1]
        return norm(F.conv2d(x, k, stride=stride, padding=k.shape[2] // 2, groups=groups), w, bn)

    x = F.relu6(step(x, "features.0.0", "features.0.1", 2))
    strided = {2, 4, 7, 14}  # features that halve the image
    for n in range(1, 18):
        at, y = f"features.{n}.conv", x
        if n > 1:
            y = F.relu6(step(y, f"{at}.0.0", f"{at}.0.1"))
        deep = 1 if n > 1 else 0
        y = F.relu6(step(y, f"{at}.{deep}.0", f"{at}.{deep}.1", 2 if n in strided else 1))
        y = step(y, f"{at}.{deep + 1}", f"{at}.{deep + 2}")
        x = x + y if x.shape == y.shape else y
    x = F.relu6(step(x, "features.18.0", "features.18.1"))
    return linear(x.mean((2, 3)), w, "classifier.1")


def r3d_18(w: Weights, x: Tensor) -> Tensor:
    def conv(x: Tensor, name: str, stride: Any = 1) -> Tensor:
        k = w[f"{name}.0.weight"]
        return norm(F.conv3d(x, k, stride=stride, padding=[n // 2 for n in k.shape[2:]]), w, f"{name}.1")

    x = F.relu(conv(x, "stem", (1, 2, 2)))
    for layer in range(1, 5):
        for n in range(2):
            at, stride = f"layer{layer}.{n}", 2 if layer > 1 and n == 0 else 1
            y = conv(F.relu(conv(x, f"{at}.conv1", stride)), f"{at}.conv2")
            if f"{at}.downsample.0.weight" in w:
                x = conv(x, f"{at}.downsample", stride)
            x = F.relu(x + y)
    return linear(x.mean((2, 3, 4)), w, "fc")


def dcgan(w: Weights, z: Tensor) -> Tensor:
    y = F.relu(norm(F.conv_transpose2d(z[:, :, None, None], w["main.0.weight"]), w, "main.1"))
    for n in (3, 6, 9):
        y = F.conv_transpose2d(y, w[f"main.{n}.weight"], stride=2, padding=1)
        y = F.relu(norm(y, w, f"main.{n + 1}"))
    return torch.tanh(F.conv_transpose2d(y, w["main.12.weight"], stride=2, padding=1))


def _heads(x: Tensor, count: int) -> Tensor:
    batch, tokens, hidden = x.shape
    return x.view(batch, tokens, count, hidden // count).transpose(1, 2)


def _attend(q: Tensor, k: Tensor, v: Tensor, count: int, **how: Any) -> Tensor:
    y = F.scaled_dot_product_attention(*(_heads(x, count) for x in (q, k, v)), **how)
    return y.transpose(1, 2).flatten(2)


def _count(hidden: int) -> int:
    return hidden // HEADS if hidden >= 12 * HEADS else 4


def bert_base(w: Weights, words: Tensor, kinds: Tensor, mask: Tensor | None = None) -> Tensor:
    def layer_norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], eps=1e-12)

    e = "embeddings"
    x = w[f"{e}.word_embeddings.weight"][words] + w[f"{e}.token_type_embeddings.weight"][kinds]
    x = layer_norm(x + w[f"{e}.position_embeddings.weight"][: words.shape[1]], f"{e}.LayerNorm")
    seen = None if mask is None else mask.bool()[:, None, None, :]
    n = 0
    while f"{(at := f'encoder.layer.{n}')}.output.dense.weight" in w:
        parts = (linear(x, w, f"{at}.attention.self.{p}") for p in ("query", "key", "value"))
        y = _attend(*parts, _count(x.shape[-1]), attn_mask=seen)
        y = linear(y, w, f"{at}.attention.output.dense")
        x = layer_norm(x + y, f"{at}.attention.output.LayerNorm")
        y = F.gelu(linear(x, w, f"{at}.intermediate.dense"))
        x = layer_norm(x + linear(y, w, f"{at}.output.dense"), f"{at}.output.LayerNorm")
        n += 1
    return x


def gpt2(w: Weights, words: Tensor) -> Tensor:
    def layer_norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], eps=1e-5)

    def conv1d(x: Tensor, name: str) -> Tensor:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    x = w["wte.weight"][words] + w["wpe.weight"][: words.shape[1]]
    n = 0
    while f"{(at := f'h.{n}')}.ln_1.weight" in w:
        parts = conv1d(layer_norm(x, f"{at}.ln_1"), f"{at}.attn.c_attn").chunk(3, dim=-1)
        x = x + conv1d(_attend(*parts, _count(x.shape[-1]), is_causal=True), f"{at}.attn.c_proj")
        y = F.gelu(conv1d(layer_norm(x, f"{at}.ln_2"), f"{at}.mlp.c_fc"), approximate="tanh")
        x = x + conv1d(y, f"{at}.mlp.c_proj")
        n += 1
    return layer_norm(x, "ln_f") @ w["wte.weight"].T


TORCH: Mapping[str, Callable[..., Tensor]] = {
    f.__name__: f for f in (vgg16, mobilenet_v2, r3d_18, dcgan, bert_base, gpt2)
}
