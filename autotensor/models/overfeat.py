"""OverFeat (Sermanet et al., 2013), the fast model, for ImageNet; layers are named as in two nn.Sequential.

x: float32[batch, 3, 231, 231] ──▶ conv 11x11/4 ─▶ 5x5 ─▶ 3x3 ×3, three pools ──▶ dense ×3 ──▶ logits
"""

from __future__ import annotations

from autotensor.models.plain import Conv, Plain

POOL = (2, 2)
NET = Plain(
    "overfeat",
    (
        Conv("features.0", 96, 11, stride=4, pool=POOL),
        Conv("features.3", 256, 5, pool=POOL),
        Conv("features.6", 512, 3, padding=1),
        Conv("features.8", 1024, 3, padding=1),
        Conv("features.10", 1024, 3, padding=1, pool=POOL),
    ),
    ("classifier.0", "classifier.2", "classifier.4"),
    (3072, 4096),
    image=231,
)
build, inputs = NET.build, NET.inputs
