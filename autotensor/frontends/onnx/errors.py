"""Errors of reading an ONNX model."""

from __future__ import annotations

from autotensor.base.errors import GraphError, InputError


class Malformed(InputError):
    """A file that is not a valid model."""


class NeedsValue(GraphError):
    """A construct that needs a running model: a shape or a decision that depends on values, or a long
    loop."""
