"""What every front end may say of a model."""

from __future__ import annotations

from autotensor.base.errors import GraphError


class Unsupported(GraphError):
    """A model asks for something that cannot be converted: names the operator, and where it stands."""
