"""PyTorch modules as graphs.

    graph = at.from_torch(module, (example,))         ATen operators, a node each ──▶ at.ops
    model = at.compile_model(graph)

Start reading at `importer.py`. One file holds one family of operators; a converter is a function under
`@converts("aten.relu.default")` that takes what the ATen operator takes, tensors as graph nodes.
"""

from __future__ import annotations

import importlib

from autotensor.frontends.torch.exported import from_torch
from autotensor.frontends.torch.importer import import_nodes
from autotensor.frontends.torch.registry import CONVERTERS, Unsupported, converts

_FAMILIES = (
    "antialiased",
    "attention",
    "branches",
    "complex",
    "complex_arithmetic",
    "constants",
    "convolution",
    "creation",
    "decomposed_arithmetic",
    "decomposed_order",
    "decomposed_places",
    "decomposed_sampling",
    "elementwise",
    "encoder",
    "experts",
    "flex",
    "fourier",
    "indexing",
    "matmul",
    "matrices",
    "norm",
    "pooling",
    "recurrent",
    "reduction",
    "shape",
    "special",
    "strided",
)
for _family in _FAMILIES:
    importlib.import_module(f"{__name__}.{_family}")

__all__ = ["CONVERTERS", "Unsupported", "converts", "from_torch", "import_nodes"]
