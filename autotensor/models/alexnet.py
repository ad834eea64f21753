"""AlexNet (Krizhevsky, 2014: "One weird trick") for ImageNet, with torchvision's names; no response norms.

    x: float32[batch, 3, 224, 224] ──▶ conv 11x11/4 ─▶ 5x5 ─▶ 3x3 ×3, three pools ──▶ dense ×3 ──▶ logits

torchvision's average pool before the dense layers is left out, because it would turn 6x6 into 6x6.
"""

from __future__ import annotations

from autotensor.models.plain import Conv, Plain

POOL = (3, 2)
NET = Plain(
    "alexnet",
    (
        Conv("features.0", 64, 11, stride=4, padding=2, pool=POOL),
        Conv("features.3", 192, 5, padding=2, pool=POOL),
        Conv("features.6", 384, 3, padding=1),
        Conv("features.8", 256, 3, padding=1),
        Conv("features.10", 256, 3, padding=1, pool=POOL),
    ),
    ("classifier.1", "classifier.4", "classifier.6"),
    (4096, 4096),
)
build, inputs = NET.build, NET.inputs
