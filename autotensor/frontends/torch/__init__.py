"""PyTorch modules as graphs: exported programs, open shapes, constants, refused operators.

    graph = at.from_torch(module, (example,))         one node for each ATen operator ──▶ at.ops
    model = at.compile_model(graph)

Start reading at `importer.py`. Each file of `families/` holds one family of operators. A converter is a
function under `@converts("aten.relu.default")`. It takes the arguments of the ATen operator; tensors become
graph nodes.
"""

from __future__ import annotations

import importlib
import pkgutil

from autotensor.frontends.errors import Unsupported
from autotensor.frontends.torch import constants as _constants  # noqa: F401  # it registers converters, too
from autotensor.frontends.torch import decomposed, families
from autotensor.frontends.torch.exported import from_torch
from autotensor.frontends.torch.importer import import_nodes
from autotensor.frontends.torch.registry import CONVERTERS, converts

for _room in (families, decomposed):
    for _module in sorted(m.name for m in pkgutil.iter_modules(_room.__path__)):
        importlib.import_module(f"{_room.__name__}.{_module}")

__all__ = ["CONVERTERS", "Unsupported", "converts", "from_torch", "import_nodes"]
