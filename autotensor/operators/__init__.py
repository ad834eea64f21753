"""The operator library: te meaning, NumPy reference, sample cases and fusion kind of every operator.

    from autotensor.operators import OPERATORS
    y = OPERATORS.get("conv2d").compute(x, w, bias, stride=2, padding=1, layout="NHWC")

Start reading at `operator.py` (the record), and then `elementwise.py`. A new operator is a new function under
`@operator` in any module of this package; all modules are imported below.
"""

from __future__ import annotations

import importlib
import pkgutil

from autotensor.operators.operator import OPERATORS, Case, Kind, Operator, TensorType, operator

for _module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{_module}")

__all__ = ["OPERATORS", "Case", "Kind", "Operator", "TensorType", "operator"]
