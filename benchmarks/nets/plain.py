"""The networks as plain torch modules, with the names of torchvision, transformers, and PyTorch's examples.

    module = load("resnet18", weights)      eval mode, with autotensor's weights by name

They were written without looking at autotensor's graphs, so that equal outputs are a real test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nets.wider_nets import WIDER


class Basic(nn.Module):
    """A block of two 3x3 convolutions and a shortcut, in two or three dimensions."""

    def __init__(self, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout)
        self.conv2, self.bn2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout)
        self.downsample = _project(cin, cout, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    def __init__(self, cin: int, width: int, stride: int) -> None:
        super().__init__()
        cout = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(cin, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, cout, 1, bias=False), nn.BatchNorm2d(cout)
        self.downsample = _project(cin, cout, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + (x if self.downsample is None else self.downsample(x)))


def _project(cin: int, cout: int, stride: int) -> nn.Module | None:
    if stride == 1 and cin == cout:
        return None
    return nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))


class ResNet(nn.Module):
    def __init__(self, counts: Sequence[int], bottleneck: bool) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        cin = 64
        for stage, count in enumerate(counts):
            blocks, width = [], 64 << stage
            for n in range(count):
                stride = 2 if stage and not n else 1
                blocks.append((Bottleneck if bottleneck else Basic)(cin, width, stride))
                cin = 4 * width if bottleneck else width
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(cin, 1000)

    def forward(self, x: Tensor) -> Tensor:
        y = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        y = self.layer4(self.layer3(self.layer2(self.layer1(y))))
        return self.fc(F.adaptive_avg_pool2d(y, 1).flatten(1))


class Basic3d(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Sequential(nn.Conv3d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm3d(cout))
        self.conv2 = nn.Sequential(nn.Conv3d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm3d(cout))
        self.downsample = None
        if stride != 1 or cin != cout:
            self.downsample = nn.Sequential(nn.Conv3d(cin, cout, 1, stride, bias=False), nn.BatchNorm3d(cout))

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(F.relu(self.conv1(x)))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet3d(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        first = nn.Conv3d(3, 64, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False)
        self.stem = nn.Sequential(first, nn.BatchNorm3d(64))
        cin = 64
        for stage in range(4):
            width = 64 << stage
            first_block = Basic3d(cin, width, 2 if stage else 1)
            self.add_module(f"layer{stage + 1}", nn.Sequential(first_block, Basic3d(width, width, 1)))
            cin = width
        self.fc = nn.Linear(cin, 400)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer4(self.layer3(self.layer2(self.layer1(F.relu(self.stem(x))))))
        return self.fc(F.adaptive_avg_pool3d(y, 1).flatten(1))


def _conv_norm(cin: int, cout: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(cout), nn.ReLU6())


class InvertedResidual(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = cin * expansion
        layers: list[nn.Module] = [_conv_norm(cin, wide)] if expansion != 1 else []
        layers += [_conv_norm(wide, wide, 3, stride, wide), nn.Conv2d(wide, cout, 1, bias=False)]
        self.conv = nn.Sequential(*layers, nn.BatchNorm2d(cout))
        self.shortcut = stride == 1 and cin == cout

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.shortcut else self.conv(x)


class MobileNetV2(nn.Module):
    STAGES = (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
        (6, 320, 1, 1),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [_conv_norm(3, 32, 3, 2)]
        cin = 32
        for expansion, cout, count, first in self.STAGES:
            for n in range(count):
                layers.append(InvertedResidual(cin, cout, 1 if n else first, expansion))
                cin = cout
        self.features = nn.Sequential(*layers, _conv_norm(cin, 1280))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


class DCGAN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        cin = 100
        for n, cout in enumerate((512, 256, 128, 64)):
            stride, padding = (2, 1) if n else (1, 0)
            conv = nn.ConvTranspose2d(cin, cout, 4, stride, padding, bias=False)
            layers += [conv, nn.BatchNorm2d(cout), nn.ReLU()]
            cin = cout
        self.main = nn.Sequential(*layers, nn.ConvTranspose2d(cin, 3, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, z: Tensor) -> Tensor:
        return self.main(z[:, :, None, None])


class _Parts(nn.Module):
    """Modules by name, for names that are reserved in Python, and for groups of modules without code."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)


class BertLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads

        def output(inputs: int) -> nn.Module:
            return _Parts(dense=nn.Linear(inputs, width), LayerNorm=nn.LayerNorm(width, eps=1e-12))

        own = _Parts(**{n: nn.Linear(width, width) for n in ("query", "key", "value")})
        self.attention = _Parts(self_=own, output=output(width))
        self.attention.add_module("self", self.attention._modules.pop("self_"))
        self.intermediate = _Parts(dense=nn.Linear(width, 4 * width))
        self.output = output(4 * width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        # `self` cannot be written as an attribute of the class
        own = getattr(self.attention, "self")  # noqa: B009

        def heads(y: Tensor) -> Tensor:
            return y.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2)

        seen = F.scaled_dot_product_attention(heads(own.query(x)), heads(own.key(x)), heads(own.value(x)))
        seen = seen.transpose(1, 2).reshape(batch, tokens, width)
        x = self.attention.output.LayerNorm(x + self.attention.output.dense(seen))
        return self.output.LayerNorm(x + self.output.dense(F.gelu(self.intermediate.dense(x))))


class Bert(nn.Module):
    """BERT-base without its pooler; `tokens` positions."""

    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12, tokens: int = 128) -> None:
        super().__init__()
        self.embeddings = _Parts(
            word_embeddings=nn.Embedding(30522, width),
            position_embeddings=nn.Embedding(tokens, width),
            token_type_embeddings=nn.Embedding(2, width),
            LayerNorm=nn.LayerNorm(width, eps=1e-12),
        )
        self.encoder = _Parts(layer=nn.Sequential(*(BertLayer(width, heads) for _ in range(layers))))

    def forward(self, words: Tensor, kinds: Tensor) -> Tensor:
        e = self.embeddings
        x = e.word_embeddings(words) + e.token_type_embeddings(kinds) + e.position_embeddings.weight
        return self.encoder.layer(e.LayerNorm(x))


class Transposed(nn.Module):
    """transformers' Conv1D: x @ weight + bias, weight [inputs, outputs]."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.view(-1, x.shape[-1])
        return torch.addmm(self.bias, rows, self.weight).view(*x.shape[:-1], -1)


class GPT2Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = _Parts(c_attn=Transposed(width, 3 * width), c_proj=Transposed(width, width))
        self.mlp = _Parts(c_fc=Transposed(width, 4 * width), c_proj=Transposed(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        shape = (batch, tokens, self.heads, width // self.heads)
        q, k, v = (p.view(shape).transpose(1, 2) for p in self.attn.c_attn(self.ln_1(x)).split(width, 2))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn.c_proj(seen.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """GPT-2 small, the output layer tied to the embedding; `tokens` positions."""

    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12, tokens: int = 128) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(50257, width), nn.Embedding(tokens, width)
        self.h = nn.Sequential(*(GPT2Layer(width, heads) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, words: Tensor) -> Tensor:
        return F.linear(self.ln_f(self.h(self.wte(words) + self.wpe.weight)), self.wte.weight)


class MLP(nn.Module):
    def __init__(self, widen: int = 1) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(784, 512 * widen), nn.Linear(512 * widen, 256 * widen)
        self.fc3 = nn.Linear(256 * widen, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class SmallCNN(nn.Module):
    def __init__(self, widen: int = 1) -> None:
        super().__init__()
        narrow, wide = 16 * widen, 32 * widen
        self.conv1, self.bn1 = nn.Conv2d(1, narrow, 3, 1, 1, bias=False), nn.BatchNorm2d(narrow)
        self.conv2, self.bn2 = nn.Conv2d(narrow, wide, 3, 1, 1, bias=False), nn.BatchNorm2d(wide)
        self.conv3, self.bn3 = nn.Conv2d(wide, wide, 3, 1, 1, bias=False), nn.BatchNorm2d(wide)
        self.fc = nn.Linear(wide * 2 * 2, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        y = F.max_pool2d(F.relu(self.bn2(self.conv2(y))), 2)
        return self.fc(F.relu(self.bn3(self.conv3(y))).flatten(1))


class LanguageModel(nn.Module):
    """PyTorch's word_language_model."""

    def __init__(self, kind: type[nn.RNNBase], words: int = 10_000, width: int = 650) -> None:
        super().__init__()
        self.encoder = nn.Embedding(words, width)
        self.rnn = kind(width, width, num_layers=2, batch_first=True)
        self.decoder = nn.Linear(width, words)

    def forward(self, words: Tensor) -> Tensor:
        return self.decoder(self.rnn(self.encoder(words))[0])


class Tagger(nn.Module):
    """A BiLSTM."""

    def __init__(self, words: int = 20_000, width: int = 100, hidden: int = 256, tags: int = 9) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.rnn = nn.LSTM(width, hidden, num_layers=2, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(2 * hidden, tags)

    def forward(self, words: Tensor) -> Tensor:
        return self.tags(self.rnn(self.words(words))[0])


class Layers(nn.Module):
    """LSTM layers that are called one by one. Their weights have the names of a single nn.LSTM's weights."""

    def __init__(self, inputs: Sequence[int], width: int, both_ways: bool = False) -> None:
        """inputs: the width of each layer's input. both_ways: the first layer is bidirectional."""
        super().__init__()
        for n, wide in enumerate(inputs):
            layer = nn.LSTM(wide, width, batch_first=True, bidirectional=both_ways and n == 0)
            self.add_module(str(n), layer)
        self.register_load_state_dict_pre_hook(self._rename)

    @staticmethod
    def _rename(module: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
        """`weight_ih_l2` of all layers is `weight_ih_l0` of layer 2."""
        for name in [n for n in state if n.startswith(prefix)]:
            part, layer, end = re.fullmatch(r"(.*_l)(\d+)(_reverse)?", name.removeprefix(prefix)).groups("")
            state[f"{prefix}{layer}.{part}0{end}"] = state.pop(name)

    def forward(self, n: int, x: Tensor) -> Tensor:
        return self.get_submodule(str(n))(x)[0]


class GNMT(nn.Module):
    def __init__(self, words: int = 32_320, width: int = 1024) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.encoder = Layers((width, 2 * width, width, width), width, both_ways=True)
        self.decoder = Layers((width, 2 * width, 2 * width, 2 * width), width)
        self.attention = _Parts()
        for name, outputs in (("query", width), ("key", width), ("value", 1)):
            self.attention.register_parameter(name, nn.Parameter(torch.empty(outputs, width)))
        self.classifier = nn.Linear(width, words)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        keys = self.encoder(1, self.encoder(0, self.embedding(source)))
        for n in (2, 3):
            keys = keys + self.encoder(n, keys)
        z, by = self.decoder(0, self.embedding(target)), self.attention
        q, k = F.linear(z, by.query), F.linear(keys, by.key)
        seen = F.linear(torch.tanh(q[:, :, None] + k[:, None]), by.value)[..., 0].softmax(-1) @ keys
        for n in (1, 2, 3):
            after = self.decoder(n, torch.cat([z, seen], -1))
            z = after + z if n > 1 else after
        return self.classifier(z)


class GCN(nn.Module):
    def __init__(self, features: int = 1433, hidden: int = 16, classes: int = 7) -> None:
        super().__init__()
        for n, (wide, outputs) in enumerate(((features, hidden), (hidden, classes)), 1):
            layer = _Parts(lin=nn.Linear(wide, outputs, bias=False))
            layer.register_parameter("bias", nn.Parameter(torch.empty(outputs)))
            self.add_module(f"conv{n}", layer)

    def forward(self, x: Tensor, neighbours: Tensor, strengths: Tensor) -> Tensor:
        def layer(x: Tensor, at: nn.Module) -> Tensor:
            return (strengths[:, None] @ F.embedding(neighbours, at.lin(x)))[:, 0] + at.bias

        return layer(F.relu(layer(x, self.conv1)), self.conv2)


class MoE(nn.Module):
    """A mixture of experts, computed expert by expert. Each expert takes the tokens with its greatest gates,
    at most as many as it has room for."""

    def __init__(self, width: int = 768, experts: int = 8, room: float = 2.0) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = _Parts()
        self.room = room
        wide = 4 * width
        shapes = {"w1": (width, wide), "bias1": (wide,), "w2": (wide, width), "bias2": (width,)}
        for name, shape in shapes.items():
            self.experts.register_parameter(name, nn.Parameter(torch.empty(experts, *shape)))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shares, by = self.router(x).softmax(1), self.experts
        best, chosen = shares.topk(2, 1)
        gates = torch.zeros_like(shares).scatter(1, chosen, best / best.sum(1, keepdim=True))
        room = min(len(x), int(self.room * 2 * len(x) / gates.shape[1]))
        strengths, tokens = gates.T.topk(room, 1)  # [experts, room] each
        out = torch.zeros_like(x)
        for e in range(gates.shape[1]):
            mine = strengths[e] > 0
            t, strength = tokens[e][mine], strengths[e][mine]
            y = torch.addmm(
                by.bias2[e], F.gelu(torch.addmm(by.bias1[e], x.index_select(0, t), by.w1[e])), by.w2[e]
            )
            out = out.index_add(0, t, y * strength[:, None])
        return out, (gates > 0).sum(0).to(x.dtype)


NETS: Mapping[str, Callable[..., nn.Module]] = {
    "resnet18": lambda: ResNet((2, 2, 2, 2), bottleneck=False),
    "resnet34": lambda: ResNet((3, 4, 6, 3), bottleneck=False),
    "resnet50": lambda: ResNet((3, 4, 6, 3), bottleneck=True),
    "resnet101": lambda: ResNet((3, 4, 23, 3), bottleneck=True),
    "resnet152": lambda: ResNet((3, 8, 36, 3), bottleneck=True),
    "mobilenet_v2": MobileNetV2,
    "r3d_18": ResNet3d,
    "dcgan": DCGAN,
    "bert_base": Bert,
    "gpt2": GPT2,
    "mlp": MLP,
    "small_cnn": SmallCNN,
    **WIDER,
    "lstm": partial(LanguageModel, nn.LSTM),
    "gru": partial(LanguageModel, nn.GRU),
    "bilstm": Tagger,
    "gnmt": GNMT,
    "gcn": GCN,
    "moe": MoE,
}
NO_IMAGES = ("bert_base", "gpt2", "mlp", "lstm", "gru", "bilstm", "gnmt", "gcn", "moe")
# number of spatial axes; 2 for all other networks
CHANNELS_LAST = {"r3d_18": 3, **dict.fromkeys(NO_IMAGES, 0)}


def load(name: str, weights: Mapping[str, np.ndarray[Any, Any]], **sizes: int) -> nn.Module | None:
    """The network with these weights (not copied); None if this file has no network of that name.

    sizes: arguments of the network's constructor; `widen` for the two smallest networks.

    Raises ValueError if a weight is missing or left over.
    """
    if name not in NETS:
        return None
    with torch.device("meta"):  # no weights are drawn, because all of them are given
        module = NETS[name](**sizes)
    state = {n: torch.from_numpy(np.require(a, requirements="CW")) for n, a in weights.items()}
    counters = {n: torch.tensor(0) for n in module.state_dict() if n.endswith("num_batches_tracked")}
    missing, extra = module.load_state_dict({**state, **counters}, strict=False, assign=True)
    if missing or extra:
        raise ValueError(f"{name}: the torch module lacks {missing[:3]}, has no place for {extra[:3]}.")
    return module.eval().requires_grad_(False)
