"""Errors that every front end may raise about a model."""

from __future__ import annotations

from autotensor.base.errors import GraphError


class Unsupported(GraphError):
    """A model contains something that cannot be converted. The message names the operator and its place."""
