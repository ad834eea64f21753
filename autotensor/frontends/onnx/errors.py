"""What reading an ONNX model may say."""

from __future__ import annotations

from autotensor.base.errors import GraphError, InputError


class Malformed(InputError):
    """A file that is not a valid model."""


class NeedsValue(GraphError):
    """What only a running model can do: a shape or a decision that depends on values, a long loop."""
