"""Converters of ONNX operators, one family in a file: contrib, control, resize, sequences, signal, …

Importing this package registers them all.
"""

from __future__ import annotations

import importlib
import pkgutil

for _module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{_module}")
