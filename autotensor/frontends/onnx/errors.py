"""What reading an ONNX model may say."""

from __future__ import annotations

from autotensor.base.errors import GraphError, InputError


class Unsupported(GraphError):
    """A node that has no converter, or asks its converter for what it cannot do. Names node, operator, opset."""


class Malformed(InputError):
    """A file that is not a valid model."""


class NeedsValue(GraphError):
    """A shape or a decision that depends on values which are known only while the model runs."""
