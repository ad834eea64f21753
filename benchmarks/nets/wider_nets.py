"""More convolutional networks as plain torch modules. `nets.NETS` lists all networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class VGG(nn.Module):
    """torchvision's VGG. counts: the number of convolutions in each stage."""

    def __init__(self, counts: Sequence[int]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        cin = 3
        for width, count in zip((64, 128, 256, 512, 512), counts, strict=True):
            for _ in range(count):
                layers += [nn.Conv2d(cin, width, 3, padding=1), nn.ReLU()]
                cin = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(25088, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout(),
            nn.Linear(4096, 1000),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).flatten(1))


class AlexNet(nn.Module):
    """torchvision's AlexNet, without its average pool from 6x6 to 6x6."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(),
            nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2),
        )  # fmt: skip
        self.classifier = nn.Sequential(
            nn.Dropout(), nn.Linear(9216, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(),
            nn.Linear(4096, 1000),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).flatten(1))


class Overfeat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 96, 11, 4), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(96, 256, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(256, 512, 3, padding=1), nn.ReLU(),
            nn.Conv2d(512, 1024, 3, padding=1), nn.ReLU(),
            nn.Conv2d(1024, 1024, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.classifier = nn.Sequential(
            nn.Linear(36864, 3072), nn.ReLU(), nn.Linear(3072, 4096), nn.ReLU(), nn.Linear(4096, 1000)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).flatten(1))


class _Conv(nn.Module):
    """GoogLeNet's step: a convolution, its norm, ReLU."""

    def __init__(self, cin: int, cout: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(cout, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)))


class Inception(nn.Module):
    def __init__(self, cin: int, one: int, in3: int, out3: int, in5: int, out5: int, pooled: int) -> None:
        super().__init__()
        self.branch1 = _Conv(cin, one)
        self.branch2 = nn.Sequential(_Conv(cin, in3), _Conv(in3, out3, 3))
        self.branch3 = nn.Sequential(_Conv(cin, in5), _Conv(in5, out5, 3))
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), _Conv(cin, pooled))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], 1)


class GoogLeNet(nn.Module):
    """torchvision's GoogLeNet, without the auxiliary heads."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.conv3 = _Conv(3, 64, 7, 2), _Conv(64, 64), _Conv(64, 192, 3)
        self.inception3a = Inception(192, 64, 96, 128, 16, 32, 32)
        self.inception3b = Inception(256, 128, 128, 192, 32, 96, 64)
        self.inception4a = Inception(480, 192, 96, 208, 16, 48, 64)
        self.inception4b = Inception(512, 160, 112, 224, 24, 64, 64)
        self.inception4c = Inception(512, 128, 128, 256, 24, 64, 64)
        self.inception4d = Inception(512, 112, 144, 288, 32, 64, 64)
        self.inception4e = Inception(528, 256, 160, 320, 32, 128, 128)
        self.inception5a = Inception(832, 256, 160, 320, 32, 128, 128)
        self.inception5b = Inception(832, 384, 192, 384, 48, 128, 128)
        self.fc = nn.Linear(1024, 1000)

    def forward(self, x: Tensor) -> Tensor:
        y = F.max_pool2d(self.conv1(x), 3, 2, ceil_mode=True)
        y = F.max_pool2d(self.conv3(self.conv2(y)), 3, 2, ceil_mode=True)
        y = F.max_pool2d(self.inception3b(self.inception3a(y)), 3, 2, ceil_mode=True)
        y = self.inception4c(self.inception4b(self.inception4a(y)))
        y = F.max_pool2d(self.inception4e(self.inception4d(y)), 2, 2, ceil_mode=True)
        y = self.inception5b(self.inception5a(y))
        return self.fc(F.adaptive_avg_pool2d(y, 1).flatten(1))


class Separable(nn.Module):
    """A depthwise convolution and a 1x1 convolution, each with its norm and ReLU."""

    def __init__(self, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(cin, cin, 3, stride, 1, groups=cin, bias=False)
        self.depthwise_norm = nn.BatchNorm2d(cin)
        self.pointwise = nn.Conv2d(cin, cout, 1, bias=False)
        self.pointwise_norm = nn.BatchNorm2d(cout)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.depthwise_norm(self.depthwise(x)))
        return F.relu(self.pointwise_norm(self.pointwise(y)))


class _First(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.conv_norm = nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.conv_norm(self.conv(x)))


class MobileNetV1(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        blocks: list[nn.Module] = [_First()]
        cin = 32
        wide = (64, 128, 128, 256, 256, *(512,) * 6, 1024, 1024)
        for cout, stride in zip(wide, (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1), strict=True):
            blocks.append(Separable(cin, cout, stride))
            cin = cout
        self.features = nn.Sequential(*blocks)
        self.fc = nn.Linear(cin, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


class Twice(nn.Module):
    """Two 3x3 convolutions with norms and ReLUs."""

    def __init__(self, cin: int, cout: int) -> None:
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(),
            nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.double_conv(x)


class Down(nn.Module):
    def __init__(self, cin: int, cout: int) -> None:
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), Twice(cin, cout))

    def forward(self, x: Tensor) -> Tensor:
        return self.maxpool_conv(x)


class Up(nn.Module):
    def __init__(self, cin: int, cout: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(cin, cin // 2, 2, 2)
        self.conv = Twice(cin, cout)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        return self.conv(torch.cat([seen, self.up(x)], 1))


class _Last(nn.Module):
    def __init__(self, cin: int, cout: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)


class UNet(nn.Module):
    """milesial's Pytorch-UNet, with transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.inc, self.outc = Twice(3, 64), _Last(64, 2)
        self.down1, self.down2, self.down3, self.down4 = (Down(64 << n, 128 << n) for n in range(4))
        self.up1, self.up2, self.up3, self.up4 = (Up(1024 >> n, 512 >> n) for n in range(4))

    def forward(self, x: Tensor) -> Tensor:
        a = self.inc(x)
        b = self.down1(a)
        c = self.down2(b)
        d = self.down3(c)
        y = self.up2(self.up1(self.down4(d), d), c)
        return self.outc(self.up4(self.up3(y, b), a))


WIDER: Mapping[str, Callable[..., nn.Module]] = {
    "vgg16": lambda: VGG((2, 2, 3, 3, 3)),
    "vgg19": lambda: VGG((2, 2, 4, 4, 4)),
    "alexnet": AlexNet,
    "overfeat": Overfeat,
    "googlenet": GoogLeNet,
    "mobilenet_v1": MobileNetV1,
    "unet": UNet,
}
