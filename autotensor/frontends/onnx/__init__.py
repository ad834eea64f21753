"""ONNX models as graphs: files, signatures, calls and checks of nodes; models that run in stages.

    model file ─load─▶ ModelProto ─importer─▶ Graph                      all shapes are known beforehand
                                  └─staged──▶ Point ─value─▶ Point ─…    shapes may depend on values

Each ONNX operator has a converter, registered with the opset from which on it is valid. Each family of
operators has a file. Start reading at `registry.py` (what a converter is), then `families/elementwise.py` and
`importer.py`. An operator without a converter is imported by its definition in the ONNX standard, if the
standard has one.
"""

from __future__ import annotations

from autotensor.frontends.errors import Unsupported
from autotensor.frontends.onnx.errors import NeedsValue
from autotensor.frontends.onnx.onnx_file import Loaded, load
from autotensor.frontends.onnx.staged_model import Staged

from autotensor.frontends.onnx import families  # isort: skip  # last: converters import the importer

__all__ = ["Loaded", "NeedsValue", "Staged", "Unsupported", "families", "load"]
